"""The arguments of a load and of a session, as the host gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Decoding", "LoadOptions"]


@attrs.frozen
class LoadOptions:
    """Where and how a model runs."""

    device: str
    threads: int

    @classmethod
    def read(cls, options: Mapping[str, object]) -> LoadOptions:
        """Take them, checked and with defaults filled in."""
        return cls(cast("str", options["device"]), cast("int", options["threads"]))


@attrs.frozen(kw_only=True)
class Decoding:
    """
    How one window is made text.

    Source:
        openai-whisper, ``whisper.transcribe``, whose arguments have these names.
    """

    language: str | None
    """A code such as ``en``; None until it is detected."""

    task: str
    """``transcribe``, or ``translate`` into English."""

    temperature: tuple[float, ...]
    """Tried one after the other, until a text is good enough."""

    beam_size: int
    """Of temperature 0; 1 is greedy."""

    compression_ratio_threshold: float
    logprob_threshold: float
    no_speech_threshold: float
    word_timestamps: bool

    @classmethod
    def read(cls, parameters: Mapping[str, object]) -> Decoding:
        """Take them, checked and with defaults filled in."""
        return cls(
            language=cast("str | None", parameters.get("language")),
            task=cast("str", parameters["task"]),
            temperature=_numbers(parameters["temperature"]),
            beam_size=cast("int", parameters["beam_size"]),
            compression_ratio_threshold=_number(parameters, "compression_ratio_threshold"),
            logprob_threshold=_number(parameters, "logprob_threshold"),
            no_speech_threshold=_number(parameters, "no_speech_threshold"),
            word_timestamps=cast("bool", parameters["word_timestamps"]),
        )


def _number(parameters: Mapping[str, object], name: str) -> float:
    return float(cast("float", parameters[name]))


def _numbers(value: object) -> tuple[float, ...]:
    """Take one number, or several."""
    values = value if isinstance(value, list) else [value]
    return tuple(map(float, cast("Sequence[float]", values)))
