"""Signs of life: how long a cartridge at work has been silent, and what excuses it."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Activity"]


@attrs.frozen(eq=False)
class _Blocking:
    """A blocking piece of work that cannot report, and how long it may take."""

    what: str
    limit_s: float
    began_s: float


class Activity:
    """
    The clock of one call: it runs while the cartridge works and shows no sign of life.

    Args:
        limit_s: Seconds that silence may last.
        parent: The clock of the call that made this one as a peer call.
    """

    def __init__(self, limit_s: float, parent: Activity | None = None) -> None:
        self.limit_s = limit_s
        self._parent = parent
        self._lock = threading.Lock()
        self._heard_s = time.monotonic()
        self._is_last = False
        self._excuses = 0
        self._blocking: list[_Blocking] = []

    def sign(self) -> None:
        """Note a sign of life, or that the cartridge had to wait for its caller until now."""
        if not self._is_last:
            self._heard_s = time.monotonic()

    def expect_end(self) -> None:
        """Let the silence begin now, whatever is said from here on: the work is to stop."""
        self.sign()
        self._is_last = True

    def answer_for_parents(self) -> None:
        """Let the silence of those who wait for this call begin now: its own clock decides."""
        parent = self._parent
        while parent is not None:
            parent.sign()
            parent = parent._parent

    @contextlib.contextmanager
    def excused(self) -> Iterator[None]:
        """Stop the clock for a block: the cartridge waits for something that is not its own."""
        self._excuse(1)
        try:
            yield
        finally:
            self._excuse(-1)

    @contextlib.contextmanager
    def blocking(self, what: str, limit_s: float) -> Iterator[None]:
        """
        Put a limit of its own in the place of the clock's for a block that cannot report.

        Args:
            what: What it does, for a person.
            limit_s: Seconds it may take.
        """
        work = _Blocking(what, limit_s, time.monotonic())
        with self._lock:
            self._blocking.append(work)
        try:
            with self.excused():
                yield
        finally:
            with self._lock:
                self._blocking.remove(work)

    def overdue(self) -> str | None:
        """Say what has lasted too long, and what to do; None where nothing has."""
        now = time.monotonic()
        with self._lock:
            for work in self._blocking:
                if now - work.began_s > work.limit_s:
                    return (
                        f"{work.what} has not ended within its limit of {work.limit_s:g} s; "
                        "where that is too early, the cartridge has to allow itself more"
                    )
            if not self._excuses and now - self._heard_s > self.limit_s:
                return (
                    f"there was no sign of life for {self.limit_s:g} s; where that is too early, "
                    "allow a higher activity_timeout_s, or have the cartridge report progress"
                )
        return None

    def _excuse(self, change: int) -> None:
        with self._lock:
            self._excuses += change
            # What went before the excuse does not count after it.
            self.sign()
