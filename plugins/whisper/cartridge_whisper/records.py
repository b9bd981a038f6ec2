"""Segments as plain data, whose times keep in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cartridge_whisper.segments import Segment
    from cartridge_whisper.tokens import Tokenizer

__all__ = ["Clock", "transcript"]


class Clock:
    """
    Keeps times in order: none lies before the one told before it, or outside of the sound.

    Args:
        end_s: Where the sound ends.
        start_s: Where the times begin.
    """

    def __init__(self, end_s: float, start_s: float = 0.0) -> None:
        self._end_s = float(end_s)
        self._last_s = float(start_s)

    def tell(self, time_s: float) -> float:
        """Give a time, or the nearest one that is in order."""
        self._last_s = min(max(float(time_s), self._last_s), self._end_s)
        return self._last_s


def transcript(
    segments: Sequence[Segment], tokenizer: Tokenizer, duration_s: float
) -> dict[str, object]:
    """
    Make the record of a text.

    Args:
        segments: In order.
        tokenizer: Makes the text of their tokens: a character can be spread over two segments.
        duration_s: Of the sound; no time lies beyond it.

    Returns:
        ``text``; ``has_speech``; ``segments`` with ``start_s``, ``end_s``, ``text``,
        ``avg_logprob`` and ``no_speech_prob``; ``words`` with ``start_s``, ``end_s``, ``text``,
        ``probability`` and the index of their ``segment``. Times are never decreasing.
    """
    clock, word_clock = Clock(duration_s), Clock(duration_s)
    tokens = [token for segment in segments for token in segment.tokens]
    return {
        "text": tokenizer.decode(tokens),
        "has_speech": bool(segments),
        "segments": [
            {
                "start_s": clock.tell(segment.start_s),
                "end_s": clock.tell(segment.end_s),
                "text": segment.text,
                "avg_logprob": segment.avg_logprob,
                "no_speech_prob": segment.no_speech_prob,
            }
            for segment in segments
        ],
        "words": [
            {
                "start_s": word_clock.tell(word.start_s),
                "end_s": word_clock.tell(word.end_s),
                "text": word.text,
                "probability": word.probability,
                "segment": index,
            }
            for index, segment in enumerate(segments)
            for word in segment.words
        ],
    }
