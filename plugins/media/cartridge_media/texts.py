"""The texts of a call, checked and cut into the pieces that become rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_media.chunks import Chunk, split

if TYPE_CHECKING:
    from cartridge_core.context import Context

__all__ = ["Piece", "check_unicode", "pieces", "read_texts"]


@attrs.frozen
class Piece:
    """What becomes one row: a text, or one chunk of it."""

    item: int
    """Index of the text in the call."""

    chunk_index: int
    chunk: Chunk = attrs.field(kw_only=True)

    def record(self) -> dict[str, object]:
        """Give it as ``chunks`` of a payload has it."""
        return {"item": self.item, "chunk_index": self.chunk_index, **attrs.asdict(self.chunk)}


def read_texts(value: object) -> list[str]:
    """
    Take a text or a list of texts.

    Raises:
        InvalidArgumentError: It is neither, or an item is no text, or no valid Unicode; the
            item is named by its index.
    """
    if isinstance(value, str):
        return [check_unicode(value, "text")]
    if not isinstance(value, Sequence) or isinstance(value, (bytes, bytearray, memoryview)):
        msg = f"text: must be a text or a list of texts, not {type(value).__name__}"
        raise InvalidArgumentError(msg, arg="text", value=value, rule="a text or a list of texts")
    return [_read_item(item, f"text[{index}]") for index, item in enumerate(value)]


def _read_item(item: object, arg: str) -> str:
    if not isinstance(item, str):
        msg = f"{arg}: must be a text, not {type(item).__name__}"
        raise InvalidArgumentError(msg, arg=arg, value=item, rule="a text")
    return check_unicode(item, arg)


def check_unicode(text: str, arg: str) -> str:
    """
    Give a text back if it can be written as UTF-8.

    Raises:
        InvalidArgumentError: It holds half of a surrogate pair.
    """
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        found = f"U+{ord(text[exc.start]):04X} at character {exc.start}"
        msg = f"{arg}: {found} is half of a surrogate pair, no Unicode text"
        raise InvalidArgumentError(msg, arg=arg, value=text, rule="Unicode text") from None
    return text


def pieces(texts: Sequence[str], size: int, overlap: int, context: Context) -> list[Piece]:
    """
    Cut texts into pieces, in order.

    Args:
        texts: The texts.
        size: Words in a chunk; 0 keeps every text whole.
        overlap: Words that a chunk shares with the one before it.
        context: Says whether to go on.

    Raises:
        CancelledError: The context was cancelled.
    """
    found: list[Piece] = []
    for item, text in enumerate(texts):
        whole = [] if size else [Chunk(text, 0, len(text))]
        chunks = whole or split(text, size, overlap, context.check_cancelled)
        found += [Piece(item, index, chunk=chunk) for index, chunk in enumerate(chunks)]
    return found
