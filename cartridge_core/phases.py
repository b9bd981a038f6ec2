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

from cartridge_core.descriptor import IoMode
from cartridge_core.errors import ActivityTimeoutError, CancelledError, CartridgeDiedError
from cartridge_core.progress import Log, Phase, Progress
from cartridge_core.reporting import Reporter, quiet_reporter
from cartridge_core.results import Result, ResultKind
from cartridge_core.session import Session
from cartridge_core.threads import END, Exchange

if TYPE_CHECKING:
    from cartridge_core.activity import Activity
    from cartridge_core.arguments import Arguments
    from cartridge_core.context import Context
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

# Read once: Python 3.11 takes 0.15 µs to find a member of an enum.
_BATCH, _FINAL = IoMode.BATCH, ResultKind.FINAL
_LOAD, _INFER = Phase.LOAD, Phase.INFER


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
        quiet: Tell the end alone: the caller wants what the call comes to.
        context: The call's; cancelling it cancels the call.
        activity: Its clock.
        stats: Counts how it ends.

    Attributes:
        finals: The FINAL results, as they came.
        error: What went wrong; set when it has ended.
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
        self.finals: list[Result] = []
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
        self._quiet = quiet
        self._lease: Lease | None = None
        self._has_waited = False
        self._session: Session | None = None
        self._activity = activity
        self._stats = stats
        name = route.cartridge_id
        self._reporter = quiet_reporter(name) if quiet else Reporter(name, self.exchange.put)
        self.context = context
        context.report = self._reporter.report

    def run(self) -> None:
        """Do all three phases; `exchange.finish` has to follow, and lets the caller go."""
        try:
            self.context.check_cancelled()
            lease = self._enter(self._download())
            try:
                self._infer(lease.resident)
            finally:
                lease.release()
            # A result that was on its way when the call was cancelled may be lost.
            self.context.check_cancelled()
            self._reporter.done()
        except BaseException as exc:
            self._end(exc)
        else:
            self._end(None)
        finally:
            # Each holds on to this, and would keep it from going when its caller is done with it.
            self._lease = self._session = None
            self._working.release()

    def _end(self, error: BaseException | None) -> bool:
        """Note how the call ended, the first time; say whether it was that."""
        with self._ending:
            is_first, self._is_over = not self._is_over, True
            if is_first:
                self.error = error
        if is_first:
            self._stats.count(_outcome(error))
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
        name = self.route.cartridge_id
        has_ended = self._end(
            CancelledError(f"{name} was cancelled, and did not stop")
            if self.context.cancelled
            else ActivityTimeoutError(f"{name}: {why}")
        )
        if has_ended:
            # Before the caller hears of it, who may call again at once.
            if (lease := self._lease) is not None:
                self._loader.doubt(lease)
            self.exchange.finish()
        return has_ended

    def ask_to_stop(self) -> None:
        """Cancel; what a plugin's hook raises is logged."""
        try:
            self.cancel()
        except Exception:
            _log.exception("cancelling %s failed", self.route.cartridge_id)

    def let_go(self, grace_s: float) -> None:
        """Let go of the cartridge where it has not stopped after the grace."""
        if not self.wait(grace_s) and (lease := self._lease) is not None:
            self._loader.give_up(lease)

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
        if (session := self._session) is not None:
            session.cancel()

    def _download(self) -> Pack | None:
        offer = self.route.offer
        spec = self._arguments.model_spec
        if spec is None and offer.pack is None:
            return None
        self._reporter.tell(0.0, "Finding %s", spec or offer.pack)
        pack = self._models.find(offer, spec, self.context)
        self.context.check_cancelled()
        if pack is not None and not self._quiet:
            self._reporter.tell(1.0, "Found %s", pack.path.name)
        return pack

    def _enter(self, pack: Pack | None) -> Lease:
        """
        Give the cartridge, open and with a place for a session.

        Where its process ends while this waits for its turn, those inside are told of that, and
        this goes to the next one.
        """
        while True:
            self._reporter.begin(_LOAD)
            lease = self._load(pack)
            self._reporter.begin(_INFER)
            self._has_waited = False
            try:
                lease.resident.enter(self.context, self._wait_in_queue)
            except BaseException as exc:
                lease.release()
                if not (self._has_waited and isinstance(exc, CartridgeDiedError)):
                    raise
            else:
                return lease

    def _load(self, pack: Pack | None) -> Lease:
        offer = self.route.offer
        lease = self._lease = self._loader.lease(
            offer,
            pack,
            self._arguments.options,
            keep=True,
            trust=self._trust,
            revoke=self.cancel,
        )
        self._loader.open(lease, self.context)
        self._activity.sign()
        self._reporter.tell(1.0, "%s is loaded", offer.id)
        return lease

    def _infer(self, resident: Resident) -> None:
        try:
            self._run_session(resident)
        finally:
            resident.leave()

    def _wait_in_queue(self, why: str) -> None:
        self._has_waited = True
        self._stats.count("queued")
        self._reporter.queued(why)

    def _run_session(self, resident: Resident) -> None:
        self.context.once = self.route.mode is _BATCH
        with Session(
            resident.binding,
            resident.handle,
            resident.offer.descriptor,
            self.route.cap,
            self._arguments.parameters,
            self.context,
            is_checked=not self._chunked,
        ) as session:
            self._session = session
            self._activity.sign()
            self._reporter.tell(0.0, "Running")
            if self.route.mode is _BATCH:
                self._give(session.infer(self._value))
            else:
                self._stream(session)
            self._reporter.tell(1.0, "Complete")

    def _stream(self, session: Session) -> None:
        main = self.route.cap.main
        if self._chunked:
            while (chunk := self.exchange.next_chunk()) is not END:
                session.push(chunk)
                self._activity.sign()
                for result in iter(session.pull, None):
                    self._give(result)
                self._activity.sign()
        elif main is not None and not main.pack:
            session.push(self._value)
        session.flush()
        self._activity.sign()
        for result in session.drain():
            self._give(result)
        self._activity.sign()

    def _give(self, result: Result) -> None:
        self._activity.sign()
        if result.kind is _FINAL:
            self.finals.append(result)
        if not self._quiet:
            self._reporter.told_s = time.monotonic()
            self.exchange.put(result)


def _outcome(error: BaseException | None) -> Counter:
    if error is None:
        return "results"
    if isinstance(error, CancelledError):
        return "cancelled"
    return "timed_out" if isinstance(error, ActivityTimeoutError) else "failed"
