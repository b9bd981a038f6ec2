"""Cut a text into chunks of words that overlap."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Chunk", "split"]

_WORD = re.compile(r"\S+")
_BETWEEN_CHECKS = 65_536
"""Words."""


@attrs.frozen
class Chunk:
    """A part of a text: ``text[start_offset:end_offset]``, in characters."""

    text: str
    start_offset: int
    end_offset: int


def split(
    text: str, size: int, overlap: int, check: Callable[[], None] = lambda: None
) -> list[Chunk]:
    """
    Cut a text into chunks, in order.

    A word is a run of characters between white space. A chunk reaches from the beginning of its
    first word to the end of its last. The last chunk may be shorter, and always brings words
    that the one before it lacks. A text without words is one chunk: itself.

    Args:
        text: The text.
        size: Words in a chunk, at least 1.
        overlap: Words that a chunk shares with the one before it, less than ``size``.
        check: Called now and then; what it raises stops the work.
    """
    words: list[tuple[int, int]] = []
    for match in _WORD.finditer(text):
        if len(words) % _BETWEEN_CHECKS == 0:
            check()
        words.append(match.span())
    if not words:
        return [Chunk(text, 0, len(text))]
    firsts = range(0, max(1, len(words) - overlap), size - overlap)
    chunks: list[Chunk] = []
    for first in firsts:
        if len(chunks) % _BETWEEN_CHECKS == 0:
            check()
        start, end = words[first][0], words[min(first + size, len(words)) - 1][1]
        chunks.append(Chunk(text[start:end], start, end))
    return chunks
