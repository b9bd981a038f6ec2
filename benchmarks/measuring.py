"""How everything is measured: rounds in which every contender has its turn."""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "FULL",
    "QUICK",
    "Effort",
    "difference",
    "interleave",
    "on_another_core",
    "on_cores",
    "ratio",
    "sampler",
    "seconds",
]


@attrs.frozen
class Effort:
    """How much time a figure is worth."""

    rounds: int
    """How many turns every contender has."""

    least_s: float
    """How long one turn lasts at least."""


FULL = Effort(10, 0.1)
QUICK = Effort(3, 0.01)


def seconds(work: Callable[[], object], runs: int = 1) -> float:
    """Time some runs without the garbage collector; give the wall time of one, in seconds."""
    with _without_gc():
        start = time.perf_counter()
        for _ in itertools.repeat(None, runs):
            work()
        return (time.perf_counter() - start) / runs


@contextlib.contextmanager
def on_cores(count: int) -> Iterator[None]:
    """
    Keep every thread of this process, and what it starts, on so many cores; on Linux alone.

    A thread that wakes on another core finds its caches cold, and one core of a virtual machine
    may be slower than the other for minutes: neither is what two contenders are compared by.
    """
    if sys.platform != "linux":
        yield
        return
    cores = os.sched_getaffinity(0)
    _keep_on({*sorted(cores)[:count]})
    try:
        yield
    finally:
        _keep_on(cores)


@contextlib.contextmanager
def on_another_core() -> Iterator[None]:
    """
    Inside of `on_cores`, move the calling thread to a core that it left free, if there is one.

    What it started before stays: the backend has the cores that it has when it is called directly,
    and who waits for it has another one, as on most machines.
    """
    if sys.platform != "linux":
        yield
        return
    own = os.sched_getaffinity(0)
    free = sorted({*range(os.cpu_count() or 1)} - own)
    with contextlib.suppress(OSError):  # it may not be ours to use
        os.sched_setaffinity(0, free[:1] or own)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def _keep_on(cores: set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended since
            os.sched_setaffinity(int(thread.name), cores)


@contextlib.contextmanager
def _without_gc() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def sampler(work: Callable[[], object], effort: Effort) -> Callable[[], float]:
    """Give what times one turn of some work: as many runs as fill the least time."""
    work()
    runs = max(1, math.ceil(effort.least_s / max(seconds(work), 1e-8)))
    return lambda: seconds(work, runs)


def interleave(
    contenders: Sequence[Callable[[], float]], effort: Effort
) -> list[tuple[float, ...]]:
    """Give every contender its turn, round after round: what disturbs one disturbs all."""
    return [tuple(turn() for turn in contenders) for _ in range(effort.rounds)]


def difference(rounds: Sequence[Sequence[float]], ours: int = 0, direct: int = 1) -> float:
    """Give the median of what ours takes longer than direct, round by round."""
    return statistics.median(times[ours] - times[direct] for times in rounds)


def ratio(rounds: Sequence[Sequence[float]], ours: int = 0, direct: int = 1) -> float:
    """Give the median of direct's time over ours, round by round; above 1 we are faster."""
    return statistics.median(times[direct] / times[ours] for times in rounds)
