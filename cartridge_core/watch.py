"""One thread that looks at what runs, again and again, while anything does."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Watch"]

_log = logging.getLogger("cartridge.watch")

_CALM = 20
"""How many times in a row there is nothing to watch before the thread waits to be woken."""


class Watch:
    """
    A daemon thread that does a duty every few moments.

    Args:
        duty: What it does, quickly; says whether there is anything to watch.
        every_s: Seconds from one time to the next.
    """

    def __init__(self, duty: Callable[[], bool], every_s: float) -> None:
        self._duty = duty
        self._every_s = every_s
        self._start = threading.Lock()
        self._thread: threading.Thread | None = None
        self._awake = threading.Event()
        self._closed = threading.Event()

    def wake(self) -> None:
        """Say that there is something to watch, once there is."""
        if self._awake.is_set():
            return
        with self._start:
            self._awake.set()
            if self._thread is None and not self._closed.is_set():
                thread = threading.Thread(target=self._watch, name="cartridge-watch", daemon=True)
                self._thread = thread
                thread.start()

    def close(self) -> None:
        """End the thread, and wait for it."""
        with self._start:
            self._closed.set()
            self._awake.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _watch(self) -> None:
        calm = 0
        while not self._closed.wait(self._every_s):
            calm = 0 if self._look() else calm + 1
            if calm > _CALM:
                self._awake.clear()
                # Who came before the line above did not wake anybody.
                if not self._look():
                    self._awake.wait()

    def _look(self) -> bool:
        try:
            return self._duty()
        except Exception:  # noqa: BLE001 -- the next look may go better
            _log.exception("a look at what runs failed")
        return True
