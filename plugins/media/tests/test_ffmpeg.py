"""Sound that only ffmpeg reads."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- arrays are what is read
import pytest

from cartridge_core.errors import CancelledError, InvalidArgumentError
from cartridge_media import ffmpeg
from cartridge_media.audio import read_audio
from cartridge_media.ffmpeg import find_ffmpeg

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import EncodeSound

    Convert = Callable[..., bytes]

TONE = (np.sin(2 * np.pi * 440 * np.arange(32_000) / 16_000) / 2).astype(np.float32)
"""Two seconds."""


@pytest.fixture(scope="session")
def program() -> str:
    """The installed ffmpeg, or the one of the package imageio-ffmpeg."""
    found = shutil.which("ffmpeg")
    if found is None:
        try:
            import imageio_ffmpeg
        except ImportError:
            pytest.skip("needs ffmpeg: apt install ffmpeg, or pip install imageio-ffmpeg")
        found = imageio_ffmpeg.get_ffmpeg_exe()
    return str(found)


@pytest.fixture
def on_path(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it the ffmpeg that is found."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ffmpeg").symlink_to(program)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def no_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let none be found."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a shell script in its place."""

    def install(script: str) -> None:
        (tmp_path / "bin").mkdir()
        path = tmp_path / "bin" / "ffmpeg"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    return install


@pytest.fixture(scope="session")
def convert(
    program: str, encode_sound: EncodeSound, tmp_path_factory: pytest.TempPathFactory
) -> Convert:
    """Let ffmpeg write the tone: the file's ending, and more of its arguments."""
    folder = tmp_path_factory.mktemp("converted")
    (folder / "tone.wav").write_bytes(encode_sound(TONE, 16_000, "WAV", "FLOAT"))

    def run(ending: str, *arguments: str) -> bytes:
        path = folder / f"made.{ending}"
        tone = str(folder / "tone.wav")
        command = [program, "-v", "error", "-y", "-i", tone, *arguments, str(path)]
        subprocess.run(command, check=True)
        return path.read_bytes()

    return run


FORMATS = [
    pytest.param("m4a", (), id="m4a"),
    pytest.param("m4a", ("-ar", "48000", "-af", "pan=stereo|c0=c0|c1=c0"), id="m4a-stereo-48-kHz"),
    pytest.param("mov", ("-c:a", "pcm_s24be"), id="mov-pcm"),
    pytest.param("mkv", ("-c:a", "flac"), id="matroska"),
    pytest.param("webm", ("-c:a", "libopus"), id="webm"),
    pytest.param("wma", (), id="wma"),
    pytest.param("aac", (), id="aac"),
    pytest.param("au", (), id="au"),
    pytest.param("caf", (), id="caf"),
    pytest.param("avi", (), id="avi"),
    pytest.param("wav", ("-c:a", "adpcm_yamaha"), id="wav-that-libsndfile-does-not-know"),
]


@pytest.mark.usefixtures("on_path")
@pytest.mark.parametrize(("ending", "arguments"), FORMATS)
def test_what_libsndfile_does_not_read(
    ending: str, arguments: tuple[str, ...], convert: Convert, tmp_path: Path
) -> None:
    """From bytes and from a path the tone comes out, at its level."""
    data = convert(ending, *arguments)
    path = tmp_path / "-i http:x"
    path.write_bytes(data)
    read = read_audio(data)
    assert np.array_equal(read_audio(path), read)
    assert abs(len(read) - len(TONE)) < 0.15 * 16_000
    spectrum = np.abs(np.fft.rfft(read[4_000:28_000]))
    assert abs(int(spectrum.argmax()) * 16_000 / 24_000 - 440) < 1
    assert abs(float(np.sqrt(np.mean(read[4_000:28_000] ** 2))) - 0.5 / np.sqrt(2)) < 0.02


@pytest.mark.usefixtures("on_path")
def test_channels_are_averaged_here_too(convert: Convert) -> None:
    """Ffmpeg would weight them otherwise, and differently for each format of samples."""
    data = convert("caf", "-af", "pan=stereo|c0=c0|c1=0*c0", "-c:a", "pcm_s16be")
    assert np.abs(read_audio(data) - TONE / 2).max() < 1e-4


@pytest.mark.usefixtures("on_path")
def test_the_limit_holds(convert: Convert) -> None:
    """It is counted while ffmpeg decodes, which then ends."""
    with pytest.raises(InvalidArgumentError, match=r"max_duration_s allows 0\.5; cut it"):
        read_audio(convert("m4a"), max_duration_s=0.5)


@pytest.mark.usefixtures("on_path")
@pytest.mark.parametrize("ending", ["m4a", "wma", "avi"])
def test_error_cut_short(ending: str, convert: Convert) -> None:
    """By its own header, or as ffmpeg says."""
    data = convert(ending)
    with pytest.raises(InvalidArgumentError, match="cut short"):
        read_audio(data[: len(data) // 2])


@pytest.mark.usefixtures("on_path")
def test_error_no_sound(program: str, tmp_path: Path) -> None:
    """A film without sound is refused as that."""
    path = tmp_path / "silent.mp4"
    picture = ("-f", "lavfi", "-i", "color=c=red:s=32x32:d=0.2")
    subprocess.run([program, "-v", "error", *picture, "-c:v", "mpeg4", path], check=True)
    with pytest.raises(InvalidArgumentError, match=r"without sound.*matches no streams"):
        read_audio(path)


@pytest.mark.usefixtures("on_path")
@pytest.mark.parametrize(
    "playlist",
    [
        pytest.param("#EXTM3U\n#EXTINF:1,\nfile:{secret}\n", id="hls"),
        pytest.param("ffconcat version 1.0\nfile '{secret}'\n", id="concat"),
        pytest.param("[playlist]\nFile1={secret}\n", id="pls"),
    ],
)
def test_error_a_text_that_names_files(playlist: str, convert: Convert, tmp_path: Path) -> None:
    """What it names is never opened."""
    secret = tmp_path / "secret.m4a"
    secret.write_bytes(convert("m4a"))
    with pytest.raises(InvalidArgumentError, match="no sound that is read"):
        read_audio(playlist.format(secret=secret).encode())


@pytest.mark.usefixtures("no_ffmpeg")
def test_error_no_ffmpeg(encode_sound: EncodeSound) -> None:
    """The message says what needs it, and how to get it; the others need none."""
    assert find_ffmpeg() is None
    with pytest.raises(InvalidArgumentError, match=r"is MP4 that ffmpeg must .*apt install ffmpeg"):
        read_audio(b"\0\0\0\x18ftypM4A " + bytes(99))
    assert len(read_audio(encode_sound(TONE, 16_000, "FLAC", "PCM_16"))) == len(TONE)


@pytest.mark.usefixtures("no_ffmpeg")
def test_error_a_wav_of_a_rare_kind_and_no_ffmpeg() -> None:
    """Its rate and its format are named."""
    import struct

    kind = struct.pack("<HHIIHH", 0x1234, 2, 48_000, 48_000, 4, 16)
    data = b"RIFF\x28\0\0\0WAVEfmt \x10\0\0\0" + kind + b"data\4\0\0\0abcd"
    said = (
        "is WAV, 48,000 Hz, 2 channels, format 0x1234, and damaged or of a kind that needs ffmpeg"
    )
    with pytest.raises(InvalidArgumentError, match=said):
        read_audio(data)


MP4 = b"\0\0\0\x18ftypM4A " + bytes(99)


def test_error_what_ffmpeg_says(fake: Callable[[str], None]) -> None:
    """Its first line is the reason, however much follows."""
    fake("echo '[mov @ 0x55d0c8] why' >&2; yes noise | head -c 2000000 >&2; exit 1")
    with pytest.raises(InvalidArgumentError, match=r"\(why\)"):
        read_audio(MP4)


def test_error_ffmpeg_gives_nothing(fake: Callable[[str], None]) -> None:
    """An exit status of 0 with no sound is no success."""
    fake("exit 0")
    with pytest.raises(InvalidArgumentError, match="it does not say why"):
        read_audio(MP4)


def test_error_ffmpeg_fails_at_the_end(fake: Callable[[str], None]) -> None:
    """What it gave before is no sound either."""
    head = r".snd\0\0\0\030\0377\0377\0377\0377\0\0\0\06\0\0\076\0200\0\0\0\01"
    fake(f"printf '%b' '{head}'; head -c 4000 /dev/zero; echo broken >&2; exit 3")
    with pytest.raises(InvalidArgumentError, match=r"\(broken\)"):
        read_audio(MP4)


def test_error_an_ffmpeg_that_cannot_be_started(
    fake: Callable[[str], None], tmp_path: Path
) -> None:
    """It is named, with the reason."""
    fake("exit 0")
    (tmp_path / "bin" / "ffmpeg").write_text("#!/nowhere/sh\n")
    with pytest.raises(InvalidArgumentError, match="cannot be started"):
        read_audio(MP4)


def processes(marker: Path) -> bool:
    """Say whether the script that wrote its number there still runs."""
    number = int(marker.read_text())
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_cancel_ends_the_process(fake: Callable[[str], None], tmp_path: Path) -> None:
    """Within a quarter of a second, while ffmpeg says nothing at all."""
    fake(f"echo $$ > {tmp_path}/number; exec sleep 60")
    begin = time.monotonic()

    def check() -> None:
        if time.monotonic() > begin + 0.5:
            raise CancelledError

    with pytest.raises(CancelledError):
        read_audio(MP4, check=check)
    assert time.monotonic() < begin + 5
    assert not processes(tmp_path / "number")


def test_error_an_ffmpeg_that_hangs(
    fake: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended after its time."""
    monkeypatch.setattr(ffmpeg, "TIMEOUT_S", 0.5)
    fake(f"echo $$ > {tmp_path}/number; exec sleep 60")
    with pytest.raises(InvalidArgumentError, match=r"ffmpeg needs more than 0\.5 s"):
        read_audio(MP4)
    assert not processes(tmp_path / "number")
