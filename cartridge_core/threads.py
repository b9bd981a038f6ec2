"""Threads of the host, kept between calls, and the place where a call meets its caller."""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

from cartridge_core.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["END", "End", "Exchange", "HostThreads", "check_process"]

T = TypeVar("T")

_DEPTH = 8
"""How many events may wait for the caller."""


class _Sign:
    """Stands among the events, and is none that the host waits for."""


class End(_Sign):
    """The type of `END`, which stands after the last event or chunk."""


END = End()


class _Wanted(_Sign):
    """Stands where the host asks for a chunk."""


_WANTED = _Wanted()


class _Offered(_Sign, Generic[T]):
    """Stands for an event that the host says by itself."""

    def __init__(self, event: T) -> None:
        self.event = event


def check_process(pid: int) -> None:
    """
    Refuse to work in a fork: threads, and what plugins have open, stay in the parent.

    Args:
        pid: The process of the one who asks.

    Raises:
        StateError: This is another process.
    """
    if pid != os.getpid():
        msg = f"this registry is of process {pid}; after a fork discover a new one in the child"
        raise StateError(msg)


class HostThreads:
    """Daemon threads that run one job after another; a new one starts when none is free."""

    def __init__(self) -> None:
        self._idle: deque[SimpleQueue[Callable[[], None] | None]] = deque()
        self._numbers = itertools.count(1)
        self._closed = False
        self._pid = os.getpid()

    def run(self, job: Callable[[], None]) -> None:
        """
        Start a job; it must not raise.

        Raises:
            StateError: The registry is closed, or of another process.
        """
        check_process(self._pid)
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

    At most 8 events wait for the caller, then the giver waits. A chunk is read when the host
    asks for it, after the caller has had every event before.
    """

    def __init__(self) -> None:
        self._events: SimpleQueue[T | End | _Wanted | _Offered[T]] = SimpleQueue()
        self._chunks: SimpleQueue[object] = SimpleQueue()
        self._giving = threading.Lock()
        self._given = 0
        self._taken = 0
        self._room: SimpleQueue[None] = SimpleQueue()
        self._waits_for_room = False
        self._wants = False
        self._has_offered = False
        self._ended = False
        self._closed = False

    def put(self, event: T) -> None:
        """Give an event to the caller, from any thread; nothing happens once he is gone."""
        if self._closed:
            return
        with self._giving:
            while self._given - self._taken >= _DEPTH and not self._closed:
                self._waits_for_room = True
                # He may have taken one before he could see that somebody waits.
                if self._given - self._taken >= _DEPTH and not self._closed:
                    self._room.get()
            if not self._closed:
                self._given += 1
                self._events.put(event)

    def offer(self, event: T) -> None:
        """
        Give an event to a caller who has had all before; never waits.

        It is the host's own: that the caller has yet to take it does not keep the work waiting.
        """
        if self._has_offered or self.waits_for_caller or not self._giving.acquire(blocking=False):
            return
        try:
            if not self._closed:
                self._has_offered = True
                self._events.put(_Offered(event))
        finally:
            self._giving.release()

    @property
    def waits_for_caller(self) -> bool:
        """Whether the caller, unless he is gone, has yet to take an event or to give a chunk."""
        return not self._closed and (self._wants or self._given > self._taken)

    def finish(self) -> None:
        """Say that no event will follow."""
        self._events.put(END)

    def next_chunk(self) -> object:
        """Take a chunk of input, or `END`; also `END` once the caller is gone."""
        if self._closed:
            return END
        self._wants = True
        self._events.put(_WANTED)
        chunk = self._chunks.get()
        self._wants = False
        return chunk

    def next_event(self, more: Callable[[], object] | None = None) -> T | End:
        """
        Take an event, or `END`, and `END` again.

        Args:
            more: Gives the next chunk of input, or `END`; called in the caller's thread when the
                host asks for one.
        """
        if self._ended:
            return END
        while isinstance(event := self._events.get(), _Sign):
            if isinstance(event, End):
                self._ended = True
                self._events.put(END)  # for a second thread that waits too
                return event
            if isinstance(event, _Offered):
                self._has_offered = False
                return event.event
            self._chunks.put(END if more is None else more())
        self._taken += 1
        if self._waits_for_room:
            self._waits_for_room = False
            self._room.put(None)
        return event

    def close(self) -> None:
        """Let the host thread go, wherever it waits for the caller."""
        self._closed = True
        self._room.put(None)
        self._chunks.put(END)
