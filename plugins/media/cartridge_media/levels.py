"""Samples of every kind as 32-bit floats whose full scale is 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cartridge_media.refusal import Refused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32]
    Samples: TypeAlias = NDArray[np.generic]

__all__ = ["MAX_AMPLITUDE", "alaw_levels", "check_levels", "mulaw_levels", "to_levels"]

MAX_AMPLITUDE = 16.0
"""
What a float may reach: +24 dB over full scale.

A mix may be hotter than 1, but not that hot. Whole numbers that somebody has made floats without
scaling them pass it with the first sound: 16 of 32,768 are -66 dB.
"""


def to_levels(samples: Samples) -> Floats:
    """
    Scale samples by their dtype's full scale, and never by their values; nothing is clipped.

    Args:
        samples: uint8 (128 is silence), int16, int32, or a float (1.0 is full scale).

    Returns:
        The same shape; a copy, unless they are such floats already.

    Raises:
        Refused: The dtype is another one.
    """
    import numpy as np

    kind, width = samples.dtype.kind, samples.dtype.itemsize
    if kind == "f":
        with np.errstate(over="ignore"):  # It becomes infinite, which is refused.
            return samples.astype(np.float32, copy=False)
    if (kind, width) == ("u", 1):
        return (samples.astype(np.float32) - np.float32(128)) / np.float32(128)
    if kind == "i" and width in (2, 4):
        return samples.astype(np.float32) / np.float32(1 << (8 * width - 1))
    msg = "has samples of another type; give uint8, int16, int32, or floats whose full scale is 1"
    raise Refused(msg)


def check_levels(block: Floats, first: int, rate_hz: int) -> None:
    """
    Check that samples are sound.

    Args:
        block: Shape ``(frames, ...)``.
        first: Index of its first frame.
        rate_hz: Frames in a second.

    Raises:
        Refused: One is NaN or infinite, or larger than `MAX_AMPLITUDE`.
    """
    import numpy as np

    # NaN fails every comparison, and the largest of values is NaN where one of them is.
    if not block.size or (block.max() <= MAX_AMPLITUDE and block.min() >= -MAX_AMPLITUDE):
        return
    bad = np.argwhere(~(np.abs(block) <= MAX_AMPLITUDE))[0]
    found = float(block[tuple(bad)])
    where = f"at {(first + int(bad[0])) / rate_hz:.3f} s"
    if not np.isfinite(found):
        msg = f"holds {found} {where}, which is no sound; give finite samples"
        raise Refused(msg)
    msg = (
        f"reaches {found:,g} {where}: full scale is 1, and more than {MAX_AMPLITUDE:g} is no "
        "sound; divide what were int16 numbers by 32768, or give them as int16"
    )
    raise Refused(msg)


def mulaw_levels() -> Floats:
    """
    Give the level of each byte of mu-law.

    Source: ITU-T G.711, table 2; 14 bits, here on the scale of 16.
    """
    import numpy as np

    code = ~np.arange(256, dtype=np.uint8)
    segment, step = (code >> 4 & 7).astype(np.int32), (code & 15).astype(np.int32)
    size = ((step << 3) + 132 << segment) - 132
    return to_levels(np.where(code & 128, -size, size).astype(np.int16))


def alaw_levels() -> Floats:
    """
    Give the level of each byte of A-law.

    Source: ITU-T G.711, table 1; 13 bits, here on the scale of 16.
    """
    import numpy as np

    code = np.arange(256, dtype=np.uint8) ^ 0x55
    segment, step = (code >> 4 & 7).astype(np.int32), (code & 15).astype(np.int32)
    size = (step << 4) + np.where(segment, 264, 8) << np.maximum(segment - 1, 0)
    return to_levels(np.where(code & 128, size, -size).astype(np.int16))
