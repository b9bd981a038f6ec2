"""Loads that failed a moment ago: the next attempt has to wait, longer each time."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Failure", "Failures"]

_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
_MOST_DOUBLINGS = 6
_MOST = 256
"""How many failures are remembered."""


@attrs.frozen
class Failure:
    """What failed last, and until when it is not tried again."""

    cartridge_id: str

    error: Exception
    """A copy that was never raised: the traceback of one that was holds on to its callers."""

    count: int
    until_s: float


class Failures:
    """
    The loads that failed, by what was to be loaded.

    The first failure holds nobody up: whatever was wrong may have been put right. From the
    second on nothing is tried for 1 s, 2 s, 4 s, up to a minute, and callers get the last error.
    """

    def __init__(self) -> None:
        self._failures: dict[Hashable, Failure] = {}

    def check(self, key: Hashable) -> None:
        """Raise what failed last where it is too early for another attempt."""
        failure = self._failures.get(key)
        if failure is not None and time.monotonic() < failure.until_s:
            raise _copied(failure.error)

    def note(self, key: Hashable, cartridge_id: str, error: Exception) -> None:
        """Remember a failure."""
        before = self._failures.pop(key, None)
        count = 1 if before is None else before.count + 1
        doublings = min(count - 2, _MOST_DOUBLINGS)
        wait_s = 0.0 if count == 1 else min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0**doublings)
        while len(self._failures) >= _MOST:
            del self._failures[next(iter(self._failures))]
        until_s = time.monotonic() + wait_s
        self._failures[key] = Failure(cartridge_id, _copied(error), count, until_s)

    def clear(self, key: Hashable) -> None:
        """Forget what failed: it was loaded after all."""
        self._failures.pop(key, None)

    def held_up(self) -> list[Failure]:
        """Give those that it is too early for."""
        now = time.monotonic()
        return [failure for failure in self._failures.values() if now < failure.until_s]


def _copied(error: Exception) -> Exception:
    """Give an error of the same kind, with the same data, and without a traceback or a cause."""
    try:
        return copy.copy(error)
    except Exception:  # noqa: BLE001 -- a plugin's own class may not allow it
        return LoadError(f"{type(error).__name__}: {error}")
