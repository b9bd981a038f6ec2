"""The lanes to a cartridge's process, as the host uses them."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, TypeVar

from cartridge_core.packing import MalformedError
from cartridge_core.wire import Receiver, encode
from cartridge_core.worker.errors_on_wire import unpack_error
from cartridge_core.worker.line import LineError, hang_up, send_frame
from cartridge_core.worker.logs import tell_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cartridge_core.wire import Frame
    from cartridge_core.worker.held import Held

__all__ = ["Lane", "Lanes"]

T = TypeVar("T")


class Lane:
    """
    One lane; one thread at a time asks over it.

    Args:
        sock: A stream socket; the lane's own from now on.
        where: In whose process errors are raised, for a person.
    """

    def __init__(self, sock: socket.socket, where: str) -> None:
        self.sock = sock
        self.asking = threading.Lock()
        self.is_over = False
        self._where = where
        self._receive = Receiver(sock.recv_into).receive

    def ask(
        self,
        kind: str,
        number: int,
        values: Sequence[object],
        read: Callable[[list[object]], T],
        names: Sequence[str],
        held: Held | None,
    ) -> T:
        """
        Ask, and wait for the answer; meanwhile hear what the cartridge says to its context.

        Args:
            kind: What is asked.
            number: The question's; larger than those before.
            values: What with.
            read: Makes the answer of the values that come.
            names: What a person calls the values.
            held: The context it is about.

        Raises:
            InvalidArgumentError: A value cannot cross.

            MalformedError: What comes must not.

            LineError: The process is gone.

            Exception: What was raised there.
        """
        pieces = encode(kind, number, values, names)
        try:
            with self.asking:
                try:
                    send_frame(self.sock, pieces)
                except OSError as exc:
                    raise LineError from exc
                if held is not None and not held.is_known:
                    held.begin()
                return self._answer(number, read, held)
        finally:
            self._close_if_over()

    def wait(self, number: int, read: Callable[[list[object]], T], held: Held) -> T:
        """
        Wait for one more answer to the last question, which has several; otherwise as `ask`.

        Args:
            number: The question's.
            read: Makes the answer of the values that come.
            held: The context it is about.
        """
        try:
            with self.asking:
                return self._answer(number, read, held)
        finally:
            self._close_if_over()

    def _close_if_over(self) -> None:
        """Do what `Lanes.close` could not while somebody asked."""
        if self.is_over:
            self.sock.close()

    def _answer(self, number: int, read: Callable[[list[object]], T], held: Held | None) -> T:
        while True:
            try:
                frame = self._receive()
            except (EOFError, OSError) as exc:
                self.sock.close()
                raise LineError from exc
            kind, whose, values = frame
            if whose == number and kind == "done":
                return read(values)
            if whose == number and kind == "failed":
                raise unpack_error(values[0] if values else None, self._where)
            _hear(frame, number, held)


_LATE = ("said", "done", "failed")


def _hear(frame: Frame, last: int, held: Held | None) -> None:
    kind, number, values = frame
    if kind == "record":
        tell_record(values)
    elif kind == "said" and held is not None and number == held.number:
        held.hear(values)
    elif not (kind in _LATE and 0 < number < last):
        # What is said to a context that has ended goes nowhere, and so does a late answer.
        msg = f"{kind!a} about {number}, which there is not"
        raise MalformedError(msg)


class Lanes:
    """
    All lanes to one process.

    Args:
        give: Gives the process the other end of a new one.
        where: In whose process errors are raised, for a person.
    """

    def __init__(self, give: Callable[[socket.socket], None], where: str) -> None:
        self._give = give
        self._where = where
        self._lock = threading.Lock()
        self._all: set[Lane] = set()
        self._free: list[Lane] = []
        self._is_over = False

    def take(self) -> Lane:
        """
        Give a lane that nobody uses.

        Raises:
            LineError: The process is gone.
        """
        with self._lock:
            if self._is_over:
                raise LineError
            if self._free:
                return self._free.pop()
            ours, theirs = socket.socketpair()
            lane = Lane(ours, self._where)
            self._all.add(lane)
        self._give(theirs)
        return lane

    def give_back(self, lane: Lane) -> None:
        """Let others have a lane; one that somebody still asks over remains his."""
        if not lane.asking.locked():
            self._free.append(lane)

    def hang_up(self) -> None:
        """End all; who reads gets what has come, and then comes out."""
        with self._lock:
            self._is_over = True
            lanes = list(self._all)
        for lane in lanes:
            hang_up(lane.sock)

    def close(self) -> None:
        """Close all after `hang_up`; who still reads what has come closes his by himself."""
        for lane in self._all:
            lane.is_over = True
            if lane.asking.acquire(blocking=False):
                lane.sock.close()
                lane.asking.release()

    def forget(self) -> None:
        """Close this process's copies, in a fork: the lanes are the parent's."""
        for lane in self._all:
            lane.sock.close()
