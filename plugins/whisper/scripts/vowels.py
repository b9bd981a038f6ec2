"""
Make sounds that a voice detector takes for speech, and a person for a robot that says vowels.

    python vowels.py FILE.wav
"""

from __future__ import annotations

import sys
import wave
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATE_HZ = 16_000
_VOWEL_S = 0.2
_VOWELS = (
    ((730, 80), (1090, 90), (2440, 120)),
    ((270, 60), (2290, 100), (3010, 120)),
    ((300, 60), (870, 90), (2240, 120)),
)
"""The formants of a, i and u: frequency and width, in hertz."""


def main() -> None:
    """Write two seconds as WAV."""
    with wave.open(sys.argv[1], "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes((voice(2.0) * 32_767).astype("<i2").tobytes())


def voice(seconds: float, pitch_hz: float = 130.0) -> NDArray[np.float32]:
    """
    Make a sound like a voice.

    Args:
        seconds: How long it is.
        pitch_hz: How high.

    Returns:
        16 kHz, float32, at most 0.2.
    """
    count = round(seconds * RATE_HZ)
    if not count:
        return np.zeros(0, np.float32)
    size = round(_VOWEL_S * RATE_HZ)
    vowels = [
        _vowel(pitch_hz * (0.9 + 0.05 * (number * 7 % 5)), _VOWELS[number % 3])
        for number in range(-(-count // size))
    ]
    samples: NDArray[np.float32] = np.concatenate(vowels)[:count].astype(np.float32)
    samples *= np.float32(0.2) / np.abs(samples).max()
    return samples


def silence(seconds: float) -> NDArray[np.float32]:
    """Make a sound without any."""
    return np.zeros(round(seconds * RATE_HZ), np.float32)


def _vowel(pitch_hz: float, formants: tuple[tuple[int, int], ...]) -> NDArray[np.float64]:
    """Add up a tone and those above it, as loud as a mouth lets them be."""
    count = round(_VOWEL_S * RATE_HZ)
    times = np.arange(count) / RATE_HZ
    pitch = pitch_hz * (1 + 0.05 * np.sin(2 * np.pi * 3 * times))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE_HZ
    samples = np.zeros(count)
    for harmonic in range(1, 40):
        tone = harmonic * pitch
        loudness = sum(
            1 / (1 + ((tone - centre) / width) ** 2) for centre, width in formants
        ) / np.sqrt(harmonic)
        samples += loudness * np.sin(harmonic * phase) * (tone < RATE_HZ * 0.47)
    edge = np.minimum(np.arange(count), np.arange(count)[::-1]) / 800
    return samples * np.minimum(1, edge)


if __name__ == "__main__":
    main()
