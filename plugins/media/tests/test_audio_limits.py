"""Sound files that are cut, lie about their length, or are too long."""

from __future__ import annotations

import errno
import io
import os
import struct
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- arrays are what is read
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.errors import InvalidArgumentError
from cartridge_media import audio
from cartridge_media.audio import read_audio
from cartridge_media.sources import Source

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import WriteableBuffer

    from conftest import EncodeSound, WriteWav

NOISE = np.random.default_rng(0).integers(-9_999, 9_999, 16_000, np.int16)
SECOND = NOISE / np.float32(32768)
KINDS = {
    "wav": ("WAV", "PCM_16"),
    "wav-float": ("WAV", "FLOAT"),
    "wavex": ("WAVEX", "PCM_24"),
    "rf64": ("RF64", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "vorbis": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "aiff": ("AIFF", "PCM_16"),
}


@pytest.mark.parametrize("name", KINDS)
def test_error_a_file_cut_short(name: str, encode_sound: EncodeSound, tmp_path: Path) -> None:
    """Cut at any of 20 places it is refused, from its beginning to a few bytes before its end."""
    data = encode_sound(SECOND, 16_000, *KINDS[name])
    path = tmp_path / "cut"
    for cut in [4, 12, 40, *range(100, len(data) - 1, len(data) // 16), len(data) - 3]:
        path.write_bytes(data[:cut])
        for value in (data[:cut], path):
            with pytest.raises(InvalidArgumentError):
                read_audio(value)


@pytest.mark.parametrize("name", KINDS)
def test_error_a_cut_file_is_called_so(name: str, encode_sound: EncodeSound) -> None:
    """The message says what it is, and that it is cut."""
    data = encode_sound(SECOND, 16_000, *KINDS[name])
    with pytest.raises(InvalidArgumentError, match=r"is (WAV|FLAC|Ogg|MP3|AIFF|RF64).*cut short"):
        read_audio(data[: len(data) // 2])


@pytest.mark.parametrize("name", ["wav", "wavex", "rf64", "vorbis", "opus", "mp3", "aiff", "flac"])
def test_what_follows_the_sound_does_not_count(name: str, encode_sound: EncodeSound) -> None:
    """Such as tags that a player has appended."""
    data = encode_sound(SECOND, 16_000, *KINDS[name])
    assert np.array_equal(read_audio(data + b"TAG" + bytes(125)), read_audio(data))


UNSIZED = [
    pytest.param({"length": 0xFFFFFFFF, "whole": 0xFFFFFFFF}, id="ffmpeg"),
    pytest.param({"length": 0, "whole": 0}, id="zeros"),
    pytest.param({"length": 0, "whole": 36}, id="header-of-an-empty-file"),
    pytest.param({"length": 0, "whole": 0xFFFFFFFF}, id="zero-in-an-endless-file"),
    pytest.param({"length": 0x7FFFF000, "whole": 0x7FFFF024}, id="sox"),
    pytest.param({"length": 0x80000000, "whole": 0x80000024}, id="arecord"),
    pytest.param({"length": 0, "whole": 8}, id="never-closed"),
]


@pytest.mark.parametrize("header", UNSIZED)
@pytest.mark.parametrize(
    "before",
    [b"", b"LIST\4\0\0\0INFO", b"JUNK\3\0\0\0abc\0"],
    ids=["bare", "tagged", "after-an-odd-chunk"],
)
def test_a_wav_from_a_pipe_reaches_to_its_end(
    header: dict[str, int], before: bytes, write_wav: WriteWav, tmp_path: Path
) -> None:
    """A length of nothing, or beyond what is there, was written before anybody knew it."""
    data = write_wav(NOISE.tobytes(), before=before, **header)
    path = tmp_path / "piped.wav"
    path.write_bytes(data)
    for value in (data, path, io.BytesIO(data)):
        assert np.array_equal(read_audio(value), SECOND)


@pytest.mark.parametrize("header", UNSIZED)
def test_error_a_wav_from_a_pipe_that_broke(header: dict[str, int], write_wav: WriteWav) -> None:
    """It must end with a whole frame, and have one."""
    data = write_wav(NOISE.tobytes(), channels=2, **header)
    with pytest.raises(InvalidArgumentError, match=r"cut short: its .* end inside a frame of 4"):
        read_audio(data[:-1])
    with pytest.raises(InvalidArgumentError, match="has no samples"):
        read_audio(data[: -NOISE.nbytes])


class Broken(io.RawIOBase):
    """A disk that fails after the header."""

    def __init__(self, data: bytes, good: int) -> None:
        self._data = io.BytesIO(data)
        self._good = good

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._data.seek(offset, whence)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        if self._data.tell() >= self._good:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._data.readinto(buffer)


@pytest.mark.parametrize("good", [0, 8_192, 40_000])
@pytest.mark.parametrize("name", ["wav", "flac", "vorbis", "mp3"])
def test_error_a_broken_disk(
    name: str,
    good: int,
    encode_sound: EncodeSound,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What the system says is passed on, wherever it fails, and nothing is printed."""
    data = encode_sound(np.concatenate([SECOND] * 5), 16_000, *KINDS[name])
    broken = Source(Broken(data, min(good, len(data) // 2)))
    monkeypatch.setattr(Source, "of_bytes", lambda _: broken)
    with pytest.raises(InvalidArgumentError, match=r"cannot be read \(Input/output error\)"):
        read_audio(data)
    assert capfd.readouterr() == ("", "")


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_header_is_read_or_refused(data: st.DataObject, write_wav: WriteWav) -> None:
    """Whatever bytes stand in it, nothing else happens."""
    wav = bytearray(write_wav(bytes(64), before=b"LIST\4\0\0\0INFO"))
    for _ in range(data.draw(st.integers(1, 6))):
        wav[data.draw(st.integers(0, 56))] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
    with suppress(InvalidArgumentError):
        read_audio(wav)


def test_a_seek_to_nowhere_is_not_printed(
    encode_sound: EncodeSound, capfd: pytest.CaptureFixture[str]
) -> None:
    """An AIFF that lacks its samples makes libsndfile seek to before the beginning."""
    data = encode_sound(SECOND, 16_000, "AIFF", "PCM_16").replace(b"SSND", b"NONE")
    with pytest.raises(InvalidArgumentError):
        read_audio(data)
    assert capfd.readouterr() == ("", "")


def test_error_gigabytes_that_are_not_there(encode_sound: EncodeSound) -> None:
    """An RF64 knows its length, however large: it is cut, and was not written into a pipe."""
    data = bytearray(encode_sound(SECOND, 16_000, "RF64", "PCM_16"))
    place = data.index(b"ds64") + 8
    data[place + 8 : place + 16] = struct.pack("<Q", 5 << 30)
    with pytest.raises(InvalidArgumentError, match="states 5,368,709,120 bytes of samples, and 32"):
        read_audio(data)


A14_FILES = [
    pytest.param(bytes(3), 1, 16, 1, 2, id="a14-three-bytes-of-16-bits"),
    pytest.param(bytes(6), 2, 16, 1, 4, id="a14-one-channel-too-few"),
    pytest.param(bytes(100), 1, 24, 1, 3, id="a14-24-bits"),
    pytest.param(bytes(102), 1, 32, 3, 4, id="a14-half-a-float"),
]


@pytest.mark.parametrize(("data", "channels", "bits", "tag", "frame"), A14_FILES)
def test_error_a_wav_that_ends_inside_a_frame(
    data: bytes, channels: int, bits: int, tag: int, frame: int, write_wav: WriteWav
) -> None:
    """Half a sample is neither dropped nor filled up."""
    wav = write_wav(data, channels=channels, bits=bits, tag=tag)
    with pytest.raises(InvalidArgumentError, match=f"end inside a frame of {frame}; get it anew"):
        read_audio(wav)


def test_error_a_wav_without_samples(write_wav: WriteWav) -> None:
    """Also where something follows that is no sound."""
    for after in (b"", b"LIST\4\0\0\0INFO"):
        said = "is WAV, 48,000 Hz, 1 channel, 16-bit PCM, and has no samples"
        with pytest.raises(InvalidArgumentError, match=said):
            read_audio(write_wav(b"", 48_000, after=after))


@pytest.mark.parametrize(("form", "subtype"), KINDS.values(), ids=KINDS)
def test_error_a_file_of_no_frames(form: str, subtype: str, encode_sound: EncodeSound) -> None:
    """Well formed and empty."""
    with pytest.raises(InvalidArgumentError):
        read_audio(encode_sound(np.empty(0, np.float32), 16_000, form, subtype))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"RIFF\x24\0\0\0WAVE", id="nothing"),
        pytest.param(b"RIFF\x24\0\0\0WAVEdata\2\0\0\0ab", id="no-kind"),
        pytest.param(b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0ab", id="half-a-kind"),
        pytest.param(b"RIFF\x24\0\0\0WAVE" + b"JUNK\0\0\0\0" * 5_000, id="chunks-of-nothing"),
        pytest.param(b"RIFF\x24\0\0\0WAVEJUNK\xff\xff\xff\xff", id="a-chunk-beyond-the-end"),
    ],
)
def test_error_a_wav_that_is_damaged(data: bytes) -> None:
    """The message says so, whatever the decoder would make of it."""
    with pytest.raises(InvalidArgumentError, match=r"is a (damaged )?WAV.*get it anew"):
        read_audio(data)


@pytest.mark.parametrize("order", ["little", "big"])
def test_a_wav_of_either_order_of_bytes(order: str, encode_sound: EncodeSound) -> None:
    """RIFX is WAV with its bytes turned round."""
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, SECOND, 16_000, format="WAV", subtype="PCM_16", endian=order.upper())
    assert buffer.getvalue()[:4] == {"little": b"RIFF", "big": b"RIFX"}[order]
    assert np.array_equal(read_audio(buffer.getvalue()), SECOND)
    with pytest.raises(InvalidArgumentError, match="cut short"):
        read_audio(buffer.getvalue()[:-2])


@pytest.mark.parametrize("name", KINDS)
def test_the_limit_is_exact(name: str, encode_sound: EncodeSound) -> None:
    """A second is allowed where a second is; less is too little, and the message says both."""
    data = encode_sound(SECOND, 16_000, *KINDS[name])
    duration_s = len(read_audio(data)) / 16_000
    assert len(read_audio(data, max_duration_s=duration_s)) >= 16_000
    said = r"lasts 1\.\d s or more, while max_duration_s allows 0\.99"
    with pytest.raises(InvalidArgumentError, match=said):
        read_audio(data, max_duration_s=0.99)


def test_error_an_array_too_long() -> None:
    """The limit holds for it too."""
    with pytest.raises(InvalidArgumentError, match=r"lasts 14,400\.0 s or more"):
        read_audio(np.broadcast_to(np.int16(0), 14_400 * 16_000 + 1), rate_hz=16_000)


def test_error_a_file_object_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read up to the limit, and no further."""
    monkeypatch.setattr(audio, "MAX_BYTES", 5 << 20)
    with open("/dev/zero", "rb") as zeros:
        with pytest.raises(InvalidArgumentError, match="gives more than 5,242,880 bytes"):
            read_audio(zeros)


def test_a_bomb_takes_no_memory(encode_sound: EncodeSound, tmp_path: Path) -> None:
    """Silence of five hours in a small file is refused with 64 MB of address space to spare."""
    flac = bytearray(encode_sound(np.zeros(4_096, np.int16), 16_000, "FLAC", "PCM_16"))
    frames = 5 * 3600 * 16_000
    flac[21:26] = bytes([flac[21] & 0xF0 | frames >> 32]) + struct.pack(">I", frames & 0xFFFFFFFF)
    (tmp_path / "stated.flac").write_bytes(flac)
    quiet = encode_sound(np.zeros(600 * 16_000, np.int16), 16_000, "FLAC", "PCM_16")
    (tmp_path / "long.flac").write_bytes(quiet)
    assert len(quiet) < 200_000
    script = (
        "import pathlib, resource, sys\n"
        "from cartridge_core.errors import InvalidArgumentError\n"
        "from cartridge_media.audio import read_audio\n"
        "import numpy, soundfile\n"
        "read_audio(numpy.zeros(999, 'int16'), rate_hz=48000)\n"
        "pages = int(pathlib.Path('/proc/self/statm').read_text().split()[0])\n"
        "limit = pages * resource.getpagesize() + (64 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "for path in pathlib.Path(sys.argv[1]).iterdir():\n"
        "    try:\n"
        "        read_audio(path, max_duration_s=500)\n"
        "    except InvalidArgumentError as exc:\n"
        "        assert 'max_duration_s allows 500' in str(exc), exc\n"
        "        print(path.name)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, tmp_path],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ended.stderr == ""
    assert sorted(ended.stdout.split()) == ["long.flac", "stated.flac"]
