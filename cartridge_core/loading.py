"""From an offer to an open cartridge: activate its plugin, preflight, open once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cartridge_core.binding import Binding, is_interrupt
from cartridge_core.context import Context
from cartridge_core.errors import AbiMismatchError, CartridgeError, LoadError, PreflightError
from cartridge_core.offers import Index, Offer
from cartridge_core.pack import Pack, Trust
from cartridge_core.preflight import core_checks
from cartridge_core.reports import DiscoveryIssue, PreflightReport
from cartridge_core.residency import Lease, Residency, Resident

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from cartridge_core.descriptor import Descriptor
    from cartridge_core.discovery import Discovered, PluginSource
    from cartridge_core.progress import Log, Progress

__all__ = ["Loader"]

_log = logging.getLogger("cartridge.loading")


class Loader:
    """
    The plugins of a registry, activated when first needed, and what they have open.

    Args:
        discovered: What is installed.
        wrappers: Plugins that see every hook call.
        trust: What a pack must prove before it is opened, where an open does not say it.
    """

    def __init__(
        self,
        discovered: Discovered,
        wrappers: Iterable[object] = (),
        trust: Trust = Trust.IF_SIGNED,
    ) -> None:
        self.index = Index(discovered.offers, discovered.issues)
        self._trust = trust
        self._plugins = discovered.plugins
        self._wrappers = tuple(wrappers)
        self._lock = threading.Lock()
        self._activating: dict[str, threading.Lock] = {}
        self._bindings: dict[str, Binding] = {}
        self._residency = Residency()

    def preflight(
        self, offer: Offer, pack: Pack | None, options: Mapping[str, object]
    ) -> PreflightReport:
        """
        Check what an offer needs of this machine, loading nothing.

        The plugin is asked only where core's own checks pass: without its backend it has
        nothing to say.

        Raises:
            LoadError: The plugin cannot be imported.
        """
        checks = core_checks(offer.descriptor)
        if not all(check.ok for check in checks):
            return PreflightReport(checks)
        report = self._binding(offer).preflight(offer.hook_id, pack, options)
        return PreflightReport((*checks, *report.checks), memory_bytes=report.memory_bytes)

    def acquire(
        self,
        offer: Offer,
        pack: Pack | None,
        options: Mapping[str, object],
        context: Context,
        report: Callable[[Progress | Log], None] | None = None,
        *,
        keep: bool,
        trust: Trust | None = None,
    ) -> Lease:
        """
        Give an open cartridge, opening it if it is not there.

        Args:
            offer: Which one.
            pack: Its model; None for a cartridge without a ``pack`` argument.
            options: Its open arguments, defaults filled in.
            context: The caller's; its cancellation and peer are the open's too.
            report: Takes what the cartridge says while it opens.
            keep: Whether it stays open after the lease.
            trust: What the pack must prove; None is the registry's.

        Raises:
            PreflightError: This machine lacks something.

            VerificationError: The pack does not prove what it must.

            LoadError: The plugin or the model cannot be loaded.
        """

        def load() -> Resident:
            opening = Context(report, context.peer, parent=context)
            opening.progress(0.0, f"Loading {offer.id}")
            try:
                return self._open(offer, pack, options, opening, proof)
            finally:
                opening.close()

        proof = trust or self._trust
        key = _key(offer, pack, options, proof)
        return self._residency.acquire(key, load, context, keep=keep)

    def close(self) -> None:
        """Unload everything that nobody uses."""
        self._residency.close()

    def _open(
        self,
        offer: Offer,
        pack: Pack | None,
        options: Mapping[str, object],
        context: Context,
        trust: Trust,
    ) -> Resident:
        if pack is not None:
            _verify(pack, trust)
        report = self.preflight(offer, pack, options)
        if not report.ok:
            failures = "; ".join(str(check) for check in report.failures)
            msg = f"{offer.id} cannot be opened on this machine: {failures}"
            raise PreflightError(msg, report=report)
        context.check_cancelled()
        binding = self._binding(offer)
        handle = binding.open(offer.hook_id, pack, options, context)
        return Resident(offer, binding, handle)

    def _binding(self, offer: Offer) -> Binding:
        """Give an offer's plugin, importing it the first time."""
        name = offer.plugin
        binding = self._bindings.get(name)
        if binding is not None:
            return binding
        with self._lock:
            activating = self._activating.setdefault(name, threading.Lock())
        with activating:
            if name not in self._bindings:
                self._bindings[name] = self._activate(name)
            return self._bindings[name]

    def _activate(self, name: str) -> Binding:
        source = self._plugins.get(name)
        if source is None:
            msg = f"plugin {name} is not installed; `pip install cartridge-{name}`"
            raise LoadError(msg)
        offered = [one for one in self.index.offers if one.plugin == name and one.pack is None]
        try:
            descriptors = [one.descriptor for one in offered]
            plugin = source.load()
            binding = Binding(name, plugin, descriptors, self._wrappers)
            _compare(name, source.descriptors, binding.descriptors())
        except BaseException as exc:  # a plugin may raise anything at import, SystemExit too
            if is_interrupt(exc):
                raise
            error = self._give_up(source, exc)
            if error is exc:
                raise
            raise error from exc
        return binding

    def _give_up(self, source: PluginSource, exc: BaseException) -> CartridgeError:
        """Take a plugin that cannot be activated out of the index; give the error to raise."""
        error: CartridgeError
        if isinstance(exc, AbiMismatchError):
            why = str(exc)
            error = exc
        else:
            why = f"importing {source.module} failed with {type(exc).__name__}: {exc}"
            error = LoadError(f"plugin {source.name} ({source.distribution}): {why}")
        offers = [offer for offer in self.index.offers if offer.plugin == source.name]
        issue = DiscoveryIssue(
            source.distribution,
            source.version,
            what=f"plugin {source.name}",
            why=why,
            fix=f"Reinstall or upgrade it: `pip install --upgrade {source.distribution}`",
            plugin=source.name,
            caps=tuple(str(cap.urn) for offer in offers for cap in offer.descriptor.caps),
        )
        with self._lock:
            self.index = self.index.without(source.name, issue)
        _log.warning("%s", issue)
        return error


def _key(offer: Offer, pack: Pack | None, options: Mapping[str, object], trust: Trust) -> Hashable:
    """Name what a cartridge is opened with."""
    return (offer.id, None if pack is None else pack.identity, _frozen(options), trust)


def _frozen(value: object) -> Hashable:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _frozen(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    return (type(value).__name__, repr(value))


def _verify(pack: Pack, trust: Trust) -> None:
    if pack.descriptor is not None or trust is Trust.REQUIRED:
        # Deferred: hashing and signatures are a good part of what core has to import.
        from cartridge_core.manifest import verify  # noqa: PLC0415 -- see above

        verify(pack, trust)


def _compare(name: str, static: Iterable[Descriptor], hooked: Iterable[Descriptor]) -> None:
    """Hold a plugin's hook against its static files."""
    by_id = {descriptor.id: descriptor for descriptor in static}
    told = {descriptor.id: descriptor for descriptor in hooked}
    differing = sorted(key for key in by_id.keys() | told.keys() if by_id.get(key) != told.get(key))
    if differing:
        msg = (
            f"plugin {name}: its cartridge_descriptors hook and its descriptors/*.json differ "
            f"for {', '.join(differing)}"
        )
        raise AbiMismatchError(msg)
