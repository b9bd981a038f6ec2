"""Sounds of many kinds reach the model, or are refused by name; never nothing without a word."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cartridge_whisper.model import SpeechModel
    from conftest import Transcript

    Transcribe = Callable[..., Transcript]

SAID = " hello world this is a test"


def encoded(rate_hz: int, subtype: str, channels: int, kind: str = "WAV") -> bytes:
    """Make two seconds of noise that comes and goes, as a file."""
    import numpy as np
    import soundfile

    rng, count = np.random.default_rng(0), 2 * rate_hz
    steps = np.where(np.arange(count) // (rate_hz // 4) % 2, 0.3, 0.06)
    samples = rng.standard_normal((count, channels)) * steps[:, None] * 0.5
    stream = io.BytesIO()
    soundfile.write(stream, samples, rate_hz, subtype=subtype, format=kind)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("rate_hz", "subtype", "channels", "kind"),
    [
        pytest.param(48_000, "FLOAT", 1, "WAV", id="a15-48-khz-float"),
        pytest.param(44_100, "PCM_24", 2, "WAV", id="a15-neighbour-24-bit-stereo"),
        pytest.param(8_000, "ULAW", 1, "WAV", id="a15-neighbour-mu-law"),
        pytest.param(96_000, "DOUBLE", 6, "WAV", id="a15-neighbour-96-khz-double"),
        pytest.param(22_050, "PCM_16", 1, "FLAC", id="a15-neighbour-flac"),
    ],
)
def test_a_file_is_heard(
    scripted: SpeechModel,
    transcribe: Transcribe,
    tmp_path: Path,
    rate_hz: int,
    subtype: str,
    channels: int,
    kind: str,
) -> None:
    """Two seconds last two seconds and have a text, as a path and as bytes."""
    data = encoded(rate_hz, subtype, channels, kind)
    file = tmp_path / "sound.wav"
    file.write_bytes(data)
    for value in (str(file), data):
        found = transcribe(scripted, value, language="en")
        assert found.text == SAID
        assert abs(found.duration_s - 2.0) < 0.01


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="a15-no-bytes"),
        pytest.param(b"RIFF\x24\0\0\0WAVEfmt ", id="a15-neighbour-half-a-header"),
        pytest.param(b"hello, this is a text" * 9, id="a15-neighbour-a-text"),
        pytest.param(b"\x89PNG\r\n\x1a\n" + bytes(99), id="a15-neighbour-a-picture"),
    ],
)
def test_error_a_file_that_is_no_sound(
    scripted: SpeechModel, transcribe: Transcribe, tmp_path: Path, content: bytes
) -> None:
    """It is refused by the argument's name."""
    file = tmp_path / "sound.wav"
    file.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=r"^audio") as caught:
        transcribe(scripted, str(file))
    assert caught.value.arg == "audio"


def test_an_array_has_the_rate_that_is_said(
    scripted: SpeechModel, transcribe: Transcribe, speech_like: Callable[..., object]
) -> None:
    """The same samples last half as long at twice the rate."""
    sound = speech_like(4.0)
    assert transcribe(scripted, sound, language="en").duration_s == 4.0
    found = transcribe(scripted, sound, language="en", sample_rate_hz=32_000)
    assert abs(found.duration_s - 2.0) < 0.01
