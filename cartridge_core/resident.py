"""One open cartridge, the place it has, and how it is seen from outside."""

from __future__ import annotations

import enum
import threading
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from cartridge_core.binding import Binding
    from cartridge_core.context import Context
    from cartridge_core.offers import Offer
    from cartridge_core.pack import Pack
    from cartridge_core.queueing import FairQueue
    from cartridge_core.worker.client import Worker

__all__ = ["LoadState", "Loaded", "Place", "Resident"]


class LoadState(enum.StrEnum):
    """Where a cartridge is between its load and its unload."""

    LOADING = "loading"

    READY = "ready"
    """Open, and nobody uses it."""

    BUSY = "busy"
    """Open and in use."""

    STUCK = "stuck"
    """It did not stop when it was asked to; it takes nothing until it is unloaded by force."""

    UNLOADING = "unloading"

    FAILED = "failed"
    """Its loads failed; the next attempt has to wait a moment."""


# Read once: Python 3.11 takes 0.15 µs to find a member of an enum.
_STUCK, _UNLOADING = LoadState.STUCK, LoadState.UNLOADING


@attrs.frozen
class Loaded:
    """What `Registry.loaded` says of one cartridge."""

    cartridge_id: str
    state: LoadState

    pack: Pack | None = None
    """Its model; None for a cartridge without one."""

    users: int = attrs.field(default=0, kw_only=True)
    """How many calls and open cartridges use it, or wait for it."""

    memory_bytes: int = attrs.field(default=0, kw_only=True)
    """What its preflight says it needs; 0 where it does not say."""

    pid: int | None = attrs.field(default=None, kw_only=True)
    """The process it runs in, where it has its own."""


@attrs.define(eq=False)
class Resident:
    """One open cartridge."""

    offer: Offer
    binding: Binding
    handle: object

    worker: Worker | None = None
    """Its process; None where it runs in this one."""

    queues: tuple[FairQueue, ...] = attrs.field(kw_only=True)
    """What a session needs a place in, in this order; the last is its own."""

    def enter(self, context: Context, on_wait: Callable[[str], None] | None = None) -> None:
        """
        Take what a session needs, waiting for it where it must be.

        Args:
            context: The caller's; cancelling it ends the wait.
            on_wait: Is told why, if there is a wait.

        Raises:
            BusyError: There was no place in time.

            StateError: The cartridge is stuck, or was taken away.

            CartridgeDiedError: Its process has ended.
        """
        worker = self.worker
        try:
            self._take_places(context, on_wait)
        except StateError:
            if worker is None or worker.is_alive:
                raise
        else:
            if worker is None or worker.is_alive:
                return
            self.leave()
        raise worker.death()

    def _take_places(self, context: Context, on_wait: Callable[[str], None] | None) -> None:
        taken: list[FairQueue] = []
        try:
            for queue in self.queues:
                queue.enter(context, on_wait)
                taken.append(queue)
        except BaseException:
            for queue in taken:
                queue.leave()
            raise

    def leave(self) -> None:
        """Give it back; once it is abandoned others have it already."""
        *shared, own = self.queues
        if own.leave():
            for queue in shared:
                queue.leave()

    def refuse(self, why: str) -> None:
        """Take no session any more; who waits or comes gets a `StateError`."""
        self.queues[-1].refuse(why)

    def abandon(self, why: str) -> None:
        """Let others have what its sessions do not give back; the rest as `refuse`."""
        *shared, own = self.queues
        for _ in range(own.abandon(why)):
            for queue in shared:
                queue.leave()

    def close(self) -> None:
        """Unload it, and end its process."""
        if self.worker is None:
            self.binding.close(self.handle)
            return
        try:
            if self.worker.is_alive:
                self.binding.close(self.handle)
        finally:
            self.worker.end()


@attrs.define(eq=False)
class Place:
    """The place of one open cartridge, from before its load to after its unload."""

    key: Hashable
    offer: Offer
    pack: Pack | None

    state: LoadState = LoadState.LOADING
    resident: Resident | None = None

    worker: Worker | None = None
    """The process that its load goes on in."""

    error: BaseException | None = None
    users: int = 0

    by_hand: int = 0
    """How many of them have it open by hand."""

    keep: bool = False
    """Whether it stays when nobody uses it: a call keeps it for the next one."""

    memory_bytes: int = 0

    is_wanted: bool = False
    """Whether another load waits for its memory: it takes no more users, and goes with its last."""

    doubts: int = 0
    """How many of its users have been silent for too long: until they are out, or it is given up,
    it takes no more users."""

    idle_since_s: float = 0.0

    settled: threading.Event = attrs.field(factory=threading.Event)
    """Set when its load has ended, or was given up."""

    gone: threading.Event = attrs.field(factory=threading.Event)
    """Set when it is unloaded."""

    @property
    def takes_users(self) -> bool:
        """Whether somebody may still join who uses it: it is not going, and shows life."""
        return self.state is not _UNLOADING and not self.is_wanted and not self.doubts

    @property
    def has_died(self) -> bool:
        """Whether it was open in a process that has ended."""
        worker = None if self.resident is None else self.resident.worker
        return worker is not None and not worker.is_alive

    def wait_to_go(self, timeout_s: float) -> bool:
        """Wait until it is gone or stuck, or takes users; say whether that came in time."""
        return self.gone.wait(timeout_s) or self.takes_users or self.state is _STUCK

    @property
    def is_idle(self) -> bool:
        """Whether it is open, and nobody uses it."""
        return self.state is LoadState.READY

    def seen(self) -> Loaded:
        """Say how it is now."""
        return Loaded(
            self.offer.id,
            self.state,
            self.pack,
            users=self.users,
            memory_bytes=self.memory_bytes,
            pid=None if self.worker is None else self.worker.pid,
        )
