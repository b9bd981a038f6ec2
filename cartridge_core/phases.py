"""
The three phases of a call, as they run on a host thread.

Source: CapDAG, "Model cartridge architecture".
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING

from cartridge_core.context import Context
from cartridge_core.descriptor import IoMode
from cartridge_core.errors import ActivityTimeoutError, CancelledError
from cartridge_core.progress import Log, Phase, Progress
from cartridge_core.reporting import Reporter
from cartridge_core.results import Result
from cartridge_core.session import Session
from cartridge_core.threads import END, Exchange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cartridge_core.activity import Activity
    from cartridge_core.arguments import Arguments
    from cartridge_core.leases import Lease
    from cartridge_core.limits import Limits
    from cartridge_core.loading import Loader
    from cartridge_core.models import Models
    from cartridge_core.pack import Pack, Trust
    from cartridge_core.resident import Resident
    from cartridge_core.routing import Route
    from cartridge_core.stats import Counter, Stats

__all__ = ["Event", "Work"]

Event = Progress | Log | Result

_log = logging.getLogger("cartridge.calls")


class Work:
    """
    One call's work: what it is given, where its events go, how it ended.

    Args:
        loader: Opens the cartridge.
        models: Finds its model.
        route: Where the call goes.
        arguments: Its arguments, checked.
        value: Its main value, checked; of no use where ``chunked``.
        trust: What a pack must prove; None is the registry's.
        chunked: Whether the input comes through the exchange, piece by piece.
        quiet: Leave progress and log lines out of the events.
        context: The call's; cancelling it cancels the call.
        activity: Its clock.
        stats: Counts how it ends.
    """

    def __init__(
        self,
        loader: Loader,
        models: Models,
        route: Route,
        arguments: Arguments,
        value: object,
        *,
        trust: Trust | None,
        chunked: bool,
        quiet: bool,
        context: Context,
        activity: Activity,
        stats: Stats,
    ) -> None:
        self.route = route
        self.exchange: Exchange[Event] = Exchange()
        self.error: BaseException | None = None
        self._ending = threading.Lock()
        self._is_over = False
        self._working = threading.Lock()
        self._working.acquire()
        self._loader = loader
        self._models = models
        self._arguments = arguments
        self._value = value
        self._trust = trust
        self._chunked = chunked
        self._lease: Lease | None = None
        self._session: Session | None = None
        self._activity = activity
        self._stats = stats
        self._reporter = Reporter(route.cartridge_id, None if quiet else self.exchange.put)
        self.context = context

    def run(self) -> None:
        """Do all three phases; what goes wrong is in ``error`` afterwards."""
        try:
            pack = self._download()
            with self._load(pack) as lease:
                self._infer(lease.resident)
            # A result that was on its way when the call was cancelled may be lost.
            self.context.check_cancelled()
            self._reporter.done()
        except BaseException as exc:
            self._end(exc)
        else:
            self._end(None)
        finally:
            self._working.release()

    def _end(self, error: BaseException | None) -> bool:
        """Note how the call ended, the first time, and tell the caller; say whether it was that."""
        with self._ending:
            is_first, self._is_over = not self._is_over, True
            if is_first:
                self.error = error
        if is_first:
            self._stats.count(_outcome(error))
            self.exchange.finish()
        return is_first

    def look(self, limits: Limits) -> bool:
        """
        Speak for a silent cartridge; end the call where it has been silent too long.

        Returns:
            Whether the call was ended; `ask_to_stop` and `let_go` have to follow, each on a thread
            that may wait.
        """
        if self._is_over:
            return False
        if self.exchange.waits_for_caller:
            self._activity.sign()
            return False
        self._activity.answer_for_parents()
        why = self._activity.overdue()
        if why is None:
            self._reporter.keepalive(self.exchange.offer, limits.keepalive_s)
            return False
        if self.context.cancelled:
            msg = f"{self.route.cartridge_id} was cancelled, and did not stop"
            return self._end(CancelledError(msg))
        return self._end(ActivityTimeoutError(f"{self.route.cartridge_id}: {why}"))

    def ask_to_stop(self) -> None:
        """Cancel; what a plugin's hook raises is logged."""
        try:
            self.cancel()
        except Exception:
            _log.exception("cancelling %s failed", self.route.cartridge_id)

    def let_go(self, grace_s: float) -> None:
        """Let go of the cartridge where it has not stopped after the grace."""
        if not self.wait(grace_s) and self._lease is not None:
            self._loader.give_up(self._lease)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the work; say whether it came in time."""
        is_over = self._working.acquire(timeout=timeout_s)
        if is_over:
            self._working.release()
        return is_over

    def cancel(self) -> None:
        """Ask the work to stop, whatever phase it is in; from any thread."""
        with contextlib.ExitStack() as stack:  # each, whatever those before raise
            stack.callback(self._cancel_session)
            stack.callback(self.exchange.close)
            self._activity.expect_end()
            self.context.cancel()

    def _cancel_session(self) -> None:
        if self._session is not None:
            self._session.cancel()

    def _child(self, phase: Phase) -> Context:
        """Give a context whose reports belong to a phase."""
        return Context(self._reporter.phase(phase), self.context.peer, parent=self.context)

    def _download(self) -> Pack | None:
        self.context.check_cancelled()
        offer = self.route.offer
        spec = self._arguments.model_spec
        if spec is None and offer.pack is None:
            return None
        self._reporter.tell(Phase.DOWNLOAD, 0.0, f"Finding {spec or offer.pack}")
        pack = self._models.find(offer, spec, self._child(Phase.DOWNLOAD))
        if pack is not None:
            self._reporter.tell(Phase.DOWNLOAD, 1.0, f"Found {pack.path.name}")
        return pack

    def _load(self, pack: Pack | None) -> Lease:
        self.context.check_cancelled()
        offer, options = self.route.offer, self._arguments.options
        report = self._reporter.phase(Phase.LOAD)
        lease = self._lease = self._loader.lease(
            offer,
            pack,
            options,
            self.context,
            report,
            keep=True,
            trust=self._trust,
            revoke=self.cancel,
        )
        self._loader.open(lease, self.context)
        self._activity.sign()
        self._reporter.tell(Phase.LOAD, 1.0, f"{offer.id} is loaded")
        return lease

    def _infer(self, resident: Resident) -> None:
        self.context.check_cancelled()
        resident.enter(self.context, self._wait_in_queue)
        try:
            self._run_session(resident, self._child(Phase.INFER))
        finally:
            resident.leave()

    def _wait_in_queue(self, why: str) -> None:
        self._stats.count("queued")
        self._reporter.queued(why)

    def _run_session(self, resident: Resident, context: Context) -> None:
        with Session(
            resident.binding,
            resident.handle,
            resident.offer.descriptor,
            self.route.cap,
            self._arguments.parameters,
            context,
            is_checked=not self._chunked,
        ) as session:
            self._session = session
            self._activity.sign()
            self._reporter.tell(Phase.INFER, 0.0, "Running")
            for result in self._results(session):
                self._activity.sign()
                self._reporter.told_s = time.monotonic()
                self.exchange.put(result)
            self._reporter.tell(Phase.INFER, 1.0, "Complete")

    def _results(self, session: Session) -> Iterator[Result]:
        main = self.route.cap.main
        if self.route.mode is IoMode.BATCH:
            yield session.infer(self._value)
            return
        if self._chunked:
            while (chunk := self.exchange.next_chunk()) is not END:
                session.push(chunk)
                self._activity.sign()
                yield from iter(session.pull, None)
                self._activity.sign()
        elif main is not None and not main.pack:
            session.push(self._value)
        session.flush()
        self._activity.sign()
        yield from session.drain()
        self._activity.sign()


def _outcome(error: BaseException | None) -> Counter:
    if error is None:
        return "results"
    if isinstance(error, CancelledError):
        return "cancelled"
    return "timed_out" if isinstance(error, ActivityTimeoutError) else "failed"
