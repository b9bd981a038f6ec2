"""Counters of what a registry did."""

from __future__ import annotations

import threading
from typing import Literal, get_args

__all__ = ["Counter", "Stats"]

Counter = Literal[
    "calls",
    "results",
    "cancelled",
    "failed",
    "timed_out",
    "queued",
    "loads",
    "failed_loads",
    "unloads",
    "evictions",
    "workers",
    "worker_deaths",
]
_NAMES: tuple[Counter, ...] = get_args(Counter)


class Stats:
    """Counts from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = dict.fromkeys(_NAMES, 0)

    def count(self, name: Counter) -> None:
        """Add one."""
        with self._lock:
            self._counts[name] += 1

    def seen(self) -> dict[str, int]:
        """Give every counter, as it is now."""
        with self._lock:
            return dict(self._counts)
