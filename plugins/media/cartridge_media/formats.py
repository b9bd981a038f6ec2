"""What a file is, told from its first bytes; its name and its extension do not count."""

from __future__ import annotations

import enum
import struct

from cartridge_media.refusal import Refused

__all__ = ["HEAD_BYTES", "Format", "describe", "recognise"]

HEAD_BYTES = 1024
"""How many of a file's first bytes are enough."""


class Format(enum.Enum):
    """A format that is read."""

    PNG = "PNG"
    JPEG = "JPEG"
    WEBP = "WebP"
    GIF = "GIF"
    BMP = "BMP"
    TIFF = "TIFF"


_READ = {
    b"\x89PNG\r\n\x1a\n": Format.PNG,
    b"\xff\xd8\xff": Format.JPEG,
    b"GIF87a": Format.GIF,
    b"GIF89a": Format.GIF,
    b"II*\0": Format.TIFF,
    b"MM\0*": Format.TIFF,
    b"II+\0": Format.TIFF,
    b"MM\0+": Format.TIFF,
}

_BMP_HEADERS = {12, 40, 52, 56, 64, 108, 124}
"""The lengths of a BMP's second header; two letters alone would make a BMP of many a text."""

_NOT_READ = {
    b"%PDF": "a PDF",
    b"%!PS": "a PostScript file",
    b"\xc5\xd0\xd3\xc6": "a PostScript file",
    b"8BPS": "a Photoshop file",
    b"\0\0\x01\0": "an icon (ICO)",
    b"\0\0\0\x0cjP  ": "a JPEG 2000 picture",
    b"\xff\x4f\xff\x51": "a JPEG 2000 picture",
    b"\0\0\0\x0cJXL ": "a JPEG XL picture",
    b"\xff\x0a": "a JPEG XL picture",
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b": "a gzip file",
    b"version https://git-lfs": "a Git LFS pointer, not the file that it stands for (git lfs pull)",
}

_BRANDS = {
    **dict.fromkeys((b"avif", b"avis"), "an AVIF picture"),
    **dict.fromkeys(
        (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "a HEIC picture"
    ),
}
"""The files that begin with a box of type ``ftyp``; the others of them are videos."""

_MARKUP = {b"<!doctype html": "a web page", b"<html": "a web page", b"<svg": "an SVG drawing"}


def recognise(head: bytes) -> Format:
    """
    Tell the format.

    Args:
        head: The first `HEAD_BYTES` bytes, or all there are.

    Raises:
        Refused: It is something else; what it is where that is known.
    """
    for magic, known in _READ.items():
        if head.startswith(magic):
            return known
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return Format.WEBP
    if (
        head[:2] == b"BM"
        and len(head) >= 18
        and struct.unpack("<I", head[14:18])[0] in _BMP_HEADERS
    ):
        return Format.BMP
    names = ", ".join(known.value for known in Format)
    msg = f"is {describe(head)}, and only {names} are read; convert it to one of them"
    raise Refused(msg)


def describe(head: bytes) -> str:
    """Say what a file of no wanted format is, as far as its first bytes tell."""
    for magic, known in _READ.items():
        if head.startswith(magic):
            return f"a {known.value} picture"
    for magic, name in _NOT_READ.items():
        if head.startswith(magic):
            return name
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], "a video")
    lower = head.lower()
    for mark, name in _MARKUP.items():
        if mark in lower:
            return name
    start = head[:16]
    if (
        start.isascii()
        and start.decode("ascii").replace("\n", " ").replace("\r", " ").isprintable()
    ):
        return f"text that begins {start.decode('ascii')!r}"
    return f"of no known format (it begins {start.hex(' ')})"
