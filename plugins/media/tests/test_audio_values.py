"""Arrays of sound, and what is said of everything that is no sound."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- arrays are what is read
import pytest

from cartridge_core.errors import InvalidArgumentError
from cartridge_media.audio import RATE_HZ, read_audio

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from conftest import WriteWav


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 44_100])
@pytest.mark.parametrize("shape", [(5_000,), (5_000, 1), (5_000, 3)])
def test_an_array_s_last_axis_is_its_channels(shape: tuple[int, ...], rate_hz: int) -> None:
    """Time comes first; a mono array may leave the other axis out."""
    samples = np.random.default_rng(3).uniform(-1, 1, shape).astype(np.float32)
    known = read_audio(samples.reshape(5_000, -1).mean(axis=1), rate_hz=rate_hz)
    assert np.abs(read_audio(samples, rate_hz=rate_hz) - known).max() < 1e-6


def test_an_array_shares_no_memory_with_what_is_read() -> None:
    """Nor may what is read be written into the array."""
    samples = np.zeros(100, np.float32)
    read = read_audio(samples, rate_hz=RATE_HZ)
    read += 1
    assert not samples.any()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param(np.zeros((2, 48_000), "f4"), "time comes first: give array.T", id="turned"),
        pytest.param(np.zeros((9, 2, 1), "f4"), r"give \(frames,\), or", id="three-axes"),
        pytest.param(np.zeros((), "f4"), r"give \(frames,\), or", id="no-axis"),
        pytest.param(np.zeros((900, 65), "f4"), "with 1 to 64", id="too-many-channels"),
        pytest.param(np.zeros((900, 0), "f4"), "with 1 to 64", id="no-channels"),
        pytest.param(np.zeros(0, "f4"), "has no samples", id="empty"),
        pytest.param(np.zeros((0, 2), "i2"), "has no samples", id="no-frames"),
        pytest.param(np.zeros(1, "f4"), r"too few samples \(1\) for one at", id="one-at-48-kHz"),
    ],
)
def test_error_an_array_of_a_wrong_shape(value: NDArray[np.generic], said: str) -> None:
    """The message says the shape that was given, and the one that is wanted."""
    with pytest.raises(InvalidArgumentError, match=said) as caught:
        read_audio(value, rate_hz=48_000)
    assert f"shape {value.shape}" in str(caught.value)


def test_error_an_array_says_no_rate() -> None:
    """It is never guessed."""
    with pytest.raises(InvalidArgumentError, match="says no rate; give rate_hz"):
        read_audio(np.zeros(100, np.float32))


@pytest.mark.parametrize("rate_hz", [0, -16_000, 1, 999, 768_001, 4_000_000_000])
def test_error_a_rate_that_is_none(rate_hz: int, write_wav: WriteWav) -> None:
    """Of an array and of a file, before anything is decoded."""
    with pytest.raises(InvalidArgumentError, match=f"rate of {rate_hz:,} Hz, and 1,000 to 768,000"):
        read_audio(np.zeros(100, np.float32), rate_hz=rate_hz)
    if rate_hz > 0:
        with pytest.raises(InvalidArgumentError, match=f"{rate_hz:,} Hz"):
            read_audio(write_wav(bytes(100), rate_hz % 2**32, bits=8))


@pytest.mark.parametrize("value", [None, 3, 2.5, [0.0, 0.1], {"a": 1}, object()])
def test_error_what_is_no_sound(value: object) -> None:
    """The message says what is."""
    with pytest.raises(InvalidArgumentError, match="is no sound; give a path, the bytes of a file"):
        read_audio(value, rate_hz=RATE_HZ)


def test_error_a_text_file_object() -> None:
    """A file must give bytes."""
    with pytest.raises(InvalidArgumentError, match=r"gives str where bytes are read.*mode 'rb'"):
        read_audio(io.StringIO("text"))


def test_error_a_closed_file_object() -> None:
    """It is refused as that."""
    file = io.BytesIO(b"RIFF")
    file.close()
    with pytest.raises(InvalidArgumentError, match=r"cannot be read \(I/O operation on closed"):
        read_audio(file)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"", "is empty", id="a15-nothing"),
        pytest.param(b"\x89PNG\r\n\x1a\n", "is a PNG picture, and no sound", id="png"),
        pytest.param(b"%PDF-1.7", "is a PDF, and no sound", id="pdf"),
        pytest.param(b"<!doctype html><html>", "is a web page, and no sound", id="a15-web-page"),
        pytest.param(b"version https://git-lfs", "is a Git LFS pointer", id="git-lfs"),
        pytest.param(b"#EXTM3U\nfile:///etc/passwd", "is text that begins", id="a15-playlist"),
        pytest.param("RIFF".encode("utf-16"), "is of no known format", id="utf-16"),
        pytest.param(bytes(32_000), "is of no known format.*an array", id="a15-raw-samples"),
        pytest.param(b"\0\0\0\x18ftypheic", "is a HEIC picture", id="heic"),
    ],
)
def test_error_what_a_file_is_instead(data: bytes, said: str, tmp_path: Path) -> None:
    """Content decides, and the message says what it is, under a WAV's name too."""
    path = tmp_path / "sound.wav"
    path.write_bytes(data)
    for value in (data, path, io.BytesIO(data)):
        with pytest.raises(InvalidArgumentError, match=said):
            read_audio(value)


@pytest.mark.parametrize("name", ["missing.wav", "", "folder", "https://example.org/a.wav"])
def test_error_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file, none, a folder and a URL."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    said = "is not there|names nothing|is a directory|is a URL, and none is opened"
    with pytest.raises(InvalidArgumentError, match=f"^recording: '{name}' ({said})") as caught:
        read_audio(name, arg="recording")
    assert (caught.value.arg, caught.value.value) == ("recording", name)
