"""Sound files and arrays of every kind, as 16 kHz mono."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- arrays are what is read
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.errors import CancelledError, InvalidArgumentError
from cartridge_media.audio import RATE_HZ, read_audio

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cartridge_media.levels import Floats
    from conftest import EncodeSound

EXACT = {
    ("WAV", "PCM_U8"): 2**-7,
    ("WAV", "PCM_16"): 2**-15,
    ("WAV", "PCM_24"): 2**-23,
    ("WAV", "PCM_32"): 2**-24,
    ("WAV", "FLOAT"): 0,
    ("WAV", "DOUBLE"): 0,
    ("WAV", "ULAW"): 2**-5,
    ("WAV", "ALAW"): 2**-5,
    ("WAVEX", "PCM_16"): 2**-15,
    ("WAVEX", "PCM_24"): 2**-23,
    ("WAVEX", "FLOAT"): 0,
    ("RF64", "PCM_16"): 2**-15,
    ("FLAC", "PCM_S8"): 2**-7,
    ("FLAC", "PCM_16"): 2**-15,
    ("FLAC", "PCM_24"): 2**-23,
    ("AIFF", "PCM_16"): 2**-15,
    ("AIFF", "FLOAT"): 0,
}
"""How far a sample may be from what was written."""

LOSSY = [
    ("OGG", "VORBIS", 44_100, 1),
    ("OGG", "VORBIS", 22_050, 2),
    ("OGG", "OPUS", 48_000, 1),
    ("OGG", "OPUS", 16_000, 2),
    ("MP3", "MPEG_LAYER_III", 44_100, 2),
    ("MP3", "MPEG_LAYER_III", 16_000, 1),
    ("WAV", "IMA_ADPCM", 16_000, 2),
    ("WAV", "MS_ADPCM", 22_050, 1),
    ("WAV", "GSM610", 8_000, 1),
]


def tone(rate_hz: int, seconds: float = 1.0, hertz: float = 440.0, channels: int = 1) -> Floats:
    """Make a tone, shape ``(frames, channels)``, at half of full scale."""
    time = np.arange(round(rate_hz * seconds)) / rate_hz
    mono = (np.sin(2 * np.pi * hertz * time) / 2).astype(np.float32)
    return np.repeat(mono[:, None], channels, axis=1)


def off(read: Floats, wanted: Floats) -> float:
    """Say how far apart two sounds are, but for the tenths at both ends, where filters begin."""
    middle = slice(len(wanted) // 10, len(wanted) - len(wanted) // 10)
    return float(np.abs(read[middle] - wanted[middle]).max())


@pytest.mark.parametrize(("form", "subtype"), EXACT, ids=lambda name: name)
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_samples_are_scaled_by_full_scale(
    form: str, subtype: str, channels: int, encode_sound: EncodeSound
) -> None:
    """Every width gives back what was written, to its own precision; channels are averaged."""
    written = np.random.default_rng(0).uniform(-0.9, 0.9, (4_000, channels)).astype(np.float32)
    read = read_audio(encode_sound(written, RATE_HZ, form, subtype))
    assert read.dtype == np.float32
    assert read.shape == (4_000,)
    assert np.abs(read - written.mean(axis=1)).max() <= EXACT[form, subtype] + 1e-6


@settings(max_examples=30, deadline=None)
@given(
    kind=st.sampled_from(sorted(EXACT)),
    rate_hz=st.sampled_from([8_000, 11_025, 22_050, 44_100, 48_000, 96_000, 192_000]),
    channels=st.integers(1, 8),
    hertz=st.floats(50, 3_000),
)
def test_every_rate_and_width_gives_the_same_tone(
    kind: tuple[str, str], rate_hz: int, channels: int, hertz: float, encode_sound: EncodeSound
) -> None:
    """The tone has the same length, phase and level as one that was made at 16 kHz."""
    written = tone(rate_hz, 0.25, hertz, channels)
    read = read_audio(encode_sound(written, rate_hz, *kind))
    wanted = tone(RATE_HZ, 0.25, hertz)[:, 0]
    assert abs(len(read) - len(wanted)) <= 1
    assert off(read, wanted) < 1.5 * EXACT[kind] + 0.002


@pytest.mark.parametrize(("form", "subtype", "rate_hz", "channels"), LOSSY)
def test_lossy_files_give_about_what_was_written(
    form: str, subtype: str, rate_hz: int, channels: int, encode_sound: EncodeSound
) -> None:
    """Neither the level nor the time is off."""
    read = read_audio(encode_sound(tone(rate_hz, 2, channels=channels), rate_hz, form, subtype))
    wanted = tone(RATE_HZ, 2)[:, 0]
    assert abs(len(read) - len(wanted)) < RATE_HZ * 0.06
    assert off(read, wanted) < 0.06


A15 = [
    pytest.param("WAV", "FLOAT", 48_000, 1, id="a15-48-kHz-float-wav"),
    pytest.param("WAV", "DOUBLE", 96_000, 2, id="a15-96-kHz-double-stereo"),
    pytest.param("WAVEX", "FLOAT", 44_100, 6, id="a15-extensible-float-six-channels"),
    pytest.param("WAV", "PCM_24", 48_000, 1, id="a15-24-bits"),
    pytest.param("RF64", "FLOAT", 48_000, 1, id="a15-float-rf64"),
    pytest.param("WAV", "ULAW", 8_000, 1, id="a15-mulaw"),
]


@pytest.mark.parametrize(("form", "subtype", "rate_hz", "channels"), A15)
def test_what_the_standard_library_refuses_is_read(
    form: str, subtype: str, rate_hz: int, channels: int, encode_sound: EncodeSound
) -> None:
    """Two seconds are two seconds at 16 kHz, and they are the sound that was written."""
    read = read_audio(encode_sound(tone(rate_hz, 2, channels=channels), rate_hz, form, subtype))
    assert read.shape == (32_000,)
    assert off(read, tone(RATE_HZ, 2)[:, 0]) < 0.02


@pytest.mark.parametrize(
    "given_as",
    [
        pytest.param(lambda path: path, id="path"),
        pytest.param(str, id="str"),
        pytest.param(lambda path: path.read_bytes(), id="bytes"),
        pytest.param(lambda path: bytearray(path.read_bytes()), id="bytearray"),
        pytest.param(lambda path: memoryview(path.read_bytes()), id="memoryview"),
        pytest.param(lambda path: io.BytesIO(path.read_bytes()), id="file-object"),
    ],
)
def test_a_path_bytes_and_a_file_object_give_the_same(
    given_as: Callable[[Path], object], tmp_path: Path, encode_sound: EncodeSound
) -> None:
    """And the same as an array of the samples."""
    samples = np.random.default_rng(1).integers(-9_999, 9_999, (30_000, 2), np.int16)
    path = tmp_path / "a sound.txt"
    path.write_bytes(encode_sound(samples, 44_100, "WAV", "PCM_16"))
    assert np.array_equal(read_audio(given_as(path)), read_audio(samples, rate_hz=44_100))


def test_an_open_file_is_read_from_where_it_stands(
    tmp_path: Path, encode_sound: EncodeSound
) -> None:
    """What stands before belongs to somebody else; the file stays open."""
    data = encode_sound(tone(RATE_HZ), RATE_HZ, "FLAC", "PCM_16")
    path = tmp_path / "two.bin"
    path.write_bytes(b"header" + data)
    with path.open("rb") as file:
        file.seek(6)
        assert np.array_equal(read_audio(file), read_audio(data))
        assert not file.closed


@pytest.mark.parametrize("given_as", [str, lambda path: path.read_bytes()], ids=["path", "bytes"])
@pytest.mark.parametrize(
    ("form", "subtype"), [("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS"), ("OGG", "OPUS")]
)
def test_blocks_leave_no_seams(
    form: str, subtype: str, given_as: Callable[[Path], object], tmp_path: Path,
    encode_sound: EncodeSound,
) -> None:  # fmt: skip
    """What is decoded block by block is what soundfile decodes at once, but for roundings."""
    import soundfile

    written = np.random.default_rng(2).uniform(-0.5, 0.5, 150_000).astype(np.float32)
    path = tmp_path / "noise"
    path.write_bytes(encode_sound(written, RATE_HZ, form, subtype))
    known, _ = soundfile.read(io.BytesIO(path.read_bytes()), dtype="float32")
    assert np.abs(read_audio(given_as(path)) - known).max() < 1e-6


@pytest.mark.parametrize("rate_hz", [16_000, 44_100])
def test_an_mp3_is_read_in_silence(
    rate_hz: int, encode_sound: EncodeSound, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its decoder, which writes of every trouble to stderr, meets none."""
    noise = np.random.default_rng(2).uniform(-0.5, 0.5, 150_000).astype(np.float32)
    read_audio(encode_sound(noise, rate_hz, "MP3", "MPEG_LAYER_III"))
    assert capfd.readouterr() == ("", "")


def test_threads_get_what_one_gets(encode_sound: EncodeSound) -> None:
    """Files of several formats, chunk streams and what is refused, 8 at a time."""
    samples = np.random.default_rng(4).uniform(-0.5, 0.5, 20_000).astype(np.float32)
    kinds = [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III")]
    values: list[bytes] = [encode_sound(samples, 22_050, *kind) for kind in kinds]
    values += [data[: len(data) // 2] for data in values]

    def outcome(value: bytes) -> bytes | str:
        try:
            return read_audio(value).tobytes()
        except InvalidArgumentError as exc:
            return str(exc)

    alone = [outcome(value) for value in values]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(outcome, values * 6)) == alone * 6


def test_a_file_is_closed_and_no_descriptor_is_left(
    tmp_path: Path, encode_sound: EncodeSound
) -> None:
    """After success and after failure."""
    path = tmp_path / "tone"
    path.write_bytes(encode_sound(tone(RATE_HZ), RATE_HZ, "FLAC", "PCM_16"))
    before = len(os.listdir("/proc/self/fd"))
    read_audio(path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(InvalidArgumentError):
        read_audio(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_cancel_stops_the_work(encode_sound: EncodeSound) -> None:
    """Between blocks, not only before and after."""
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise CancelledError

    data = encode_sound(np.zeros(600_000, np.float32), RATE_HZ, "FLAC", "PCM_16")
    for value in (data, np.zeros(600_000, np.float32)):
        calls = 0
        with pytest.raises(CancelledError):
            read_audio(value, rate_hz=RATE_HZ, check=check)
        assert calls == 3
