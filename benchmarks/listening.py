"""A stream transcribed while it comes: five sentences of real speech, fed in tenths of a second."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, cast

import attrs

from benchmarks.rows import Row
from cartridge_core.results import ResultKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.registry import Registry
    from cartridge_core.results import Result
    from cartridge_core.session import Session

    Sound = NDArray[np.float32]

__all__ = ["measure"]

_RATE_HZ = 16_000
_CHUNK = 1_600
_PAUSE_S = 1.0
_LATEST_S = 1.0
"""What a FINAL may come after its ENDPOINT."""


@attrs.define
class _Listener:
    """
    Feeds a sound as it would be spoken, and notes when what came.

    A pull begins when its sound has come, or when the pull before it has ended if that is later,
    and lasts as long as it takes here.
    """

    session: Session
    came_s: float = 0.0
    free_s: float = 0.0
    worked_s: float = 0.0
    found: list[tuple[float, Result]] = attrs.field(factory=list)

    def feed(self, sound: Sound) -> None:
        for at in range(0, len(sound), _CHUNK):
            chunk = sound[at : at + _CHUNK]
            self.session.push(chunk)
            self.came_s += len(chunk) / _RATE_HZ
            self._pull()
        self.session.flush()
        self._pull()

    def _pull(self) -> None:
        result: Result | None = cast("Result", object)
        while result is not None:
            began_s = time.perf_counter()
            result = self.session.pull()
            took_s = time.perf_counter() - began_s
            self.worked_s += took_s
            self.free_s = max(self.free_s, self.came_s) + took_s
            if result is not None:
                self.found.append((self.free_s, result))

    def of(self, kind: ResultKind) -> list[tuple[float, Result]]:
        return [(when_s, result) for when_s, result in self.found if result.kind is kind]


def measure(
    registry: Registry, name: str, path: Path, sounds: Sequence[Sound], threads: int
) -> Iterator[Row]:
    """
    Measure one pass over the sounds, with a pause after each but the last.

    Args:
        registry: Where the cartridge is.
        name: The model's.
        path: The model.
        sounds: What is said.
        threads: CPU threads.
    """
    import numpy as np

    pause = np.zeros(round(_PAUSE_S * _RATE_HZ), np.float32)
    joined = np.concatenate([part for sound in sounds for part in (sound, pause)][:-1])
    with (
        registry.open("whisper-streaming-transcription", path, threads=threads) as cartridge,
        cartridge.session(language="en") as warm,
        cartridge.session(language="en") as session,
    ):
        _Listener(warm).feed(sounds[0])
        listener = _Listener(session)
        listener.feed(joined)
    yield from _rows(listener, f"{name}, stream, threads={threads}", len(joined) / _RATE_HZ)


def _rows(listener: _Listener, name: str, duration_s: float) -> Iterator[Row]:
    rate = listener.worked_s / duration_s
    yield Row("whisper", f"{name}, RTF", measured=rate, unit="ratio", note="time over duration")
    partials = listener.of(ResultKind.PARTIAL)
    if partials:
        first_s, note = (
            partials[0][0],
            "from the beginning of the sound, where speech begins 0.3 s in",
        )
        yield Row("whisper", f"{name}, first partial", measured=first_s, note=note)
    ends = [result.end_s or 0.0 for _, result in listener.of(ResultKind.ENDPOINT)]
    finals = [when_s for when_s, _ in listener.of(ResultKind.FINAL)]
    delays = [final_s - end_s for final_s, end_s in zip(finals, ends, strict=False)]
    if delays:
        yield Row(
            "whisper",
            f"{name}, final after its endpoint",
            measured=max(delays),
            budget=_LATEST_S,
            note=f"the latest of {len(delays)}, in the time of the sound",
            samples=[(delay,) for delay in delays],
        )
        flushed_s = finals[-1] - listener.came_s
        yield Row("whisper", f"{name}, flush to final", measured=flushed_s)
    shown = [(result.segment, _text(result)) for _, result in partials]
    pairs = [
        (before, text)
        for (segment, before), (other, text) in itertools.pairwise(shown)
        if segment == other
    ]
    revised = sum(not text.startswith(before) for before, text in pairs)
    yield Row(
        "whisper",
        f"{name}, revision rate",
        measured=revised / len(pairs) if pairs else 0.0,
        unit="ratio",
        note=f"{revised} of {len(pairs)} partials changed a word that was shown",
    )


def _text(result: Result) -> str:
    """Give the words of a text, without the mark at its end."""
    return str(cast("Mapping[str, object]", result.payload)["text"]).rstrip(" .,?!-")
