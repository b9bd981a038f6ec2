"""Sound of any rate and number of channels as one channel at 16 kHz."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cartridge_media.levels import check_levels
from cartridge_media.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cartridge_media.levels import Floats

__all__ = [
    "MAX_CHANNELS",
    "RATES_HZ",
    "RATE_HZ",
    "Mono",
    "Sound",
    "check_rate",
    "title_of",
    "to_mono",
]

RATE_HZ = 16_000
"""What comes out."""

RATES_HZ = range(1_000, 768_001)
"""What may come in."""

MAX_CHANNELS = 64


@attrs.frozen(kw_only=True)
class Sound:
    """Sound that is being decoded."""

    title: str
    """What it is, for messages: ``WAV, 48,000 Hz, 2 channels``."""

    rate_hz: int
    frames: int | None
    """How many there will be, where that is known."""

    blocks: Iterable[Floats]
    """One after the other; shape ``(frames, channels)``."""


def title_of(kind: str, rate_hz: int, channels: int) -> str:
    """Say what a sound is, for messages."""
    return f"{kind}, {rate_hz:,} Hz, {channels} channel{'s' * (channels != 1)}"


class Mono:
    """
    Averages channels and changes the rate, block by block.

    What comes out of a whole sound does not depend on how it was cut into blocks.
    """

    def __init__(self, rate_hz: int) -> None:
        self._stream = None
        if rate_hz != RATE_HZ:
            import soxr  # noqa: PLC0415 -- an extra

            self._stream = soxr.ResampleStream(rate_hz, RATE_HZ, 1, dtype="float32", quality="HQ")

    def add(self, block: Floats) -> Floats:
        """
        Take a block, and give what is ready.

        Args:
            block: Shape ``(frames, channels)``.
        """
        # Channel by channel: how numpy sums along an axis depends on the shape.
        mono = block[:, 0].copy()
        for channel in range(1, block.shape[1]):
            mono += block[:, channel]
        mono /= block.shape[1]
        return mono if self._stream is None else self._stream.resample_chunk(mono)

    def end(self) -> Floats:
        """Give what is left."""
        import numpy as np

        nothing = np.empty(0, np.float32)
        return nothing if self._stream is None else self._stream.resample_chunk(nothing, last=True)


def check_rate(rate_hz: int) -> None:
    """
    Check a rate.

    Raises:
        Refused: It is no rate of sound.
    """
    if rate_hz not in RATES_HZ:
        msg = (
            f"has a rate of {rate_hz:,} Hz, and {RATES_HZ[0]:,} to {RATES_HZ[-1]:,} are read; "
            "resample it"
        )
        raise Refused(msg)


def to_mono(sound: Sound, max_duration_s: float, check: Callable[[], None]) -> Floats:
    """
    Decode a sound to its end.

    Args:
        sound: The sound.
        max_duration_s: Seconds, at most.
        check: Called between blocks; what it raises stops the work.

    Raises:
        Refused: It is too long, has no samples or impossible ones, or its rate is none.
    """
    import numpy as np

    check_rate(sound.rate_hz)
    _check_duration(sound.frames or 0, max_duration_s, sound)
    mono = Mono(sound.rate_hz)
    # Grown in place: joining a list of blocks would take twice the memory.
    samples = bytearray()
    frames = 0
    for block in sound.blocks:
        check()
        _check_duration(frames + len(block), max_duration_s, sound)
        try:
            check_levels(block, frames, sound.rate_hz)
        except Refused as exc:
            msg = f"is {sound.title}, and {exc}"
            raise Refused(msg) from None
        samples += mono.add(block).tobytes()
        frames += len(block)
    samples += mono.end().tobytes()
    if not samples:
        lacks = f"too few samples ({frames}) for one at 16,000 Hz" if frames else "no samples"
        msg = f"is {sound.title}, and has {lacks}; give a recording"
        raise Refused(msg)
    return np.frombuffer(samples, np.float32)


def _check_duration(frames: int, max_duration_s: float, sound: Sound) -> None:
    duration_s = frames / sound.rate_hz
    if duration_s > max_duration_s:
        msg = (
            f"is {sound.title}, and lasts {duration_s:,.1f} s or more, while max_duration_s allows "
            f"{max_duration_s:,g}; cut it, or allow more"
        )
        raise Refused(msg)
