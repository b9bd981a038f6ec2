"""A path, bytes or an array to one upright RGB picture, by one rule."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cartridge_media.pixels import MAX_PIXELS
from cartridge_media.refusal import named
from cartridge_media.sources import Source

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["MAX_PIXELS", "read_image"]

_RULE = "a picture: a path, the bytes of a file, or an array"


def read_image(value: object, *, max_pixels: int = MAX_PIXELS, arg: str = "image") -> Image:
    """
    Read a picture.

    Of a **file**, or the bytes of one:

    - PNG, JPEG, WebP, GIF, BMP and TIFF are read. The content says which it is, not the name.
    - Of several pictures in a file (an animation, pages) the first is taken.
    - It is turned upright, as the EXIF orientation says. That of a TIFF is a tag of its own.
    - What is transparent shows white: the alpha channel, or the transparent colour.
    - 16 bits become 8 by their upper half, grey or colour; 12 and 32 likewise. Floats go from 0 to
      1. Nothing is clipped: what does not say its white (signed numbers, floats beyond 1) is
      refused.
    - Grey, 1-bit, palette, YCbCr, LAB and CMYK become RGB; CMYK by plain arithmetic.
    - Colours are taken for sRGB: an embedded ICC profile and a gamma value are ignored.
    - The size is read from the header and checked before anything is decoded.

    Of an **array**, whose shape is ``(height, width)`` or ``(height, width, channels)``:

    - 1 channel is grey, 3 are RGB, 4 are RGBA over white.
    - The dtype says what is white, never the values: 255 for uint8, 65535 for uint16 (the upper
      half is taken), True for bool, 1.0 for floats (rounded to the nearest of 256 levels).

    Nothing that holds for the whole process is changed; Pillow's ``Image.MAX_IMAGE_PIXELS`` counts
    too where it is lower. Any number of threads may call it.

    Args:
        value: A ``str`` or ``PathLike`` is a path; a ``str`` that is a URL is refused. ``bytes``
            are a file's content.
        max_pixels: Width times height, at most.
        arg: What messages call it (``image[3]``).

    Returns:
        Mode ``RGB``: ``size`` is width and height, ``tobytes()`` three bytes a pixel, row by row.
        It holds no metadata and shares no memory with the value.

    Raises:
        InvalidArgumentError: It is no picture that can be read; the message says which, why, and
            what to do.

        LoadError: Pillow or numpy is not installed.
    """
    with named(arg, value, rule=_RULE, what="pictures", extra="image"):
        return _read(value, max_pixels)


def _read(value: object, max_pixels: int) -> Image:
    from cartridge_media import _pillow  # noqa: PLC0415 -- heavy, and an extra

    if isinstance(value, str):
        source = Source.of_text(value)
    elif isinstance(value, os.PathLike):
        source = Source.of_path(os.fsdecode(value))
    elif isinstance(value, bytes | bytearray | memoryview):
        source = Source.of_bytes(value)
    else:
        return _pillow.from_array(value, max_pixels)
    with source:
        return _pillow.decode(source, max_pixels)
