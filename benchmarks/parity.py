"""Vectors by our ways against the backend's own: the same numbers, and in what time."""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from benchmarks.measuring import interleave, on_cores, ratio, sampler
from benchmarks.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.measuring import Effort
    from cartridge_core import Result

    Vectors = NDArray[np.float32]

__all__ = ["measure_parity", "vectors_of"]

T = TypeVar("T")

_PARITY = 0.98


def measure_parity(
    name: str,
    ways: Mapping[str, Callable[[Sequence[T]], Vectors]],
    items: Sequence[T],
    effort: Effort,
) -> Iterator[Row]:
    """
    Have some items embedded.

    Args:
        name: What the items are.
        ways: The ways to embed them, by name; the last is the backend's own.
        items: The items.
        effort: How much time it is worth.
    """
    *names, backends = ways
    _check_equal(backends, [embed(items) for embed in ways.values()])
    with on_cores(1):
        turns = [sampler(partial(embed, items), effort) for embed in ways.values()]
        rounds = interleave(turns, effort)
    for place, way in enumerate(names):
        a_second = len(items) / statistics.median(times[place] for times in rounds)
        yield Row(
            "embedding",
            f"{name}, {way}",
            measured=ratio(rounds, place, len(names)),
            budget=_PARITY,
            unit="ratio",
            note=f"{backends}'s time over ours; {a_second:.0f} a second",
            samples=[(times[place], times[-1]) for times in rounds],
        )


def _check_equal(backends: str, found: list[Vectors]) -> None:
    """Make sure that all ways compute the same; else their times say nothing."""
    *ours, direct = found
    for vectors in ours:
        if vectors.shape != direct.shape or float(abs(vectors - direct).max()) > 1e-4:
            msg = f"the vectors differ from those of {backends}"
            raise ValueError(msg)


def vectors_of(found: Result) -> Vectors:
    """Give the vectors of a result."""
    return cast("Vectors", cast("dict[str, object]", found.payload)["vectors"])
