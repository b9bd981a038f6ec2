"""The arguments of a session of the batch cartridge."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs

from cartridge_whisper.clips import Clip
from cartridge_whisper.options import Decoding

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Hearing", "Settings"]


@attrs.frozen
class Hearing:
    """How a sound is taken."""

    rate_hz: int
    """Of an array's samples."""

    silence_dbfs: float
    """Below it there is nothing to hear."""

    @classmethod
    def read(cls, parameters: Mapping[str, object]) -> Hearing:
        """Take it, checked and with defaults filled in."""
        return cls(
            cast("int", parameters["sample_rate_hz"]),
            float(cast("float", parameters["silence_dbfs"])),
        )


@attrs.frozen(kw_only=True)
class Settings:
    """How a transcript is made."""

    hearing: Hearing
    decoding: Decoding
    clip: Clip
    initial_prompt: str

    conditions: bool
    """Whether a window is shown the text before it."""

    batch_windows: int
    """How many windows are decoded at a time."""

    uses_vad: bool
    """Whether only what a voice detector takes for speech is decoded."""

    seed: int

    @classmethod
    def read(cls, parameters: Mapping[str, object]) -> Settings:
        """Take them, checked and with defaults filled in."""
        end_s = cast("float | None", parameters.get("clip_end_s"))
        return cls(
            hearing=Hearing.read(parameters),
            decoding=Decoding.read(parameters),
            clip=Clip(
                float(cast("float", parameters["clip_start_s"])),
                None if end_s is None else float(end_s),
            ),
            initial_prompt=cast("str", parameters.get("initial_prompt", "")),
            conditions=cast("bool", parameters["condition_on_previous_text"]),
            batch_windows=cast("int", parameters["batch_windows"]),
            uses_vad=cast("bool", parameters["vad"]),
            seed=cast("int", parameters["seed"]),
        )

    def with_language(self, code: str) -> Settings:
        """Give the same, of sounds in a language."""
        return attrs.evolve(self, decoding=attrs.evolve(self.decoding, language=code))
