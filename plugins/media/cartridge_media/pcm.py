"""Raw samples that come in chunks, as 16 kHz mono; chunks may be cut anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cartridge_core.errors import InvalidArgumentError, StateError
from cartridge_media.levels import alaw_levels, check_levels, mulaw_levels, to_levels
from cartridge_media.mono import MAX_CHANNELS, RATES_HZ, Mono
from cartridge_media.refusal import Refused, named

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from cartridge_media.levels import Floats, Samples

__all__ = ["PCM_DTYPES", "PcmReader"]

PCM_DTYPES = {
    "uint8": "u1",
    "int16": "<i2",
    "int32": "<i4",
    "float32": "<f4",
    "mulaw": "u1",
    "alaw": "u1",
}
"""What may be declared, and numpy's name for a sample of it; little endian."""

_RULE = "bytes, or an array of the declared dtype"


class PcmReader:
    """
    Reads chunks of raw samples.

    The samples that come out do not depend on where the chunks were cut: the bytes of half a frame
    wait for the next chunk. The rule for samples is that of `cartridge_media.audio`.

    Not for several threads at once.
    """

    def __init__(self, dtype: str, rate_hz: int, channels: int = 1, *, arg: str = "audio") -> None:
        """
        Declare what the chunks hold.

        Args:
            dtype: One of `PCM_DTYPES`.
            rate_hz: Frames in a second, 1,000 to 768,000.
            channels: Samples in a frame, one after the other; 1 to 64.
            arg: What messages call a chunk.

        Raises:
            InvalidArgumentError: One of them is another.

            LoadError: numpy or soxr is not installed.
        """
        if dtype not in PCM_DTYPES:
            rule = f"one of {', '.join(PCM_DTYPES)}"
            msg = f"dtype: must be {rule}, found {dtype!r}"
            raise InvalidArgumentError(msg, arg="dtype", value=dtype, rule=rule)
        if not 1 <= channels <= MAX_CHANNELS:
            rule = f"1 to {MAX_CHANNELS}"
            msg = f"channels: must be {rule}, found {channels}"
            raise InvalidArgumentError(msg, arg="channels", value=channels, rule=rule)
        if rate_hz not in RATES_HZ:
            rule = f"{RATES_HZ[0]:,} to {RATES_HZ[-1]:,}"
            msg = f"rate_hz: must be {rule}, found {rate_hz:,}"
            raise InvalidArgumentError(msg, arg="rate_hz", value=rate_hz, rule=rule)
        self._dtype = dtype
        self._rate_hz = rate_hz
        self._channels = channels
        self._arg = arg
        self._rest = b""
        self._frames = 0
        self._flushed = False
        with self._named(None):
            tables = {"mulaw": mulaw_levels, "alaw": alaw_levels}
            self._table = tables[dtype]() if dtype in tables else None
            self._mono = Mono(rate_hz)

    def push(self, chunk: object) -> Floats:
        """
        Take a chunk, and give what is ready.

        A chunk that is refused changes nothing.

        Args:
            chunk: Bytes, or an array of the declared dtype (uint8 for mu-law and A-law) and of
                shape ``(frames, channels)``; ``(frames,)`` where there is one channel.

        Returns:
            Shape ``(samples,)``, at 16,000 Hz; full scale is 1. It may be empty.

        Raises:
            InvalidArgumentError: It is neither, or holds impossible samples.

            StateError: After `flush`.
        """
        self._check_open()
        with self._named(chunk):
            frames, rest = self._frames_of(chunk)
            levels = to_levels(frames) if self._table is None else self._table[frames]
            check_levels(levels, self._frames, self._rate_hz)
            ready = self._mono.add(levels)
        self._rest = rest
        self._frames += len(levels)
        return ready

    def flush(self) -> Floats:
        """
        Give what is left; nothing may follow.

        Raises:
            InvalidArgumentError: The last frame lacks bytes, which may still be pushed.

            StateError: After `flush`.
        """
        self._check_open()
        if self._rest:
            msg = (
                f"{self._arg}: ends inside a frame: {len(self._rest)} of its {self._frame_bytes()} "
                f"bytes are there, after {self._frames:,} whole frames of {self._channels} x "
                f"{self._dtype}; push the rest of it"
            )
            raise InvalidArgumentError(msg, arg=self._arg, rule="whole frames")
        self._flushed = True
        return self._mono.end()

    def _check_open(self) -> None:
        if self._flushed:
            msg = f"{self._arg}: nothing may follow flush; begin another PcmReader"
            raise StateError(msg)

    def _named(self, chunk: object) -> AbstractContextManager[None]:
        return named(self._arg, chunk, rule=_RULE, what="sound", extra="audio")

    def _frame_bytes(self) -> int:
        return int(PCM_DTYPES[self._dtype][-1]) * self._channels

    def _frames_of(self, chunk: object) -> tuple[Samples, bytes]:
        """Give whole frames, shape ``(frames, channels)``, and the bytes that are left."""
        import numpy as np

        if isinstance(chunk, np.ndarray):
            self._check_array(chunk)
            return chunk.reshape(len(chunk), self._channels), b""
        if not isinstance(chunk, bytes | bytearray | memoryview):
            msg = f"is no chunk; give {_RULE}"
            raise Refused(msg)
        data = self._rest + bytes(chunk)
        end = len(data) - len(data) % self._frame_bytes()
        frames = np.frombuffer(data[:end], PCM_DTYPES[self._dtype])
        return frames.reshape(-1, self._channels), data[end:]

    def _check_array(self, chunk: Samples) -> None:
        declared = PCM_DTYPES[self._dtype].lstrip("<")
        if f"{chunk.dtype.kind}{chunk.dtype.itemsize}" != declared:
            msg = f"is not of the declared dtype, {self._dtype}; give that, or declare another"
            raise Refused(msg)
        if chunk.shape[1:] != (self._channels,) and not (chunk.ndim == self._channels == 1):
            msg = f"has the wrong shape; give (frames, {self._channels}), as declared"
            raise Refused(msg)
        if self._rest:
            msg = f"follows {len(self._rest)} bytes of a frame; push the rest of it as bytes first"
            raise Refused(msg)
