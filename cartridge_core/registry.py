"""The one object a user drives: what is installed, and calls that reach it."""

from __future__ import annotations

import logging
import os
import warnings
import weakref
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from cartridge_core.arguments import bind_options
from cartridge_core.calls import check_listener
from cartridge_core.cartridge import Cartridge
from cartridge_core.descriptor import IoMode
from cartridge_core.errors import InvalidArgumentError, NoRouteError
from cartridge_core.limits import Limits
from cartridge_core.loading import Loader
from cartridge_core.models import Models
from cartridge_core.pack import Trust
from cartridge_core.progress import Phase
from cartridge_core.reporting import Reporter
from cartridge_core.router import Router, as_names
from cartridge_core.running import Calls, HostContext
from cartridge_core.stats import Stats
from cartridge_core.threads import HostThreads, check_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cartridge_core.calls import Call
    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.discovery import Discovered
    from cartridge_core.offers import Offer
    from cartridge_core.pack import Pack
    from cartridge_core.progress import Log, Progress
    from cartridge_core.reports import DiscoveryIssue, Explanation, PreflightReport
    from cartridge_core.resident import Loaded
    from cartridge_core.results import Result
    from cartridge_core.routing import Route
    from cartridge_core.urn import CapUrn

__all__ = ["Registry"]

_log = logging.getLogger("cartridge.registry")

_PathOrSpec = str | os.PathLike[str]


class Registry:
    """
    Everything installed, asked by capability.

    Make one with `discover`, keep it as long as the program, and close it: it is a context
    manager. It may be used from several threads.

    Args:
        discovered: What there is.
        prefer: Cartridge ids or plugin names that win where several serve a request.
        wrappers: Plugins of ``hookimpl(wrapper=True)`` functions that see every hook call.
        trust: What a pack must prove before it is opened, where a call does not say it:
            ``required`` (signed by a key of the trust store), ``if-signed`` (what it states is
            right) or ``off``.
        offline: Whether the network is forbidden.
        isolation: Where cartridges run, ``inline`` or ``process``: for all, or by cartridge id;
            None is what each descriptor says.
        limits: Memory, and how long things may take.
    """

    def __init__(
        self,
        discovered: Discovered,
        *,
        prefer: Iterable[str] = (),
        wrappers: Iterable[object] = (),
        trust: str = Trust.IF_SIGNED,
        offline: bool = False,
        isolation: str | Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        limits = limits or Limits()
        self._offline = offline
        self._stats = Stats()
        threads = HostThreads()
        self._loader = loader = Loader(
            discovered,
            wrappers,
            trust=_trust(trust) or Trust.IF_SIGNED,
            isolation=isolation,
            limits=limits,
            stats=self._stats,
            threads=threads,
        )
        self._models = Models()
        self._router = Router(lambda: loader.index, prefer)
        self._calls = Calls(
            self._loader,
            self._models,
            self._router,
            threads=threads,
            limits=limits,
            stats=self._stats,
            offline=offline,
        )
        self._open_ones: set[Cartridge] = set()
        # At exit too: a thread that is inside a native library then would take the process down.
        self._finish = weakref.finalize(self, self._calls.close)
        self._closed = False
        self._pid = os.getpid()

    @classmethod
    def discover(
        cls,
        *,
        prefer: Iterable[str] = (),
        isolation: str | Mapping[str, str] | None = None,
        packs: Iterable[_PathOrSpec] = (),
        wrappers: Iterable[object] = (),
        trust: str = Trust.IF_SIGNED,
        memory_budget_bytes: int | None = None,
        idle_timeout_s: float = 300.0,
        activity_timeout_s: float = 120.0,
        keepalive_s: float = 30.0,
    ) -> Self:
        """
        Find what is installed, importing none of it.

        Reads ``CARTRIDGE_PLUGINS``, ``CARTRIDGE_PACKS``, ``CARTRIDGE_PREFER``,
        ``CARTRIDGE_STRICT`` and ``CARTRIDGE_OFFLINE``, once.

        Args:
            prefer: Cartridge ids or plugin names that win where several serve a request; they
                come before those of ``CARTRIDGE_PREFER``.
            isolation: Where cartridges run: ``inline``, in this process, or ``process``, each in
                one of its own; for all, or by cartridge id. None is what each descriptor says.
            packs: Pack folders, and folders of pack folders, besides ``CARTRIDGE_PACKS``.
            wrappers: Plugins of ``hookimpl(wrapper=True)`` functions that see every hook call.
            trust: What a pack must prove before it is opened: ``required``, ``if-signed`` or
                ``off``. ``CARTRIDGE_TRUST`` is the path of the trust store.
            memory_budget_bytes: What open cartridges may need together, by their preflights:
                for another one, those that nobody uses are unloaded, the longest idle first.
            idle_timeout_s: After how many seconds a cartridge that nobody uses is unloaded.
            activity_timeout_s: After how many seconds without a sign of life a call is ended,
                where the cap does not say it.
            keepalive_s: After how many silent seconds the host tells a caller that the work
                goes on.

        Raises:
            DiscoveryError: Something cannot be used, and ``CARTRIDGE_STRICT=1`` is set.

            InvalidArgumentError: ``trust`` or ``isolation`` is none of its words, or a limit is
                not above 0.
        """
        # Deferred: only a discovery needs it.
        from cartridge_core import environment  # noqa: PLC0415 -- see above

        given = [packs] if isinstance(packs, str | os.PathLike) else packs
        return cls(
            environment.discover_installed(given),
            prefer=(*as_names(prefer), *environment.preferred()),
            wrappers=wrappers,
            trust=trust,
            offline=environment.is_offline(),
            isolation=isolation,
            limits=Limits(
                memory_budget_bytes=memory_budget_bytes,
                idle_timeout_s=idle_timeout_s,
                activity_timeout_s=activity_timeout_s,
                keepalive_s=keepalive_s,
            ),
        )

    @property
    def descriptors(self) -> Mapping[str, Descriptor]:
        """Every usable descriptor, by its cartridge id."""
        return MappingProxyType({one.id: one.descriptor for one in self._loader.index.offers})

    @property
    def offers(self) -> tuple[Offer, ...]:
        """The same with the plugin that opens each, and the pack it stands in."""
        return self._loader.index.offers

    @property
    def issues(self) -> tuple[DiscoveryIssue, ...]:
        """What is installed and cannot be used."""
        return self._loader.index.issues

    def route(
        self,
        cap: str | CapUrn,
        mode: str | IoMode | None = None,
        *,
        cartridge_id: str | None = None,
        prefer: Iterable[str] = (),
        model_spec: _PathOrSpec | None = None,
    ) -> Route:
        """
        Choose the cartridge for a request, calling no plugin.

        Args:
            cap: The request, a cap URN.
            mode: ``batch`` or ``streaming``; None takes batch where both are offered.
            cartridge_id: Take this one or none.
            prefer: Cartridge ids or plugin names, the earliest wins; before the registry's own.
            model_spec: The model it is for; leaves out cartridges that cannot read it.

        Raises:
            NoRouteError: Nothing serves it.

            AmbiguousRouteError: Several serve it equally well.

            UrnError: The cap URN is malformed.
        """
        return self._router.route(
            cap, mode, cartridge_id=cartridge_id, prefer=prefer, model_spec=model_spec
        )

    def explain(
        self,
        cap: str | CapUrn,
        mode: str | IoMode | None = None,
        *,
        cartridge_id: str | None = None,
        prefer: Iterable[str] = (),
        model_spec: _PathOrSpec | None = None,
    ) -> Explanation:
        """
        Say of every candidate why `route` takes it or not; arguments as there.

        Raises:
            UrnError: The cap URN is malformed.
        """
        return self._router.explain(
            cap, mode, cartridge_id=cartridge_id, prefer=prefer, model_spec=model_spec
        )

    def preflight(
        self, cartridge_id: str, pack: Pack | _PathOrSpec | None = None, **options: object
    ) -> PreflightReport:
        """
        Check what a cartridge needs of this machine; nothing is loaded or fetched.

        Args:
            cartridge_id: Which one.
            pack: Its model, where it is on disk; a model spec that names none is not looked at.
            **options: Its open arguments.

        Raises:
            NoRouteError: No usable cartridge has this id.

            InvalidArgumentError: An option breaks its declared rule.

            VerificationError: The pack does not prove what it must.

            LoadError: Its plugin cannot be imported.

            ActivityTimeoutError: Its process has not answered within the limit of its load.
        """
        offer = self._offer(cartridge_id)
        bound = bind_options(offer.descriptor, options)
        return self._loader.preflight(offer, self._models.peek(offer, pack), bound)

    def open(
        self,
        cartridge_id: str,
        pack: Pack | _PathOrSpec | None = None,
        *,
        trust: str | None = None,
        **options: object,
    ) -> Cartridge:
        """
        Open a cartridge to drive it by hand; close it afterwards.

        Args:
            cartridge_id: Which one.
            pack: Its model: a pack, a path or a model spec; None takes the declared default.
            trust: What the pack must prove; None is what the registry was made with.
            **options: Its open arguments.

        Raises:
            NoRouteError: No usable cartridge has this id.

            InvalidArgumentError: An option breaks its declared rule.

            PreflightError: This machine lacks something.

            VerificationError: The pack does not prove what it must.

            LoadError: The plugin or the model cannot be loaded.

            ActivityTimeoutError: Its process has not done so within the limit of its load.
        """
        check_process(self._pid)
        proof = _trust(trust)
        offer = self._offer(cartridge_id)
        bound = bind_options(offer.descriptor, options)
        context = self._context(offer)
        found = self._models.find(offer, pack, context)
        lease = self._loader.lease(
            offer,
            found,
            bound,
            keep=False,
            trust=proof,
            revoke=lambda: cartridge.revoke(),  # noqa: PLW0108 -- it is made below
        )
        cartridge = Cartridge(lease, partial(self._context, offer), self._open_ones.discard)
        self._loader.open(lease, context)
        self._open_ones.add(cartridge)
        return cartridge

    def call(
        self,
        cap: str | CapUrn,
        value: object = None,
        *,
        mode: str | IoMode | None = None,
        cartridge_id: str | None = None,
        prefer: Iterable[str] = (),
        trust: str | None = None,
        on_progress: Callable[[Progress | Log], None] | None = None,
        **args: object,
    ) -> Result:
        """
        Ask for a capability and wait for its result.

        Args:
            cap: The request, a cap URN.
            value: The cap's main argument; an iterable of chunks where it declares
                ``streaming``.
            mode: As in `route`.
            cartridge_id: As in `route`.
            prefer: As in `route`.
            trust: As in `open`.
            on_progress: Takes progress and log lines, in this thread.
            **args: The cap's other arguments, ``model_spec`` among them; None counts as absent.

        Returns:
            The FINAL result; of a streaming cartridge that gives several, one with the list of
            their payloads.

        Raises:
            NoRouteError: Nothing serves it.

            AmbiguousRouteError: Several serve it equally well.

            InvalidArgumentError: An argument breaks its declared rule.

            PreflightError: This machine lacks something.

            LoadError: The plugin or the model cannot be loaded; `VerificationError` where a pack
                does not prove what it must.

            CartridgeError: What the cartridge raised, unchanged.
        """
        check_listener(on_progress)
        spec = args.get("model_spec")
        found = self._router.route(
            cap, mode, cartridge_id=cartridge_id, prefer=prefer, model_spec=spec, value=value
        )
        quiet = on_progress is None
        call = self._calls.start(found, value, args, trust=_trust(trust), quiet=quiet)
        return call.result(on_progress)

    def stream(
        self,
        cap: str | CapUrn,
        value: object = None,
        *,
        mode: str | IoMode | None = None,
        cartridge_id: str | None = None,
        prefer: Iterable[str] = (),
        trust: str | None = None,
        **args: object,
    ) -> Call:
        """
        Ask for a capability and get its events as they come.

        Takes a streaming cartridge where both modes are offered; a batch one gives its one FINAL.
        Arguments and errors as in `call`; errors of the work come while iterating.

        Returns:
            A `Call`: iterate it for `Progress`, `Log` and `Result`.
        """
        found = self._router.route(
            cap,
            mode,
            usual_mode=IoMode.STREAMING,
            cartridge_id=cartridge_id,
            prefer=prefer,
            model_spec=args.get("model_spec"),
            value=value,
        )
        return self._calls.start(found, value, args, trust=_trust(trust), owner=self)

    def loaded(self) -> tuple[Loaded, ...]:
        """Say what is open, who uses it, and what could not be opened a moment ago."""
        return self._loader.loaded()

    def unload(self, cartridge_id: str | None = None, *, force: bool = False) -> None:
        """
        Unload what is open, so that its memory returns; the next call opens it anew.

        Args:
            cartridge_id: Which one; None is all.
            force: Also what is in use, or stuck: its calls are cancelled; what does not stop is
                left behind, or killed where it runs in a process of its own.

        Raises:
            BusyError: Something is in use, and ``force`` is not given; the rest is unloaded.

            NoRouteError: No usable cartridge has this id.
        """
        if cartridge_id is not None:
            self._offer(cartridge_id)
        self._loader.unload(cartridge_id, force=force)

    def stats(self) -> Mapping[str, int]:
        """Count calls and how they ended, loads, unloads, evictions, and processes."""
        return self._stats.seen()

    def close(self) -> None:
        """Cancel what runs, close what is open and unload everything; again is harmless."""
        if self._closed:
            return
        self._closed = True
        if self._pid != os.getpid():
            return  # what is open is the parent's
        self._finish()
        for cartridge in list(self._open_ones):
            try:
                cartridge.revoke()
            except Exception:  # a plugin's hook may raise anything
                _log.exception("closing %s failed", cartridge.descriptor.id)
        self._loader.close()

    def _context(self, offer: Offer) -> Context:
        """Give what a cartridge driven by hand is told; what it says is logged."""
        report = Reporter(offer.id, None, Phase.LOAD).report
        return HostContext(self._calls, (offer.id,), report=report, offline=self._offline)

    def _offer(self, cartridge_id: object) -> Offer:
        offer = self._loader.index.get(cartridge_id) if isinstance(cartridge_id, str) else None
        if offer is not None:
            return offer
        ids = ", ".join(one.id for one in self._loader.index.offers) or "none"
        issues = "".join(f" {issue}" for issue in self.issues)
        msg = f"no usable cartridge has the id {cartridge_id!r}; installed: {ids}.{issues}"
        raise NoRouteError(msg)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            msg = f"{self!r} was never closed; use it as a context manager"
            warnings.warn(msg, ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        index = self._loader.index
        return f"<Registry of {len(index.offers)} cartridges, {len(index.issues)} issues>"


def _trust(trust: str | None) -> Trust | None:
    try:
        return None if trust is None else Trust(trust)
    except ValueError:
        words = ", ".join(repr(word.value) for word in Trust)
        msg = f"trust is {trust!r}; it is one of {words}"
        raise InvalidArgumentError(msg, arg="trust", value=trust) from None
