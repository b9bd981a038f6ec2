"""A call as its caller sees it: events to iterate, a result, and a way to stop it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from cartridge_core.errors import CancelledError, InvalidArgumentError
from cartridge_core.phases import Event
from cartridge_core.results import Result, ResultKind
from cartridge_core.threads import END, End, check_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cartridge_core.phases import Work
    from cartridge_core.progress import Log, Progress
    from cartridge_core.routing import Route

__all__ = ["Call", "Event", "check_listener"]


def check_listener(on_progress: object) -> None:
    """
    Check what is to take progress and log lines.

    Raises:
        InvalidArgumentError: It can take nothing.
    """
    if on_progress is not None and not callable(on_progress):
        kind = type(on_progress).__name__
        msg = f"on_progress is of type {kind}; give a function that takes each Progress and Log"
        raise InvalidArgumentError(msg, arg="on_progress", value=on_progress)


class Call:
    """
    A call that runs: iterate it for its events, or take its `result`.

    Leaving its ``with`` block, closing it, dropping it and Ctrl-C cancel what is left of it.
    """

    def __init__(self, work: Work, chunks: Iterator[object] | None, owner: object = None) -> None:
        self._work = work
        self._error: BaseException | None = None
        # A registry that nobody else holds must outlive its call.
        self._owner = owner
        self._more: Callable[[], object] | None = None
        if chunks is not None:
            self._more = lambda: next(chunks, END)
        self._over = False
        self._pid = os.getpid()

    @property
    def route(self) -> Route:
        """Where the call went, and why."""
        return self._work.route

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if self._over or isinstance(event := self._take(), End):
            raise StopIteration
        return event

    def _take(self) -> Event | End:
        """Wait for the next event, or for the end; raise what went wrong."""
        check_process(self._pid)
        try:
            event = self._work.exchange.next_event(self._more)
        except BaseException:
            # Ctrl-C, or the caller's own iterable raised.
            self.close()
            raise
        if isinstance(event, End):
            # In this order: another thread may look.
            self._error = self._work.error
            self._over = True
            if self._error is not None:
                raise self._error
        return event

    def result(self, on_progress: Callable[[Progress | Log], None] | None = None) -> Result:
        """
        Wait for the end of the call; asked again, give the same, or raise the same.

        Args:
            on_progress: Takes progress and log lines, in this thread.

        Returns:
            The FINAL result. Where a streaming cartridge gave several, one whose payload is the
            list of theirs; where it gave none, one with an empty list.

        Raises:
            InvalidArgumentError: ``on_progress`` is no function; the call goes on.

            CancelledError: Somebody cancelled the call, or it was closed before its end.

            CartridgeError: What the cartridge raised, unchanged.
        """
        check_listener(on_progress)
        try:
            while not self._over:
                event = self._take()
                if on_progress is not None and not isinstance(event, Result | End):
                    on_progress(event)
        except BaseException:
            self.close()
            raise
        if self._error is not None:
            raise self._error
        finals = self._work.finals
        if len(finals) == 1:
            return finals[0]
        payload = [final.payload for final in finals]
        return Result(ResultKind.FINAL, payload, cartridge_id=self.route.cartridge_id)

    def cancel(self) -> None:
        """Ask the work to stop, from any thread; whoever iterates gets `CancelledError`."""
        self._work.cancel()

    def close(self) -> None:
        """Cancel what is left, and take no more events; again is harmless."""
        if self._over:
            return
        msg = f"the call of {self.route.request} was closed before its end"
        # In this order: who waits for the result on another thread may look.
        self._error = CancelledError(msg)
        self._over = True
        if self._pid == os.getpid():  # what runs is the parent's
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
