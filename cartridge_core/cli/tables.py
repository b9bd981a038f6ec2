"""Tables of text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["table"]


def table(rows: Iterable[Sequence[object]], *, indent: str = "") -> str:
    """
    Align rows in columns two spaces apart.

    Args:
        rows: The heading first, where there is one; all of one length.
        indent: Stands before every line.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
    return "\n".join(indent + line for line in lines)
