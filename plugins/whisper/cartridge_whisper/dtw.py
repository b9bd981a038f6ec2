"""
Dynamic time warping: the cheapest way through a matrix, from corner to corner.

Source: openai-whisper, ``whisper.timing.dtw_cpu``. That one is compiled by numba, which takes
seconds at its first call, and whose threads can end the process where two callers meet in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["first_columns"]

_DIAGONAL, _DOWN, _RIGHT = 0, 1, 2


def first_columns(costs: NDArray[np.float64]) -> list[int]:
    """
    Find the cheapest way from the first cell to the last: down, right, or both at once.

    Args:
        costs: (rows, columns); neither is 0.

    Returns:
        For each row the column in which the way enters it.
    """
    import numpy as np

    rows, columns = costs.shape
    # Cells of one anti-diagonal do not depend on one another: a diagonal is one step. In these
    # arrays a cell's place is its row, and its column follows from the diagonal.
    skewed = np.zeros((rows, rows + columns), dtype=np.float64)
    skewed[:, :columns] = costs
    skewed = skewed.ravel()[: rows * (rows + columns - 1)].reshape(rows, -1)
    ways = np.full((rows + columns - 1, rows), _RIGHT, dtype=np.int8)
    # Totals are float32, as whisper's are; outside of the matrix they are infinite.
    one_before = np.full(rows + 1, np.inf, dtype=np.float32)
    two_before = one_before.copy()
    two_before[0] = 0.0
    for number in range(rows + columns - 1):
        diagonal, down, right = two_before[:-1], one_before[:-1], one_before[1:]
        is_diagonal = (diagonal < down) & (diagonal < right)
        is_down = (down < diagonal) & (down < right)
        way = ways[number]
        way[is_diagonal] = _DIAGONAL
        way[is_down] = _DOWN
        best = np.where(is_diagonal, diagonal, np.where(is_down, down, right))
        totals = np.full(rows + 1, np.inf, dtype=np.float32)
        low, high = max(0, number - columns + 1), min(rows, number + 1)
        totals[low + 1 : high + 1] = skewed[low:high, number] + best[low:high]
        two_before, one_before = one_before, totals
    return _walk_back(ways, rows, columns)


def _walk_back(ways: NDArray[np.int8], rows: int, columns: int) -> list[int]:
    """Follow the ways from the last cell; at the edges there is one way alone."""
    found = [0] * rows
    row, column = rows - 1, columns - 1
    while row >= 0 and column >= 0:
        found[row] = column
        way = ways[row + column, row]
        if row == 0 and column == 0:
            break
        if row == 0:
            way = _RIGHT
        elif column == 0:
            way = _DOWN
        row -= way != _RIGHT
        column -= way != _DOWN
    return found
