"""Silence and noise give no text, whatever the model would say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cartridge_core.context import Context
from cartridge_whisper.silence import is_silent

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_whisper.model import SpeechModel
    from conftest import Detected, Transcript

    Sound = NDArray[np.float32]
    Detect = Callable[..., Detected]
    Transcribe = Callable[..., Transcript]
    Noise = Callable[..., Sound]


def coloured(count: int, slope: float, level: float, seed: int) -> Sound:
    """Make noise whose power falls with frequency to a power."""
    import numpy as np

    spectrum = np.fft.rfft(np.random.default_rng(seed).standard_normal(count))
    spectrum /= np.maximum(np.arange(len(spectrum)), 1) ** (slope / 2)
    samples = np.fft.irfft(spectrum, count)
    found: Sound = (samples / samples.std() * level).astype(np.float32)
    return found


def tone(count: int, hertz: float, level: float) -> Sound:
    """Make a hum."""
    import numpy as np

    found: Sound = level * np.sin(2 * np.pi * hertz / 16_000 * np.arange(count))
    return found.astype(np.float32)


def quiet_sounds() -> dict[str, Sound]:
    """Make sounds in which nobody speaks."""
    import numpy as np

    count = 160_000
    white = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    zeros = np.zeros(count, np.float32)
    return {
        "a16-zeros": zeros,
        "a16-noise-at-60-dbfs": white * 1e-3,
        "a16-neighbour-noise-at-30-dbfs": white * 10**-1.5,
        "a16-neighbour-noise-at-10-dbfs": white * 10**-0.5,
        "a16-neighbour-pink-noise": coloured(count, 1.0, 0.05, 1),
        "a16-neighbour-brown-noise": coloured(count, 2.0, 0.05, 2),
        "a16-neighbour-hum": tone(count, 50.0, 0.1),
        "a16-neighbour-whistle": tone(count, 3_000.0, 0.1),
        "a16-neighbour-a-constant": zeros + np.float32(0.4),
        "a16-neighbour-zeros-then-noise": np.concatenate([zeros[:80_000], white[:80_000] * 0.05]),
        "a16-neighbour-one-least-bit": (white > 0).astype(np.float32) / 32_768,
        "a16-neighbour-a-tenth-of-a-second": zeros[:1_600],
        "a16-neighbour-70-seconds": np.tile(white * 1e-3, 7),
    }


@pytest.mark.parametrize("name", quiet_sounds())
def test_no_text(random_model: SpeechModel, transcribe: Transcribe, name: str) -> None:
    """A model that would say something of anything is not asked."""
    found = transcribe(random_model, quiet_sounds()[name])
    assert (found.text, found.has_speech, found.segments, found.words) == ("", False, [], [])
    assert found.duration_s == len(quiet_sounds()[name]) / 16_000


@pytest.mark.parametrize("name", ["a16-zeros", "a16-noise-at-60-dbfs"])
def test_no_language(random_model: SpeechModel, detect: Detect, name: str) -> None:
    """Nor has silence a language."""
    found = detect(random_model, quiet_sounds()[name])
    assert (found.language, found.probability, found.has_speech) == (None, 0.0, False)


def test_the_model_itself_would_speak(random_model: SpeechModel, speech_like: Noise) -> None:
    """The random model does say something of other sounds, or these tests would say nothing."""
    sound = speech_like(10.0)
    assert not is_silent(sound, -55.0)


def test_sound_that_changes_is_no_silence(noise: Noise) -> None:
    """Noise whose level goes up and down could be speech."""
    assert is_silent(noise(5.0, -20.0), -55.0)
    assert not is_silent(noise(5.0, -20.0, -30.0), -55.0)


def test_the_threshold_decides(noise: Noise) -> None:
    """What is nowhere louder is silence."""
    sound = noise(3.0, -40.0, -50.0)
    assert is_silent(sound, -35.0)
    assert not is_silent(sound, -55.0)


def test_short_sounds_are_heard_whatever_their_level_does(noise: Noise) -> None:
    """Half a second of a steady voice is not taken for a noise."""
    assert not is_silent(noise(0.5, -20.0), -55.0)


def test_silent_windows_inside_are_passed_by(
    scripted: SpeechModel, transcribe: Transcribe, speech_like: Noise
) -> None:
    """A minute of silence between two sounds is worked on in no time, and gives no text."""
    import numpy as np

    said: list[float] = []
    sound = speech_like(20.0)
    both = np.concatenate([sound, np.zeros(120 * 16_000, np.float32), sound])
    context = Context(lambda item: said.append(getattr(item, "fraction", 0.0)))
    more = {"language": "en", "condition_on_previous_text": False}
    found = transcribe(scripted, both, context=context, **more)
    starts = [one["start_s"] for one in found.segments]
    assert starts[0] == 0.0
    assert not [start for start in starts if 30 < start < 120]
    assert said == sorted(said)
