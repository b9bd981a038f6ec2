"""From an offer to an open cartridge: activate its plugin, preflight, open once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from cartridge_core.activation import Plugins
from cartridge_core.context import Context
from cartridge_core.deadline import deadline
from cartridge_core.errors import InvalidArgumentError, PreflightError
from cartridge_core.leases import Lease
from cartridge_core.pack import Pack, Trust
from cartridge_core.preflight import complete, core_checks, disk_check
from cartridge_core.queueing import FairQueue
from cartridge_core.reports import PreflightReport
from cartridge_core.residency import Residency
from cartridge_core.resident import Loaded, Resident

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Hashable, Iterable

    from cartridge_core.binding import Binding
    from cartridge_core.discovery import Discovered
    from cartridge_core.limits import Limits
    from cartridge_core.offers import Index, Offer
    from cartridge_core.stats import Stats
    from cartridge_core.threads import HostThreads
    from cartridge_core.worker.client import Worker

__all__ = ["Loader"]

_HEARTBEAT_TIMEOUT_S = 10.0
"""How long a process that nobody uses may take to answer."""


class Loader:
    """
    The plugins of a registry, activated when first needed, and what they have open.

    Args:
        discovered: What is installed.
        wrappers: Plugins that see every hook call.
        trust: What a pack must prove before it is opened, where an open does not say it.
        isolation: Where cartridges run: for all, or by cartridge id; None is as they declare.
        limits: Memory, and how long things may take.
        stats: Counts what happens.
        threads: Runs what a plugin does with nobody waiting for it.
    """

    def __init__(
        self,
        discovered: Discovered,
        wrappers: Iterable[object] = (),
        *,
        trust: Trust,
        isolation: str | Mapping[str, str] | None,
        limits: Limits,
        stats: Stats,
        threads: HostThreads,
    ) -> None:
        self._plugins = Plugins(discovered, wrappers, stats)
        self._trust = trust
        self._lock = threading.Lock()
        self._isolation = _read_isolation(isolation, self.index)
        self._limits = limits
        self._residency = Residency(limits, stats, threads.run, self._load)
        self._devices: dict[str, FairQueue] = {}

    @property
    def index(self) -> Index:
        """What can be routed to; it loses a plugin that cannot be activated."""
        return self._plugins.index

    def preflight(
        self, offer: Offer, pack: Pack | None, options: Mapping[str, object]
    ) -> PreflightReport:
        """
        Check what an offer needs of this machine, loading nothing.

        The plugin is asked only where core's own checks pass: without its backend it has
        nothing to say. It sees no pack that is not verified: asking a library runs it.

        Raises:
            VerificationError: The pack does not prove what it must.

            LoadError: The plugin cannot be imported.

            ActivityTimeoutError: It was asked in a process, and has not answered in time.
        """
        checks = core_checks(offer.descriptor)
        if not all(check.ok for check in checks):
            return PreflightReport(checks)
        context = Context()
        if pack is not None:
            _verify(pack, self._trust, context)
        worker, binding = self._activate(offer, context)
        try:
            with self._deadline(worker, context, f"the preflight of {offer.id}", offer):
                report = binding.preflight(offer.hook_id, pack, options)
        finally:
            if worker is not None:
                worker.end()
        report = complete(checks, report)
        wants_model = pack is None and offer.descriptor.pack_arg is not None
        room = disk_check(offer.descriptor) if wants_model else None
        return report if room is None else attrs.evolve(report, checks=(*report.checks, room))

    def _activate(self, offer: Offer, context: Context) -> tuple[Worker | None, Binding]:
        """Give an offer's plugin where it is to run, and its process if that is not this one."""
        isolation = self._isolation.get(offer.id, offer.isolation)
        if isolation == "process":
            return self._plugins.start(offer, context)
        return None, self._plugins.here(offer, context)

    def lease(
        self,
        offer: Offer,
        pack: Pack | None,
        options: Mapping[str, object],
        *,
        keep: bool,
        trust: Trust | None = None,
        revoke: Callable[[], None],
    ) -> Lease:
        """
        Give the right to use a cartridge; `open` makes it good.

        Args:
            offer: Which one.
            pack: Its model; None for a cartridge without a ``pack`` argument.
            options: Its open arguments, defaults filled in.
            keep: Whether it stays open after the lease.
            trust: What the pack must prove; None is the registry's.
            revoke: Ends the use that the lease is for, where the cartridge is taken away.
        """
        proof = trust or self._trust
        return Lease(
            _key(offer, pack, options, proof),
            offer,
            pack,
            options,
            proof,
            keep=keep,
            revoke=revoke,
            on_release=self._residency.leave,
        )

    def open(self, lease: Lease, context: Context) -> None:
        """
        Open what a lease is for, if it is not open.

        Raises:
            PreflightError: This machine lacks something.

            VerificationError: The pack does not prove what it must.

            LoadError: The plugin or the model cannot be loaded.

            CartridgeError: As for `Residency.open`.
        """
        self._residency.open(lease, context)

    def doubt(self, lease: Lease) -> None:
        """Let nobody join a cartridge that does not show life."""
        self._residency.doubt(lease)

    def give_up(self, lease: Lease) -> None:
        """Let go of a cartridge that does not stop."""
        self._residency.give_up(lease)

    def loaded(self) -> tuple[Loaded, ...]:
        """Say what is open, and what could not be opened a moment ago."""
        return self._residency.loaded()

    def unload(self, cartridge_id: str | None, *, force: bool) -> None:
        """Unload what is open; see `Residency.unload`."""
        self._residency.unload(cartridge_id, force=force)

    def is_unload_due(self) -> bool:
        """Say whether something has been idle for long enough."""
        return self._residency.is_unload_due()

    def check_processes(self) -> None:
        """End processes that nobody uses and that do not answer; the next call starts anew."""
        for worker in self._residency.workers():
            if not worker.ping(_HEARTBEAT_TIMEOUT_S) and worker in self._residency.workers():
                worker.kill(f"it did not answer within {_HEARTBEAT_TIMEOUT_S:g} s")

    def unload_idle(self) -> None:
        """Unload what has."""
        self._residency.unload_idle()

    def close(self) -> None:
        """Unload everything that nobody uses."""
        self._residency.close()

    def _load(self, lease: Lease, context: Context) -> Resident:
        """Load for a caller; what he is told and may ask for is the cartridge's while it opens."""
        opening = Context(context.report, context.peer, parent=context)
        opening.progress(0.0, f"Loading {lease.offer.id}")
        try:
            return self._open(lease, opening)
        finally:
            opening.close()

    def _open(self, lease: Lease, context: Context) -> Resident:
        offer, pack, options = lease.offer, lease.pack, lease.options
        limit_s = offer.descriptor.load_timeout_s
        if pack is not None:
            with context.blocking(f"verifying {pack.path}", limit_s):
                _verify(pack, lease.trust, context)
        checks = core_checks(offer.descriptor)
        _check(offer, PreflightReport(checks))
        worker, binding = self._activate(offer, context)
        lease.runs_in(worker)
        try:
            with self._deadline(worker, context, f"the preflight of {offer.id}", offer):
                found = binding.preflight(offer.hook_id, pack, options)
            _check(offer, complete(checks, found))
            self._residency.reserve(lease, found.memory_bytes or _declared_bytes(offer), context)
            context.check_cancelled()
            what = f"loading {offer.id}"
            with context.blocking(what, limit_s), self._deadline(worker, context, what, offer):
                handle = binding.open(offer.hook_id, pack, options, context)
        except BaseException:
            if worker is not None:
                worker.end()
            raise
        return Resident(offer, binding, handle, worker, queues=self._queues(offer))

    def _deadline(
        self, worker: Worker | None, context: Context, what: str, offer: Offer
    ) -> contextlib.AbstractContextManager[None]:
        limit_s, grace_s = offer.descriptor.load_timeout_s, self._limits.grace_s
        return deadline(worker, context, what, limit_s=limit_s, grace_s=grace_s)

    def _queues(self, offer: Offer) -> tuple[FairQueue, ...]:
        """Give what its sessions need a place in: the device, where it has one, and itself."""
        descriptor, wait_s = offer.descriptor, self._limits.queue_timeout_s
        places = descriptor.max_concurrent_sessions
        own = FairQueue(f"a session of {descriptor.id}", places, wait_s)
        device = descriptor.device_key
        if device is None:
            return (own,)
        with self._lock:
            known = self._devices.setdefault(device, FairQueue(f"device {device}", 1, wait_s))
        return (known, own)


def _read_isolation(given: object, index: Index) -> Mapping[str, str]:
    """Give where cartridges run, by their ids, where that is not as they declare it."""
    ids = [offer.id for offer in index.offers]
    for where in given.values() if isinstance(given, Mapping) else [given]:
        if where not in {"inline", "process"} and given is not None:
            msg = f"isolation is {where!r}; it is 'inline' or 'process'"
            raise InvalidArgumentError(msg, arg="isolation", value=where)
    if given is None:
        return {}
    by_id = given if isinstance(given, Mapping) else dict.fromkeys(ids, str(given))
    for cartridge_id in by_id:
        # A plugin that cannot be used just now is a discovery issue, and stops nobody.
        if cartridge_id not in ids and not index.issues:
            msg = f"isolation names {cartridge_id!r}, and there is no such cartridge: {ids}"
            raise InvalidArgumentError(msg, arg="isolation", value=cartridge_id)
    return by_id


def _check(offer: Offer, report: PreflightReport) -> None:
    if not report.ok:
        failures = "; ".join(str(check) for check in report.failures)
        msg = f"{offer.id} cannot be opened on this machine: {failures}"
        raise PreflightError(msg, report=report)


def _declared_bytes(offer: Offer) -> int:
    return (offer.descriptor.requirements.memory_mb or 0) * 2**20


def _key(offer: Offer, pack: Pack | None, options: Mapping[str, object], trust: Trust) -> Hashable:
    """Name what a cartridge is opened with; where it runs is the same all the registry's life."""
    given = tuple([(name, _frozen(value)) for name, value in options.items()])
    return (offer.id, None if pack is None else pack.identity, given, trust)


def _frozen(value: object) -> Hashable:
    if type(value) in _SCALARS:
        return (type(value), value)  # with its type: 1, 1.0 and True are equal
    if isinstance(value, Mapping):
        return tuple(sorted((key, _frozen(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    return (type(value).__name__, repr(value))


_SCALARS = frozenset({str, int, float, bool})


def _verify(pack: Pack, trust: Trust, context: Context) -> None:
    if pack.descriptor is not None or trust is Trust.REQUIRED:
        # Deferred: hashing and signatures are a good part of what core has to import.
        from cartridge_core.manifest import verify  # noqa: PLC0415 -- see above

        verify(pack, trust, check_cancelled=context.check_cancelled)
