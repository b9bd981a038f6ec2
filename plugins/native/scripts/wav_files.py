"""WAV files, well-formed and not."""

from __future__ import annotations

import struct

__all__ = ["chunk", "wav_of"]


def chunk(name: bytes, body: bytes) -> bytes:
    """Give a RIFF chunk."""
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def wav_of(
    samples: bytes, *, kind: int = 1, bits: int = 16, channels: int = 1, rate_hz: int = 16_000
) -> bytes:
    """Give a WAV file, with a chunk before the samples that nobody knows, of an odd length."""
    step = channels * bits // 8
    form = struct.pack("<HHIIHH", kind, channels, rate_hz, rate_hz * step, step, bits)
    if kind == 0xFFFE:
        form += struct.pack("<HHI", 22, bits, 4) + struct.pack("<H", 1) + bytes(14)
    body = b"WAVE" + chunk(b"fmt ", form) + chunk(b"note", b"odd") + chunk(b"data", samples)
    return chunk(b"RIFF", body)
