"""How large a picture may be."""

from __future__ import annotations

from cartridge_media.refusal import Refused

__all__ = ["MAX_PIXELS", "check_pixels"]

MAX_PIXELS = 64_000_000
"""Width times height. A JPEG of that size takes 512 MB of memory while it is read."""


def check_pixels(width: int, height: int, limit: int, name: str = "max_pixels") -> None:
    """
    Check the size of a picture.

    Args:
        width: In pixels.
        height: In pixels.
        limit: How many pixels are allowed.
        name: What sets the limit.

    Raises:
        Refused: There are no pixels, or too many.
    """
    size = f"{width} x {height}"
    if width < 1 or height < 1:
        msg = f"has no pixels ({size}); give a picture of at least 1 x 1"
        raise Refused(msg)
    if width * height > limit:
        msg = (
            f"has {width * height:,} pixels ({size}), and {name} allows {limit:,}; "
            "shrink it, or allow more"
        )
        raise Refused(msg)
