"""What stays loaded: open cartridges, who uses them, and when they go."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from cartridge_core.crossings import Crossings
from cartridge_core.errors import ActivityTimeoutError, BusyError, CancelledError, StateError
from cartridge_core.failures import Failures
from cartridge_core.places import Places
from cartridge_core.resident import Loaded, LoadState, Place
from cartridge_core.room import Room
from cartridge_core.threads import check_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cartridge_core.context import Context
    from cartridge_core.leases import Lease
    from cartridge_core.limits import Limits
    from cartridge_core.resident import Resident
    from cartridge_core.stats import Stats
    from cartridge_core.worker.client import Worker

__all__ = ["Residency"]

_log = logging.getLogger("cartridge.residency")

# Read once: Python 3.11 takes 0.15 µs to find a member of an enum.
_READY, _BUSY, _STUCK = LoadState.READY, LoadState.BUSY, LoadState.STUCK

_WAIT_S = 0.05
"""How often one who waits looks whether he was cancelled."""


class Residency:
    """
    Every open cartridge of a registry, by what it was opened with.

    No lock is held while a plugin works.

    Args:
        limits: Memory, and how long things may take.
        stats: Counts what happens.
        run: Runs a job on another thread.
        load: Opens what a lease is for; takes the context of who waits for it.
    """

    def __init__(
        self,
        limits: Limits,
        stats: Stats,
        run: Callable[[Callable[[], None]], None],
        load: Callable[[Lease, Context], Resident],
    ) -> None:
        self._limits = limits
        self._stats = stats
        self._run = run
        self._open = load
        self._places = Places(stats)
        self._room = Room(self._places, limits, stats)
        self._leases: dict[Lease, Place] = {}
        self._failures = Failures()
        self._crossings = Crossings()
        self._closed = False
        self._pid = os.getpid()

    def open(self, lease: Lease, context: Context) -> None:
        """
        Open what a lease is for, if it is not open.

        Callers that ask for the same one while it loads wait for that one load and share its
        failure, but not its cancellation.

        Args:
            lease: Has its resident afterwards.
            context: The caller's; cancelling it ends the load, and the wait for another's.

        Raises:
            StateError: The registry is closed, the cartridge is stuck, or this load and another
                would wait for each other.

            BusyError: What is in use leaves no room for it, or what another caller does to it
                has not ended in time.

            CancelledError: The context was cancelled, or the cartridge taken away meanwhile.

            CartridgeError: The load failed.
        """
        try:
            while lease.place is None:
                self._try(lease, context)
            lease.opening = None
            context.check_cancelled()
        except BaseException:
            lease.release()
            raise

    def _try(self, lease: Lease, context: Context) -> None:
        """Load, or wait for another's load; where it gives no place, somebody has to try again."""
        place, is_first = self._join(lease, context)
        if is_first:
            self._load(lease, place, context)
        elif place.resident is None:
            self._wait_for_load(place, context)
        error = place.error
        if error is not None:
            lease.release()
            if is_first or _is_shared(error):
                raise error

    def _join(self, lease: Lease, context: Context) -> tuple[Place, bool]:
        """Give the place a lease is for, and whether it is the lease's to load."""
        while True:
            with self._places.lock:
                if self._closed:
                    msg = "the registry is closed; discover a new one"
                    raise StateError(msg)
                if lease.is_revoked:
                    raise _revoked(lease)
                place = self._places.by_key.get(lease.key)
                if place is not None and place.has_died:
                    place = None  # `_lose` is on its way; who asks now need not wait for it
                is_first = place is None
                if place is None:
                    self._failures.check(lease.key)
                    place = Place(lease.key, lease.offer, lease.pack)
                    self._places.by_key[lease.key] = place
                if place.state is _STUCK:
                    raise StateError(_stuck(place))
                if place.takes_users:
                    lease.place, lease.opening = place, context
                    self._leases[lease] = place
                    place.users += 1
                    if lease.keep:
                        place.keep = True
                    else:
                        place.by_hand += 1
                    if place.state is _READY:
                        place.state = _BUSY
                    return place, is_first
            self._wait_for(place, place.wait_to_go, self._limits.queue_timeout_s, context)

    def _load(self, lease: Lease, place: Place, context: Context) -> None:
        """Run a lease's load; what comes of it is in its place."""
        try:
            with context.loading(place):
                resident = self._open(lease, context)
        except BaseException as exc:  # it is raised by the lease, and shared with who waits
            self._fail(place, exc)
            return
        with self._places.lock:
            place.resident = resident
            if place.state is LoadState.LOADING:
                place.state = LoadState.BUSY
                self._failures.clear(place.key)
        self._stats.count("loads")
        place.settled.set()
        if resident.worker is not None:
            resident.worker.on_death(lambda: self._lose(place))

    def _fail(self, place: Place, exc: BaseException) -> None:
        if place.doubts and isinstance(exc, CancelledError):
            # Cancelled by nobody who would rather not have it: the next load would last as long.
            msg = f"{place.offer.id}: its load was ended, since it had taken too long"
            exc = ActivityTimeoutError(msg)
        self._places.forget(place)
        self._stats.count("failed_loads")
        try:
            with self._places.lock:
                place.error = place.error or exc
                if _is_shared(exc) and isinstance(exc, Exception):
                    self._failures.note(place.key, place.offer.id, exc)
        finally:
            place.settled.set()

    def _lose(self, place: Place) -> None:
        """Let go of a cartridge whose process died; called from its process's own thread."""
        self._stats.count("worker_deaths")
        with self._places.lock:
            was_idle = place.is_idle
            if was_idle:
                place.state = LoadState.UNLOADING
        self._places.forget(place)
        if place.resident is not None:
            # Who waits for his turn in it is told now, and what it held of a device is free.
            place.resident.abandon(f"the process of {place.offer.id} has ended")
        if was_idle:
            with contextlib.suppress(StateError):  # the registry closes, and ends what is left
                self._run(lambda: self._places.unload_logged(place))

    def _wait_for_load(self, place: Place, context: Context) -> None:
        limit_s = place.offer.descriptor.load_timeout_s + self._limits.queue_timeout_s
        with self._crossings.wait(context.loads, place):
            self._wait_for(place, place.settled.wait, limit_s, context)

    def _wait_for(
        self, place: Place, wait: Callable[[float], bool], limit_s: float, context: Context
    ) -> None:
        """Wait for what another caller does to a place; ``wait`` does so for a moment."""
        end_s = time.monotonic() + limit_s
        with context.waiting():
            while not wait(_WAIT_S):
                context.check_cancelled()
                if time.monotonic() > end_s:
                    msg = (
                        f"{place.offer.id} is {place.state.value} for another caller, and that "
                        f"has not ended within {limit_s:g} s; {_by_force(place)}"
                    )
                    raise BusyError(msg)

    def reserve(self, lease: Lease, memory_bytes: int, context: Context) -> None:
        """
        Make room for what is being loaded; see `Room.reserve`.

        Raises:
            LoadError: It needs more than the whole budget.

            BusyError: There was no room within the queue's time.
        """
        if lease.place is not None:
            self._room.reserve(lease.place, memory_bytes, context)

    def leave(self, lease: Lease, place: Place) -> None:
        """Note that a lease was released; the last user of what nobody keeps unloads it."""
        with self._places.lock:
            del self._leases[lease]
            place.users -= 1
            if lease.is_doubted:
                lease.is_doubted = False
                place.doubts -= 1
            if not lease.keep:
                place.by_hand -= 1
            if place.users:
                return
            place.idle_since_s = time.monotonic()
            is_known = self._places.by_key.get(place.key) is place and not self._closed
            stays = place.keep and is_known and not place.is_wanted
            if place.state is _BUSY and stays:
                place.state = _READY
                return
            if place.resident is None:
                return
            place.state = LoadState.UNLOADING
        self._places.unload(place)

    def doubt(self, lease: Lease) -> None:
        """Let nobody join what does not show life, until it comes out or is given up."""
        with self._places.lock:
            place = lease.place
            if place is not None and self._leases.get(lease) is place and not lease.is_doubted:
                lease.is_doubted = True
                place.doubts += 1

    def give_up(self, lease: Lease) -> None:
        """Let go of a cartridge that does not stop: end its process, or mark it stuck."""
        with self._places.lock:
            place = lease.place
            if place is None or self._leases.get(lease) is not place:
                return
            worker, why = place.worker, _stuck(place)
            is_stuck = worker is None and place.state in {LoadState.LOADING, LoadState.BUSY}
            if is_stuck:
                place.state = LoadState.STUCK
                place.error = StateError(why) if place.resident is None else None
            resident = place.resident
        if worker is not None:
            worker.kill("it did not stop when asked to")
        elif is_stuck:
            if resident is not None:
                resident.refuse(why)
            place.settled.set()
            _log.warning("%s", why)

    def unload(self, cartridge_id: str | None, *, force: bool) -> None:
        """
        Unload what is open.

        Args:
            cartridge_id: Which one; None is all.
            force: Also what is in use: its users are cancelled, and what does not stop then is
                left behind, or killed where it has a process.

        Raises:
            BusyError: Something is in use, and ``force`` is not given; the others are unloaded.
        """
        check_process(self._pid)
        with self._places.lock:
            meant = [
                place
                for place in self._places.by_key.values()
                if cartridge_id in {None, place.offer.id}
            ]
            idle = [place for place in meant if place.is_idle]
            left = [place for place in meant if not place.is_idle]
            used = [place.seen() for place in left if place.state is not LoadState.UNLOADING]
            leases = [lease for lease, place in self._leases.items() if place in left]
            for place in meant if force else idle:
                place.state = LoadState.UNLOADING
            for lease in leases if force else ():
                lease.is_revoked = True
        for place in idle:
            self._places.unload_logged(place)
        if force:
            self._force(left, leases)
        elif used:
            names = ", ".join(f"{one.cartridge_id} ({one.state.value})" for one in used)
            msg = f"in use: {names}; unload later, or with force=True, which cancels their work"
            raise BusyError(msg)
        else:
            self._wait_until_gone(left)

    def _force(self, places: Iterable[Place], leases: Iterable[Lease]) -> None:
        for lease in leases:
            # On a thread of its own: a plugin's cancel may never come back.
            self._run(partial(_take_away, lease))
        for place in self._wait_until_gone(places):
            _log.warning("%s did not stop within %g s", place.offer.id, self._limits.grace_s)
            if place.worker is not None:
                place.worker.kill("it was unloaded by force")
            if place.resident is not None:
                place.resident.abandon(f"{place.offer.id} was unloaded: open it again")
            self._places.forget(place)

    def _wait_until_gone(self, places: Iterable[Place]) -> list[Place]:
        """Wait for unloads that are under way; give those that do not end within the grace."""
        end_s = time.monotonic() + self._limits.grace_s
        return [
            place for place in places if not place.gone.wait(max(0.0, end_s - time.monotonic()))
        ]

    def is_unload_due(self) -> bool:
        """Say whether something has been idle for the idle time."""
        return any(place.is_idle and self._is_over(place) for place in self._places.all())

    def unload_idle(self) -> None:
        """Unload it."""
        self._places.unload_idle(self._is_over, f"idle for {self._limits.idle_timeout_s:g} s")

    def _is_over(self, place: Place) -> bool:
        return time.monotonic() - place.idle_since_s >= self._limits.idle_timeout_s

    def loaded(self) -> tuple[Loaded, ...]:
        """Say what is open, and what could not be opened a moment ago."""
        with self._places.lock:
            seen = [place.seen() for place in self._places.by_key.values()]
            failed = self._failures.held_up()
        return (*seen, *(Loaded(one.cartridge_id, LoadState.FAILED) for one in failed))

    def workers(self) -> list[Worker]:
        """Give the processes of what is open and idle."""
        idle = [place for place in self._places.all() if place.is_idle]
        return [place.worker for place in idle if place.worker is not None]

    def close(self) -> None:
        """Unload everything that nobody uses; what is in use is unloaded by its last user."""
        if self._pid != os.getpid():
            return  # what is open is the parent's
        with self._places.lock:
            self._closed = True
        self._places.unload_idle(lambda _: True)
        left = [place for place in self._places.all() if place.state is LoadState.UNLOADING]
        self._wait_until_gone(left)


def _revoked(lease: Lease) -> CancelledError:
    msg = f"{lease.offer.id} was unloaded by force while it was being opened"
    return CancelledError(msg)


def _take_away(lease: Lease) -> None:
    try:
        lease.take_away()
    except Exception:
        _log.exception("cancelling %s failed", lease.offer.id)


def _is_shared(error: BaseException) -> bool:
    """Say whether a failed load is everyone's: one caller's cancellation is his own."""
    return isinstance(error, Exception) and not isinstance(error, CancelledError | StateError)


def _stuck(place: Place) -> str:
    return f"{place.offer.id} is stuck: it did not stop when asked to; {_by_force(place)}"


def _by_force(place: Place) -> str:
    return f"registry.unload({place.offer.id!r}, force=True) lets the next call open it anew"
