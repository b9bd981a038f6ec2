"""Memory for what is being loaded: unload what nobody uses, wait for what is used."""

from __future__ import annotations

import itertools
import logging
import time
from typing import TYPE_CHECKING

from cartridge_core.errors import BusyError, LoadError
from cartridge_core.progress import Log
from cartridge_core.resident import LoadState

if TYPE_CHECKING:
    from cartridge_core.context import Context
    from cartridge_core.limits import Limits
    from cartridge_core.places import Places
    from cartridge_core.resident import Place
    from cartridge_core.stats import Stats

__all__ = ["Room"]

_log = logging.getLogger("cartridge.residency")

_WAIT_S = 0.05
"""How often one who waits looks again."""

_PATIENCE_S = 2.0
"""How long what is used all the time goes on getting users while another load waits for room."""


class Room:
    """
    The memory that the cartridges of a registry may need together.

    Args:
        places: What is open.
        limits: How much there is, and how long to wait for it.
        stats: Counts evictions.
    """

    def __init__(self, places: Places, limits: Limits, stats: Stats) -> None:
        self._places = places
        self._budget = limits.memory_budget_bytes
        self._timeout_s = limits.queue_timeout_s
        self._stats = stats
        # What others make room for, the longest waiting first: nobody takes that from them.
        self._promised: dict[Place, int] = {}

    def reserve(self, place: Place, memory_bytes: int, context: Context) -> None:
        """
        Make room for what is being loaded.

        Args:
            place: Its place.
            memory_bytes: What it needs.
            context: The load's; is told of a wait, and cancelling it ends that.

        Raises:
            LoadError: It needs more than the whole budget.

            BusyError: There was no room within the queue's time.
        """
        if self._budget is not None and memory_bytes > self._budget:
            msg = (
                f"{place.offer.id} needs {memory_bytes} bytes, and memory_budget_bytes is "
                f"{self._budget}; take a smaller model, or allow more"
            )
            raise LoadError(msg)
        if self._take(place, memory_bytes):
            return
        if context.report is not None:
            context.report(Log("info", f"Waiting: {self._wanted(place, memory_bytes)}"))
        wanted: list[Place] = []
        try:
            self._wait(place, memory_bytes, context, wanted)
        finally:
            self._promised.pop(place, None)
            for one in wanted:
                one.is_wanted = False

    def _wait(self, place: Place, memory_bytes: int, context: Context, wanted: list[Place]) -> None:
        """Wait until there is room; what is used all the time gets no more users after a while."""
        begin_s = time.monotonic()
        while not self._take(place, memory_bytes):
            waited_s = time.monotonic() - begin_s
            if waited_s > self._timeout_s:
                msg = (
                    f"{self._wanted(place, memory_bytes)}, for {self._timeout_s:g} s now; "
                    "try again later, or allow more"
                )
                raise BusyError(msg)
            if not wanted and waited_s > _PATIENCE_S:
                wanted += self._want(place, memory_bytes)
                if wanted:
                    self._promised[place] = memory_bytes
            context.check_cancelled()
            with context.waiting():
                time.sleep(_WAIT_S)

    def _want(self, place: Place, memory_bytes: int) -> list[Place]:
        """Let others take no more users, until what they leave is enough."""
        chosen: list[Place] = []
        with self._places.lock:
            others = [one for one in self._places.by_key.values() if one is not place]
            used = sum(one.memory_bytes for one in others) + memory_bytes
            for one in others:
                if self._budget is None or used <= self._budget:
                    break
                # What is open by hand may be so for ever.
                comes_free = one.state is LoadState.BUSY and not one.by_hand
                if one.memory_bytes and comes_free:
                    one.is_wanted = True
                    chosen.append(one)
                    used -= one.memory_bytes
        return chosen

    def _take(self, place: Place, memory_bytes: int) -> bool:
        """Note what a place needs, unloading others for it; False where these are in use."""
        while True:
            with self._places.lock:
                others = [one for one in self._places.by_key.values() if one is not place]
                idle = [one for one in others if one.is_idle and one.memory_bytes]
                used = sum(one.memory_bytes for one in others) + memory_bytes
                used += self._promised_before(place)
                if self._budget is None or used <= self._budget:
                    place.memory_bytes = memory_bytes
                    return True
                if used - sum(one.memory_bytes for one in idle) > self._budget:
                    return False
                victim = min(idle, key=lambda one: one.idle_since_s)
                victim.state = LoadState.UNLOADING
            self._stats.count("evictions")
            _log.info("unloading %s to make room for %s", victim.offer.id, place.offer.id)
            self._places.unload_logged(victim)

    def _promised_before(self, place: Place) -> int:
        before = itertools.takewhile(lambda one: one[0] is not place, list(self._promised.items()))
        return sum(memory_bytes for _, memory_bytes in before)

    def _wanted(self, place: Place, memory_bytes: int) -> str:
        others = [one for one in self._places.all() if one is not place and one.memory_bytes]
        users = ", ".join(sorted(one.offer.id for one in others)) or "others"
        return (
            f"{place.offer.id} needs {memory_bytes} bytes of the {self._budget} that "
            f"memory_budget_bytes allows, and {users} use them"
        )
