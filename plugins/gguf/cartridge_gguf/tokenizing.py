"""Texts as the tokens that a model takes: all of them, or the first ones and a count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cartridge_media.spans import end_of_span, spans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cartridge_gguf._model import Model

__all__ = ["Tokenizer", "Tokens", "continued", "tokens_of"]

_CHARACTERS = 8192
"""
How much llama.cpp tokenises at a time, if the text's beginning is not longer: it cannot be stopped,
and where a vocabulary spells a text byte by byte, its time grows with the square of the length. Of
this many characters it takes 50 ms at most; of 450 000, four minutes.
"""

_COUNTED_CHARACTERS = 1024
"""As much is tokenised at a time of what is only counted."""

_MARGIN = 512
"""Tokens that a cut's effect on those before it stays within."""

_GROWTH = 4


@attrs.frozen
class Tokens:
    """A text."""

    ids: Sequence[int]
    """What the model is given, with the tokens that it wants around a text."""

    count: int
    """Of the whole text, counted likewise; more than there are ids where it is too long."""


class Tokenizer:
    """
    Turns texts into tokens; for any thread.

    Args:
        model: The model; stays open for longer.
        limit: How many tokens it takes at most.
    """

    def __init__(self, model: Model, limit: int) -> None:
        self._model = model
        plain, whole = self._tokenize("a"), model.tokenize("a", special=False, add_bos=True)
        places = range(len(whole) - len(plain) + 1)
        first = next((i for i in places if whole[i : i + len(plain)] == plain), len(whole))
        self._before, self._after = whole[:first], whole[first + len(plain) :]
        self.around = len(self._before) + len(self._after)
        """How many tokens the model wants around a text."""
        self._room = limit - self.around

    def read(self, text: str, check: Callable[[], None]) -> Tokens:
        """
        Turn a text into tokens; those that are too many are counted and left out.

        The count of a text with too many may be off by a few: see `tokens_of`.

        Args:
            text: The text; no half surrogate pairs. The text of a control token is no such token.
            check: Called now and then; what it raises stops the work.
        """
        ids = tokens_of(text, self._tokenize, self._tokenize, self._room, check)
        return Tokens([*self._before, *ids[: self._room], *self._after], len(ids) + self.around)

    def _tokenize(self, text: str) -> list[int]:
        return self._model.tokenize(text, special=False, add_bos=False)


def tokens_of(
    text: str,
    begin: Callable[[str], list[int]],
    go_on: Callable[[str], list[int]],
    limit: int,
    check: Callable[[], None],
) -> list[int]:
    """
    Turn a text into tokens, and be able to stop.

    A text that is not longer than 8192 characters is tokenised as a whole, and so is a longer one
    that comes to no more tokens than ``limit``. Of one that comes to more, the beginning is; the
    rest is in pieces, so that each of them may give a token more or less.

    Args:
        text: The text; no half surrogate pairs.
        begin: Turns a text into tokens.
        go_on: Does so with a piece that is not the first.
        limit: How many tokens are of use.
        check: Called now and then; what it raises stops the work.
    """
    end, length = 0, _CHARACTERS
    while True:
        check()
        end = end_of_span(text, 0, length)
        ids = begin(text[:end])
        if end == len(text) or len(ids) >= limit + _MARGIN:
            break
        length *= _GROWTH
    for span in spans(text, end, _COUNTED_CHARACTERS):
        check()
        ids += continued(span, go_on)
    return ids


def continued(text: str, tokenize: Callable[[str], list[int]]) -> list[int]:
    """Turn a text that goes on into tokens: some tokenizers begin every text with a space."""
    begun = tokenize("\n")
    tokens = tokenize(f"\n{text}")
    if tokens[: len(begun)] == begun:
        return tokens[len(begun) :]
    return tokenize(text)
