"""Every place of a registry, and how one is emptied."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from cartridge_core.resident import LoadState

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from cartridge_core.resident import Place
    from cartridge_core.stats import Stats

__all__ = ["Places"]

_log = logging.getLogger("cartridge.residency")


class Places:
    """
    The places of what is open, being opened, or being unloaded, by what it was opened with.

    Args:
        stats: Counts unloads.

    Attributes:
        lock: Guards the places and what they hold; never held while a plugin works.
        by_key: The places.
    """

    def __init__(self, stats: Stats) -> None:
        self.lock = threading.Lock()
        self.by_key: dict[Hashable, Place] = {}
        self._stats = stats

    def all(self) -> list[Place]:
        """Give every place, as it is now."""
        with self.lock:
            return list(self.by_key.values())

    def unload_idle(self, which: Callable[[Place], bool], why: str = "") -> None:
        """
        Unload those that nobody uses; what fails is logged, so that the others are unloaded too.

        Args:
            which: Chooses among them.
            why: For the log; empty is no line.
        """
        with self.lock:
            chosen = [one for one in self.by_key.values() if one.is_idle and which(one)]
            for place in chosen:
                place.state = LoadState.UNLOADING
        for place in chosen:
            if why:
                _log.info("unloading %s: %s", place.offer.id, why)
            self.unload_logged(place)

    def unload_logged(self, place: Place) -> None:
        """Unload one that is marked; what fails is logged."""
        try:
            self.unload(place)
        except Exception:
            _log.exception("closing %s failed", place.offer.id)

    def unload(self, place: Place) -> None:
        """Unload one that is marked, whatever its plugin raises."""
        try:
            if place.resident is not None:
                place.resident.close()
        finally:
            self.forget(place)
            self._stats.count("unloads")

    def forget(self, place: Place) -> None:
        """Take a place away; whoever asks next opens anew."""
        with self.lock:
            if self.by_key.get(place.key) is place:
                del self.by_key[place.key]
        place.gone.set()
