"""Hostile files: too large, cut short, or with nothing in them."""

from __future__ import annotations

import struct
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- arrays are what is read
import pytest
from PIL import Image, ImageFile

from cartridge_core.errors import InvalidArgumentError
from cartridge_media.canvas import webp_size
from cartridge_media.images import MAX_PIXELS, read_image

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Encode, WritePng, WriteTiff

TENTHS = range(10)


def stated(name: str, data: bytes, width: int, height: int) -> bytes:
    """Make a file's header state another size."""
    changed = bytearray(data)
    if name == "gif":
        changed[6:10] = struct.pack("<HH", width, height)
    elif name == "gif-frame":
        place = data.index(b",", 13 + 768)
        changed[place + 5 : place + 9] = struct.pack("<HH", width, height)
    elif name == "bmp":
        changed[18:26] = struct.pack("<ii", width, height)
    elif name.startswith("jpeg"):
        place = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
        changed[place + 5 : place + 9] = struct.pack(">HH", height, width)
    elif name == "webp":
        changed[26:30] = struct.pack("<HH", width, height)
    elif name == "webp-lossless":
        changed[21:25] = struct.pack("<I", width - 1 | height - 1 << 14)
    elif name == "webp-canvas":
        changed[24:30] = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return bytes(changed)


@pytest.fixture(scope="session")
def bombs(
    files: dict[str, bytes], encode: Encode, write_png: WritePng, write_tiff: WriteTiff
) -> dict[str, bytes]:
    """Small files that state pictures of up to 10^13 pixels."""
    animated = encode(
        Image.new("RGB", (8, 8)), "WEBP", save_all=True, append_images=[Image.new("RGB", (8, 8), 9)]
    )
    tags = {256: [90_000], 257: [90_000], 258: [8], 262: [1], 273: [0], 277: [1], 279: [9]}
    tile = {256: [8], 257: [8], 258: [8], 259: [8], 262: [1], 277: [1], 322: [46_000]}
    tile |= {323: [46_000], 324: [0], 325: [9]}
    return {
        "png": write_png((100_000, 100_000, 8, 2)),
        "jpeg": stated("jpeg", files["jpeg"], 65_000, 65_000),
        "jpeg-progressive": stated("jpeg-progressive", files["jpeg-progressive"], 65_000, 65_000),
        "gif": stated("gif", files["gif"], 65_000, 65_000),
        "gif-frame": stated("gif-frame", files["gif"], 10_000, 10_000),
        "bmp": stated("bmp", files["bmp"], 2_000_000, 2_000_000),
        "webp": stated("webp", files["webp"], 16_383, 16_383),
        "webp-lossless": stated("webp-lossless", files["webp-lossless"], 16_383, 16_383),
        "webp-canvas": stated("webp-canvas", animated, 10_000, 10_000),
        "tiff": write_tiff(tags, bytes(9)),
        "tiff-tile": write_tiff(tile, bytes(9)),
    }


BOMBS = [
    "png", "jpeg", "jpeg-progressive", "gif", "gif-frame", "bmp", "webp", "webp-lossless",
    "webp-canvas", "tiff", "tiff-tile",
]  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_error_a_header_that_states_too_much(name: str, bombs: dict[str, bytes]) -> None:
    """The message says how many pixels, and how many are allowed; Pillow does not warn."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(InvalidArgumentError, match=r"pixels .* max_pixels allows 64,000,000"):
            read_image(bombs[name])
    assert not warned


def test_a_bomb_takes_no_memory(bombs: dict[str, bytes], tmp_path: Path) -> None:
    """With 64 MB of address space to spare, each is refused for its size and nothing else."""
    for name, data in bombs.items():
        (tmp_path / name).write_bytes(data)
    script = (
        "import pathlib, resource, sys\n"
        "from cartridge_core.errors import InvalidArgumentError\n"
        "from cartridge_media import _pillow\n"
        "from cartridge_media.images import read_image\n"
        "import numpy\n"
        "read_image(numpy.zeros((2, 2), 'uint8'))\n"
        "pages = int(pathlib.Path('/proc/self/statm').read_text().split()[0])\n"
        "limit = pages * resource.getpagesize() + (64 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "for path in pathlib.Path(sys.argv[1]).iterdir():\n"
        "    for value in (path, path.read_bytes()):\n"
        "        try:\n"
        "            read_image(value)\n"
        "        except InvalidArgumentError as exc:\n"
        "            assert 'max_pixels allows' in str(exc), exc\n"
        "            print(path.name)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, tmp_path],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ended.stderr == ""
    assert sorted(ended.stdout.split()) == sorted(BOMBS * 2)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param("webp", (16_383, 3), id="lossy"),
        pytest.param("webp-lossless", (16_384, 16_383), id="lossless"),
        pytest.param("webp-canvas", (65_537, 70_000), id="canvas"),
    ],
)
def test_the_size_of_a_webp_is_read_whole(
    name: str, size: tuple[int, int], bombs: dict[str, bytes]
) -> None:
    """All 14 bits of a picture's, and all 24 of a canvas'."""
    assert webp_size(stated(name, bombs[name], *size)) == size


@pytest.mark.parametrize("name", ["png", "jpeg", "webp", "gif", "bmp", "tiff", "tiff-lzw"])
def test_the_limit_is_exact(name: str, files: dict[str, bytes]) -> None:
    """48 by 32 are 1536 pixels: as many are allowed, one fewer is too few."""
    assert read_image(files[name], max_pixels=1536).size == (48, 32)
    with pytest.raises(InvalidArgumentError, match=r"1,536 pixels \(48 x 32\), and max_pixels"):
        read_image(files[name], max_pixels=1535)


def test_the_limit_is_below_pillow_s() -> None:
    """So that Pillow never warns of what is allowed."""
    assert Image.MAX_IMAGE_PIXELS is not None
    assert MAX_PIXELS < Image.MAX_IMAGE_PIXELS


def test_error_a_program_s_own_limit_counts(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Pillow's limit is lower, the message names it; where it is off, ours is left."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(InvalidArgumentError, match=r"PIL\.Image\.MAX_IMAGE_PIXELS allows 1,000"):
        read_image(files["png"], max_pixels=10**9)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with pytest.raises(InvalidArgumentError, match="max_pixels allows 1,000"):
        read_image(files["png"], max_pixels=1000)


def test_a_large_picture_is_allowed_by_the_caller() -> None:
    """The limit is an argument; long and thin is as good as square."""
    array = np.broadcast_to(np.uint8(7), (1, MAX_PIXELS + 1))
    with pytest.raises(InvalidArgumentError, match="64,000,001 pixels"):
        read_image(array)


CUT = [
    "png", "jpeg", "jpeg-progressive", "webp", "webp-lossless", "gif", "bmp", "tiff", "tiff-lzw",
    "tiff-deflate", "tiff-jpeg",
]  # fmt: skip


@pytest.mark.parametrize("tolerant", [False, True], ids=["usual", "tolerant-program"])
@pytest.mark.parametrize("name", CUT)
@pytest.mark.filterwarnings("ignore:.*EXIF data:UserWarning", "ignore:Truncated:UserWarning")
def test_error_a_file_cut_short(
    name: str,
    tolerant: bool,
    files: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cut at every tenth it is refused, also in a program that lets Pillow fill it in."""
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", tolerant)
    path = tmp_path / "cut"
    for tenth in TENTHS:
        data = files[name][: len(files[name]) * tenth // 10]
        path.write_bytes(data)
        for value in (data, path):
            with pytest.raises(InvalidArgumentError) as caught:
                read_image(value)
            assert ("the content of" if value is data else repr(str(path))) in str(caught.value)


@pytest.mark.parametrize("name", ["png", "jpeg", "gif", "bmp", "tiff"])
def test_error_a_cut_file_is_called_so(name: str, files: dict[str, bytes]) -> None:
    """The message says where it ends."""
    half = len(files[name]) // 2
    with pytest.raises(InvalidArgumentError, match=f"is cut short: its {half:,} bytes end inside"):
        read_image(files[name][:half])


@pytest.mark.parametrize("name", CUT)
def test_what_follows_the_picture_does_not_count(name: str, files: dict[str, bytes]) -> None:
    """Cameras append what they like."""
    assert read_image(files[name] + b"more" * 99).tobytes() == read_image(files[name]).tobytes()


@pytest.mark.parametrize("form", ["GIF", "PNG"])
def test_a_cut_after_the_first_frame_does_not_count(form: str, encode: Encode) -> None:
    """Later frames are not looked at."""
    frames = [Image.new("RGB", (60, 60), colour) for colour in ("red", "lime", "blue")]
    data = encode(frames[0], form, save_all=True, append_images=frames[1:])
    assert read_image(data[:-20]).getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize(
    ("width", "height"), [(0, 4), (4, 0), (0, 0)], ids=["no-width", "no-height", "neither"]
)
@pytest.mark.parametrize("name", ["png", "gif", "bmp", "jpeg"])
def test_error_no_pixels(
    name: str, width: int, height: int, files: dict[str, bytes], write_png: WritePng
) -> None:
    """A picture of no width or height is refused as that."""
    if name == "png":
        data = write_png((width, height, 8, 2))
    elif name == "gif":
        data = stated("gif-frame", stated("gif", files["gif"], width, height), width, height)
    else:
        data = stated(name, files[name], width, height)
    with pytest.raises(InvalidArgumentError, match="no pixels"):
        read_image(data)


@pytest.mark.parametrize("name", ["png", "jpeg", "webp", "gif", "bmp", "tiff"])
def test_error_the_first_bytes_alone(name: str, files: dict[str, bytes]) -> None:
    """What begins as a picture and holds nothing is refused, with its format's name."""
    shortest = {"png": 8, "jpeg": 3, "webp": 12, "gif": 6, "bmp": 18, "tiff": 8}[name]
    with pytest.raises(InvalidArgumentError, match=r"is a damaged (PNG|JPEG|WebP|GIF|BMP|TIFF)"):
        read_image(files[name][:shortest])


@pytest.mark.parametrize(("name", "end"), [("png", 8), ("webp", 12), ("gif", 12)])
def test_error_half_a_header(name: str, end: int, files: dict[str, bytes]) -> None:
    """The message says that it ends there, and not what Python's struct says."""
    with pytest.raises(InvalidArgumentError, match="it ends in its header"):
        read_image(files[name][:end])


def test_error_a_gif_of_extensions_alone() -> None:
    """Nothing but extensions, and then the end."""
    data = b"GIF89a\1\0\1\0\0\0\0" + b"!\xf9\4\0\0\0\0\0" * 1000
    with pytest.raises(InvalidArgumentError, match="is a damaged GIF"):
        read_image(data + b";")


@pytest.mark.parametrize(
    "extension",
    [
        pytest.param(b"!\xfe\3abc\0", id="comment"),
        pytest.param(b"!\xfe\0", id="empty-comment"),
        pytest.param(b"!\xff\x0bNETSCAPE2.0\3\1\0\0\0", id="loop"),
        pytest.param(b"!\xff\x0bNETSCAPE2.0\0\0", id="loop-of-nothing"),
        pytest.param(b"!\xf9\4\0\0\0\0\0", id="control"),
        pytest.param(b"!\xf9\0\0", id="empty-control"),
        pytest.param(b"!\x01\2ab\1c\0", id="text"),
    ],
)
def test_a_gif_s_size_is_found_behind_extensions(extension: bytes, files: dict[str, bytes]) -> None:
    """A frame larger than the canvas is found wherever it stands."""
    data = files["gif"]
    place = data.index(b",", 13 + 768)
    widened = data[:13] + data[13:place] + extension + data[place:]
    assert read_image(widened).tobytes() == read_image(data).tobytes()
    bomb = bytearray(widened)
    frame = place + len(extension)
    bomb[frame + 5 : frame + 9] = struct.pack("<HH", 10_000, 10_000)
    with pytest.raises(InvalidArgumentError, match=r"100,000,000 pixels \(10000 x 10000\)"):
        read_image(bytes(bomb))
