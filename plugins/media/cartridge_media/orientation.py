"""
How a camera was held, read from its EXIF data.

Pillow's own reader takes the whole directory, and warns of every damaged entry; one number is
wanted here.

Source:
    CIPA DC-008 (Exif 3.0) 4.6.2 and 4.6.5: the tag Orientation in the 0th IFD.
"""

from __future__ import annotations

import struct

__all__ = ["UPRIGHT", "read_orientation"]

UPRIGHT = 1
_ORIENTATION = 0x0112
_SHORT = 3


def read_orientation(exif: bytes) -> int:
    """
    Read the orientation, 1 to 8.

    Args:
        exif: EXIF data, with or without ``Exif`` and two NULs before.

    Returns:
        `UPRIGHT` where there is none, or none that can be read.
    """
    data = exif.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None:
        return UPRIGHT
    try:
        (start,) = struct.unpack_from(f"{order}I", data, 4)
        (count,) = struct.unpack_from(f"{order}H", data, start)
        for entry in range(start + 2, start + 2 + 12 * count, 12):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", data, entry)
            if tag == _ORIENTATION:
                return value if kind == _SHORT and 1 <= value <= 8 else UPRIGHT
    except struct.error:
        return UPRIGHT
    return UPRIGHT
