"""What stays loaded: open cartridges, who uses them, and loads that happen once."""

from __future__ import annotations

import logging
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Self

import attrs

from cartridge_core.errors import CancelledError, StateError
from cartridge_core.threads import check_process

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from cartridge_core.binding import Binding
    from cartridge_core.context import Context
    from cartridge_core.offers import Offer

__all__ = ["Lease", "Residency", "Resident"]

_log = logging.getLogger("cartridge.residency")

_WAIT_S = 0.05
"""How often a caller that waits for another's load looks whether he was cancelled."""


@attrs.define(eq=False)
class Resident:
    """One open cartridge."""

    offer: Offer
    binding: Binding
    handle: object

    def close(self) -> None:
        """Unload it."""
        self.binding.close(self.handle)


@attrs.define(eq=False)
class _Entry:
    """A place for one open cartridge, from before its load to after its last use."""

    loaded: threading.Event = attrs.field(factory=threading.Event)
    resident: Resident | None = None
    error: BaseException | None = None
    users: int = 0
    keep: bool = False
    """Whether it stays when nobody uses it: a call keeps it for the next one."""


class Lease:
    """The right to use an open cartridge until `release`; a context manager."""

    def __init__(self, resident: Resident, give_back: Callable[[], None]) -> None:
        self.resident = resident
        self._give_back: Callable[[], None] | None = give_back

    def release(self) -> None:
        """Stop using it; again is harmless."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


class Residency:
    """
    Every open cartridge of a registry, by what it was opened with.

    Callers that ask for the same one while it loads wait for that one load and share its
    failure, but not its cancellation. No lock is held while a plugin works.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}
        self._closed = False
        self._pid = os.getpid()

    def acquire(
        self, key: Hashable, load: Callable[[], Resident], context: Context, *, keep: bool
    ) -> Lease:
        """
        Give the open cartridge, loading it if it is not there.

        Args:
            key: What it is opened with: cartridge, pack and options.
            load: Opens it.
            context: The caller's; cancelling it ends the wait for another's load.
            keep: Whether it stays loaded after the last lease.

        Raises:
            StateError: The registry is closed.
        """
        while True:
            entry, first = self._join(key, keep=keep)
            if first:
                self._load(key, entry, load)
            try:
                while not entry.loaded.wait(_WAIT_S):
                    context.check_cancelled()
            except BaseException:
                self._leave(key, entry)
                raise
            if entry.resident is not None:
                return Lease(entry.resident, partial(self._leave, key, entry))
            if entry.error is not None and (first or _is_shared(entry.error)):
                raise entry.error

    def close(self) -> None:
        """Unload everything that nobody uses; what is in use is unloaded by its last user."""
        with self._lock:
            self._closed = True
            idle = [key for key, entry in self._entries.items() if not entry.users]
            residents = [self._entries.pop(key).resident for key in idle]
        for resident in residents:
            if resident is not None:
                _close_logged(resident)

    def _join(self, key: Hashable, *, keep: bool) -> tuple[_Entry, bool]:
        check_process(self._pid)
        with self._lock:
            if self._closed:
                msg = "the registry is closed; discover a new one"
                raise StateError(msg)
            entry = self._entries.get(key)
            first = entry is None
            if entry is None:
                entry = self._entries[key] = _Entry()
            entry.users += 1
            entry.keep = entry.keep or keep
            return entry, first

    def _load(self, key: Hashable, entry: _Entry, load: Callable[[], Resident]) -> None:
        try:
            entry.resident = load()
        except BaseException as exc:
            entry.error = exc
            with self._lock:
                del self._entries[key]
        finally:
            entry.loaded.set()

    def _leave(self, key: Hashable, entry: _Entry) -> None:
        with self._lock:
            entry.users -= 1
            if entry.users or (entry.keep and not self._closed) or entry.resident is None:
                return
            del self._entries[key]
        entry.resident.close()


def _is_shared(error: BaseException) -> bool:
    """Say whether a failed load is everyone's: one caller's cancellation is his own."""
    return isinstance(error, Exception) and not isinstance(error, CancelledError)


def _close_logged(resident: Resident) -> None:
    """Unload one; what fails is logged, so that the others are unloaded too."""
    try:
        resident.close()
    except Exception:
        _log.exception("closing %s failed", resident.offer.id)
