"""What is said in a sound."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.calls import check_listener
from cartridge_core.errors import NoRouteError
from cartridge_core.results import Result, ResultKind
from cartridge_core.tasks._records import record_with

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.calls import Call
    from cartridge_core.progress import Log, Progress
    from cartridge_core.registry import Registry

    Sound = str | os.PathLike[str] | bytes | NDArray[np.generic]

__all__ = [
    "Transcript",
    "TranscriptPiece",
    "stream_transcribe",
    "transcribe",
]

_TRANSCRIBE = 'cap:in=media:audio;out="media:enc=utf-8;record;transcription";transcribe'


@attrs.frozen
class Transcript:
    """What is said in a sound."""

    text: str

    language: str | None = attrs.field(kw_only=True)
    """A code, such as ``en``: of what is said first, where it changes; None where nobody speaks."""

    segments: tuple[Mapping[str, object], ...] = attrs.field(kw_only=True, repr=False)
    """In order, each with ``start_s``, ``end_s`` and ``text``."""

    records: tuple[Mapping[str, object], ...] = attrs.field(kw_only=True, repr=False)
    """Everything the cartridge said: one for a whole sound, one for each utterance of a stream."""


@attrs.frozen
class TranscriptPiece:
    """What is said in an utterance, as far as it has been heard."""

    text: str
    """It takes the place of the one before it of the same utterance."""

    is_final: bool = attrs.field(kw_only=True)
    """Whether it stays so."""

    segment: int = attrs.field(kw_only=True)
    """Which utterance, from 0."""

    start_s: float | None = attrs.field(kw_only=True)
    end_s: float | None = attrs.field(kw_only=True)
    record: Mapping[str, object] = attrs.field(kw_only=True, repr=False)
    """Everything the cartridge said."""


def transcribe(
    registry: Registry,
    audio: Sound | Iterable[Sound],
    *,
    language: str | None = None,
    model_spec: str | os.PathLike[str] | None = None,
    cartridge_id: str | None = None,
    on_progress: Callable[[Progress | Log], None] | None = None,
    **arguments: object,
) -> Transcript:
    """
    Write down what is said in a sound.

    Args:
        registry: Where to ask.
        audio: A path, the bytes of a file, or an array of samples; raw samples, in chunks or not,
            where ``cartridge_id`` names a cartridge that takes them.
        language: What is spoken; None has it detected.
        model_spec: The model; None takes the cartridge's default.
        cartridge_id: Take this cartridge; None lets the registry choose.
        on_progress: Takes progress and log lines.
        **arguments: More that the cap declares: ``word_timestamps``, ``initial_prompt``, ...

    Raises:
        CartridgeError: As `Registry.call`.
    """
    call: Callable[..., Result] = registry.call
    result = call(
        _TRANSCRIBE,
        audio,
        cartridge_id=cartridge_id,
        on_progress=on_progress,
        model_spec=model_spec,
        language=language,
        **arguments,
    )
    payloads = result.payload if isinstance(result.payload, list) else [result.payload]
    records = tuple(record_with(attrs.evolve(result, payload=one), "text") for one in payloads)
    languages = [record.get("language") for record in records if record["text"]]
    return Transcript(
        "".join(str(record["text"]) for record in records).strip(),
        language=str(languages[0]) if languages and languages[0] else None,
        segments=tuple(
            segment
            for record in records
            for segment in cast("Sequence[Mapping[str, object]]", record.get("segments", ()))
        ),
        records=records,
    )


def stream_transcribe(
    registry: Registry,
    chunks: Iterable[Sound],
    *,
    language: str | None = None,
    model_spec: str | os.PathLike[str] | None = None,
    cartridge_id: str | None = None,
    on_progress: Callable[[Progress | Log], None] | None = None,
    **arguments: object,
) -> Generator[TranscriptPiece]:
    """
    Write down what is said in a sound while it comes.

    Closing the iterator, or dropping it, cancels what is left. Where only a cartridge is there that
    takes whole sounds, the chunks are joined first.

    Args:
        registry: Where to ask.
        chunks: Raw samples, bytes or arrays; read as they are needed.
        language: What is spoken; None has it detected.
        model_spec: The model; None takes the cartridge's default.
        cartridge_id: Take this cartridge; None lets the registry choose.
        on_progress: Takes progress and log lines.
        **arguments: More that the cap declares: ``sample_rate_hz``, ``dtype``, ``pause_s``, ...

    Raises:
        CartridgeError: As `Registry.stream`, at once or from the iterator.
    """
    check_listener(on_progress)
    try:
        registry.route(_TRANSCRIBE, "streaming", cartridge_id=cartridge_id, model_spec=model_spec)
        audio: object = chunks
    except NoRouteError:
        audio = _joined(chunks)
    stream: Callable[..., Call] = registry.stream
    call = stream(
        _TRANSCRIBE,
        audio,
        cartridge_id=cartridge_id,
        model_spec=model_spec,
        language=language,
        **arguments,
    )
    return _transcript_pieces(call, on_progress)


def _joined(chunks: Iterable[Sound]) -> object:
    """Make one sound of chunks: bytes, or an array along its first axis."""
    if isinstance(chunks, str | bytes | os.PathLike) or hasattr(chunks, "__array__"):
        return chunks
    parts = list(chunks)
    if all(isinstance(part, bytes | bytearray | memoryview) for part in parts):
        return b"".join(cast("list[bytes]", parts))
    import numpy as np

    return np.concatenate(cast("list[NDArray[np.generic]]", parts))


def _transcript_pieces(
    call: Call, on_progress: Callable[[Progress | Log], None] | None
) -> Generator[TranscriptPiece]:
    """Give what was understood; neither pauses nor silence are pieces."""
    with call:
        for event in call:
            if not isinstance(event, Result):
                if on_progress is not None:
                    on_progress(event)
            elif event.kind is not ResultKind.ENDPOINT:
                record = record_with(event, "text")
                if record["text"]:
                    yield TranscriptPiece(
                        str(record["text"]).strip(),
                        is_final=event.kind is ResultKind.FINAL,
                        segment=event.segment,
                        start_s=event.start_s,
                        end_s=event.end_s,
                        record=record,
                    )
