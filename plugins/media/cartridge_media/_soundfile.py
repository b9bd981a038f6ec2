"""The only module that imports soundfile."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, cast

import soundfile

from cartridge_media.audio_formats import AudioFormat
from cartridge_media.mono import MAX_CHANNELS, Sound, title_of
from cartridge_media.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cartridge_media.levels import Floats

__all__ = ["UnknownCodec", "open_sound"]

_BLOCK = 65_536
"""Samples, of all channels together."""

_UNKNOWN_FRAMES = 1 << 62


class UnknownCodec(Exception):  # noqa: N818 -- it never leaves the package
    """libsndfile does not read this file; the text is its reason."""


class _Guarded:
    """
    The file that libsndfile reads.

    It reads through callbacks, and what those raise would be printed and forgotten. A damaged file
    makes it seek to before the beginning, for example.
    """

    def __init__(self, source: BinaryIO, patch: Mapping[int, int]) -> None:
        self._source = source
        self._patch = patch
        self._failed: OSError | None = None
        self.tell = source.tell

    def seek(self, offset: int, whence: int) -> int:
        with suppress(OSError, ValueError):
            self._source.seek(offset, whence)
        return self._source.tell()

    def readinto(self, buffer: memoryview) -> int:
        """Read, with the bytes of the patch in place of the file's."""
        start = self._source.tell()
        try:
            data = self._source.read(len(buffer))
        except OSError as exc:
            self._failed = exc
            return 0
        buffer[: len(data)] = data
        for place, byte in self._patch.items():
            if 0 <= place - start < len(data):
                buffer[place - start : place - start + 1] = bytes([byte])
        return len(data)

    def check(self) -> None:
        """Say what went wrong while it was read."""
        if self._failed is not None:
            msg = f"cannot be read ({self._failed.strerror}); check the disk that it is on"
            raise Refused(msg) from self._failed


class _Forwards(soundfile.SoundFile):
    """Read from beginning to end: soundfile seeks after each block, which an MP3 notices."""

    def seekable(self) -> bool:
        return False


@contextmanager
def open_sound(
    source: BinaryIO, format_: AudioFormat, patch: Mapping[int, int], title: str
) -> Iterator[Sound]:
    """
    Open a sound.

    Args:
        source: The file.
        format_: What it is.
        patch: Bytes that stand for the file's own, by place.
        title: What it is called; empty where libsndfile must say.

    Raises:
        UnknownCodec: libsndfile does not read it.

        Refused: It is damaged, or has too many channels.
    """
    stream = _Guarded(source, patch)
    source.seek(0)
    try:
        file = _Forwards(cast("BinaryIO", stream))
    except soundfile.LibsndfileError as exc:
        stream.check()
        raise UnknownCodec(exc.error_string.strip()) from exc
    with file:
        channels, rate = file.channels, file.samplerate
        title = title or title_of(format_.title, rate, channels)
        if channels > MAX_CHANNELS:
            msg = f"is {title}, and {MAX_CHANNELS} channels are read at most; mix it down"
            raise Refused(msg)
        frames = file.frames if file.frames < _UNKNOWN_FRAMES else None
        yield Sound(
            title=title,
            rate_hz=rate,
            frames=frames,
            blocks=_blocks(file, stream, title, frames if format_ is AudioFormat.FLAC else None),
        )


def _blocks(
    file: soundfile.SoundFile, stream: _Guarded, title: str, stated: int | None
) -> Iterator[Floats]:
    import numpy as np

    size = max(_BLOCK // file.channels, 1)
    total = 0
    # What follows the last frame that was stated is no sound, and libsndfile would stumble over it.
    while stated is None or total < stated:
        try:
            block = file.read(
                size if stated is None else min(size, stated - total),
                dtype="float32",
                always_2d=True,
            )
        except soundfile.LibsndfileError as exc:
            stream.check()
            msg = f"is {title}, and damaged or cut short ({exc.error_string.strip()}); get it anew"
            raise Refused(msg) from exc
        stream.check()
        if not len(block):
            break
        total += len(block)
        yield np.asarray(block, np.float32)
    if stated is not None and total < stated:
        msg = f"is {title}, and cut short: {total:,} of {stated:,} frames are there; get it anew"
        raise Refused(msg)
