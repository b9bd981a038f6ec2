"""
Cut the text of a window into segments by the times it says.

Source: openai-whisper, ``whisper.transcribe``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cartridge_whisper.texts import Text
    from cartridge_whisper.tokens import Tokenizer

__all__ = [
    "FRAMES_PER_SECOND",
    "FRAME_SAMPLES",
    "SAMPLE_RATE_HZ",
    "WINDOW_FRAMES",
    "Cut",
    "Segment",
    "Word",
    "cut",
    "end_of",
]

FRAMES_PER_SECOND = 100
FRAME_SAMPLES = 160
WINDOW_FRAMES = 3000
SAMPLE_RATE_HZ = 16_000
_FRAMES_PER_STEP = 2
"""Of a time that is said."""

_STEP_S = _FRAMES_PER_STEP * FRAME_SAMPLES / SAMPLE_RATE_HZ


@attrs.define
class Word:
    """A word with the white space and the punctuation around it."""

    text: str
    tokens: list[int]
    start_s: float
    end_s: float
    probability: float


@attrs.define
class Segment:
    """A part of the text, with times in the whole sound."""

    start_s: float
    end_s: float
    tokens: list[int]
    """Words and times."""

    text: str
    avg_logprob: float
    no_speech_prob: float
    words: list[Word] = attrs.field(factory=list)


@attrs.frozen
class Cut:
    """The segments of a window, and how far they go."""

    segments: list[Segment]

    frames: int
    """How many frames to move on by."""

    is_whole: bool = attrs.field(kw_only=True)
    """Whether the text says itself that nothing follows its last time in this window."""


def end_of(segments: Sequence[Segment]) -> float:
    """Say where the last word of segments ends, or the last segment where there are no words."""
    words = [word for segment in segments for word in segment.words]
    return words[-1].end_s if words else segments[-1].end_s


def cut(
    text: Text, first_frame: int, frames: int, tokenizer: Tokenizer, *, to_the_end: bool = False
) -> Cut:
    """
    Cut a window's text into segments.

    Args:
        text: The text.
        first_frame: Where the window begins.
        frames: How many frames of sound it has; silence fills the rest.
        tokenizer: Makes words of tokens.
        to_the_end: Whether what follows the last complete segment is one too, and not left to the
            next window.
    """
    tokens, offset_s = list(text.tokens), float(first_frame * FRAME_SAMPLES / SAMPLE_RATE_HZ)
    zero = tokenizer.timestamp_begin
    is_time = [token >= zero for token in tokens]
    is_whole = is_time[-2:] == [False, True]
    # Where one segment's end stands right before the next one's start.
    ends = [place for place in range(1, len(tokens)) if is_time[place - 1] and is_time[place]]

    def at(token: int) -> float:
        return offset_s + (token - zero) * _STEP_S

    def segment(start_s: float, end_s: float, part: Sequence[int]) -> Segment:
        words = [token for token in part if token < tokenizer.eot]
        said = tokenizer.decode(words)
        return Segment(start_s, end_s, list(part), said, text.avg_logprob, text.no_speech_prob)

    if not ends:
        last = next((token for token in reversed(tokens) if token >= zero), zero)
        end_s = at(last) if last != zero else offset_s + frames * FRAME_SAMPLES / SAMPLE_RATE_HZ
        return Cut([segment(offset_s, end_s, tokens)], frames, is_whole=is_whole)
    if is_whole or to_the_end:
        ends.append(len(tokens))
    parts = [tokens[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    segments = [segment(at(part[0]), at(part[-1]), part) for part in parts]
    if to_the_end and not is_whole:
        segments[-1].end_s = offset_s + frames * FRAME_SAMPLES / SAMPLE_RATE_HZ
        return Cut(segments, frames, is_whole=True)
    # What follows the last complete segment is left to the next window.
    moved = frames if is_whole else (parts[-1][-1] - zero) * _FRAMES_PER_STEP
    return Cut(segments, moved, is_whole=is_whole)
