"""What is read, told by its content, and what is refused by name."""

from __future__ import annotations

import gzip
import os
import random
import zlib
from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- arrays are what is read
import pytest
from PIL import Image

from cartridge_core.errors import InvalidArgumentError
from cartridge_media.formats import Format, recognise
from cartridge_media.images import read_image

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Encode

LOSSLESS = ["png", "webp-lossless", "bmp", "tiff", "tiff-lzw", "tiff-deflate"]
LOSSY = ["jpeg", "jpeg-progressive", "webp", "gif", "tiff-jpeg"]


@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_formats_give_the_very_pixels(
    name: str, files: dict[str, bytes], picture: Image.Image
) -> None:
    """Not a sample is changed."""
    assert read_image(files[name]).tobytes() == picture.tobytes()


@pytest.mark.parametrize("name", LOSSY)
def test_lossy_formats_give_what_pillow_gives(
    name: str, files: dict[str, bytes], tmp_path: Path
) -> None:
    """The decoder is Pillow's own."""
    path = tmp_path / "picture"
    path.write_bytes(files[name])
    with Image.open(path) as opened:
        assert read_image(path).tobytes() == opened.convert("RGB").tobytes()


@pytest.mark.parametrize("extension", [".png", ".jpg", ".txt", ".eps", ".svg", ""])
def test_the_extension_does_not_count(
    extension: str, tmp_path: Path, files: dict[str, bytes]
) -> None:
    """A WebP is one under any name."""
    path = tmp_path / f"picture{extension}"
    path.write_bytes(files["webp-lossless"])
    assert read_image(path).tobytes() == read_image(files["webp-lossless"]).tobytes()


@pytest.mark.parametrize(
    ("form", "options"),
    [
        pytest.param("GIF", {}, id="gif"),
        pytest.param("PNG", {}, id="apng"),
        pytest.param("WEBP", {"lossless": True}, id="webp"),
        pytest.param("TIFF", {}, id="tiff-pages"),
        pytest.param("TIFF", {"compression": "tiff_lzw"}, id="tiff-lzw-pages"),
    ],
)
def test_of_several_pictures_the_first_is_taken(
    form: str, options: dict[str, object], encode: Encode
) -> None:
    """Frames and pages after it are not looked at."""
    first = Image.new("RGB", (6, 4), (255, 0, 0))
    first.putpixel((1, 2), (0, 0, 255))
    more = [Image.new("RGB", (6, 4), colour) for colour in ("lime", "blue")]
    data = encode(first, form, save_all=True, append_images=more, **options)
    assert read_image(data).tobytes() == first.tobytes()


def test_of_a_phone_s_two_pictures_the_first_is_taken(encode: Encode) -> None:
    """A multi-picture JPEG is read as a JPEG."""
    first, second = Image.new("RGB", (16, 8), "red"), Image.new("RGB", (16, 8), "blue")
    data = encode(first, "MPO", save_all=True, append_images=[second])
    red, _, blue = np.asarray(read_image(data)).mean((0, 1))
    assert red > 250
    assert blue < 5


def _box(brand: bytes) -> bytes:
    return b"\0\0\0\x18ftyp" + brand + bytes(400)


NOT_READ = [
    pytest.param(_box(b"heic"), "a HEIC picture", id="heic"),
    pytest.param(_box(b"mif1"), "a HEIC picture", id="heif"),
    pytest.param(_box(b"avif"), "an AVIF picture", id="avif"),
    pytest.param(_box(b"isom"), "a video", id="mp4"),
    pytest.param(b'<svg xmlns="http://www.w3.org/2000/svg"/>', "an SVG drawing", id="svg"),
    pytest.param(
        b'<?xml version="1.0"?>\n<!-- hm -->\n<svg width="1"/>', "an SVG drawing", id="svg-xml"
    ),
    pytest.param(b"%PDF-1.7\n1 0 obj", "a PDF", id="pdf"),
    pytest.param(b"%!PS-Adobe-3.0 EPSF-3.0\n", "a PostScript file", id="eps"),
    pytest.param(b"\xc5\xd0\xd3\xc6" + bytes(30), "a PostScript file", id="eps-with-preview"),
    pytest.param(b"<!DOCTYPE html><html>404</html>", "a web page", id="web-page"),
    pytest.param(
        b"\xef\xbb\xbf<!DocType HTML><body><svg/></body>", "a web page", id="web-page-with-drawing"
    ),
    pytest.param(b"\n\n<html><head></head></html>", "a web page", id="web-page-with-no-type"),
    pytest.param(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n",
        "a Git LFS pointer",
        id="lfs-pointer",
    ),
    pytest.param(b"8BPS\0\1" + bytes(30), "a Photoshop file", id="psd"),
    pytest.param(b"\0\0\1\0\1\0" + bytes(30), "an icon", id="ico"),
    pytest.param(b"\0\0\0\x0cJXL \r\n\x87\n", "a JPEG XL picture", id="jpeg-xl"),
    pytest.param(b"PK\3\4" + bytes(30), "a ZIP archive", id="zip"),
    pytest.param(gzip.compress(b"hello"), "a gzip file", id="gzip"),
    pytest.param(b"not a picture", "text that begins 'not a picture'", id="text"),
    pytest.param(b"BMW builds cars, and more of them", "text that begins 'BMW", id="text-bm"),
    pytest.param(b"/home/me/cat.png", "text that begins '/home/me", id="path-as-bytes"),
    pytest.param(b"P6 2 2 255\n" + bytes(12), "of no known format (it begins 50 36", id="ppm"),
    pytest.param(zlib.compress(b"x"), "of no known format", id="zlib"),
    pytest.param(bytes(1000), "of no known format (it begins 00 00", id="zeros"),
    pytest.param(b"\x89PNG\n\x1a\n" + bytes(30), "of no known format (it begins 89", id="bad-png"),
    pytest.param(b"RIFF\4\0\0\0WAVE", "of no known format", id="wav"),
]


@pytest.mark.parametrize(("data", "name"), NOT_READ)
def test_error_other_files_are_refused_by_name(data: bytes, name: str) -> None:
    """The message says what it is, and lists what is read."""
    with pytest.raises(InvalidArgumentError) as caught:
        read_image(data)
    assert f"bytes is {name}" in str(caught.value)
    assert "only PNG, JPEG, WebP, GIF, BMP, TIFF are read" in str(caught.value)


@pytest.mark.parametrize("form", ["PPM", "TGA", "PCX", "ICO", "JPEG2000", "EPS", "PDF", "AVIF"])
def test_error_what_pillow_could_read_is_refused_too(
    form: str, encode: Encode, picture: Image.Image
) -> None:
    """The list of formats does not depend on what is built into Pillow."""
    with pytest.raises(InvalidArgumentError, match="only PNG, JPEG, WebP, GIF, BMP, TIFF are read"):
        read_image(encode(picture, form))


def test_no_program_is_started_for_postscript(
    tmp_path: Path, encode: Encode, picture: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow would run Ghostscript."""
    started = tmp_path / "started"
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {started}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    path = tmp_path / "picture.png"
    path.write_bytes(encode(picture, "EPS"))
    with pytest.raises(InvalidArgumentError, match="is a PostScript file"):
        read_image(path)
    assert not started.exists()


def test_bytes_by_chance_are_refused_and_nothing_else_happens() -> None:
    """No exception but the one, whatever follows a format's first bytes."""
    chance = random.Random(0)  # noqa: S311 -- the same every time
    magics = [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"II*\0\x08\0\0\0", b"MM\0*", b""]
    magics += [b"BM" + bytes(12) + b"\x28\0\0\0", b"RIFF\xff\0\0\0WEBPVP8X", b"II+\0\x08\0\0\0"]
    for _ in range(100):
        for magic in magics:
            with pytest.raises(InvalidArgumentError):
                read_image(magic + chance.randbytes(chance.randrange(200)))


def test_the_first_bytes_are_enough(files: dict[str, bytes]) -> None:
    """Every format is told from 30 bytes."""
    found = {name: recognise(data[:30]) for name, data in files.items()}
    assert {name: form.value.lower() for name, form in found.items()} == {
        name: name.partition("-")[0] for name in files
    }
    assert set(found.values()) == set(Format)
