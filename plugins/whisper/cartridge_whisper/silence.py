"""Whether there is anything in a sound that could be speech: without a model, by its level."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["is_silent"]

_FRAME = 480
"""Samples of 30 ms."""

_EMPHASIS = 0.97
"""Takes the low end off, whose level wanders in noise of any colour."""

_LEAST_FRAMES = 33
"""One second: of less, a steady level says nothing."""

_STEADY_DB = 4.0
"""Speech wanders by 20 dB and more from one syllable to the next, and noise by one or two."""

_NOTHING = 1e-12
"""Mean square below which there is no sound at all: -120 dBFS."""


def is_silent(samples: NDArray[np.float32], threshold_dbfs: float) -> bool:
    """
    Say whether a sound is silence, or a noise that never changes: a hiss, a hum, a fan.

    Whisper makes sentences of both. The level is taken of pieces of 30 ms, the mean of each taken
    off; a piece below the threshold is silent.

    Args:
        samples: Mono, 16 kHz, full scale 1.
        threshold_dbfs: Of the mean square, where a full-scale square wave has 0.
    """
    import numpy as np

    whole = len(samples) // _FRAME * _FRAME
    if not whole:
        return not len(samples) or _levels(samples[None, :])[0] < threshold_dbfs
    frames = samples[:whole].reshape(-1, _FRAME)
    loud = _levels(frames) >= threshold_dbfs
    if not loud.any():
        rest = samples[whole:]
        return not len(rest) or _levels(rest[None, :])[0] < threshold_dbfs
    if loud.sum() < _LEAST_FRAMES:
        return False
    heard = frames[loud]
    sharp = _levels(heard[:, 1:] - _EMPHASIS * heard[:, :-1])
    low, high = np.percentile(sharp, (5, 95))
    return bool(high - low < _STEADY_DB)


def _levels(frames: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    varied = frames - frames.mean(axis=1, keepdims=True)
    power = np.einsum("ij,ij->i", varied, varied) / frames.shape[1]
    levels: NDArray[np.float32] = 10 * np.log10(power + np.float32(_NOTHING))
    return levels
