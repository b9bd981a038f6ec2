"""What a sound file is, told from its first bytes; its name and its extension do not count."""

from __future__ import annotations

import enum

from cartridge_media.formats import describe
from cartridge_media.refusal import Refused

__all__ = ["SOUNDFILE", "AudioFormat", "recognise_audio"]


class AudioFormat(enum.Enum):
    """
    A format that is read: its name, and what ffmpeg calls it.

    ffmpeg is told which it is and never guesses: some of what it would recognise, playlists among
    them, are texts that name other files.
    """

    WAV = ("WAV", "wav")
    RF64 = ("RF64", "wav")
    FLAC = ("FLAC", "flac")
    OGG = ("Ogg", "ogg")
    MP3 = ("MP3", "mp3")
    AIFF = ("AIFF", "aiff")
    MP4 = ("MP4", "mov")
    MATROSKA = ("Matroska or WebM", "matroska")
    ASF = ("ASF", "asf")
    AAC = ("AAC", "aac")
    AMR = ("AMR", "amr")
    AU = ("AU", "au")
    CAF = ("CAF", "caf")
    AVI = ("AVI", "avi")

    def __init__(self, title: str, demuxer: str) -> None:
        self.title = title
        self.demuxer = demuxer


SOUNDFILE = frozenset(
    {
        AudioFormat.WAV,
        AudioFormat.RF64,
        AudioFormat.FLAC,
        AudioFormat.OGG,
        AudioFormat.MP3,
        AudioFormat.AIFF,
    }
)
"""What libsndfile reads; ffmpeg the others, and what these hold that libsndfile does not know."""

_MAGIC = {
    b"fLaC": AudioFormat.FLAC,
    b"OggS": AudioFormat.OGG,
    b"ID3": AudioFormat.MP3,
    b"\x1aE\xdf\xa3": AudioFormat.MATROSKA,
    b"0&\xb2u\x8ef\xcf\x11": AudioFormat.ASF,
    b"#!AMR": AudioFormat.AMR,
    b".snd": AudioFormat.AU,
    b"caff": AudioFormat.CAF,
}

_FORMS = {
    (b"RIFF", b"WAVE"): AudioFormat.WAV,
    (b"RIFX", b"WAVE"): AudioFormat.WAV,
    (b"RF64", b"WAVE"): AudioFormat.RF64,
    (b"FORM", b"AIFF"): AudioFormat.AIFF,
    (b"FORM", b"AIFC"): AudioFormat.AIFF,
    (b"RIFF", b"AVI "): AudioFormat.AVI,
}
"""By the first four bytes, and the four after the length."""

_PICTURES = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1", b"avif")


def recognise_audio(head: bytes) -> AudioFormat:
    """
    Tell the format.

    Args:
        head: The first `cartridge_media.formats.HEAD_BYTES` bytes, or all there are.

    Raises:
        Refused: It is something else; what it is where that is known.
    """
    for magic, known in _MAGIC.items():
        if head.startswith(magic):
            return known
    if (head[:4], head[8:12]) in _FORMS:
        return _FORMS[head[:4], head[8:12]]
    if head[4:8] == b"ftyp" and head[8:12] not in _PICTURES:
        return AudioFormat.MP4
    frame = _mpeg(head)
    if frame is not None:
        return frame
    msg = (
        f"is {describe(head)}, and no sound that is read; convert it to WAV, FLAC, Ogg or MP3, or "
        "give raw samples as an array"
    )
    raise Refused(msg)


def _mpeg(head: bytes) -> AudioFormat | None:
    """
    Look for the header of a frame, which is all that MP3 and AAC begin with.

    Source: ISO/IEC 11172-3, 2.4.1.3; ISO/IEC 13818-7, 6.2. Layer I is left out: it is not in use,
    and a text in UTF-16 would look like it.
    """
    if len(head) < 3 or head[0] != 0xFF:
        return None
    if head[1] & 0xF6 == 0xF0:
        return AudioFormat.AAC
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    known = head[1] & 0xE0 == 0xE0 and version != 1 and layer in (1, 2)
    return AudioFormat.MP3 if known and head[2] >> 4 != 15 and head[2] >> 2 & 3 != 3 else None
