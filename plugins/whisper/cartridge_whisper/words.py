"""
The times of words: from where the decoder listened to a time for each word.

Source: openai-whisper, ``whisper.timing``, whose times these are.
"""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING

import attrs

from cartridge_whisper.segments import FRAME_SAMPLES, SAMPLE_RATE_HZ, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cartridge_whisper.segments import Segment
    from cartridge_whisper.tokens import Tokenizer

__all__ = ["Alignment", "place_words"]

_TOKENS_PER_SECOND = 50
_BEFORE = "\"'“¿([{-"
_AFTER = "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001 -- what is written
_ENDS_SENTENCE = ".。!！?？"  # noqa: RUF001 -- as above
_MOST_MEDIAN_S = 0.7
_TOLERANCE_S = 0.5


@attrs.frozen
class Alignment:
    """Where in a window each of its tokens is said, the end of the text among them."""

    places: Sequence[int]
    """Where each token begins, in steps of 0.02 s."""

    probabilities: Sequence[float]
    """Of each token but the end."""


def place_words(
    segments: Sequence[Segment],
    alignment: Alignment,
    first_frame: int,
    last_speech_s: float,
    tokenizer: Tokenizer,
) -> None:
    """
    Give a window's segments their words, in place, and the words' times to the segments.

    Args:
        segments: The window's.
        alignment: Of all their words' tokens together.
        first_frame: Where the window begins.
        last_speech_s: Where the last word before it ended.
        tokenizer: Cuts tokens into words.
    """
    tokens = [token for one in segments for token in one.tokens if token < tokenizer.eot]
    words = _words(tokens, alignment, tokenizer)
    lengths = [word.end_s - word.start_s for word in words if word.end_s != word.start_s]
    median_s = min(_MOST_MEDIAN_S, float(statistics.median(lengths))) if lengths else 0.0
    if lengths:
        _shorten_around_sentences(words, median_s * 2)
    _merge_before(words)
    _merge_after(words)
    offset_s = first_frame * FRAME_SAMPLES / SAMPLE_RATE_HZ
    left = iter(words)
    for segment in segments:
        count, taken = sum(token < tokenizer.eot for token in segment.tokens), 0
        segment.words = []
        while taken < count and (word := next(left, None)):
            taken += len(word.tokens)
            if word.text:
                word.start_s = round(offset_s + word.start_s, 2)
                word.end_s = round(offset_s + word.end_s, 2)
                segment.words.append(word)
        if segment.words:
            _fit(segment, median_s, last_speech_s)
            last_speech_s = segment.end_s


def _words(tokens: list[int], alignment: Alignment, tokenizer: Tokenizer) -> list[Word]:
    texts, parts = tokenizer.split_to_word_tokens([*tokens, tokenizer.eot])
    words, first = [], 0
    for text, part in zip(texts[:-1], parts[:-1], strict=True):
        last = first + len(part)
        start_s, end_s = (alignment.places[at] / _TOKENS_PER_SECOND for at in (first, last))
        probability = statistics.fmean(alignment.probabilities[first:last])
        words.append(Word(text, list(part), start_s, end_s, probability))
        first = last
    return words


def _shorten_around_sentences(words: Sequence[Word], most_s: float) -> None:
    """Take the pause at the end of a sentence off the words around it."""
    for before, word in itertools.pairwise(words):
        if word.end_s - word.start_s > most_s:
            if word.text in _ENDS_SENTENCE:
                word.end_s = word.start_s + most_s
            elif before.text in _ENDS_SENTENCE:
                word.start_s = word.end_s - most_s


def _merge_before(words: Sequence[Word]) -> None:
    """Have a word take the opening marks before it."""
    following = len(words) - 1
    for place in range(len(words) - 2, -1, -1):
        mark, word = words[place], words[following]
        if mark.text.startswith(" ") and mark.text.strip() in _BEFORE:
            word.text, word.tokens = mark.text + word.text, mark.tokens + word.tokens
            mark.text, mark.tokens = "", []
        else:
            following = place


def _merge_after(words: Sequence[Word]) -> None:
    """Have a word take the marks after it."""
    previous = 0
    for place in range(1, len(words)):
        word, mark = words[previous], words[place]
        if not word.text.endswith(" ") and mark.text in _AFTER:
            word.text, word.tokens = word.text + mark.text, word.tokens + mark.tokens
            mark.text, mark.tokens = "", []
        else:
            previous = place


def _fit(segment: Segment, median_s: float, last_speech_s: float) -> None:
    """Have a segment and its first and last word begin and end together."""
    words, most_s = segment.words, median_s * 2
    first, last = words[0], words[-1]
    second = words[1] if len(words) > 1 else None
    is_long = first.end_s - first.start_s > most_s
    are_long = second is not None and second.end_s - first.start_s > most_s * 2
    if first.end_s - last_speech_s > median_s * 4 and (is_long or are_long):
        # After a pause: it was taken for a part of the first words.
        if second is not None and second.end_s - second.start_s > most_s:
            first.end_s = second.start_s = max(second.end_s / 2, second.end_s - most_s)
        first.start_s = max(0.0, first.end_s - most_s)
    if segment.start_s < first.end_s and segment.start_s - _TOLERANCE_S > first.start_s:
        first.start_s = max(0.0, min(first.end_s - median_s, segment.start_s))
    else:
        segment.start_s = first.start_s
    if segment.end_s > last.start_s and segment.end_s + _TOLERANCE_S < last.end_s:
        last.end_s = max(last.start_s + median_s, segment.end_s)
    else:
        segment.end_s = last.end_s
