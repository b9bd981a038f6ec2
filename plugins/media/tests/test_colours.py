"""Every kind of colour becomes RGB, and nothing is clipped."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- arrays are what is read
import pytest
from PIL import Image, ImageCms

from cartridge_core.errors import InvalidArgumentError
from cartridge_media.images import read_image

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Encode, WritePng, WriteTiff

LEVELS = [0x0000, 0x00FF, 0x0100, 0x01FF, 0x7FFF, 0x8000, 0xFFFF]
UPPER = [0, 0, 1, 1, 127, 128, 255]
RED, WHITE, BLACK = (255, 0, 0), (255, 255, 255), (0, 0, 0)


def pixels(data: object) -> list[tuple[int, ...]]:
    """Give the pixels of a picture, row by row."""
    return [tuple(pixel) for pixel in np.asarray(read_image(data)).reshape(-1, 3).tolist()]


def greys(data: object) -> list[int]:
    """Give the levels of a grey picture."""
    found = pixels(data)
    assert all(len(set(pixel)) == 1 for pixel in found)
    return [pixel[0] for pixel in found]


@pytest.mark.parametrize(
    ("mode", "form", "options"),
    [
        pytest.param("L", "PNG", {}, id="grey-png"),
        pytest.param("L", "JPEG", {}, id="grey-jpeg"),
        pytest.param("L", "BMP", {}, id="grey-bmp"),
        pytest.param("L", "GIF", {}, id="grey-gif"),
        pytest.param("1", "PNG", {}, id="1-bit-png"),
        pytest.param("1", "BMP", {}, id="1-bit-bmp"),
        pytest.param("1", "TIFF", {"compression": "group4"}, id="fax-tiff"),
        pytest.param("P", "PNG", {}, id="palette-png"),
        pytest.param("P", "PNG", {"bits": 4}, id="palette-png-4"),
        pytest.param("P", "BMP", {}, id="palette-bmp"),
        pytest.param("P", "TIFF", {}, id="palette-tiff"),
        pytest.param("CMYK", "JPEG", {}, id="cmyk-jpeg"),
        pytest.param("CMYK", "TIFF", {}, id="cmyk-tiff"),
        pytest.param("YCbCr", "JPEG", {}, id="ycbcr-jpeg"),
        pytest.param("YCbCr", "TIFF", {}, id="ycbcr-tiff"),
        pytest.param("LAB", "TIFF", {}, id="lab-tiff"),
        pytest.param("RGB", "JPEG", {"keep_rgb": True}, id="rgb-jpeg"),
    ],
)
def test_what_has_no_more_than_8_bits_is_as_pillow_converts_it(
    mode: str, form: str, options: dict[str, object], picture: Image.Image, encode: Encode
) -> None:
    """Pillow's own conversion is right for these."""
    data = encode(picture.convert(mode), form, **options)
    with Image.open(io.BytesIO(data)) as opened:
        assert read_image(data).tobytes() == opened.convert("RGB").tobytes()


@pytest.mark.parametrize(
    ("cmyk", "rgb"),
    [
        ((0, 0, 0, 0), WHITE),
        ((0, 255, 255, 0), RED),
        ((0, 0, 0, 255), BLACK),
        ((255, 0, 0, 0), (0, 255, 255)),
    ],
)
@pytest.mark.parametrize("form", ["TIFF", "JPEG"])
def test_ink_is_subtracted(
    cmyk: tuple[int, ...], rgb: tuple[int, ...], form: str, encode: Encode
) -> None:
    """CMYK is not taken for its inverse."""
    data = encode(Image.new("CMYK", (8, 8), cmyk), form)
    assert np.abs(np.subtract(pixels(data), rgb)).max() <= 2


def test_lab_is_that_of_print() -> None:
    """L* is lightness: 100 is white, 0 black."""
    for lightness, grey in ((255, 255), (0, 0)):
        buffer = io.BytesIO()
        Image.new("LAB", (1, 1), (lightness, 128, 128)).save(buffer, "TIFF")
        (found,) = pixels(buffer.getvalue())
        assert np.abs(np.subtract(found, grey)).max() <= 4


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_an_embedded_profile_is_ignored(form: str, picture: Image.Image, encode: Encode) -> None:
    """Colours are taken for sRGB, as models were trained."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("XYZ")).tobytes()
    assert pixels(encode(picture, form, icc_profile=profile)) == pixels(encode(picture, form))


def test_a_gamma_value_is_ignored(write_png: WritePng) -> None:
    """A PNG's gAMA changes nothing."""
    header, rows = (3, 1, 8, 0), [bytes([0, 128, 255])]
    assert greys(write_png(header, rows, gAMA=struct.pack(">I", 100_000))) == [0, 128, 255]


@pytest.mark.parametrize(("colour", "channels"), [(0, 1), (2, 3)])
def test_16_bits_of_a_png_are_scaled(colour: int, channels: int, write_png: WritePng) -> None:
    """Grey and colour by their upper half, so that both agree."""
    row = struct.pack(f">{7 * channels}H", *np.repeat(LEVELS, channels))
    assert greys(write_png((7, 1, 16, colour), [row])) == UPPER


@pytest.mark.parametrize(("colour", "channels"), [(4, 1), (6, 3)])
def test_16_bits_of_a_png_with_alpha_are_scaled(
    colour: int, channels: int, write_png: WritePng
) -> None:
    """And laid over white."""
    row = b"".join(
        struct.pack(f">{channels + 1}H", *([level] * channels), alpha)
        for level, alpha in [(0x1234, 0xFFFF), (0, 0), (0xFFFF, 0x8000)]
    )
    assert greys(write_png((3, 1, 16, colour), [row])) == [0x12, 255, 255]


def tiff_tags(
    width: int, bits: int, photometric: int, size: int, **more: int
) -> dict[int, list[int]]:
    """Give the tags of a grey TIFF of one row."""
    tags = {
        256: [width],
        257: [1],
        258: [bits],
        262: [photometric],
        273: [0],
        277: [1],
        279: [size],
    }
    return tags | ({339: [more["kind"]]} if more else {})


@pytest.mark.parametrize("order", ["<", ">"])
def test_16_bits_of_a_tiff_are_scaled(order: str, write_tiff: WriteTiff) -> None:
    """In either byte order."""
    data = struct.pack(f"{order}7H", *LEVELS)
    assert greys(write_tiff(tiff_tags(7, 16, 1, 14), data, order)) == UPPER


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "packbits", None])
def test_16_bits_of_a_compressed_tiff_are_scaled(compression: str | None, encode: Encode) -> None:
    """The TIFF library's way of reading gives the same."""
    deep = Image.fromarray(np.array([LEVELS], np.uint16))
    assert greys(encode(deep, "TIFF", compression=compression)) == UPPER


def test_16_bits_of_colour_in_a_tiff_are_scaled(write_tiff: WriteTiff) -> None:
    """Samples of a pixel lie side by side."""
    tags = tiff_tags(1, 16, 2, 6) | {258: [16, 16, 16], 277: [3]}
    assert pixels(write_tiff(tags, struct.pack("<3H", 0x1234, 0xFFFF, 0x00FF))) == [(0x12, 255, 0)]


def test_12_bits_are_scaled(write_tiff: WriteTiff) -> None:
    """4095 is white; Pillow alone would make it nearly black."""
    data = bytes([0xFF, 0xF8, 0x00, 0x00, 0x0F, 0x00])
    assert greys(write_tiff(tiff_tags(4, 12, 1, 6), data)) == [255, 128, 0, 240]


def test_32_bits_are_scaled(write_tiff: WriteTiff) -> None:
    """Unsigned numbers of 32 bits by their upper 8."""
    data = struct.pack("<4I", 0, 0x12345678, 0x80000000, 0xFFFFFFFF)
    assert greys(write_tiff(tiff_tags(4, 32, 1, 16), data)) == [0, 0x12, 0x80, 255]


@pytest.mark.parametrize("order", ["<", ">"])
def test_floats_of_a_tiff_go_from_0_to_1(order: str, write_tiff: WriteTiff) -> None:
    """As those of an array."""
    data = struct.pack(f"{order}4f", 0, 0.25, 0.5, 1)
    assert greys(write_tiff(tiff_tags(4, 32, 1, 16, kind=3), data, order)) == [0, 64, 128, 255]


@pytest.mark.parametrize(
    ("bits", "kind", "data"),
    [
        pytest.param(8, 1, bytes([0, 0x12, 255]), id="8"),
        pytest.param(16, 1, struct.pack("<3H", 0, 0x12FF, 0xFFFF), id="16"),
        pytest.param(32, 3, struct.pack("<3f", 0, 0x12 / 255, 1), id="float"),
    ],
)
def test_where_0_is_white_it_is_white(
    bits: int, kind: int, data: bytes, write_tiff: WriteTiff
) -> None:
    """At every depth; Pillow alone does so up to 8 bits."""
    found = greys(write_tiff(tiff_tags(3, bits, 0, len(data), kind=kind), data))
    assert found == [255, 255 - 0x12, 0]


@pytest.mark.parametrize("values", [[0, 2], [-1, 0], [0, 65504], [float("nan"), 0]])
def test_error_floats_out_of_range(values: Sequence[float], write_tiff: WriteTiff) -> None:
    """They are refused, with the range that was found."""
    data = struct.pack("<2f", *values)
    with pytest.raises(InvalidArgumentError, match="bytes holds floats from"):
        read_image(write_tiff(tiff_tags(2, 32, 1, 8, kind=3), data))


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_error_signed_samples(bits: int, write_tiff: WriteTiff) -> None:
    """They do not say what is white."""
    data = bytes(bits // 8)
    with pytest.raises(InvalidArgumentError, match="is a TIFF of signed samples"):
        read_image(write_tiff(tiff_tags(1, bits, 1, len(data), kind=2), data))


def test_error_separate_planes_of_16_bits(write_tiff: WriteTiff) -> None:
    """Pillow 13 reads half of each plane."""
    tags = tiff_tags(2, 16, 2, 0) | {
        258: [16] * 3,
        273: [0, 4, 8],
        277: [3],
        279: [4] * 3,
        284: [2],
    }
    with pytest.raises(InvalidArgumentError, match="separate 16-bit planes"):
        read_image(write_tiff(tags, bytes(12)))


def test_separate_planes_of_8_bits(write_tiff: WriteTiff) -> None:
    """These are read right."""
    tags = tiff_tags(2, 8, 2, 0) | {258: [8] * 3, 273: [0, 2, 4], 277: [3], 279: [2] * 3, 284: [2]}
    assert pixels(write_tiff(tags, bytes(range(6)))) == [(0, 2, 4), (1, 3, 5)]


RGBA = [[(255, 0, 0, 255), (255, 0, 0, 0), (0, 0, 0, 128), (10, 20, 30, 200)]]
OVER_WHITE = [RED, WHITE, (127, 127, 127), (63, 71, 79)]


@pytest.mark.parametrize(
    ("form", "options"),
    [
        pytest.param("PNG", {}, id="png"),
        pytest.param("WEBP", {"lossless": True, "exact": True}, id="webp"),
        pytest.param("TIFF", {}, id="tiff"),
        pytest.param("TIFF", {"compression": "tiff_lzw"}, id="tiff-lzw"),
    ],
)
def test_alpha_lies_over_white(form: str, options: dict[str, object], encode: Encode) -> None:
    """The colour below a transparent pixel does not show."""
    data = encode(Image.fromarray(np.array(RGBA, np.uint8)), form, **options)
    assert pixels(data) == OVER_WHITE


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_grey_with_alpha_lies_over_white(form: str, encode: Encode) -> None:
    """Two channels, as four."""
    channels = np.array([[0, 0, 0, 200], [255, 0, 128, 255]], np.uint8)[:, None]
    data = encode(Image.merge("LA", [Image.fromarray(channel) for channel in channels]), form)
    assert greys(data) == [0, 255, 127, 200]


def test_premultiplied_alpha_lies_over_white(write_tiff: WriteTiff) -> None:
    """A TIFF may hold samples that are multiplied with their alpha already."""
    grey = tiff_tags(2, 8, 1, 4) | {258: [8, 8], 277: [2], 338: [1]}
    assert (
        np.abs(np.subtract(greys(write_tiff(grey, bytes([0, 128, 64, 128]))), [127, 191])).max() < 2
    )
    colour = tiff_tags(1, 8, 2, 4) | {258: [8] * 4, 277: [4], 338: [1]}
    (found,) = pixels(write_tiff(colour, bytes([128, 0, 0, 128])))
    assert np.abs(np.subtract(found, (255, 127, 127))).max() < 2


@pytest.mark.parametrize("alphas", [b"\0", b"\xff\0", b"\x80\xff", b"\x80\x40"])
def test_transparent_entries_of_a_palette_lie_over_white(
    alphas: bytes, write_png: WritePng
) -> None:
    """One or many, wholly or half."""
    palette = bytes([255, 0, 0, 0, 0, 0])
    data = write_png((2, 1, 8, 3), [b"\0\1"], PLTE=palette, tRNS=alphas)
    alpha = np.array([*alphas, 255][:2])[:, None] / 255
    expected = np.array([RED, BLACK]) * alpha + 255 * (1 - alpha)
    assert np.abs(np.subtract(pixels(data), expected)).max() <= 0.51


def test_the_transparent_colour_of_a_gif_is_white(encode: Encode) -> None:
    """The whole picture, and what a smaller frame leaves free."""
    indexed = Image.new("P", (3, 1))
    indexed.putpalette([255, 0, 0, 0, 0, 255, 0, 0, 0])
    indexed.putdata([0, 1, 2])
    data = bytearray(encode(indexed, "GIF", transparency=1, optimize=False))
    assert pixels(data) == [RED, WHITE, BLACK]
    data[6] = 4
    assert pixels(data) == [RED, WHITE, BLACK, WHITE]


GREY_KEYS = [
    pytest.param(1, [0b01_000000], 1, [0, 255], id="1-bit"),
    pytest.param(2, [0b01_10_0000], 2, [85, 255], id="2-bit"),
    pytest.param(4, [0x12], 2, [17, 255], id="4-bit"),
    pytest.param(8, [17, 2], 2, [17, 255], id="8-bit"),
    pytest.param(16, [0x11, 2, 0x11, 1], 0x1101, [17, 255], id="16-bit"),
]


@pytest.mark.parametrize(("bits", "row", "key", "expected"), GREY_KEYS)
def test_the_transparent_grey_of_a_png_is_white(
    bits: int, row: list[int], key: int, expected: list[int], write_png: WritePng
) -> None:
    """At every depth that very grey, and no other; Pillow alone misses it at 2, 4 and 16 bits."""
    data = write_png((2, 1, bits, 0), [bytes(row)], tRNS=struct.pack(">H", key))
    assert greys(data) == expected


@pytest.mark.parametrize(
    ("bits", "row", "key", "expected"),
    [
        pytest.param(8, bytes([1, 2, 3, 1, 2, 4]), (1, 2, 3), [WHITE, (1, 2, 4)], id="8-bit"),
        pytest.param(
            16,
            struct.pack(">6H", 0x100, 0x200, 0x300, 0xFFFF, 0xFFFF, 0),
            (0x100, 0x200, 0x300),
            [WHITE, (255, 255, 0)],
            id="16-bit",
        ),
        pytest.param(
            16,
            struct.pack(">6H", 0xFF00, 0xFF00, 0xFF00, 0, 0, 0),
            (0x1FF, 0x1FF, 0x1FF),
            [WHITE, BLACK],
            id="16-bit-elsewhere",
        ),
    ],
)
def test_the_transparent_colour_of_a_png_is_white(
    bits: int, row: bytes, key: tuple[int, ...], expected: list[object], write_png: WritePng
) -> None:
    """And every other colour is kept."""
    data = write_png((2, 1, bits, 2), [row], tRNS=struct.pack(">3H", *key))
    assert pixels(data) == expected
