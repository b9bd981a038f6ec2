"""
A path, bytes, a file object or an array to 16 kHz mono, by one rule.

Of a **file**, or the bytes of one:

- WAV (PCM of 8 to 32 bits, float, mu-law, A-law, ADPCM, extensible; RF64 too), FLAC, Ogg (Vorbis,
  Opus, FLAC), MP3 and AIFF are read by libsndfile. MP4 (M4A), Matroska and WebM, ASF (WMA), AAC,
  AMR, AU, CAF and AVI, and what of the first libsndfile does not know, are read by ffmpeg where it
  is installed. The content says which it is, not the name.
- Of several sounds in a file (a film's languages) the first is taken.
- Whole numbers are divided by their full scale: 16 bits by 32,768, 8 bits as ``(x - 128) / 128``.
  Floats stay as they are. Nothing is clipped or normalised.
- A file that is shorter than it says is refused: a WAV, an AIFF and a FLAC by their length, an Ogg
  by its pages, an MP3 by the length that most encoders note in it. Where a WAV was written into a
  pipe, so that its length is 0, or beyond 0x7F000000 and more than there is, it reaches to the
  end of the file. It must end with a whole frame.
- How long it lasts is read from the header where it stands there, before anything is decoded, and
  counted in any case.

Of an **array**, whose shape is ``(frames,)`` or ``(frames, channels)``, time first:

- The dtype says what is full scale, never the values: uint8 (128 is silence), int16, int32, and
  floats, whose full scale is 1. The caller says the rate.

Of **both**:

- Channels are averaged, all of them with the same weight; then the rate is changed by soxr (HQ).
- NaN, infinite samples, and floats beyond 16 (+24 dB) are refused; see
  `cartridge_media.levels.MAX_AMPLITUDE`. So are empty sounds, more than 64 channels, and rates
  outside 1,000 to 768,000 Hz.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from cartridge_media import ffmpeg
from cartridge_media.audio_formats import SOUNDFILE, AudioFormat, recognise_audio
from cartridge_media.formats import HEAD_BYTES
from cartridge_media.lengths import check_length
from cartridge_media.levels import to_levels
from cartridge_media.mono import MAX_CHANNELS, RATE_HZ, Sound, title_of, to_mono
from cartridge_media.refusal import Refused, named
from cartridge_media.sources import Source
from cartridge_media.wav import read_wav

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cartridge_media.levels import Floats, Samples

__all__ = ["MAX_BYTES", "MAX_DURATION_S", "RATE_HZ", "read_audio"]

MAX_DURATION_S = 4 * 3600.0
"""Four hours, which take 0.9 GB."""

MAX_BYTES = 1 << 30
"""What is read of a file object, at most: it goes into memory. A path has no such limit."""

_RULE = "sound: a path, the bytes of a file, a file object, or an array"
_BLOCK = 65_536


def read_audio(
    value: object,
    *,
    rate_hz: int | None = None,
    max_duration_s: float = MAX_DURATION_S,
    check: Callable[[], None] = lambda: None,
    arg: str = "audio",
) -> Floats:
    """
    Read a sound, by the rule above.

    Any number of threads may call it; nothing that holds for the whole process is changed.

    Args:
        value: A ``str`` or ``PathLike`` is a path; a ``str`` that is a URL is refused. ``bytes``
            are a file's content, and so is what a binary file object gives from where it stands.
        rate_hz: Hertz of an array's samples, which it must have. A file says its own.
        max_duration_s: Seconds, at most.
        check: Called now and then (``context.check_cancelled``); what it raises stops the work.
        arg: What messages call it.

    Returns:
        Shape ``(samples,)``, at 16,000 Hz; full scale is 1. It shares no memory with the value.

    Raises:
        InvalidArgumentError: It is no sound that can be read; the message says which, why, and
            what to do.

        LoadError: numpy, soundfile or soxr is not installed.
    """
    with named(arg, value, rule=_RULE, what="sound", extra="audio"), ExitStack() as stack:
        sound = _open(value, rate_hz, max_duration_s, check, stack)
        return to_mono(sound, max_duration_s, check)


def _open(
    value: object,
    rate_hz: int | None,
    max_duration_s: float,
    check: Callable[[], None],
    stack: ExitStack,
) -> Sound:
    if isinstance(value, str):
        source = Source.of_text(value)
    elif isinstance(value, os.PathLike):
        source = Source.of_path(os.fsdecode(value))
    elif isinstance(value, bytes | bytearray | memoryview):
        source = Source.of_bytes(value)
    elif callable(read := getattr(value, "read", None)):
        source = Source.of_bytes(_content(read))
    else:
        return _of_array(value, rate_hz)
    return _of_file(stack.enter_context(source), max_duration_s, check, stack)


def _content(read: Callable[[int], object]) -> bytes:
    content = bytearray()
    while True:
        try:
            more = read(1 << 20)
        except (OSError, ValueError) as exc:  # ValueError: it is closed
            msg = f"cannot be read ({exc}); give an open file"
            raise Refused(msg) from exc
        if not isinstance(more, bytes):
            found = "would wait" if more is None else f"gives {type(more).__name__}"
            msg = f"{found} where bytes are read; open the file with mode 'rb'"
            raise Refused(msg)
        if not more:
            return bytes(content)
        content += more
        if len(content) > MAX_BYTES:
            msg = f"gives more than {MAX_BYTES:,} bytes; give the file's path"
            raise Refused(msg)


def _of_file(
    source: Source, max_duration_s: float, check: Callable[[], None], stack: ExitStack
) -> Sound:
    try:
        format_ = recognise_audio(source.read(HEAD_BYTES))
        size = source.seek(0, os.SEEK_END)
        patch: Mapping[int, int] = {}
        title = ""
        if format_ in {AudioFormat.WAV, AudioFormat.RF64}:
            wav = read_wav(source, size)
            patch, title = wav.patch, wav.title
        else:
            check_length(format_, source, size)
    except OSError as exc:
        msg = f"cannot be read ({exc.strerror}); check the disk that it is on"
        raise Refused(msg) from exc
    if format_ not in SOUNDFILE:
        return stack.enter_context(ffmpeg.open_sound(source, format_, max_duration_s, check))
    try:
        from cartridge_media import _soundfile  # noqa: PLC0415 -- an extra
    except OSError as exc:  # libsndfile itself is missing
        raise ImportError(exc) from exc
    try:
        return stack.enter_context(_soundfile.open_sound(source, format_, patch, title))
    except _soundfile.UnknownCodec as exc:
        if ffmpeg.find_ffmpeg() is None:
            msg = (
                f"is {title or format_.title}, and damaged or of a kind that needs ffmpeg, which "
                f"is not installed ({exc}); get it anew, or install ffmpeg (apt install ffmpeg)"
            )
            raise Refused(msg) from exc
        return stack.enter_context(ffmpeg.open_sound(source, format_, max_duration_s, check))


def _of_array(value: object, rate_hz: int | None) -> Sound:
    import numpy as np

    if not isinstance(value, np.ndarray):
        msg = "is no sound; give a path, the bytes of a file, a file object, or a numpy array"
        raise Refused(msg)
    if rate_hz is None:
        msg = "says no rate; give rate_hz, its samples in a second"
        raise Refused(msg)
    shape = value.shape
    if len(shape) not in {1, 2} or (len(shape) == 2 and not 1 <= shape[1] <= MAX_CHANNELS):
        turned = len(shape) == 2 and shape[0] <= MAX_CHANNELS
        advice = " (time comes first: give array.T)" if turned else ""
        msg = (
            f"has the wrong shape; give (frames,), or (frames, channels) with 1 to {MAX_CHANNELS}"
            f"{advice}"
        )
        raise Refused(msg)
    channels = shape[1] if len(shape) == 2 else 1
    return Sound(
        title=title_of(str(value.dtype), rate_hz, channels),
        rate_hz=rate_hz,
        frames=len(value),
        blocks=_blocks(value.reshape(len(value), channels)),
    )


def _blocks(samples: Samples) -> Iterator[Floats]:
    size = max(_BLOCK // samples.shape[1], 1)
    for start in range(0, len(samples), size):
        yield to_levels(samples[start : start + size])
