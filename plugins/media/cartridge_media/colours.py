"""Every kind of colour that a file may hold, as 8-bit RGB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile

from cartridge_media import tiff
from cartridge_media.samples import to_8_bits

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

__all__ = ["BACKGROUND", "over_background", "png_layout", "to_rgb"]

BACKGROUND = (255, 255, 255)
"""White: what is seen through a transparent picture."""

_DEEP_GREY = {"I;16", "I;16L", "I;16B", "I;16N", "I", "F"}
"""The modes of more than 8 bits, which Pillow's own conversion clips."""

_PNG_STEPS = {"L;2": 85, "L;4": 17}
"""How far apart the greys of 2 and of 4 bits come to lie in 8."""


def png_layout(image: ImageFile) -> str | None:
    """Tell how a PNG's samples lie in the file (``L;4``); asked before it is loaded."""
    return str(image.tile[0][3]) if isinstance(image, PngImageFile) else None


def to_rgb(image: ImageFile, layout: str | None) -> Image.Image:
    """
    Convert a loaded picture.

    Args:
        image: Any mode that one of the formats gives.
        layout: What `png_layout` said.

    Raises:
        Refused: It holds floats out of range.
    """
    if image.mode in _DEEP_GREY:
        return _deep_grey(image).convert("RGB")
    _scale_transparency(image, layout)
    if not image.has_transparency_data:
        return image.convert("RGB")
    straight = image.convert("LA") if image.mode == "La" else image
    return over_background(straight if straight.mode == "RGBA" else straight.convert("RGBA"))


def over_background(rgba: Image.Image) -> Image.Image:
    """Lay a picture with an alpha channel over `BACKGROUND`."""
    below = Image.new("RGB", rgba.size, BACKGROUND)
    below.paste(rgba, mask=rgba.getchannel("A"))
    return below


def _deep_grey(image: ImageFile) -> Image.Image:
    import numpy as np

    samples = np.asarray(image)
    if image.mode == "I":
        # Unsigned 32 bits, which Pillow keeps as signed ones.
        samples = (samples.astype(np.uint32) >> 16).astype(np.uint16)
    elif image.mode != "F":
        samples = samples.astype(np.uint16)
    if isinstance(image, TiffImageFile):
        if tiff.bits(image) == 12:
            samples = samples << 4
        if tiff.is_white_zero(image):
            samples = 1 - samples if image.mode == "F" else ~samples
    grey = to_8_bits(samples)
    transparent = image.info.get("transparency")
    if transparent is not None:
        grey = np.where(samples == transparent, np.uint8(BACKGROUND[0]), grey)
    return Image.fromarray(grey)


def _scale_transparency(image: ImageFile, layout: str | None) -> None:
    """
    Scale the transparent colour of a PNG as its samples are scaled.

    Pillow leaves it as it stands in the file. Of 16 bits only 8 are left to compare.
    """
    transparent = image.info.get("transparency")
    if layout in _PNG_STEPS and isinstance(transparent, int):
        image.info["transparency"] = transparent * _PNG_STEPS[layout]
    elif layout == "RGB;16B" and transparent is not None:
        image.info["transparency"] = tuple(level >> 8 for level in transparent)
