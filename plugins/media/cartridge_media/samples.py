"""Samples of every kind as 8-bit ones, and an array of them as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cartridge_media.pixels import check_pixels
from cartridge_media.refusal import Refused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples: TypeAlias = NDArray[np.generic]

__all__ = ["read_array", "to_8_bits"]

_CHANNELS = (1, 3, 4)


def read_array(value: object, max_pixels: int) -> NDArray[np.uint8]:
    """
    Check an array that a caller gives, and make its samples 8 bits wide.

    Returns:
        Shape ``(height, width)``, or ``(height, width, 3 or 4)``; a copy where it is not as wanted.

    Raises:
        Refused: It is no array, or its shape, its size, its dtype or its values are wrong.
    """
    import numpy as np

    if not isinstance(value, np.ndarray):
        msg = "is no picture; give a path, the bytes of a file, or a numpy array"
        raise Refused(msg)
    shape = value.shape
    if not (len(shape) == 2 or (len(shape) == 3 and shape[2] in _CHANNELS)):
        msg = (
            "has the wrong shape; give (height, width), or (height, width, channels) with 1, 3 or 4"
            f"{_advice(shape)}"
        )
        raise Refused(msg)
    check_pixels(shape[1], shape[0], max_pixels)
    samples = to_8_bits(value)
    return samples[:, :, 0] if shape[2:] == (1,) else samples


def _advice(shape: tuple[int, ...]) -> str:
    if len(shape) == 3 and shape[0] in _CHANNELS:
        return " (channels come last: numpy.moveaxis(array, 0, -1))"
    return " (one picture at a time)" if len(shape) == 4 else ""


def to_8_bits(samples: Samples) -> NDArray[np.uint8]:
    """
    Scale samples to 0 to 255; the dtype alone says how, never the values.

    Args:
        samples: bool, uint8, uint16 (0 to 65535) or a float (0 to 1).

    Raises:
        Refused: The dtype is another one, or a float is not finite or out of range.
    """
    import numpy as np

    kind, width = samples.dtype.kind, samples.dtype.itemsize
    if kind == "b":
        return samples.astype(np.uint8) * np.uint8(255)
    if (kind, width) == ("u", 1):
        return samples.astype(np.uint8, copy=False)
    if (kind, width) == ("u", 2):
        return (samples.astype(np.uint16, copy=False) >> 8).astype(np.uint8)
    if kind == "f":
        low, high = float(samples.min()), float(samples.max())
        # NaN fails every comparison, and the smallest of values is NaN where one of them is.
        if not (low >= 0 and high <= 1):
            msg = f"holds floats from {low:g} to {high:g}; give finite ones from 0 to 1, or uint8"
            raise Refused(msg)
        scaled = samples.astype(np.float32)
        scaled *= 255
        return np.rint(scaled, out=scaled).astype(np.uint8)
    msg = "has samples of another type; give uint8, uint16, bool, or floats from 0 to 1"
    raise Refused(msg)
