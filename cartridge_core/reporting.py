"""What a call tells its caller: one bar over three phases that never goes backwards."""

from __future__ import annotations

import logging
import threading
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from cartridge_core.progress import Log, Phase, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Reporter", "quiet_reporter"]

_STEP = 0.05
"""Progress of a load and an inference is told in steps of this part of the phase."""


class Reporter:
    """
    Maps what a cartridge says into the events of its call.

    Args:
        cartridge_id: Who speaks.
        emit: Takes the events; None drops them. Log lines go to `logging` all the same.
        phase: The phase that it speaks of.

    Attributes:
        told_s: When the caller was last told something, on the monotonic clock.
    """

    def __init__(
        self,
        cartridge_id: str,
        emit: Callable[[Progress | Log], None] | None,
        phase: Phase = Phase.DOWNLOAD,
    ) -> None:
        self._cartridge_id = cartridge_id
        self._emit = emit
        self._lock = threading.RLock()  # dropping a call may cancel inside a report
        self._told = 0.0
        self._last_message = ""
        self.told_s = time.monotonic()
        self.begin(phase)

    def begin(self, phase: Phase) -> None:
        """Take what is said from here on for a phase's."""
        self._phase = phase
        self._next_step = 0.0

    def report(self, event: Progress | Log) -> None:
        """Take what a cartridge says."""
        if isinstance(event, Log):
            self.log(event)
        else:
            self.tell(event.fraction, event.message)

    def tell(self, fraction: float, message: str = "", *about: object) -> None:
        """
        Report how far the phase is.

        Args:
            fraction: In [0, 1] of the phase; of a load and an inference every 5 % is told.
            message: One line for a person.
            *about: What its ``%s`` stand for, as in `logging`.
        """
        if self._emit is None:
            return
        # The lock is held until the event is given: reports come from any thread.
        with self._lock:
            phase = self._phase
            if phase is not Phase.DOWNLOAD:
                if max(fraction, 0.0) < self._next_step:
                    return
                self._next_step = min(1.0, fraction + _STEP)
            self._told = max(self._told, phase.scale(fraction))
            self._last_message = message % about if about else message
            self.told_s = time.monotonic()
            self._emit(Progress(self._told, self._last_message, phase=phase))

    def log(self, event: Log) -> None:
        """Pass a line on, and note it under ``cartridge.<id>``."""
        level = logging.getLevelNamesMapping().get(event.level.upper(), logging.INFO)
        logging.getLogger(f"cartridge.{self._cartridge_id}").log(level, "%s", event.message)
        self.told_s = time.monotonic()
        if self._emit is not None:
            self._emit(Log(event.level, event.message, cartridge_id=self._cartridge_id))

    def queued(self, why: str) -> None:
        """Say that the call waits its turn."""
        self._last_message = why
        self.log(Log("info", why))

    def keepalive(self, offer: Callable[[Progress], None], after_s: float) -> None:
        """
        Speak for a cartridge that has not told its caller anything for a while; never waits.

        Args:
            offer: Takes the event, unless the caller has others to take.
            after_s: How long a while is, in seconds.
        """
        if self._emit is None or time.monotonic() - self.told_s < after_s:
            return
        if self._lock.acquire(blocking=False):
            try:
                self.told_s = time.monotonic()
                message = f"Still at work: {self._last_message}".rstrip(": ")
                offer(Progress(self._told, message, phase=self._phase))
            finally:
                self._lock.release()

    def done(self) -> None:
        """Report the end of the call."""
        if self._emit is not None:
            self._emit(Progress(1.0))


@lru_cache(maxsize=256)
def quiet_reporter(cartridge_id: str) -> Reporter:
    """Give the reporter of calls whose caller wants no events: there is nothing to keep apart."""
    return Reporter(cartridge_id, None)
