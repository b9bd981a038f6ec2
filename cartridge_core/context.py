"""What a cartridge may say to its host while it works, from any thread."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Protocol, TypeVar

from cartridge_core.errors import CancelledError, StateError
from cartridge_core.progress import Log, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cartridge_core.activity import Activity
    from cartridge_core.results import Result

__all__ = ["Context", "Peer", "PeerResponse"]

T = TypeVar("T")


class PeerResponse(Protocol):
    """What a peer call gives: its progress, log lines and results, as they come."""

    def __iter__(self) -> Iterator[Progress | Log | Result]:
        """Give everything in order."""

    def result(self) -> Result:
        """Wait for the FINAL result."""


class Peer(Protocol):
    """The host, as a cartridge sees it: other cartridges' caps."""

    def call(self, cap: str, value: object = None, **args: object) -> PeerResponse:
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


class _NoPeer:
    """Stands where no host answers: sessions a caller drives by hand."""

    def call(self, cap: str, value: object = None, **args: object) -> PeerResponse:
        del value, args
        msg = f"no peer call to {cap} here: only registry.call and registry.stream answer them"
        raise StateError(msg)


class Context:
    """
    The cartridge's line to its host.

    The one given to `cartridge_open` is dead once open returns: what it is told then goes
    nowhere.

    Args:
        report: Takes what the cartridge says; called from whatever thread says it.
        peer: Answers peer calls.
        parent: A context whose cancellation is this one's too.
        offline: Whether the network is forbidden; a parent's counts too.
        activity: The clock that its reports are signs of life for; a parent's, where not given.

    Attributes:
        once: Whether its session takes one input and ends then; the host's, which so need not ask
            a process three times.
    """

    def __init__(
        self,
        report: Callable[[Progress | Log], None] | None = None,
        peer: Peer | None = None,
        *,
        parent: Context | None = None,
        offline: bool = False,
        activity: Activity | None = None,
    ) -> None:
        self.report = report
        self.activity: Activity | None = activity
        if activity is None and parent is not None:
            self.activity = parent.activity
        self.once = False
        self._loads: tuple[object, ...] = ()
        self._cancelled = False
        self._on_cancel: set[Callable[[], None]] | None = None
        self._lock = threading.RLock()  # a signal handler may cancel inside a cancel
        self._parent = parent
        self.offline: bool = offline or (parent is not None and parent.offline)
        self._peer = peer

    def progress(self, fraction: float, message: str = "") -> None:
        """
        Say how much of this phase is done.

        Args:
            fraction: In [0, 1] of the cartridge's own work; the host maps it into the call's.
            message: One line for a person.
        """
        self._sign()
        if self.report is not None:
            self.report(Progress(fraction, message))

    def log(self, level: str, message: str) -> None:
        """
        Say something that is no progress.

        Args:
            level: One of ``debug``, ``info``, ``warning``, ``error``.
            message: One line for a person.
        """
        self._sign()
        if self.report is not None:
            self.report(Log(level, message))

    @property
    def peer(self) -> Peer:
        """The host, which knows other cartridges."""
        return _NoPeer() if self._peer is None else self._peer

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked this work to stop."""
        return self._cancelled or (self._parent is not None and self._parent.cancelled)

    def check_cancelled(self) -> None:
        """
        Stop here if somebody asked for it; call it between steps.

        Raises:
            CancelledError: Somebody did.
        """
        if self.cancelled:
            msg = "the work was cancelled"
            raise CancelledError(msg)

    def cancel(self) -> None:
        """Ask the work to stop; the host's side of `cancelled`. Again is harmless."""
        with self._lock, contextlib.ExitStack() as stack:
            self._cancelled = True
            for stop in self._on_cancel or ():
                stack.callback(stop)
            self._on_cancel = None
            told = stack.pop_all()
        told.close()

    def on_cancel(self, stop: Callable[[], None]) -> None:
        """
        Have something called on `cancel`, of this context or of a parent, in its thread.

        It is called at once if that has been, and may be called more than once.
        """
        with self._lock:
            is_late = self._cancelled
            if not is_late:
                self._on_cancel = {*(self._on_cancel or ()), stop}
        if is_late:
            stop()
        elif self._parent is not None:
            self._parent.on_cancel(stop)

    def forget(self, stop: Callable[[], None]) -> None:
        """Have it called no more."""
        with self._lock:
            self._on_cancel = (self._on_cancel or set()) - {stop}
        if self._parent is not None:
            self._parent.forget(stop)

    def close(self) -> None:
        """Let later reports go nowhere; the host's side of the end of open."""
        self.report = None

    def run_with_keepalive(
        self, fn: Callable[[], T], message: str = "", limit_s: float = 600.0
    ) -> T:
        """
        Run a blocking call that cannot report; meanwhile silence is no reason to end the call.

        Args:
            fn: The blocking work; runs in this thread.
            message: What it is, for a person.
            limit_s: Seconds after which the host gives up on it: the call ends with
                `ActivityTimeoutError`, whether or not ``fn`` comes back.

        Returns:
            What ``fn`` returns.

        Source:
            CapDAG, "Model loading with keepalive".
        """
        if message:
            self.log("debug", message)
        with self.blocking(message, limit_s):
            return fn()

    def blocking(self, message: str, limit_s: float) -> contextlib.AbstractContextManager[None]:
        """Do the same for a block; the host's side of `run_with_keepalive`."""
        if self.activity is None:
            return contextlib.nullcontext()
        return self.activity.blocking(message or "a blocking call", limit_s)

    def waiting(self) -> contextlib.AbstractContextManager[None]:
        """Stop the clock for a block in which the host makes the work wait."""
        return contextlib.nullcontext() if self.activity is None else self.activity.excused()

    @property
    def loads(self) -> tuple[object, ...]:
        """The loads that this work is a part of; the host's, to find those that cross."""
        return self._loads if self._parent is None else (*self._parent.loads, *self._loads)

    @contextlib.contextmanager
    def loading(self, load: object) -> Iterator[None]:
        """Make a block part of a load; the host's."""
        self._loads = (*self._loads, load)
        try:
            yield
        finally:
            self._loads = tuple(one for one in self._loads if one is not load)

    def _sign(self) -> None:
        if self.activity is not None:
            self.activity.sign()
