"""The plugins of a registry, imported when they are first needed: here, or in a process."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from cartridge_core.binding import Binding, is_interrupt
from cartridge_core.errors import AbiMismatchError, CartridgeError, LoadError
from cartridge_core.offers import Index
from cartridge_core.reports import DiscoveryIssue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.discovery import Discovered, PluginSource
    from cartridge_core.offers import Offer
    from cartridge_core.stats import Stats
    from cartridge_core.worker.client import Worker

__all__ = ["Plugins"]

_log = logging.getLogger("cartridge.loading")


class Plugins:
    """
    What is installed, and what of it has been imported.

    Args:
        discovered: What is installed.
        wrappers: Plugins that see every hook call.
        stats: Counts processes.

    Attributes:
        index: What can be routed to; it loses a plugin that cannot be activated.
    """

    def __init__(self, discovered: Discovered, wrappers: Iterable[object], stats: Stats) -> None:
        self.index = Index(discovered.offers, discovered.issues)
        self._sources = discovered.plugins
        self._wrappers = tuple(wrappers)
        self._stats = stats
        self._lock = threading.Lock()
        self._activating: dict[str, threading.Lock] = {}
        self._bindings: dict[str, Binding] = {}

    def here(self, offer: Offer) -> Binding:
        """
        Give an offer's plugin in this process, importing it the first time.

        Raises:
            LoadError: It cannot be imported.

            AbiMismatchError: It does not follow the contract.
        """
        name = offer.plugin
        binding = self._bindings.get(name)
        if binding is not None:
            return binding
        with self._lock:
            activating = self._activating.setdefault(name, threading.Lock())
        with activating:
            if name not in self._bindings:
                self._bindings[name] = self._import(name)
            return self._bindings[name]

    def start(self, offer: Offer, context: Context) -> tuple[Worker, Binding]:
        """
        Start a process that has an offer's plugin.

        Args:
            offer: Which one.
            context: The caller's; cancelling it ends the start.

        Returns:
            The process, to be ended, and the plugin in it.

        Raises:
            LoadError: The process does not come up, or cannot import the plugin.

            AbiMismatchError: The plugin does not follow the contract.
        """
        # Deferred: only cartridges in a process need it.
        from cartridge_core.worker.client import Worker  # noqa: PLC0415 -- see above

        source = self._source(offer.plugin)
        offered = self._offered(offer.plugin)
        try:
            worker = Worker.start(source, offer.id, offered, context=context)
        except AbiMismatchError as exc:
            raise self._give_up(source, exc) from exc.__cause__
        self._stats.count("workers")
        try:
            return worker, Binding(source.name, worker.plugin, offered, self._wrappers)
        except BaseException:
            worker.end()
            raise

    def _source(self, name: str) -> PluginSource:
        source = self._sources.get(name)
        if source is None:
            msg = f"plugin {name} is not installed; `pip install cartridge-{name}`"
            raise LoadError(msg)
        return source

    def _offered(self, name: str) -> list[Descriptor]:
        own = [one for one in self.index.offers if one.plugin == name and one.pack is None]
        return [one.descriptor for one in own]

    def _import(self, name: str) -> Binding:
        source = self._source(name)
        try:
            plugin = source.load()
            binding = Binding(name, plugin, self._offered(name), self._wrappers)
            binding.check_descriptors(source.descriptors)
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
