"""Many callers at once, each with one item; and one who is alone."""

from __future__ import annotations

import math
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs

from benchmarks.measuring import interleave, on_cores, ratio, seconds
from benchmarks.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.measuring import Effort

__all__ = ["measure_callers", "percentile_95"]

T = TypeVar("T")

_THREADS = 16
_LONE = 1 / 1.1


def measure_callers(
    name: str,
    ours: Callable[[T], object],
    direct: Callable[[T], object],
    items: Sequence[T],
    effort: Effort,
    *,
    least: float | None = None,
) -> Iterator[Row]:
    """
    Have threads embed single items, and then one thread alone.

    Args:
        name: What an item is.
        ours: Embeds one.
        direct: The backend's own way; many threads take turns at it.
        items: The items of a round.
        effort: How much time it is worth.
        least: How many times faster the threads have to be than behind the lock.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        crowds = [_Crowd(pool, ours), _Crowd(pool, _behind_a_lock(direct))]
        rounds = interleave([partial(crowd.turn, items) for crowd in crowds], effort)
    p95 = [percentile_95(crowd.took) for crowd in crowds]
    yield Row(
        "embedding",
        f"{_THREADS} threads, {name} each",
        measured=ratio(rounds),
        budget=least,
        unit="ratio",
        note=f"the time behind a lock over ours; {_rate(rounds, items):.0f} a second",
        samples=rounds,
    )
    yield Row(
        "embedding",
        f"{_THREADS} threads, {name} each, p95",
        measured=p95[0],
        note=f"behind a lock {1000 * p95[1]:.0f} ms",
        samples=list(zip(*(crowd.took for crowd in crowds), strict=True)),
    )
    yield _alone(name, ours, direct, items, effort)


def _alone(
    name: str,
    ours: Callable[[T], object],
    direct: Callable[[T], object],
    items: Sequence[T],
    effort: Effort,
) -> Row:
    with on_cores(1):
        pairs = [
            (seconds(partial(ours, item)), seconds(partial(direct, item)))
            for _ in range(max(1, effort.rounds * 10 // len(items)))
            for item in items
        ]
    p50 = [statistics.median(times) for times in zip(*pairs, strict=True)]
    return Row(
        "embedding",
        f"a lone caller, {name}, p50",
        measured=p50[1] / p50[0],
        budget=_LONE,
        unit="ratio",
        note=f"the backend's p50 over ours of {1000 * p50[0]:.2f} ms",
        samples=pairs,
    )


def percentile_95(times: Sequence[float]) -> float:
    """Give the time that 95 of 100 do not exceed."""
    return sorted(times)[math.ceil(0.95 * len(times)) - 1]


def _rate(rounds: Sequence[Sequence[float]], items: Sequence[object]) -> float:
    return len(items) / statistics.median(times[0] for times in rounds)


def _behind_a_lock(work: Callable[[T], object]) -> Callable[[T], object]:
    lock = threading.Lock()

    def run(item: T) -> object:
        with lock:
            return work(item)

    return run


@attrs.define
class _Crowd(Generic[T]):
    """Threads that all want something done to single items."""

    _pool: ThreadPoolExecutor
    _work: Callable[[T], object]
    took: list[float] = attrs.field(factory=list)
    """Seconds of every item."""

    def turn(self, items: Sequence[T]) -> float:
        """Time the whole of some items."""
        return seconds(lambda: self.took.extend(self._pool.map(self._time, items)))

    def _time(self, item: T) -> float:
        start = time.perf_counter()
        self._work(item)
        return time.perf_counter() - start
