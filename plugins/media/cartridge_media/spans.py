"""Places to cut a long text at, so that its tokens stay what they are in the whole."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["end_of_span", "spans"]

_BORDER = re.compile(r"(?<=\S)\s")


def end_of_span(text: str, start: int, length: int) -> int:
    """
    Give the end of a span of at most so many characters.

    It is the end of a word: white space belongs to the word after it, as most tokenizers have it.
    Only where there is no white space at all is a word cut.
    """
    most = start + length
    if most >= len(text):
        return len(text)
    ends = [match.start() for match in _BORDER.finditer(text, start + 1, most + 1)]
    return ends[-1] if ends else most


def spans(text: str, start: int, length: int) -> Iterator[str]:
    """Cut what follows a place into spans of at most so many characters, in order."""
    while start < len(text):
        end = end_of_span(text, start, length)
        yield text[start:end]
        start = end
