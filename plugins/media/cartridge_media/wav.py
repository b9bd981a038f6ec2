"""What a WAV's header says: the kind of sound, and how long the file must be."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO

import attrs

from cartridge_media.mono import title_of
from cartridge_media.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["UNKNOWN_LENGTH", "Wav", "read_wav"]

UNKNOWN_LENGTH = 0x7F00_0000
"""
From here on a length that is not there is none.

A program that writes into a pipe cannot come back to fill in the length. ffmpeg leaves 0xFFFFFFFF,
arecord and sox about 0x7FFFFFFF (0x7F000000 in an AIFF), others 0.
"""

_MAX_CHUNKS = 1000
_EXTENSIBLE = 0xFFFE
_TAGS = {
    0x0001: "{bits}-bit PCM",
    0x0002: "MS ADPCM",
    0x0003: "{bits}-bit float",
    0x0006: "A-law",
    0x0007: "mu-law",
    0x0011: "IMA ADPCM",
    0x0031: "GSM 6.10",
    0x0055: "MP3",
}
_WHOLE_FRAMES = (0x0001, 0x0003, 0x0006, 0x0007)
"""Those of which every sample can be read alone."""


@attrs.frozen
class Wav:
    """What a header says."""

    title: str
    patch: Mapping[int, int]
    """The bytes that libsndfile must read in place of the file's own, by their place in it."""


def read_wav(source: BinaryIO, size: int) -> Wav:
    """
    Read a header.

    Of a WAV that was written into a pipe, whose length is unknown, all that follows is sound.

    Args:
        source: A WAV or an RF64.
        size: Bytes of the whole file.

    Raises:
        Refused: The file is shorter than it says, ends inside a frame, has no samples or no
            sound at all.

    Source:
        Multimedia Programming Interface and Data Specifications 1.0 (RIFF); EBU Tech 3306 (RF64).
    """
    source.seek(0)
    head = source.read(12)
    order = ">" if head[:4] == b"RIFX" else "<"
    whole: int = struct.unpack(f"{order}I", head[4:8])[0] + 8
    place, kind, long = 12, b"", 0
    for _ in range(_MAX_CHUNKS):
        source.seek(place)
        start = source.read(8)
        if len(start) < 8:
            break
        name, length = struct.unpack(f"{order}4sI", start)
        if name == b"data":
            title, tag, frame = _kind(kind, order)
            there = size - place - 8
            stated = _stated(length, long, there, closed=size <= whole < UNKNOWN_LENGTH)
            samples = there if stated is None else stated
            _check(title, samples, there, frame if tag in _WHOLE_FRAMES else 1)
            # Of a length of 0 libsndfile makes no sound; too large a one it makes smaller itself.
            wrong = stated is None and length == 0
            right = struct.pack(f"{order}I", min(there, 0xFFFFFFFF)) if wrong else b""
            return Wav(title, dict(enumerate(right, place + 4)))
        if name == b"fmt ":
            kind = source.read(min(length, 40))
        elif name == b"ds64":
            long = int.from_bytes(source.read(16)[8:], "little")
        place += 8 + length + (length & 1)
    msg = f"is a WAV whose {size:,} bytes end before the sound begins; get it anew"
    raise Refused(msg)


def _stated(length: int, long: int, there: int, *, closed: bool) -> int | None:
    """
    Give the bytes of samples that a header states; None where it was written too early to know.

    Args:
        length: What stands before the samples.
        long: What an RF64 has in its stead; 0 where there is none.
        there: Bytes up to the end of the file.
        closed: Whether the header states the length of the whole file, and there is no more.
    """
    if length == 0xFFFFFFFF and long:
        return long
    if length == 0:
        return 0 if closed else None
    return None if length >= UNKNOWN_LENGTH and length > there else length


def _kind(data: bytes, order: str) -> tuple[str, int, int]:
    if len(data) < 16:
        msg = "is a damaged WAV: its header does not say what kind of sound it is; get it anew"
        raise Refused(msg)
    tag, channels, rate, _, frame, bits = struct.unpack(f"{order}HHIIHH", data[:16])
    if tag == _EXTENSIBLE and len(data) >= 26:
        tag = struct.unpack(f"{order}H", data[24:26])[0]
    name = _TAGS.get(tag, f"format 0x{tag:04X}").format(bits=bits)
    return f"{title_of('WAV', rate, channels)}, {name}", tag, frame


def _check(title: str, length: int, there: int, frame: int) -> None:
    if length > there:
        msg = (
            f"is {title}, and cut short: its header states {length:,} bytes of samples, and "
            f"{there:,} are there; get it anew"
        )
        raise Refused(msg)
    if not length:
        msg = f"is {title}, and has no samples; give a recording"
        raise Refused(msg)
    if frame and length % frame:
        msg = (
            f"is {title}, and cut short: its {length:,} bytes of samples end inside a frame of "
            f"{frame}; get it anew"
        )
        raise Refused(msg)
