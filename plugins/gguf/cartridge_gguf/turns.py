"""Whose turn it is to compute: one at a time, first come, first served."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["Turn", "Turns"]

_ASK_S = 0.05
"""Seconds between two looks at whether to wait on."""


class Turns:
    """
    A fair lock.

    `threading.Lock` lets the thread that has just released it take it again before those that
    wait: a long text would then starve the others.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Lock] = deque()

    def turn(self, ask: Callable[[], None]) -> Turn:
        """
        Give a turn, for a ``with`` block: it waits at its beginning.

        Args:
            ask: Called now and then while it waits; what it raises ends the wait.
        """
        return Turn(self, ask)

    def take(self, ask: Callable[[], None]) -> None:
        """Wait for a turn."""
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        try:
            while not mine.acquire(timeout=_ASK_S):
                ask()
        except BaseException:
            self._give_up(mine)
            raise

    def _give_up(self, mine: threading.Lock) -> None:
        with self._lock:
            is_waiting = mine in self._waiting
            if is_waiting:
                self._waiting.remove(mine)
        if not is_waiting:
            self.pass_on()

    def pass_on(self) -> None:
        """End a turn."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False


class Turn:
    """A turn, which is over at the end of a ``with`` block."""

    __slots__ = ("_ask", "_turns")

    def __init__(self, turns: Turns, ask: Callable[[], None]) -> None:
        self._turns = turns
        self._ask = ask

    def __enter__(self) -> None:
        """Wait for it."""
        self._turns.take(self._ask)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the next one have it."""
        self._turns.pass_on()
