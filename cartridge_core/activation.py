"""The plugins of a registry, imported when they are first needed: here, or in a process."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import attrs

from cartridge_core.binding import Binding, is_interrupt
from cartridge_core.errors import AbiMismatchError, BusyError, CartridgeError, LoadError
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

_WAIT_S = 0.05
"""How often one who waits looks whether he was cancelled."""


@attrs.define(eq=False)
class _Import:
    """An import that one thread does for all that want it."""

    over: threading.Event = attrs.field(factory=threading.Event)
    error: CartridgeError | None = None


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
        self._imports: dict[str, _Import] = {}
        self._bindings: dict[str, Binding] = {}

    def here(self, offer: Offer, context: Context) -> Binding:
        """
        Give an offer's plugin in this process, importing it the first time.

        Callers that want the same one meanwhile wait for that one import, and share its failure.

        Args:
            offer: Which one.
            context: The caller's; cancelling it ends the wait for another's import.

        Raises:
            LoadError: It cannot be imported.

            AbiMismatchError: It does not follow the contract.

            BusyError: Another caller imports it, and that has not ended in time.

            CancelledError: The context was cancelled.
        """
        name = offer.plugin
        while True:
            with self._lock:
                binding = self._bindings.get(name)
                if binding is not None:
                    return binding
                importing = self._imports.get(name)
                if importing is None:
                    mine = self._imports[name] = _Import()
                    break
            _wait_for(importing, offer, context)
            if importing.error is not None:
                raise importing.error
        try:
            binding = self._bindings[name] = self._import(name)
        except CartridgeError as exc:
            mine.error = exc
            raise
        finally:
            with self._lock:
                del self._imports[name]
            mine.over.set()
        return binding

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
        from cartridge_core.worker import starting  # noqa: PLC0415 -- see above

        source = self._source(offer.plugin)
        offered = self._offered(offer.plugin)
        try:
            worker = starting.start(
                source, offer.id, offered, context=context, is_watched=bool(self._wrappers)
            )
        except AbiMismatchError as exc:
            self._give_up(source, str(exc))
            raise
        except LoadError as exc:
            # Where only the process did not come up, the next may.
            if exc.__cause__ is not None:
                self._give_up(source, str(exc).removeprefix(_whose(source)))
            raise
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
        except AbiMismatchError as exc:
            self._give_up(source, str(exc))
            raise
        except BaseException as exc:  # a plugin may raise anything at import, SystemExit too
            if is_interrupt(exc):
                raise
            why = f"importing {source.module} failed with {type(exc).__name__}: {exc}"
            self._give_up(source, why)
            msg = f"{_whose(source)}{why}"
            raise LoadError(msg) from exc
        return binding

    def _give_up(self, source: PluginSource, why: str) -> None:
        """Take a plugin that cannot be activated out of the index, unless another caller has."""
        with self._lock:
            offers = [offer for offer in self.index.offers if offer.plugin == source.name]
            if not offers:
                return
            issue = DiscoveryIssue(
                source.distribution,
                source.version,
                what=f"plugin {source.name}",
                why=why,
                fix=f"Reinstall or upgrade it: `pip install --upgrade {source.distribution}`",
                plugin=source.name,
                caps=tuple(str(cap.urn) for offer in offers for cap in offer.descriptor.caps),
            )
            self.index = self.index.without(source.name, issue)
        _log.warning("%s", issue)


def _whose(source: PluginSource) -> str:
    return f"plugin {source.name} ({source.distribution}): "


def _wait_for(importing: _Import, offer: Offer, context: Context) -> None:
    """Wait for another caller's import."""
    limit_s = offer.descriptor.load_timeout_s
    end_s = time.monotonic() + limit_s
    with context.waiting():
        while not importing.over.wait(_WAIT_S):
            context.check_cancelled()
            if time.monotonic() > end_s:
                msg = (
                    f"plugin {offer.plugin} is being imported for another caller, and that has "
                    f"not ended within {limit_s:g} s; try again later"
                )
                raise BusyError(msg)
