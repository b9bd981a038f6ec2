"""Cut a sound into pieces that are worked on one after the other, or side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cartridge_whisper.clips import Piece
from cartridge_whisper.segments import FRAME_SAMPLES, WINDOW_FRAMES
from cartridge_whisper.voice import find_speech

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_whisper.settings import Settings

    Spans = Sequence[tuple[int, int]]

__all__ = ["cut_into_pieces"]

_LEAST = WINDOW_FRAMES * 2 // 3
"""Frames: a cut is made in the last third of a window."""

_PAUSE = 30
"""Frames over which a place is quiet."""

_MOST_GAP = 300
"""Frames: across a longer pause whisper's times wander."""


def cut_into_pieces(
    samples: NDArray[np.float32],
    first_frame: int,
    end_frame: int,
    settings: Settings,
    ask: Callable[[], None],
) -> list[Piece]:
    """
    Cut a part of a sound into pieces.

    One piece is what whisper does: a window begins where the text of the one before it ends. With
    voice detection a piece is speech that fits into a window, with the short pauses in it. Where
    several windows are decoded at a time, no piece is longer than a window; long speech is cut
    where it is quiet.

    Args:
        samples: The sound.
        first_frame: Where to begin.
        end_frame: Where to end.
        settings: Whether there is voice detection, and how many windows are decoded at a time.
        ask: Called now and then; what it raises ends the work.
    """
    spans: Spans = [(first_frame, end_frame)]
    if settings.uses_vad:
        part = samples[first_frame * FRAME_SAMPLES : end_frame * FRAME_SAMPLES]
        found = find_speech(part, ask)
        spans = [(first_frame + start, first_frame + end) for start, end in found]
        spans = list(_join(spans))
    if settings.batch_windows > 1:
        spans = [piece for start, end in spans for piece in _split(samples, start, end)]
    return [Piece(start, end) for start, end in spans if start < end]


def _join(spans: Spans) -> Iterator[tuple[int, int]]:
    """Join near neighbours that fit into one window."""
    first: int | None = None
    last = 0
    for start, end in spans:
        if first is not None and (end - first > WINDOW_FRAMES or start - last > _MOST_GAP):
            yield first, last
            first = None
        first, last = start if first is None else first, end
    if first is not None:
        yield first, last


def _split(samples: NDArray[np.float32], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut what does not fit into one window."""
    while end - start > WINDOW_FRAMES:
        place = _quietest(samples, start + _LEAST, start + WINDOW_FRAMES)
        yield start, place
        start = place
    yield start, end


def _quietest(samples: NDArray[np.float32], start: int, end: int) -> int:
    """Find the frame around which it is quietest."""
    import numpy as np

    part = samples[start * FRAME_SAMPLES : end * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)
    power = np.einsum("ij,ij->i", part, part, dtype=np.float64)
    around = np.convolve(power, np.ones(_PAUSE), mode="valid")
    return start + int(around.argmin()) + _PAUSE // 2
