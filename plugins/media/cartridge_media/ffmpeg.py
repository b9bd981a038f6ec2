"""Sound that libsndfile does not read, decoded by the program ffmpeg in a process of its own."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import struct
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, BinaryIO

from cartridge_media.mono import MAX_CHANNELS, Sound, title_of
from cartridge_media.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cartridge_media.audio_formats import AudioFormat
    from cartridge_media.levels import Floats

__all__ = ["TIMEOUT_S", "find_ffmpeg", "open_sound"]

TIMEOUT_S = 600.0
"""How long ffmpeg may take for one file."""

_CHECK_S = 0.1
_READ_BYTES = 1 << 18
_SAID_BYTES = 2000
"""Its first error is the reason; what follows is what came of it."""

_SPEAKER = re.compile(r"\[[^]\n]* @ 0x[0-9a-f]+\] ?")
"""The part of ffmpeg that speaks, as in ``[mov,mp4,m4a @ 0x55d0c8] moov atom not found``."""

_MAX_ALLOC = 256 << 20
"""The most that ffmpeg may ask for at once, in bytes."""


def find_ffmpeg() -> str | None:
    """Give the path of ffmpeg; None where it is not installed."""
    return shutil.which("ffmpeg")


@contextmanager
def open_sound(
    source: BinaryIO, format_: AudioFormat, max_duration_s: float, check: Callable[[], None]
) -> Iterator[Sound]:
    """
    Start to decode the first sound of a file.

    ffmpeg gets the open file and no path, is told the format, and may use no network. It ends
    when the context does.

    Args:
        source: The file, or one in memory, which is copied to a temporary file.
        format_: What it is.
        max_duration_s: It stops a second after that.
        check: Called ten times a second; what it raises stops the work.

    Raises:
        Refused: ffmpeg is not installed, or cannot read it, or takes too long.
    """
    program = find_ffmpeg()
    if program is None:
        msg = (
            f"is {format_.title} that ffmpeg must decode, and there is no ffmpeg here; install it "
            "(apt install ffmpeg), or convert the file to WAV, FLAC, Ogg or MP3"
        )
        raise Refused(msg)
    command = [
        *(program, "-nostdin", "-hide_banner", "-v", "error", "-xerror"),
        *("-max_alloc", str(_MAX_ALLOC), "-protocol_whitelist", "file,pipe"),
        *("-f", format_.demuxer, "-i", "file:/dev/fd/0"),
        *("-map", "0:a:0", "-t", str(max_duration_s + 1)),
        *("-c:a", "pcm_f32be", "-f", "au", "pipe:1"),
    ]
    with ExitStack() as stack:
        stdin = _with_descriptor(source, stack)
        process = stack.enter_context(_start(command, stdin))
        stack.callback(process.kill)
        data = _output(process, format_, check)
        head = b""
        for more in data:
            head += more
            if len(head) >= 24 and len(head) >= int.from_bytes(head[4:8]):
                break
        _, start, _, _, rate, channels = struct.unpack(">4s5I", head[:24].ljust(24, b"\0"))
        title = title_of(format_.title, rate, channels)
        if not 1 <= channels <= MAX_CHANNELS:
            msg = f"is {title}, and 1 to {MAX_CHANNELS} channels are read; mix it down"
            raise Refused(msg)
        yield Sound(
            title=title, rate_hz=rate, frames=None, blocks=_blocks(data, head[start:], channels)
        )


def _start(command: list[str], stdin: BinaryIO) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 -- a list, and nothing of it is the caller's
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as exc:
        msg = f"needs ffmpeg, and {command[0]} cannot be started ({exc.strerror}); install it anew"
        raise Refused(msg) from exc


def _with_descriptor(source: BinaryIO, stack: ExitStack) -> BinaryIO:
    source.seek(0)
    try:
        source.fileno()
    except OSError:
        copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 -- it does close it
        shutil.copyfileobj(source, copy)
        copy.flush()
        copy.seek(0)
        return copy
    return source


def _output(
    process: subprocess.Popen[bytes], format_: AudioFormat, check: Callable[[], None]
) -> Iterator[bytes]:
    """Give what ffmpeg writes, and say so if it fails."""
    end = time.monotonic() + TIMEOUT_S
    said, wrote = b"", False
    with selectors.DefaultSelector() as selector:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            check()
            if time.monotonic() > end:
                msg = f"is {format_.title}, and ffmpeg needs more than {TIMEOUT_S:g} s; convert it"
                raise Refused(msg)
            for key, _ in selector.select(_CHECK_S):
                data = os.read(key.fd, _READ_BYTES)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stderr:
                    said = (said + data)[:_SAID_BYTES]
                else:
                    wrote = True
                    yield data
    if process.wait() or not wrote:
        reason = _SPEAKER.sub("", said.decode(errors="replace")).strip().partition("\n")[0]
        msg = (
            f"is {format_.title}, and damaged, cut short, without sound or of a kind that ffmpeg "
            f"does not read ({reason or 'it does not say why'}); get it anew, or convert it to WAV"
        )
        raise Refused(msg)


def _blocks(data: Iterator[bytes], rest: bytes, channels: int) -> Iterator[Floats]:
    import numpy as np

    frame = 4 * channels
    for more in data:
        rest += more
        whole = len(rest) // frame * frame
        samples = np.frombuffer(rest[:whole], ">f4").astype(np.float32)
        rest = rest[whole:]
        yield samples.reshape(-1, channels)
