"""
The three phases of a call, as they run on a host thread.

Source: CapDAG, "Model cartridge architecture".
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cartridge_core.context import Context
from cartridge_core.descriptor import IoMode
from cartridge_core.progress import Log, Phase, Progress
from cartridge_core.reporting import Reporter
from cartridge_core.results import Result
from cartridge_core.session import Session
from cartridge_core.threads import END, Exchange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cartridge_core.arguments import Arguments
    from cartridge_core.loading import Loader
    from cartridge_core.models import Models
    from cartridge_core.pack import Pack, Trust
    from cartridge_core.residency import Lease
    from cartridge_core.routing import Route

__all__ = ["Event", "Work"]

Event = Progress | Log | Result


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
    ) -> None:
        self.route = route
        self.exchange: Exchange[Event] = Exchange()
        self.error: BaseException | None = None
        self._working = threading.Lock()
        self._working.acquire()
        self._loader = loader
        self._models = models
        self._arguments = arguments
        self._value = value
        self._trust = trust
        self._chunked = chunked
        self._session: Session | None = None
        self._reporter = Reporter(route.cartridge_id, None if quiet else self.exchange.put)
        self.context = context

    def run(self) -> None:
        """Do all three phases; what goes wrong is in ``error`` afterwards."""
        try:
            pack = self._download()
            with self._load(pack) as lease:
                self._infer(lease)
            # A result that was on its way when the call was cancelled may be lost.
            self.context.check_cancelled()
            self._reporter.done()
        except BaseException as exc:  # noqa: BLE001 -- raised again in the caller's thread
            self.error = exc
        finally:
            self.exchange.finish()
            self._working.release()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the work; say whether it came in time."""
        is_over = self._working.acquire(timeout=timeout_s)
        if is_over:
            self._working.release()
        return is_over

    def cancel(self) -> None:
        """Ask the work to stop, whatever phase it is in; from any thread."""
        self.context.cancel()
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
        lease = self._loader.acquire(
            offer, pack, options, self.context, report, keep=True, trust=self._trust
        )
        self._reporter.tell(Phase.LOAD, 1.0, f"{offer.id} is loaded")
        return lease

    def _infer(self, lease: Lease) -> None:
        self.context.check_cancelled()
        resident = lease.resident
        context = self._child(Phase.INFER)
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
            self._reporter.tell(Phase.INFER, 0.0, "Running")
            for result in self._results(session):
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
                yield from iter(session.pull, None)
        elif main is not None and not main.pack:
            session.push(self._value)
        session.flush()
        yield from session.drain()
