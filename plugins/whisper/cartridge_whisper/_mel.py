"""Sound as the encoder sees it: a log-mel spectrogram, ten milliseconds a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch  # noqa: TID253 -- one of the private files that import the backend
import torch.nn.functional as F  # noqa: N812, TID253 -- torch's own name for it; as above
from whisper.audio import (  # noqa: TID253 -- as above
    HOP_LENGTH,
    N_FFT,
    N_FRAMES,
    mel_filters,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["log_mel", "pad"]

_STEP = 30_000
"""Frames between two questions whether to go on; bounds the memory for hours of sound."""

_BEYOND = 3
"""Frames after the sound that the end of it still reaches."""


def log_mel(
    samples: NDArray[np.float32], n_mels: int, least: int, ask: Callable[[], None]
) -> torch.Tensor:
    """
    Compute a log-mel spectrogram.

    It is that of ``whisper.log_mel_spectrogram`` with 30 s of silence after the sound, of which
    only what is needed is computed.

    Args:
        samples: Mono, 16 kHz.
        n_mels: How many bands.
        least: Frames to compute at least; those after the sound are silence.
        ask: Called now and then; what it raises ends the work.

    Returns:
        float32 on the CPU, shape ``(n_mels, frames)``: ``len(samples) // 160`` frames of sound,
        then those of silence.
    """
    frames = max(len(samples) // HOP_LENGTH + _BEYOND, least)
    half = N_FFT // 2
    sound = torch.from_numpy(samples)
    sound = F.pad(sound, (0, (frames - 1) * HOP_LENGTH + half - len(samples)))
    # What torch.stft does at both ends with center=True; the other end is far in the silence.
    sound = torch.cat([sound[1 : half + 1].flip(0), sound])
    window = torch.hann_window(N_FFT)
    filters = cast("torch.Tensor", mel_filters(torch.device("cpu"), n_mels))
    pieces = []
    for start in range(0, frames, _STEP):
        ask()
        end = min(start + _STEP, frames)
        piece = sound[start * HOP_LENGTH : (end - 1) * HOP_LENGTH + N_FFT]
        waves = torch.stft(
            piece, N_FFT, HOP_LENGTH, window=window, center=False, return_complex=True
        )
        pieces.append(torch.clamp(filters @ waves.abs() ** 2, min=1e-10).log10())
    found = torch.cat(pieces, dim=1) if len(pieces) > 1 else pieces[0]
    return (torch.maximum(found, found.max() - 8.0) + 4.0) / 4.0


def pad(mel: torch.Tensor, frames: int = N_FRAMES) -> torch.Tensor:
    """Make a window as long as that, with zeros; 30 s, as whisper does, where nothing is said."""
    return F.pad(mel[:, :frames], (0, max(0, frames - mel.shape[1])))
