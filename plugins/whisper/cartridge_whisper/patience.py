"""Ask whether to go on, and show signs of life on the way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cartridge_core.context import Context

__all__ = ["Patience"]

_SIGN_S = 1.0
"""Seconds between two signs of life; the host gives up after 120 without one."""


class Patience:
    """
    What is called many times a second while a model works.

    Args:
        context: Says whether to go on, and takes the progress.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._fraction = 0.0
        self._message = ""
        self._next_s = 0.0

    def progress(self, fraction: float, message: str) -> None:
        """Say how much is done; it is said again and again until more is."""
        self._fraction, self._message = fraction, message
        self._say()

    def ask(self) -> None:
        """
        Go on, or not.

        Raises:
            CancelledError: Somebody cancelled.
        """
        self._context.check_cancelled()
        if time.monotonic() >= self._next_s:
            self._say()

    def _say(self) -> None:
        self._next_s = time.monotonic() + _SIGN_S
        self._context.progress(self._fraction, self._message)
