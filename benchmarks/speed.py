"""How quick this machine runs Python just now, to read the other figures by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.measuring import interleave, seconds
from benchmarks.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring import Effort

__all__ = ["measure"]

_ADDITIONS = 1_000_000


def measure(effort: Effort) -> Iterator[Row]:
    """Count in a loop."""
    rounds = interleave([lambda: seconds(_count)], effort)
    yield Row(
        "machine",
        f"{_ADDITIONS:_} additions in a Python loop".replace("_", " "),
        measured=min(times[0] for times in rounds),
        note="best; to compare machines by",
        samples=rounds,
    )


def _count() -> None:
    total = 0
    for number in range(_ADDITIONS):
        total += number
