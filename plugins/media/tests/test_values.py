"""What may be given, and what is said of everything else."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import numpy as np  # noqa: TID253 -- arrays are what is read
import pytest
from PIL import Image

from cartridge_core.errors import InvalidArgumentError
from cartridge_media import _pillow
from cartridge_media.images import read_image
from cartridge_media.refusal import Refused
from cartridge_media.sources import Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Encode


@attrs.frozen
class Named:
    """A path by its protocol alone."""

    name: str | bytes

    def __fspath__(self) -> str | bytes:
        return self.name


@pytest.fixture
def png(tmp_path: Path, picture: Image.Image) -> Path:
    """A file."""
    path = tmp_path / "a picture.png"
    picture.save(path)
    return path


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda path: path, id="path"),
        pytest.param(str, id="str"),
        pytest.param(lambda path: Named(str(path)), id="other-pathlike"),
        pytest.param(lambda path: Named(os.fsencode(path)), id="bytes-pathlike"),
        pytest.param(lambda path: path.read_bytes(), id="bytes"),
        pytest.param(lambda path: bytearray(path.read_bytes()), id="bytearray"),
        pytest.param(lambda path: memoryview(path.read_bytes()), id="memoryview"),
        pytest.param(lambda path: np.asarray(Image.open(path)), id="array"),
    ],
)
def test_a_path_bytes_and_an_array_give_the_same(
    png: Path, picture: Image.Image, given: Callable[[Path], object]
) -> None:
    """Every kind of value gives the pixels of the picture."""
    read = read_image(given(png))
    assert read.tobytes() == picture.tobytes()
    assert (read.size, read.mode) == (picture.size, "RGB")


def test_a_relative_path_is_one_of_the_working_folder(
    png: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken as the system takes it."""
    monkeypatch.chdir(png.parent)
    assert read_image(png.name).size == (48, 32)


def test_what_is_read_is_a_picture_and_no_open_file(encode: Encode) -> None:
    """Pillow's own class, with no metadata that somebody might apply once more."""
    exif = Image.Exif()
    exif[0x0112] = 6
    read = read_image(encode(Image.new("RGB", (3, 2)), "JPEG", exif=exif, comment=b"hello"))
    assert type(read) is Image.Image
    assert read.info == {}
    assert dict(read.getexif()) == {}


@pytest.mark.parametrize("shape", [(2, 2), (2, 2, 1), (2, 2, 3), (2, 2, 4)])
def test_a_picture_shares_no_memory_with_its_array(shape: tuple[int, ...]) -> None:
    """Whoever changes the array afterwards does not change the picture, nor the other way."""
    array = np.full(shape, 255, np.uint8)
    read = read_image(array)
    array[:] = 0
    assert read.getpixel((0, 0)) == (255, 255, 255)
    read.paste((9, 9, 9), (0, 0, 2, 2))
    assert not array.any()


def test_bytes_are_not_kept(files: dict[str, bytes]) -> None:
    """A bytearray can be resized as soon as the picture is there."""
    data = bytearray(files["bmp"])
    read = read_image(data)
    data.clear()
    assert read.size == (48, 32)


def test_a_file_is_closed_and_may_be_deleted(png: Path) -> None:
    """No descriptor is left, after success or failure."""
    before = len(os.listdir("/proc/self/fd"))
    read_image(png)
    png.write_bytes(png.read_bytes()[:300])
    with pytest.raises(InvalidArgumentError):
        read_image(png)
    assert len(os.listdir("/proc/self/fd")) == before


URLS = [
    "http://127.0.0.1:9/cat.png",
    "https://example.org/cat.png",
    "HTTPS://example.org/cat.png",
    " http://example.org/cat.png",
    "https:cat.png",
    "data:image/png;base64,iVBORw0KGgo=",
    "file:///etc/passwd",
    "file:cat.png",
    "ftp://example.org/cat.png",
    "s3://bucket/cat.png",
]


@pytest.mark.parametrize("url", URLS)
def test_error_a_url_is_never_opened(
    url: str, tmp_path: Path, picture: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where there is a file of that name."""
    monkeypatch.chdir(tmp_path)
    Path(url).parent.mkdir(parents=True, exist_ok=True)
    if not Path(url).is_absolute():
        picture.save(url, "PNG")
    with pytest.raises(InvalidArgumentError, match="is a URL, and none is opened") as caught:
        read_image(url)
    assert url in str(caught.value)


def test_a_path_object_is_no_url(
    tmp_path: Path, picture: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has a file of such a name gives a Path."""
    monkeypatch.chdir(tmp_path)
    picture.save("data:cat.png", "PNG")
    assert read_image(Path("data:cat.png")).size == picture.size


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def _dangling(folder: Path) -> Path:
    (folder / "link.png").symlink_to(folder / "gone.png")
    return folder / "link.png"


def _empty(folder: Path) -> Path:
    (folder / "empty.png").touch()
    return folder / "empty.png"


def _loop(folder: Path) -> Path:
    (folder / "loop.png").symlink_to(folder / "loop.png")
    return folder / "loop.png"


@pytest.mark.parametrize(
    ("make", "found"),
    [
        pytest.param(lambda folder: folder, "is a directory", id="directory"),
        pytest.param(lambda folder: folder / "none.png", "is not there", id="missing"),
        pytest.param(_dangling, "is not there", id="dangling-link"),
        pytest.param(_loop, "cannot be opened", id="looping-link"),
        pytest.param(_empty, "is empty", id="empty"),
        pytest.param(_pipe, "is no regular file", id="pipe"),
        pytest.param(lambda _: Path("/dev/zero"), "is no regular file", id="device"),
        pytest.param(lambda folder: _empty(folder) / "x.png", "cannot be opened", id="in-a-file"),
        pytest.param(lambda folder: folder / ("x" * 300), "cannot be opened", id="long-name"),
        pytest.param(lambda folder: f"{folder}/\0.png", "cannot be opened", id="nul"),
        pytest.param(lambda _: "", "names nothing", id="empty-name"),
    ],
)
def test_error_a_path_that_is_no_file(
    tmp_path: Path, make: Callable[[Path], Path | str], found: str
) -> None:
    """The message names the path, and what is there instead; the error carries the path."""
    path = make(tmp_path)
    with pytest.raises(InvalidArgumentError, match=found) as caught:
        read_image(path)
    assert repr(str(path)[:100])[:-1] in str(caught.value)
    assert caught.value.value == path


def test_error_a_file_that_may_not_be_read(png: Path) -> None:
    """Permissions are said to be the matter; a child drops its own first, where it is root's."""
    png.chmod(0)
    script = (
        "import os, sys\n"
        "from cartridge_core.errors import InvalidArgumentError\n"
        "from cartridge_media.images import read_image\n"
        "import cartridge_media._pillow\n"
        "os.geteuid() or os.seteuid(65534)\n"
        "try:\n"
        "    read_image(sys.argv[1])\n"
        "except InvalidArgumentError as exc:\n"
        "    print(exc)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, png], capture_output=True, text=True, check=True, timeout=60
    )
    assert "may not be read by this user" in ended.stdout
    assert "a picture.png" in ended.stdout


class Broken(io.RawIOBase):
    """A file on a broken disk."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_error_a_broken_disk() -> None:
    """What the system says is passed on."""
    with pytest.raises(Refused, match=r"cannot be read \(Input/output error\)"):
        _pillow.decode(Source(Broken()), max_pixels=1)


@pytest.mark.parametrize("value", [b"", bytearray(), memoryview(b"")])
def test_error_no_bytes(value: object) -> None:
    """Nothing at all is called so."""
    with pytest.raises(InvalidArgumentError, match="the content of 0 bytes is empty"):
        read_image(value)


@pytest.mark.parametrize(
    ("value", "subject"),
    [
        pytest.param(None, "the NoneType", id="none"),
        pytest.param(7, "the int", id="number"),
        pytest.param([[0, 255]], "the list", id="list"),
        pytest.param({"path": "x.png"}, "the dict", id="dict"),
        pytest.param(Image.new("RGB", (1, 1)), "the Image", id="pillow-image"),
        pytest.param(open, "the builtin_function_or_method", id="function"),
    ],
)
def test_error_a_value_of_another_type(value: object, subject: str) -> None:
    """The message says what may be given."""
    with pytest.raises(InvalidArgumentError) as caught:
        read_image(value)
    assert f"{subject} is no picture; give a path" in str(caught.value)


def test_error_messages_begin_with_the_argument(files: dict[str, bytes]) -> None:
    """The caller's name of it, with the place in a list, is in the message and in the error."""
    with pytest.raises(InvalidArgumentError) as caught:
        read_image(files["png"][:1000], arg="pictures[3]")
    assert str(caught.value).startswith("pictures[3]: the content of 1,000 bytes is cut short")
    assert caught.value.arg == "pictures[3]"
    assert caught.value.value is None


@pytest.mark.parametrize("missing", ["PIL", "numpy"])
def test_error_without_the_extra(missing: str) -> None:
    """Without Pillow or numpy the message says what to type."""
    script = (
        "import sys\n"
        f"sys.modules[{missing!r}] = None\n"
        "from cartridge_core.errors import LoadError\n"
        "from cartridge_media.images import read_image\n"
        "try:\n"
        "    read_image([])\n"
        "except LoadError as exc:\n"
        "    print(exc)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert 'pip install "cartridge-media[image]"' in ended.stdout


def test_importing_brings_neither_pillow_nor_numpy() -> None:
    """A plugin may import it before it knows whether they are installed."""
    script = (
        "import sys, cartridge_media.images\nprint({'PIL', 'numpy', 'torch'} & set(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "set()\n"
