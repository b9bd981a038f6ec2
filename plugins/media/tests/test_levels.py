"""What is full scale, and what is no sound."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- arrays are what is read
import pytest

from cartridge_core.errors import InvalidArgumentError
from cartridge_media.audio import read_audio
from cartridge_media.levels import alaw_levels, mulaw_levels, to_levels

if TYPE_CHECKING:
    from collections.abc import Callable

    from cartridge_media.levels import Floats


@pytest.mark.parametrize(
    ("table", "subtype"), [(mulaw_levels, "ULAW"), (alaw_levels, "ALAW")], ids=["mulaw", "alaw"]
)
def test_g711_is_what_libsndfile_reads(table: Callable[[], Floats], subtype: str) -> None:
    """Each of the 256 bytes has the same level, to the last bit."""
    import soundfile

    every = io.BytesIO(bytes(range(256)))
    known, _ = soundfile.read(
        every, samplerate=8000, channels=1, format="RAW", subtype=subtype, dtype="float32"
    )
    assert np.array_equal(table(), known)


@pytest.mark.parametrize(
    ("dtype", "low", "zero", "high"),
    [
        ("uint8", 0, 128, 255),
        ("int16", -32768, 0, 32767),
        ("int32", -(2**31), 0, 2**31 - 1),
        (">i2", -32768, 0, 32767),
        ("float16", -1, 0, 1),
        ("float32", -1, 0, 1),
        ("float64", -1, 0, 1),
    ],
)
def test_the_dtype_says_what_is_full_scale(dtype: str, low: int, zero: int, high: int) -> None:
    """The lowest number is -1, silence 0, and the highest at most 1."""
    levels = to_levels(np.array([low, zero, high], dtype))
    assert levels.dtype == np.float32
    assert levels[:2].tolist() == [-1, 0]
    assert 0.99 < levels[2] <= 1


@pytest.mark.parametrize(
    "dtype", ["int8", "uint16", "int64", "uint32", "bool", "complex64", "U1", "O"]
)
def test_error_a_dtype_without_a_full_scale(dtype: str) -> None:
    """Such as the int64 that numpy makes of a list."""
    with pytest.raises(InvalidArgumentError, match=r"dtype .* has samples of another type"):
        read_audio(np.zeros(100, dtype), rate_hz=16_000)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param(np.nan, "holds nan at 0.005 s", id="nan"),
        pytest.param(np.inf, "holds inf at 0.005 s", id="inf"),
        pytest.param(-np.inf, "holds -inf at 0.005 s", id="minus-inf"),
        pytest.param(32767.0, "reaches 32,767 at 0.005 s", id="int16-as-float"),
        pytest.param(-16.5, "reaches -16.5 at 0.005 s", id="beyond-the-limit"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_error_a_sample_that_is_no_sound(value: float, said: str, dtype: str) -> None:
    """The message says which, and when."""
    samples = np.zeros((200, 2), dtype)
    samples[80, 1] = value
    with pytest.raises(InvalidArgumentError, match=said) as caught:
        read_audio(samples, rate_hz=16_000)
    assert f"is {dtype}, 16,000 Hz, 2 channels" in str(caught.value)


def test_error_a_double_too_large_for_a_float() -> None:
    """It is refused as infinite, without a warning of numpy's."""
    with pytest.raises(InvalidArgumentError, match="holds inf"):
        read_audio(np.array([0.0, 1e300]), rate_hz=16_000)


def test_a_hot_mix_is_sound() -> None:
    """Up to 16 times full scale, as it is: nothing is clipped."""
    samples = np.array([1.5, -16, 16], np.float32)
    assert read_audio(samples, rate_hz=16_000).tolist() == [1.5, -16, 16]
