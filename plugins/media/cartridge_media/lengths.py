"""Whether a sound file is all there; decoders take a cut one for a shorter one."""

from __future__ import annotations

from typing import BinaryIO

from cartridge_media.audio_formats import AudioFormat
from cartridge_media.refusal import Refused
from cartridge_media.wav import UNKNOWN_LENGTH

__all__ = ["check_length"]


def check_length(format_: AudioFormat, source: BinaryIO, size: int) -> None:
    """
    Compare how long a file is with what it says, where it does.

    Args:
        format_: What it is. A FLAC says how many samples it has, so it is checked while it is read;
            `cartridge_media.wav.read_wav` checks a WAV.
        source: The file.
        size: Its bytes.

    Raises:
        Refused: It is shorter.
    """
    ends = {
        AudioFormat.OGG: _end_of_ogg,
        AudioFormat.MP3: _end_of_mp3,
        AudioFormat.AIFF: _end_of_form,
        AudioFormat.AVI: _end_of_form,
    }
    end = ends[format_](source, size) if format_ in ends else 0
    if end > size:
        msg = (
            f"is {format_.title} cut short: it goes on to byte {end:,} at least, and {size:,} are "
            "there; get it anew"
        )
        raise Refused(msg)


def _end_of_ogg(source: BinaryIO, size: int) -> int:
    """
    Go from page to page; what follows the last one does not count.

    Source: RFC 3533, 6.
    """
    place = 0
    while place < size:
        source.seek(place)
        header = source.read(27)
        if not b"OggS".startswith(header[:4]):
            return 0
        if len(header) < 27:
            return place + 27
        table = source.read(header[26])
        if len(table) < header[26]:
            return place + 27 + header[26]
        place += 27 + len(table) + sum(table)
    return place


def _end_of_mp3(source: BinaryIO, _size: int) -> int:
    """
    Look for the length that most encoders write into the first frame (Xing's, LAME's).

    Source: "MP3 Info Tag" 1.0; ID3 2.4.0, 3.1.
    """
    source.seek(0)
    start = 0
    tag = source.read(10)
    if tag[:3] == b"ID3" and len(tag) == 10:
        start = 10 + sum(
            (byte & 127) << shift for byte, shift in zip(tag[6:], (21, 14, 7, 0), strict=True)
        )
    source.seek(start)
    frame = source.read(64)
    if len(frame) < 64:
        return start
    new, mono = frame[1] >> 3 & 3 == 3, frame[3] >> 6 == 3
    info = frame[4 + {(True, False): 32, (False, True): 9}.get((new, mono), 17) :]
    flags = int.from_bytes(info[4:8])
    if info[:4] not in (b"Xing", b"Info") or not flags & 2:
        return start
    at = 12 if flags & 1 else 8
    return start + int.from_bytes(info[at : at + 4])


def _end_of_form(source: BinaryIO, _size: int) -> int:
    """Read the length of the whole file, of an AIFF in the one order and of an AVI in the other."""
    source.seek(0)
    head = source.read(8)
    stated = 8 + int.from_bytes(head[4:], "little" if head[:4] == b"RIFF" else "big")
    return 0 if stated >= UNKNOWN_LENGTH else stated
