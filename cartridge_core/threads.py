"""Threads of the host, kept between calls, and the place where a call meets its caller."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

from cartridge_core.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["END", "End", "Exchange", "HostThreads"]

T = TypeVar("T")

_DEPTH = 8
"""How many events, and how many chunks of input, may wait for the other side."""


class End:
    """The type of `END`, which stands after the last event or chunk."""


END = End()


class HostThreads:
    """Daemon threads that run one job after another; a new one starts when none is free."""

    def __init__(self) -> None:
        self._idle: deque[SimpleQueue[Callable[[], None] | None]] = deque()
        self._numbers = itertools.count(1)
        self._closed = False

    def run(self, job: Callable[[], None]) -> None:
        """
        Start a job; it must not raise.

        Raises:
            StateError: The registry is closed.
        """
        if self._closed:
            msg = "the registry is closed; discover a new one"
            raise StateError(msg)
        try:
            jobs = self._idle.pop()
        except IndexError:
            jobs = SimpleQueue()
            name = f"cartridge-host-{next(self._numbers)}"
            threading.Thread(target=self._work, args=(jobs,), name=name, daemon=True).start()
        jobs.put(job)

    def close(self) -> None:
        """Let every thread end, now or after its job."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _work(self, jobs: SimpleQueue[Callable[[], None] | None]) -> None:
        while (job := jobs.get()) is not None:
            job()
            # What the job holds must not live until the next one comes.
            del job
            self._idle.append(jobs)
            if self._closed:
                self.close()


class Exchange(Generic[T]):
    """
    Where a host thread and a caller meet: events go one way, chunks of input the other.

    Both ways hold at most 8, then the giver waits. `close` ends every wait.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._events: deque[T] = deque()
        self._chunks: deque[object] = deque()
        self._wants_chunks = False
        self._fed = False
        self._done = False
        self._closed = False

    def put(self, event: T) -> None:
        """Give an event to the caller; nothing happens once he is gone."""
        with self._changed:
            while len(self._events) >= _DEPTH and not self._closed:
                self._changed.wait()
            if not self._closed:
                self._events.append(event)
                self._changed.notify_all()

    def finish(self) -> None:
        """Say that no event will follow."""
        with self._changed:
            self._done = True
            self._changed.notify_all()

    def next_chunk(self) -> object:
        """Take a chunk of input, or `END`; also `END` once the caller is gone."""
        with self._changed:
            self._wants_chunks = True
            self._changed.notify_all()
            while not self._chunks and not self._closed:
                self._changed.wait()
            chunk = self._chunks.popleft() if self._chunks else END
            self._changed.notify_all()
            return chunk

    def next_event(self, more: Callable[[], object] | None = None) -> T | End:
        """
        Take an event, or `END`.

        Args:
            more: Gives the next chunk of input, or `END` once; called in the caller's thread
                while the host wants input and no event is there.
        """
        while True:
            with self._changed:
                while not self._events and not self._done and not self._may_feed(more):
                    self._changed.wait()
                if self._events:
                    event = self._events.popleft()
                    self._changed.notify_all()
                    return event
                if self._done:
                    return END
            assert more is not None  # noqa: S101 -- what _may_feed says
            chunk = more()
            with self._changed:
                self._fed = chunk is END
                self._chunks.append(chunk)
                self._changed.notify_all()

    def _may_feed(self, more: Callable[[], object] | None) -> bool:
        wants = self._wants_chunks and not self._fed and len(self._chunks) < _DEPTH
        return wants and more is not None

    def close(self) -> None:
        """Let both sides go."""
        with self._changed:
            self._closed = True
            self._events.clear()
            self._changed.notify_all()
