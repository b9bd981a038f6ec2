"""What a call tells its caller: one bar over three phases that never goes backwards."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from cartridge_core.progress import Log, Phase, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Reporter"]

_STEP = 0.05
"""Progress of a load and an inference is told in steps of this part of the phase."""


class Reporter:
    """
    Maps what a cartridge says into the events of its call.

    Args:
        cartridge_id: Who speaks.
        emit: Takes the events; None drops them. Log lines go to `logging` all the same.
    """

    def __init__(self, cartridge_id: str, emit: Callable[[Progress | Log], None] | None) -> None:
        self._cartridge_id = cartridge_id
        self._emit = emit
        self._lock = threading.Lock()
        self._told = 0.0
        self._next_step: dict[Phase, float] = {}

    def phase(self, phase: Phase) -> Callable[[Progress | Log], None]:
        """Give what takes a cartridge's reports during a phase."""

        def report(event: Progress | Log) -> None:
            if isinstance(event, Log):
                self.log(event)
            else:
                self.tell(phase, event.fraction, event.message)

        return report

    def tell(self, phase: Phase, fraction: float, message: str = "") -> None:
        """
        Report how far a phase is.

        Args:
            phase: The phase.
            fraction: In [0, 1] of the phase; of a load and an inference every 5 % is told.
            message: One line for a person.
        """
        if self._emit is None:
            return
        with self._lock:
            if phase is not Phase.DOWNLOAD:
                if fraction < self._next_step.get(phase, fraction):
                    return
                self._next_step[phase] = min(1.0, fraction + _STEP)
            self._told = max(self._told, phase.scale(fraction))
            told = self._told
        self._emit(Progress(told, message, phase=phase))

    def log(self, event: Log) -> None:
        """Pass a line on, and note it under ``cartridge.<id>``."""
        level = logging.getLevelNamesMapping().get(event.level.upper(), logging.INFO)
        logging.getLogger(f"cartridge.{self._cartridge_id}").log(level, "%s", event.message)
        if self._emit is not None:
            self._emit(Log(event.level, event.message, cartridge_id=self._cartridge_id))

    def done(self) -> None:
        """Report the end of the call."""
        if self._emit is not None:
            self._emit(Progress(1.0))
