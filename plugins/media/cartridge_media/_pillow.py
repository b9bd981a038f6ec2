"""The only module that opens files with Pillow."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from PIL import Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from cartridge_media import tiff
from cartridge_media.canvas import gif_size, webp_size
from cartridge_media.colours import over_background, png_layout, to_rgb
from cartridge_media.formats import HEAD_BYTES, Format, recognise
from cartridge_media.orientation import UPRIGHT, read_orientation
from cartridge_media.pixels import check_pixels
from cartridge_media.refusal import Refused
from cartridge_media.samples import read_array

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

    from cartridge_media.sources import Source

__all__ = ["decode", "from_array"]


class _Jpeg(JpegImageFile):
    def _read_dpi_from_exif(self) -> None:
        """Leave the resolution alone: to look for it, Pillow reads all EXIF data, and warns."""


# Opened by its class, and not by Image.open: that warns of large pictures before they can be
# refused, and loads every format there is.
_OPENERS: dict[Format, type[ImageFile]] = {
    Format.PNG: PngImageFile,
    Format.JPEG: _Jpeg,
    Format.WEBP: WebPImageFile,
    Format.GIF: GifImageFile,
    Format.BMP: BmpImageFile,
    Format.TIFF: TiffImageFile,
}

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What makes a picture of each orientation upright."""


def decode(source: Source, max_pixels: int) -> Image.Image:
    """
    Decode the first picture of a file.

    Args:
        source: The file, at its beginning.
        max_pixels: Width times height, at most.

    Returns:
        Upright, mode RGB, with nothing left in ``info``.

    Raises:
        Refused: It cannot be read, is not of one of the formats, too large, damaged, or of a kind
            that is not read.
    """
    try:
        head = source.read(HEAD_BYTES)
    except OSError as exc:
        msg = f"cannot be read ({exc.strerror}); check the disk that it is on"
        raise Refused(msg) from exc
    format_ = recognise(head)
    source.seek(0)
    try:
        if format_ is Format.WEBP:
            _check(webp_size(head), max_pixels)
        elif format_ is Format.GIF:
            _check(gif_size(source), max_pixels)
            source.seek(0)
        return _decode(_OPENERS[format_](source), source, max_pixels)
    except (Refused, ImportError):
        raise
    except Exception as exc:
        msg = (
            f"is a damaged {format_.value}, or one of a kind that is not read ({_reason(exc)}); "
            "get it anew, or save it as a PNG"
        )
        raise Refused(msg) from exc


def _reason(exc: Exception) -> str:
    if isinstance(exc.__cause__ or exc, struct.error | IndexError):
        return "it ends in its header"
    if str(exc) == "not identified by this driver":
        return "its header states no pixels, or no known kind of colour"
    return str(exc) or type(exc).__name__


def _decode(image: ImageFile, source: Source, max_pixels: int) -> Image.Image:
    _check(image.size, max_pixels)
    if isinstance(image, TiffImageFile):
        tiff.check(image, max_pixels)
    layout = png_layout(image)
    source.must_go_on = True
    image.load()
    picture = to_rgb(image, layout)
    # Pillow has turned a TIFF by now, and has no EXIF data of its own for one.
    exif = image.info.get("exif")
    orientation = read_orientation(exif) if isinstance(exif, bytes) else UPRIGHT
    if orientation in _TURNS:
        picture = picture.transpose(_TURNS[orientation])
    # Left there, the orientation would be applied again by whoever looks for one.
    picture.info = {}
    return picture


def _check(size: tuple[int, int], max_pixels: int) -> None:
    check_pixels(*size, max_pixels)
    # Pillow's own limit belongs to the whole program: where somebody has lowered it, it counts.
    if Image.MAX_IMAGE_PIXELS is not None:
        check_pixels(*size, Image.MAX_IMAGE_PIXELS, "PIL.Image.MAX_IMAGE_PIXELS")


def from_array(value: object, max_pixels: int) -> Image.Image:
    """
    Make a picture of an array.

    Raises:
        Refused: As `cartridge_media.samples.read_array`.
    """
    picture = Image.fromarray(read_array(value, max_pixels))
    return over_background(picture) if picture.mode == "RGBA" else picture.convert("RGB")
