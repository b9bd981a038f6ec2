"""Cut a text into chunks of words that overlap."""

from __future__ import annotations

import re

import attrs

__all__ = ["Chunk", "split"]

_WORD = re.compile(r"\S+")


@attrs.frozen
class Chunk:
    """A part of a text: ``text[start_offset:end_offset]``, in characters."""

    text: str
    start_offset: int
    end_offset: int


def split(text: str, size: int, overlap: int) -> list[Chunk]:
    """
    Cut a text into chunks, in order.

    A word is a run of characters between white space. A chunk reaches from the beginning of its
    first word to the end of its last. The last chunk may be shorter, and always brings words
    that the one before it lacks. A text without words is one chunk: itself.

    Args:
        text: The text.
        size: Words in a chunk, at least 1.
        overlap: Words that a chunk shares with the one before it, less than ``size``.
    """
    words = [match.span() for match in _WORD.finditer(text)]
    if not words:
        return [Chunk(text, 0, len(text))]
    firsts = range(0, max(1, len(words) - overlap), size - overlap)
    spans = ((words[i][0], words[min(i + size, len(words)) - 1][1]) for i in firsts)
    return [Chunk(text[start:end], start, end) for start, end in spans]
