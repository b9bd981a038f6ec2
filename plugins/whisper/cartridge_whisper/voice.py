"""Where somebody speaks, by silero-vad: its weights run by onnxruntime."""

from __future__ import annotations

from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import LoadError
from cartridge_whisper.segments import FRAME_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["INSTALL", "STEP_SAMPLES", "find_speech", "is_installed", "weights_file"]

STEP_SAMPLES = 512
"""What the detector takes at a time: 32 ms."""

INSTALL = "pip install onnxruntime silero-vad"
_FILE = "silero_vad.onnx"

_BEGINS, _ENDS = 0.5, 0.35
"""Speech begins above the one, and is over below the other; silero-vad's own defaults."""

_LEAST_SPEECH, _LEAST_PAUSE = 8, 16
"""Steps: 0.25 s of speech at least; a shorter pause than 0.5 s is a part of it."""

_MARGIN_FRAMES = 20
"""What is added on both sides: 0.2 s."""


def weights_file() -> Path | None:
    """Find the detector's weights in the installed silero-vad, without importing it."""
    spec = PathFinder.find_spec("silero_vad")
    for folder in spec.submodule_search_locations or () if spec else ():
        file = Path(folder, "data", _FILE)
        if file.is_file():
            return file
    return None


def is_installed() -> bool:
    """Say whether there are weights, and what runs them."""
    return weights_file() is not None and PathFinder.find_spec("onnxruntime") is not None


def find_speech(samples: NDArray[np.float32], ask: Callable[[], None]) -> list[tuple[int, int]]:
    """
    Find where somebody speaks.

    Args:
        samples: Mono, 16 kHz.
        ask: Called many times a second; what it raises ends the work.

    Returns:
        First frame, and the one after the last; frames are 10 ms. In order, and apart.

    Raises:
        LoadError: silero-vad or onnxruntime is not installed.
    """
    file = weights_file()
    if file is None or not is_installed():
        msg = f"vad=True needs silero-vad and onnxruntime; {INSTALL}"
        raise LoadError(msg)
    from cartridge_whisper._silero import Detector  # noqa: PLC0415 -- heavy

    count = len(samples) // FRAME_SAMPLES
    spans: list[tuple[int, int]] = []
    for start, end in _speech(Detector.load(file).follow(samples, ask)):
        first = max(0, start * STEP_SAMPLES // FRAME_SAMPLES - _MARGIN_FRAMES)
        last = min(count, -(-end * STEP_SAMPLES // FRAME_SAMPLES) + _MARGIN_FRAMES)
        if spans and first <= spans[-1][1]:
            first = spans.pop()[0]
        spans.append((first, last))
    return spans


@attrs.define
class _Stretch:
    start: int
    end: int
    """The step after the last one that was speech."""


def _speech(chances: Iterable[float]) -> Iterator[tuple[int, int]]:
    """Turn the chance of speech in each step into stretches of steps."""
    now: _Stretch | None = None
    for step, chance in enumerate(chances):
        if chance >= _BEGINS:
            now = now or _Stretch(step, step + 1)
            now.end = step + 1
        elif now and chance >= _ENDS and now.end == step:
            now.end = step + 1
        elif now and step - now.end >= _LEAST_PAUSE:
            if now.end - now.start >= _LEAST_SPEECH:
                yield now.start, now.end
            now = None
    if now and now.end - now.start >= _LEAST_SPEECH:
        yield now.start, now.end
