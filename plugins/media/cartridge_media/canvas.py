"""
The size that a GIF or a WebP states, read before Pillow opens it.

Pillow reads no more than the header when it opens one of the other formats. These two it opens
with memory for their canvas, and a GIF with a warning where that is large.

Source:
    GIF89a specification, 1990; RFC 9649 (WebP) 2.3 to 2.7.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cartridge_media.sources import Source

__all__ = ["gif_size", "webp_size"]

_GIF_EXTENSION, _GIF_IMAGE, _GIF_COMMENT, _GIF_APPLICATION = b"!", b",", b"\xfe", b"\xff"


def gif_size(source: Source) -> tuple[int, int]:
    """
    Give the width and height that hold a GIF's canvas and its first frame.

    It walks as Pillow does, odd extensions included, so that both come to the same frame.

    Raises:
        struct.error: The file ends before its first frame, or holds something else there.
    """
    width, height, flags = struct.unpack("<6xHHB2x", source.read(13))
    if flags & 0x80:
        source.read(3 << (flags & 7) + 1)
    while (introducer := source.read(1)) == _GIF_EXTENSION:
        _skip_extension(source)
    if introducer != _GIF_IMAGE:
        msg = f"{introducer!r} where a frame should be"
        raise struct.error(msg)
    left, top, frame_width, frame_height = struct.unpack("<4H", source.read(8))
    return max(width, left + frame_width), max(height, top + frame_height)


def _skip_extension(source: Source) -> None:
    label = source.read(1)
    block = _block(source)
    if label == _GIF_COMMENT and not block:
        return
    if label == _GIF_APPLICATION and block.startswith(b"NETSCAPE2.0"):
        _block(source)
    while _block(source):
        pass


def _block(source: Source) -> bytes:
    length = source.read(1)
    return source.read(length[0]) if length else b""


def webp_size(head: bytes) -> tuple[int, int]:
    """
    Give the width and height of a WebP's canvas.

    Args:
        head: The first 30 bytes.

    Raises:
        struct.error: The file ends before, or begins with another chunk.
    """
    kind = head[12:16]
    if kind == b"VP8X":
        low, high, low_2, high_2 = struct.unpack("<24xHBHB", head[:30])
        return (low | high << 16) + 1, (low_2 | high_2 << 16) + 1
    if kind == b"VP8L":
        (bits,) = struct.unpack("<21xI", head[:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack("<26xHH", head[:30])
        return width & 0x3FFF, height & 0x3FFF
    msg = f"no WebP begins with a chunk {kind!r}"
    raise struct.error(msg)
