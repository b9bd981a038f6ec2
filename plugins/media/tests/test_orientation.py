"""A photo is upright, however the camera was held."""

from __future__ import annotations

import struct
import warnings
import zlib
from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- arrays are what is read
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from cartridge_core.errors import InvalidArgumentError
from cartridge_media.images import read_image
from cartridge_media.orientation import UPRIGHT, read_orientation

if TYPE_CHECKING:
    from conftest import Encode, WriteTiff

ORIENTATION = 0x0112
VALUES = range(1, 9)
INVERSE = {6: 8, 8: 6}
"""The two quarter turns undo each other; every other orientation undoes itself."""

CARRIERS: dict[str, tuple[str, dict[str, object]]] = {
    "jpeg": ("JPEG", {"quality": 95, "subsampling": 0}),
    "png": ("PNG", {}),
    "webp": ("WEBP", {"lossless": True}),
    "tiff": ("TIFF", {}),
    "tiff-lzw": ("TIFF", {"compression": "tiff_lzw"}),
}


def exif_data(value: int, order: str = "<", kind: int = 3, before: int = 0) -> bytes:
    """Write EXIF data: other entries, then the orientation."""
    other = struct.pack(f"{order}HHII", 0x0100, 4, 1, 7) * before
    entry = struct.pack(f"{order}HHIHH", ORIENTATION, kind, 1, value, 0)
    magic = {"<": b"II*\0", ">": b"MM\0*"}[order]
    head = magic + struct.pack(f"{order}IH", 8, before + 1)
    return b"Exif\0\0" + head + other + entry + bytes(4)


def marked(size: tuple[int, int] = (64, 32)) -> Image.Image:
    """A photo with a red mark in the top left corner, and a blue one at the top right."""
    photo = Image.new("RGB", size, (200, 200, 200))
    photo.paste((255, 0, 0), (0, 0, 16, 8))
    photo.paste((0, 0, 255), (size[0] - 8, 0, *(size[0], 16)))
    return photo


def taken(photo: Image.Image, orientation: int) -> Image.Image:
    """Give the pixels as a camera stores them that was held so."""
    exif = Image.Exif()
    exif[ORIENTATION] = INVERSE.get(orientation, orientation)
    stored = photo.copy()
    stored.info["exif"] = exif.tobytes()
    return ImageOps.exif_transpose(stored)


@pytest.mark.parametrize(
    ("orientation", "carrier"),
    [
        pytest.param(value, carrier, id=f"a18-orientation-{value}-{carrier}")
        for value in VALUES
        for carrier in CARRIERS
    ],
)
def test_a_photo_is_upright(orientation: int, carrier: str, encode: Encode) -> None:
    """The marks are where the photographer saw them, within what JPEG blurs."""
    photo = marked()
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    form, options = CARRIERS[carrier]
    stored = taken(photo, orientation)
    assert stored.size == ((32, 64) if orientation > 4 else (64, 32))
    read = read_image(encode(stored, form, exif=exif, **options))
    assert read.size == (64, 32)
    difference = np.abs(np.asarray(read, int) - np.asarray(photo, int))
    assert difference.max() <= (4 if carrier == "jpeg" else 0)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("value", VALUES)
def test_both_byte_orders(value: int, order: str, encode: Encode) -> None:
    """A camera may write its EXIF data either way, and the orientation anywhere among them."""
    data = exif_data(value, order, before=3)
    stored = marked()
    read = read_image(encode(stored, "PNG", exif=data))
    stored.info["exif"] = data
    assert read.tobytes() == ImageOps.exif_transpose(stored).tobytes()


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(marked((5, 3)).convert("L"), id="grey"),
        pytest.param(marked((5, 3)).convert("P"), id="palette"),
        pytest.param(marked((5, 3)).convert("RGBA"), id="alpha"),
        pytest.param(marked((5, 3)).convert("1"), id="1-bit"),
        pytest.param(Image.fromarray(np.arange(15, dtype=np.uint16).reshape(3, 5) << 8), id="deep"),
    ],
)
def test_every_kind_of_colour_is_turned(value: int, stored: Image.Image, encode: Encode) -> None:
    """Turning and converting do not disturb each other, in a PNG or in a TIFF."""
    exif = Image.Exif()
    exif[ORIENTATION] = value
    read = read_image(encode(stored, "PNG", exif=exif))
    plain = read_image(encode(stored, "PNG"))
    plain.info["exif"] = exif_data(value)
    assert read.tobytes() == ImageOps.exif_transpose(plain).tobytes()
    assert read_image(encode(stored, "TIFF", exif=exif)).tobytes() == read.tobytes()


def test_a_png_may_say_it_at_its_end(encode: Encode) -> None:
    """The EXIF data may come after the pixels."""
    data, body = encode(marked(), "PNG"), b"eXIf" + exif_data(6)[6:]
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    assert read_image(data[:-12] + chunk + data[-12:]).size == (32, 64)


@given(
    orientation=st.sampled_from(VALUES),
    width=st.integers(1, 9),
    height=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_an_orientation_and_its_inverse_cancel(
    encode: Encode, orientation: int, width: int, height: int, seed: int
) -> None:
    """Turned twice, forth and back, every picture is what it was."""
    samples = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    once = read_image(encode(Image.fromarray(samples), "PNG", exif=exif_data(orientation)))
    back = exif_data(INVERSE.get(orientation, orientation))
    assert np.array_equal(np.asarray(read_image(encode(once, "PNG", exif=back))), samples)


def test_it_is_not_applied_again(encode: Encode) -> None:
    """Whoever looks for an orientation of what was read finds none."""
    read = read_image(encode(marked(), "JPEG", exif=exif_data(6)))
    assert ImageOps.exif_transpose(read).tobytes() == read.tobytes()


@pytest.mark.parametrize(
    "exif",
    [
        pytest.param(exif_data(0), id="0"),
        pytest.param(exif_data(9), id="9"),
        pytest.param(exif_data(65535), id="65535"),
        pytest.param(exif_data(6, kind=2), id="text"),
        pytest.param(b"Exif\0\0", id="empty"),
        pytest.param(exif_data(6)[:20], id="cut"),
        pytest.param(b"Exif\0\0II*\0\xff\xff\xff\xff", id="points-outside"),
        pytest.param(b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + bytes(40), id="counts-too-far"),
        pytest.param(b"Exif\0\0JPEG" + exif_data(6)[10:], id="no-byte-order"),
    ],
)
def test_damaged_exif_data_are_passed_over(exif: bytes, encode: Encode) -> None:
    """The picture comes as it is stored, and nobody is warned."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        read = read_image(encode(marked(), "JPEG", quality=95, exif=exif))
    assert read.size == (64, 32)
    assert not warned


def test_a_photo_with_one_damaged_entry_is_turned(encode: Encode) -> None:
    """An entry that points outside, common in real photos, costs neither turn nor warning."""
    outside = struct.pack("<HHII", 0x010F, 2, 200, 60_000)
    exif = exif_data(6, before=1)
    damaged = exif[:16] + outside + exif[28:]
    assert read_image(encode(marked(), "JPEG", exif=damaged)).size == (32, 64)


@given(st.binary(max_size=80) | st.binary(max_size=80).map(lambda data: b"II*\0\x08\0\0\0" + data))
def test_no_exif_data_do_harm(data: bytes) -> None:
    """Whatever they are, an orientation comes back."""
    assert read_orientation(data) in VALUES


@given(st.sampled_from(VALUES), st.sampled_from("<>"), st.integers(0, 40), st.sampled_from([0, 6]))
def test_the_orientation_is_found(value: int, order: str, before: int, skip: int) -> None:
    """With or without the mark at the beginning, and after any number of entries."""
    assert read_orientation(exif_data(value, order, before=before)[skip:]) == value


@pytest.mark.parametrize("data", [b"", exif_data(0), exif_data(9)], ids=["none", "0", "9"])
def test_upright_is_one(data: bytes) -> None:
    """What has no orientation, or one that there is not, is upright."""
    assert read_orientation(data) == UPRIGHT == 1


def test_error_a_tiff_s_size_is_checked_as_stored(write_tiff: WriteTiff) -> None:
    """A limit holds for a picture that lies on its side too."""
    tags = {256: [30], 257: [20], 258: [8], 262: [1], 273: [0], 274: [6], 277: [1], 279: [600]}
    assert read_image(write_tiff(tags, bytes(600)), max_pixels=600).size == (20, 30)
    with pytest.raises(InvalidArgumentError, match="has 600 pixels"):
        read_image(write_tiff(tags, bytes(600)), max_pixels=599)
