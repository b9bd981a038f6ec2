"""A text that is decoded anew for each token, given out piece by piece."""

from __future__ import annotations

from cartridge_core.errors import BackendError

__all__ = ["GrowingText"]


class GrowingText:
    """
    Gives what is new of a text, as far as more tokens will not change it.

    Pieces of words are put together, and a word and an apostrophe, only when what follows is
    known. So the last word is held back, and the one before an apostrophe too.
    """

    def __init__(self) -> None:
        self.given = ""

    def feed(self, text: str) -> str:
        """
        Give what is new, without what may still change.

        Args:
            text: The whole text of the tokens so far.
        """
        end = text.rfind(" ")
        if text[end + 1 :].startswith("'"):
            end = text.rfind(" ", 0, max(end, 0))
        stable = text[: max(end, 0)]
        return self._give(stable) if stable.startswith(self.given) else ""

    def finish(self, text: str) -> str:
        """
        Give the rest.

        Args:
            text: The whole text of all tokens.

        Raises:
            BackendError: The text does not begin with what was given.
        """
        if not text.startswith(self.given):
            msg = f"the tokenizer made {text!r} of a text that began with {self.given!r}"
            raise BackendError(msg)
        return self._give(text)

    def _give(self, text: str) -> str:
        piece, self.given = text[len(self.given) :], text
        return piece
