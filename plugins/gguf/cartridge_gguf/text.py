"""From the bytes of tokens to text: whole characters only, and never past a stop string."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TextAssembler"]


class TextAssembler:
    """
    Puts a stream of bytes together to text.

    What it gives, joined, does not depend on where the bytes were cut: it is their text up to the
    earliest place where a stop string stands, or all of it. Text that may turn out to be a stop
    string is held back until that is decided.

    Bytes that are no UTF-8, and a character that the end cuts, are left out and counted; U+FFFD
    is in the text only where the bytes spell it.

    Args:
        stops: The stop strings, none of them empty.

    Attributes:
        is_stopped: A stop string was found; feed it no more.
        is_cut: The stream ended inside a character.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self.is_stopped = False
        self.is_cut = False
        self._stops = tuple(stops)
        self._heads = frozenset(stop[0] for stop in stops)
        self._longest = max(map(len, stops), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._held = ""
        self._bytes = 0
        self._bytes_of_text = 0

    @property
    def dropped_bytes(self) -> int:
        """How many bytes were left out of the text; known at the end."""
        return self._bytes - self._bytes_of_text

    def feed(self, piece: bytes) -> str:
        """
        Take the bytes of one token.

        Returns:
            The text that is due now; often none.
        """
        text = self._decoder.decode(piece)
        self._bytes += len(piece)
        self._bytes_of_text += len(text.encode())
        if not self._stops:
            return text
        text = self._held + text
        stop, doubt = self._find_stop(text), self._find_doubt(text)
        if stop is not None and (doubt is None or stop <= doubt):
            return self._stop(text[:stop])
        self._held = "" if doubt is None else text[doubt:]
        return text[:doubt]

    def finish(self) -> str:
        """
        Take the end of the stream.

        Returns:
            What was held back and is no stop string.
        """
        text, self._held = self._held, ""
        stop = self._find_stop(text)
        if stop is not None:
            return self._stop(text[:stop])
        self.is_cut = self._pending_bytes > 0
        return text

    @property
    def _pending_bytes(self) -> int:
        """How many bytes wait for the rest of their character."""
        return len(self._decoder.getstate()[0])

    def _stop(self, text: str) -> str:
        """End with this text; a character begun after the stop string was not left out of it."""
        self.is_stopped = True
        self._bytes -= self._pending_bytes
        return text

    def _find_stop(self, text: str) -> int | None:
        """Find the earliest stop string."""
        places = [text.find(stop) for stop in self._stops]
        return min((place for place in places if place >= 0), default=None)

    def _find_doubt(self, text: str) -> int | None:
        """Find the earliest place from which the text, so far, is the beginning of a stop."""
        for place in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[place] in self._heads:
                rest = text[place:]
                if any(stop.startswith(rest) for stop in self._stops):
                    return place
        return None
