"""A call on a thread of its own, whose outcome can be looked at."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Background"]


class Background(threading.Thread):
    """
    A call that runs at once on a thread of its own.

    Attributes:
        result: What it gave.
        error: What it raised; None where it gave something, or still runs.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.result: object = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Call."""
        try:
            self.result = self._call()
        except BaseException as exc:  # noqa: BLE001 -- told to whoever joins
            self.error = exc
