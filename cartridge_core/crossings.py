"""Loads that wait for each other, found before they do."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from cartridge_core.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cartridge_core.resident import Place

__all__ = ["Crossings"]


class Crossings:
    """Which loads wait for which: a load may ask for another cartridge by a peer call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: dict[object, list[Place]] = {}

    @contextlib.contextmanager
    def wait(self, loads: Iterable[object], place: Place) -> Iterator[None]:
        """
        Wait for a load inside the block.

        Args:
            loads: The loads that the waiting work is a part of.
            place: What is being loaded.

        Raises:
            StateError: That load waits for one of these.
        """
        waiting = tuple(loads)
        with self._lock:
            if self._reaches(place, waiting):
                msg = (
                    f"{place.offer.id} is being opened by a load that waits for this one: they "
                    "would wait for each other; make the peer call after the open"
                )
                raise StateError(msg)
            for one in waiting:
                self._waits.setdefault(one, []).append(place)
        try:
            yield
        finally:
            with self._lock:
                for one in waiting:
                    self._waits[one].remove(place)
                    if not self._waits[one]:
                        del self._waits[one]

    def _reaches(self, place: Place, loads: tuple[object, ...]) -> bool:
        ahead: list[object] = [place]
        seen: set[object] = set()
        while ahead:
            one = ahead.pop()
            if one in loads:
                return True
            if one not in seen:
                seen.add(one)
                ahead += self._waits.get(one, [])
        return False
