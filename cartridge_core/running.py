"""The calls that run: how one starts, who looks after it, and what cartridges ask each other."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from cartridge_core.activity import Activity
from cartridge_core.arguments import bind, check_main
from cartridge_core.calls import Call
from cartridge_core.context import Context
from cartridge_core.descriptor import IoMode
from cartridge_core.errors import InvalidArgumentError, StateError
from cartridge_core.phases import Work
from cartridge_core.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from cartridge_core.limits import Limits
    from cartridge_core.loading import Loader
    from cartridge_core.models import Models
    from cartridge_core.pack import Trust
    from cartridge_core.progress import Log, Progress
    from cartridge_core.router import Router
    from cartridge_core.routing import Route
    from cartridge_core.stats import Stats
    from cartridge_core.threads import HostThreads

__all__ = ["Calls", "HostContext"]

_log = logging.getLogger("cartridge.calls")

_HEARTBEAT_S = 30.0
"""How often processes that nobody uses are asked for a sign of life."""

_LOOK_S = 1.0
"""How often running calls are looked at, unless a limit is shorter."""

_STREAMING = IoMode.STREAMING  # read once: Python 3.11 takes 0.15 µs each time


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
        chunks = _chunks_of(route, value)
        checked = None if chunks is not None else _whole(route, value)
        limit_s = route.cap.activity_timeout_s or self._limits.activity_timeout_s
        activity = Activity(limit_s, None if parent is None else parent.activity)
        work = Work(
            self._loader,
            self._models,
            route,
            arguments,
            checked,
            trust=trust,
            chunked=chunks is not None,
            quiet=quiet,
            context=HostContext(self, chain, parent, offline=self._offline, activity=activity),
            activity=activity,
            stats=self._stats,
        )
        call = Call(work, chunks, owner)
        with self._lock:
            if self._closed:
                msg = "the registry is closed; discover a new one"
                raise StateError(msg)
            # It cannot look before the call is among those that run: it needs the lock.
            self._watch.wake()
            # Near the end: the other thread finds the interpreter free if the caller waits soon.
            self._threads.run(partial(self._run, work, parent))
            self._running[work] = None
            self._stats.count("calls")
        return call

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
            # At the end, for the same reason as in `start`.
            work.exchange.finish()

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


class HostContext(Context):
    """
    A context whose peer calls the registry answers.

    Args:
        calls: Starts the peer calls.
        chain: The cartridges whose calls led here, this one's the last.
        parent: A context whose cancellation is this one's too.
        report: Takes what the cartridge says.
        offline: Whether the network is forbidden.
        activity: The clock that its reports are signs of life for.
    """

    def __init__(
        self,
        calls: Calls,
        chain: tuple[str, ...],
        parent: Context | None = None,
        *,
        report: Callable[[Progress | Log], None] | None = None,
        offline: bool,
        activity: Activity | None = None,
    ) -> None:
        super().__init__(report, parent=parent, offline=offline, activity=activity)
        self._calls = calls
        self._chain = chain

    @property
    def peer(self) -> _HostPeer:
        """The registry's other cartridges."""
        # Made when it is asked for: it knows this context, and the two would keep each other.
        return _HostPeer(self._calls, self, self._chain)


class _HostPeer:
    """The registry as a cartridge sees it: other cartridges' caps; see `Peer`."""

    def __init__(self, calls: Calls, context: Context, chain: tuple[str, ...]) -> None:
        self._calls = calls
        self._context = context
        self._chain = chain

    def call(self, cap: str, value: object = None, **args: object) -> Call:
        """Route and start a call; the context's cancellation is its too."""
        spec = args.get("model_spec")
        route = self._calls.router.route(cap, model_spec=spec, value=value)
        return self._calls.start(route, value, args, chain=self._chain, parent=self._context)


def _longer(chain: tuple[str, ...], cartridge_id: str) -> tuple[str, ...]:
    if cartridge_id in chain:
        msg = f"peer calls go in a circle: {' -> '.join([*chain, cartridge_id])}"
        raise StateError(msg)
    return (*chain, cartridge_id)


_ONE_PIECE = (str, bytes, bytearray, memoryview, Mapping, os.PathLike)


def _chunks_of(route: Route, value: object) -> Iterator[object] | None:
    """Give a series of chunks: declared as such, and not one piece of data; else None."""
    main = route.cap.main
    if main is None or not main.streaming or route.mode is not _STREAMING:
        return None
    if isinstance(value, _ONE_PIECE) or not isinstance(value, Iterable):
        return None
    return None if hasattr(value, "__array__") else iter(value)


def _whole(route: Route, value: object) -> object:
    """Check a main value that comes in one piece; give what the cartridge gets."""
    main = route.cap.main
    if main is not None and main.pack:
        return None
    if not hasattr(value, "__next__"):
        return check_main(route.cap, value)
    instead = "a list" if main is not None and main.is_sequence else "one value"
    why = "its main argument does not declare `streaming`"
    if main is not None and main.streaming:
        why = f"{route.cartridge_id} has io.mode {route.mode.value}"
    msg = (
        f"{route.cap.urn} takes its input in one piece, and a {type(value).__name__} was given: "
        f"{why}; pass {instead}"
    )
    raise InvalidArgumentError(msg, arg=main.name if main else "value", value=value)
