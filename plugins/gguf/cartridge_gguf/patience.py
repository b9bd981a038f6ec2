"""What a caller does while it waits for its turn."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cartridge_core.context import Context

__all__ = ["Patience"]

_REPORT_S = 10.0


class Patience:
    """
    Called now and then during a wait: it gives up when told to, and shows signs of life.

    Args:
        check: Raises where the wait is over.
        context: Is told that the wait goes on.
    """

    def __init__(self, check: Callable[[], None], context: Context) -> None:
        self._check = check
        self._context = context
        self._told_s = time.monotonic()

    def __call__(self) -> None:
        """Look whether to wait on."""
        self._check()
        if time.monotonic() - self._told_s >= _REPORT_S:
            self._told_s = time.monotonic()
            self._context.log("debug", "waiting for the model, which computes for others")
