"""Files of every format, written by Pillow and soundfile, or by hand where they cannot."""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- arrays are what is read
import pytest
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Encode = Callable[..., bytes]
    EncodeSound = Callable[..., bytes]
    WritePng = Callable[..., bytes]
    WriteTiff = Callable[..., bytes]
    WriteWav = Callable[..., bytes]

_VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "png": ("PNG", {}),
    "jpeg": ("JPEG", {}),
    "jpeg-progressive": ("JPEG", {"progressive": True}),
    "webp": ("WEBP", {}),
    "webp-lossless": ("WEBP", {"lossless": True}),
    "gif": ("GIF", {}),
    "bmp": ("BMP", {}),
    "tiff": ("TIFF", {}),
    "tiff-lzw": ("TIFF", {"compression": "tiff_lzw"}),
    "tiff-deflate": ("TIFF", {"compression": "tiff_adobe_deflate"}),
    "tiff-jpeg": ("TIFF", {"compression": "jpeg"}),
}


@pytest.fixture(scope="session")
def picture() -> Image.Image:
    """An RGB picture, 48 by 32, that no format can store in a few bytes."""
    samples = np.random.default_rng(0).integers(0, 256, (32, 48, 3), dtype=np.uint8)
    return Image.fromarray(samples)


@pytest.fixture(scope="session")
def files(picture: Image.Image, encode: Encode) -> dict[str, bytes]:
    """That picture in every format and way of compression."""
    return {name: encode(picture, form, **more) for name, (form, more) in _VARIANTS.items()}


@pytest.fixture(scope="session")
def encode() -> Encode:
    """Write a picture with Pillow."""

    def run(image: Image.Image, form: str, **options: object) -> bytes:
        buffer = io.BytesIO()
        image.save(buffer, form, **options)
        return buffer.getvalue()

    return run


@pytest.fixture(scope="session")
def write_png() -> WritePng:
    """
    Write a PNG by hand.

    Width, height, bits of a sample, PNG's colour type; then the rows, and more chunks by name.
    """

    def run(header: tuple[int, int, int, int], rows: Sequence[bytes] = (), **more: bytes) -> bytes:
        pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
        chunks = {"IHDR": struct.pack(">4I", *header)[:8] + bytes([*header[2:], 0, 0, 0]), **more}
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
            for name, body in [
                *((name.encode(), body) for name, body in chunks.items()),
                (b"IDAT", pixels),
                (b"IEND", b""),
            ]
        )

    return run


@pytest.fixture(scope="session")
def write_tiff() -> WriteTiff:
    """
    Write a TIFF by hand: its tags and its data.

    The tags 273 and 324, offsets, count from the beginning of the data.
    """

    def run(tags: dict[int, Sequence[int]], data: bytes, order: str = "<") -> bytes:
        inside = 8 + 2 + 12 * len(tags) + 4
        begin = inside + sum(4 * len(values) for values in tags.values() if len(values) > 1)
        entries, outside = b"", b""
        for tag, values in sorted(tags.items()):
            shift = begin if tag in (273, 324) else 0
            packed = struct.pack(f"{order}{len(values)}I", *(value + shift for value in values))
            if len(values) > 1:
                outside += packed
                packed = struct.pack(f"{order}I", inside + len(outside) - len(packed))
            entries += struct.pack(f"{order}HHI", tag, 4, len(values)) + packed
        magic = {"<": b"II*\0", ">": b"MM\0*"}[order]
        head = magic + struct.pack(f"{order}IH", 8, len(tags)) + entries + bytes(4)
        return head + outside + data

    return run


@pytest.fixture(scope="session")
def encode_sound() -> EncodeSound:
    """Write sound with soundfile: samples, hertz, format and subtype."""
    import soundfile

    def run(samples: NDArray[np.float32], rate_hz: int, form: str, subtype: str) -> bytes:
        buffer = io.BytesIO()
        soundfile.write(buffer, samples, rate_hz, format=form, subtype=subtype)
        return buffer.getvalue()

    return run


@pytest.fixture(scope="session")
def write_wav() -> WriteWav:
    """
    Write a WAV by hand: the bytes of its samples, and what its header says.

    ``length`` and ``whole`` stand in place of the true lengths, of the samples and of the file.
    """

    def run(
        data: bytes,
        rate_hz: int = 16_000,
        *,
        channels: int = 1,
        bits: int = 16,
        tag: int = 1,
        length: int | None = None,
        whole: int | None = None,
        before: bytes = b"",
        after: bytes = b"",
    ) -> bytes:
        frame = channels * bits // 8
        kind = struct.pack("<HHIIHH", tag, channels, rate_hz, rate_hz * frame, frame, bits)
        chunks = b"WAVEfmt " + struct.pack("<I", len(kind)) + kind + before + b"data"
        chunks += struct.pack("<I", len(data) if length is None else length) + data + after
        return b"RIFF" + struct.pack("<I", len(chunks) if whole is None else whole) + chunks

    return run
