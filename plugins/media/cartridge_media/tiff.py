"""What Pillow does not do with a TIFF by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL.TiffImagePlugin import (
    BITSPERSAMPLE,
    PHOTOMETRIC_INTERPRETATION,
    PLANAR_CONFIGURATION,
    SAMPLEFORMAT,
    TILELENGTH,
    TILEWIDTH,
)

from cartridge_media.pixels import check_pixels
from cartridge_media.refusal import Refused

if TYPE_CHECKING:
    from PIL.TiffImagePlugin import TiffImageFile

__all__ = ["bits", "check", "is_white_zero"]

_SIGNED = 2
_SEPARATE = 2


def check(image: TiffImageFile, max_pixels: int) -> None:
    """
    Check what would be decoded wrong, or with far more memory than the picture's size says.

    Raises:
        Refused: The samples are signed, so that nothing says what is white; or they are in planes
            of 16 bits without compression, of which Pillow 13 reads half of the bytes; or one tile
            is too large.
    """
    tags = image.tag_v2
    if _SIGNED in tags.get(SAMPLEFORMAT, ()):
        msg = "is a TIFF of signed samples, which do not say what is white; save it as a PNG"
        raise Refused(msg)
    is_wide = max(tags.get(BITSPERSAMPLE, (1,))) > 8
    if is_wide and tags.get(PLANAR_CONFIGURATION) == _SEPARATE and image.tile[0][0] == "raw":
        msg = "is an uncompressed TIFF of separate 16-bit planes; save it as a PNG"
        raise Refused(msg)
    if TILEWIDTH in tags and TILELENGTH in tags:
        check_pixels(tags[TILEWIDTH], tags[TILELENGTH], max_pixels)


def bits(image: TiffImageFile) -> int:
    """Tell how many bits a sample has; Pillow spreads 12 over 16, at the lower end."""
    return int(image.tag_v2.get(BITSPERSAMPLE, (1,))[0])


def is_white_zero(image: TiffImageFile) -> bool:
    """Tell whether 0 is white; Pillow turns that round for 8 bits and fewer only."""
    return bool(image.tag_v2.get(PHOTOMETRIC_INTERPRETATION) == 0)
