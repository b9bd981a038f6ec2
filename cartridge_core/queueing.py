"""Places that are given in the order in which they were asked for."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import BusyError, StateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cartridge_core.context import Context

__all__ = ["FairQueue"]


@attrs.define(eq=False)
class _Waiter:
    awake: threading.Event = attrs.field(factory=threading.Event)
    has_place: bool = False


class FairQueue:
    """
    A number of places; who finds none free waits for his turn.

    Args:
        name: What there are places in, for a person.
        places: How many.
        timeout_s: How long to wait for one, in seconds.
    """

    def __init__(self, name: str, places: int, timeout_s: float) -> None:
        self._name = name
        self._places = places
        self._timeout_s = timeout_s
        self._free = places
        self._inside = 0
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter] = deque()
        self._refusal: str | None = None
        self._is_abandoned = False

    def enter(self, context: Context, on_wait: Callable[[str], None] | None = None) -> None:
        """
        Take a place, waiting for it where it must be.

        Args:
            context: The caller's; cancelling it ends the wait, which is no silence of its work.
            on_wait: Is told why, if there is a wait.

        Raises:
            BusyError: No place was free in time.

            CancelledError: The context was cancelled.

            StateError: No place is given any more.
        """
        with self._lock:
            if self._refusal is not None:
                raise StateError(self._refusal)
            if self._free:
                self._free -= 1
                self._inside += 1
                return
            waiter = _Waiter()
            self._waiting.append(waiter)
            ahead = len(self._waiting) - 1
        try:
            with context.waiting():
                if on_wait is not None:
                    behind = f", {ahead} before this one" if ahead else ""
                    on_wait(f"Waiting for {self._name}: {self._places} in use{behind}")
                self._wait(waiter, context)
        except BaseException:
            self._withdraw(waiter)
            raise

    def _wait(self, waiter: _Waiter, context: Context) -> None:
        context.on_cancel(waiter.awake.set)
        try:
            waiter.awake.wait(self._timeout_s)
        finally:
            context.forget(waiter.awake.set)
        context.check_cancelled()
        with self._lock:
            if waiter.has_place and not self._is_abandoned:
                self._inside += 1
                return
            if self._refusal is not None:
                raise StateError(self._refusal)
        msg = (
            f"{self._name}: all {self._places} are in use, and none came free within "
            f"{self._timeout_s:g} s; try again later, or end what uses them"
        )
        raise BusyError(msg)

    def leave(self) -> bool:
        """
        Give a place back; the one who waits longest gets it.

        Returns:
            Whether there was one to give back: none is after `abandon`.
        """
        with self._lock:
            if self._is_abandoned:
                return False
            self._inside -= 1
            self._pass_on()
        return True

    def _pass_on(self) -> None:
        """Give a place to the next who waits; the lock is held."""
        if not self._waiting:
            self._free += 1
            return
        waiter = self._waiting.popleft()
        waiter.has_place = True
        waiter.awake.set()

    def refuse(self, why: str) -> None:
        """Give no place any more; whoever waits or comes gets `StateError`."""
        with self._lock:
            self._refusal = why
            waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.awake.set()

    def abandon(self, why: str) -> int:
        """
        Do the same, and expect nothing back any more.

        Returns:
            How many are inside; 0 where it was abandoned before.
        """
        self.refuse(why)
        with self._lock:
            self._is_abandoned = True
            left, self._inside = self._inside, 0
        return left

    def _withdraw(self, waiter: _Waiter) -> None:
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif waiter.has_place:
                self._pass_on()
