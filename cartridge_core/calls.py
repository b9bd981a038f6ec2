"""A call as its caller sees it: events to iterate, a result, and a way to stop it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Self

from cartridge_core.activity import Activity
from cartridge_core.arguments import bind, check_main
from cartridge_core.context import Context
from cartridge_core.descriptor import IoMode
from cartridge_core.errors import CancelledError, InvalidArgumentError, StateError
from cartridge_core.phases import Event, Work
from cartridge_core.results import Result, ResultKind
from cartridge_core.threads import END, End, HostThreads
from cartridge_core.watch import Watch

if TYPE_CHECKING:
    from cartridge_core.limits import Limits
    from cartridge_core.loading import Loader
    from cartridge_core.models import Models
    from cartridge_core.pack import Trust
    from cartridge_core.progress import Log, Progress
    from cartridge_core.router import Router
    from cartridge_core.routing import Route
    from cartridge_core.stats import Stats

__all__ = ["Call", "Calls", "Event", "HostPeer"]

_log = logging.getLogger("cartridge.calls")

_HEARTBEAT_S = 30.0
"""How often processes that nobody uses are asked for a sign of life."""

_LOOK_S = 1.0
"""How often running calls are looked at, unless a limit is shorter."""


class Call:
    """
    A call that runs: iterate it for its events, or take its `result`.

    Leaving its ``with`` block, closing it, dropping it and Ctrl-C cancel what is left of it.
    """

    def __init__(self, work: Work, chunks: Iterator[object] | None, owner: object = None) -> None:
        self._work = work
        self._finals: list[Result] = []
        self._error: BaseException | None = None
        # A registry that nobody else holds must outlive its call.
        self._owner = owner
        self._more: Callable[[], object] | None = None
        if chunks is not None:
            self._more = lambda: next(chunks, END)
        self._over = False

    @property
    def route(self) -> Route:
        """Where the call went, and why."""
        return self._work.route

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if self._over:
            raise StopIteration
        try:
            event = self._work.exchange.next_event(self._more)
        except BaseException:
            # Ctrl-C, or the caller's own iterable raised.
            self.close()
            raise
        if isinstance(event, Result) and event.kind is ResultKind.FINAL:
            self._finals.append(event)
        if not isinstance(event, End):
            return event
        self._over = True
        self._error = self._work.error
        if self._error is not None:
            raise self._error
        raise StopIteration

    def result(self, on_progress: Callable[[Progress | Log], None] | None = None) -> Result:
        """
        Wait for the end of the call; asked again, give the same, or raise the same.

        Args:
            on_progress: Takes progress and log lines, in this thread.

        Returns:
            The FINAL result. Where a streaming cartridge gave several, one whose payload is the
            list of theirs; where it gave none, one with an empty list.

        Raises:
            CancelledError: Somebody cancelled the call, or it was closed before its end.

            CartridgeError: What the cartridge raised, unchanged.
        """
        try:
            for event in self:
                if on_progress is not None and not isinstance(event, Result):
                    on_progress(event)
        except BaseException:
            self.close()
            raise
        if self._error is not None:
            raise self._error
        if len(self._finals) == 1:
            return self._finals[0]
        payload = [final.payload for final in self._finals]
        return Result(ResultKind.FINAL, payload, cartridge_id=self.route.cartridge_id)

    def cancel(self) -> None:
        """Ask the work to stop, from any thread; whoever iterates gets `CancelledError`."""
        self._work.cancel()

    def close(self) -> None:
        """Cancel what is left, and take no more events; again is harmless."""
        if self._over:
            return
        self._over = True
        msg = f"the call of {self.route.request} was closed before its end"
        self._error = CancelledError(msg)
        self._work.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_over", True):
            self.close()

    def __repr__(self) -> str:
        state = "over" if self._over else "running"
        return f"<Call of {self.route.request} on {self.route.cartridge_id}: {state}>"


class Calls:
    """
    Starts calls, and knows those that run.

    Args:
        loader: Opens cartridges.
        models: Finds their models.
        router: Routes what cartridges ask for.
        threads: Runs them.
        limits: How long they may take.
        stats: Counts them.
        offline: Whether the network is forbidden.
    """

    def __init__(
        self,
        loader: Loader,
        models: Models,
        router: Router,
        *,
        threads: HostThreads,
        limits: Limits,
        stats: Stats,
        offline: bool = False,
    ) -> None:
        self._loader = loader
        self._models = models
        self.router = router
        self._limits = limits
        self._stats = stats
        self._offline = offline
        self._threads = threads
        self._watch = Watch(self._look, min(_LOOK_S, limits.shortest_s / 10))
        self._lock = threading.Lock()
        self._running: dict[Work, None] = {}
        self._closed = False
        self._beat_s = time.monotonic()
        self._pid = os.getpid()

    def start(
        self,
        route: Route,
        value: object,
        given: Mapping[str, object],
        *,
        trust: Trust | None = None,
        quiet: bool = False,
        chain: tuple[str, ...] = (),
        parent: Context | None = None,
        owner: object = None,
    ) -> Call:
        """
        Check the arguments, and start a call on a host thread.

        Args:
            route: Where it goes.
            value: The main argument; an iterable gives chunks where it declares ``streaming``.
            given: The other arguments, by name.
            trust: What a pack must prove; None is the registry's.
            quiet: Leave out progress and log events.
            chain: The cartridges whose peer calls led here.
            parent: The context of the cartridge that calls; its cancellation is this call's too.
            owner: What must live as long as the call.

        Raises:
            InvalidArgumentError: An argument breaks its rule.

            StateError: The cartridge is in the chain already, or the registry is closed.
        """
        chain = _longer(chain, route.cartridge_id)
        arguments = bind(route.cap, given, value)
        chunks: Iterator[object] | None = None
        main = route.cap.main
        if main is not None and main.pack:
            value = None
        elif isinstance(value, Iterable) and _is_chunked(route, value):
            chunks, value = iter(value), None
        elif isinstance(value, Iterator):
            instead = "a list" if main is not None and main.is_sequence else "one value"
            why = "its main argument does not declare `streaming`"
            if main is not None and main.streaming:
                why = f"{route.cartridge_id} has io.mode {route.mode.value}"
            msg = (
                f"{route.cap.urn} takes its input in one piece, and a {type(value).__name__} was "
                f"given: {why}; pass {instead}"
            )
            raise InvalidArgumentError(msg, arg=main.name if main else "value", value=value)
        else:
            value = check_main(route.cap, value)
        limit_s = route.cap.activity_timeout_s or self._limits.activity_timeout_s
        activity = Activity(limit_s, None if parent is None else parent.activity)
        work = Work(
            self._loader,
            self._models,
            route,
            arguments,
            value,
            trust=trust,
            chunked=chunks is not None,
            quiet=quiet,
            context=Context(parent=parent, offline=self._offline, activity=activity),
            activity=activity,
            stats=self._stats,
        )
        work.context.peer = HostPeer(self, work.context, chain)
        with self._lock:
            if self._closed:
                msg = "the registry is closed; discover a new one"
                raise StateError(msg)
            self._threads.run(lambda: self._run(work, parent))
            self._running[work] = None
            self._stats.count("calls")
        self._watch.wake()
        return Call(work, chunks, owner)

    def _run(self, work: Work, parent: Context | None) -> None:
        if parent is not None:
            parent.on_cancel(work.cancel)
        try:
            work.run()
        finally:
            if parent is not None:
                parent.forget(work.cancel)
            with self._lock:
                del self._running[work]

    def _look(self) -> bool:
        """Look at every running call, and at what nobody uses; say whether there is anything."""
        with self._lock:
            running = list(self._running)
        for work in reversed(running):  # peer calls first: they answer for those who wait
            if work.look(self._limits):
                _log.warning("%s", work.error)
                self._threads.run(work.ask_to_stop)
                self._threads.run(partial(work.let_go, self._limits.grace_s))
        if self._loader.is_unload_due():
            self._threads.run(self._loader.unload_idle)
        if time.monotonic() - self._beat_s >= _HEARTBEAT_S:
            self._beat_s = time.monotonic()
            self._threads.run(self._loader.check_processes)
        return bool(running) or bool(self._loader.loaded())

    def close(self) -> None:
        """Cancel what runs, give it a moment to come out, let go of the rest, end the threads."""
        if self._pid != os.getpid():
            return  # what runs is the parent's
        with self._lock:
            self._closed = True
            running = list(self._running)
        self._watch.close()
        for work in running:
            try:
                # On a thread of its own: a plugin's cancel may never come back.
                self._threads.run(work.ask_to_stop)
            except RuntimeError:  # the interpreter ends, and starts no thread any more
                work.ask_to_stop()
        end_s = time.monotonic() + self._limits.grace_s
        for work in running:
            work.let_go(max(0.0, end_s - time.monotonic()))
        self._threads.close()


class HostPeer:
    """
    The host as a cartridge sees it: other cartridges' caps.

    Args:
        calls: Starts the peer calls.
        context: The cartridge's; its cancellation is theirs too.
        chain: The cartridges whose calls led here, itself the last.
    """

    def __init__(self, calls: Calls, context: Context, chain: tuple[str, ...]) -> None:
        self._calls = calls
        self._context = context
        self._chain = chain

    def call(self, cap: str, value: object = None, **args: object) -> Call:
        """
        Ask for another cartridge's cap; routed like any request.

        Args:
            cap: The request, a cap URN.
            value: The main argument.
            **args: The cap's other arguments.

        Raises:
            NoRouteError: No cartridge serves it.

            StateError: The cartridge that would serve it is already in this chain of calls.
        """
        spec = args.get("model_spec")
        route = self._calls.router.find(cap, model_spec=spec, value=value)
        return self._calls.start(route, value, args, chain=self._chain, parent=self._context)


def _longer(chain: tuple[str, ...], cartridge_id: str) -> tuple[str, ...]:
    if cartridge_id in chain:
        msg = f"peer calls go in a circle: {' -> '.join([*chain, cartridge_id])}"
        raise StateError(msg)
    return (*chain, cartridge_id)


_ONE_PIECE = (str, bytes, bytearray, memoryview, Mapping, os.PathLike)


def _is_chunked(route: Route, value: Iterable[object]) -> bool:
    """Say whether a value is a series of chunks: declared so, and not one piece of data."""
    if isinstance(value, _ONE_PIECE) or hasattr(value, "__array__"):
        return False
    main = route.cap.main
    return route.mode is IoMode.STREAMING and main is not None and main.streaming
