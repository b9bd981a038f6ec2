"""A model's door: many may be inside, and after the close nobody comes in."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cartridge_core.errors import StateError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Gate"]


class Gate:
    """
    Counts who uses a model; ``with gate:`` is a use.

    Args:
        what: What is closed, for the message.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._inside = 0
        self.is_closed = False

    def check(self) -> None:
        """
        Say whether it is open.

        Raises:
            StateError: It is closed, or being closed.
        """
        if self.is_closed:
            msg = f"{self._what} is closed; open it again"
            raise StateError(msg)

    def __enter__(self) -> None:
        """Go in; StateError where it is closed."""
        with self._lock:
            self.check()
            self._inside += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Go out."""
        with self._lock:
            self._inside -= 1
            if self.is_closed:
                self._changed.notify_all()

    def close(self) -> bool:
        """
        Let nobody in any more.

        Returns:
            Whether it was open.
        """
        with self._lock:
            was_open, self.is_closed = not self.is_closed, True
        return was_open

    def wait(self) -> None:
        """Wait until nobody is inside."""
        with self._changed:
            while self._inside:
                self._changed.wait()
