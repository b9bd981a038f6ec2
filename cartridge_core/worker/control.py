"""The host's end of the line: what may come at any time, and what has no answer."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from cartridge_core.packing import MalformedError
from cartridge_core.wire import encode
from cartridge_core.worker.logs import tell_record
from cartridge_core.worker.peers import Peers

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from cartridge_core.packing import Buffer
    from cartridge_core.wire import Frame
    from cartridge_core.worker.held import Held
    from cartridge_core.worker.line import Line

__all__ = ["Control"]


class Control:
    """
    The host's end of the line to a process.

    Args:
        line: The line.
        held: The contexts that the process knows.
        run: Runs a job on another thread.
    """

    def __init__(
        self,
        line: Line,
        held: Mapping[int, Held],
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        self.peers = Peers(line.send, run)
        self._line = line
        self._held = held
        self._run = run
        self._pings: dict[int, threading.Event] = {}
        self._is_over = False

    def tell(self, kind: str, number: int, *values: object) -> None:
        """Say something; from any thread."""
        self._send(encode(kind, number, values))

    def give_lane(self, end: socket.socket) -> None:
        """Give the process one end of a lane."""
        self._send(encode("lane", 0), end)

    def _send(self, frame: list[Buffer], lane: socket.socket | None = None) -> None:
        if threading.current_thread() is threading.main_thread():
            # Ctrl-C may stop the main thread anywhere, and must not inside a frame.
            self._run(lambda: self._line.send(frame, lane))
        else:
            self._line.send(frame, lane)

    def ping(self, number: int, timeout_s: float, kind: str = "ping", *values: object) -> bool:
        """Ask for a sign of life, or say something that is answered by one; say if it came."""
        pong = self._pings[number] = threading.Event()
        # Sending may wait for a process that reads nothing, and this must not.
        self._run(lambda: self._line.send(encode(kind, number, values)))
        try:
            return not self._is_over and pong.wait(timeout_s) and not self._is_over
        finally:
            del self._pings[number]

    def end(self) -> None:
        """Let go of what waits for the process, which is gone."""
        self._is_over = True
        for pong in list(self._pings.values()):
            pong.set()
        self.peers.end_all()

    def read(self) -> None:
        """
        Take all that is there.

        Raises:
            MalformedError: It must not be there.

            EOFError: The process has hung up.

            OSError: It has hung up.
        """
        with contextlib.suppress(BlockingIOError):
            while True:
                self._take(self._line.receive())

    def _take(self, frame: Frame) -> None:
        kind, number, values = frame
        if kind == "record":
            tell_record(values)
        elif kind == "peer":
            self.peers.take(self._held.get(number), values)
        elif kind == "pong":
            pong = self._pings.get(number)
            if pong is not None:
                pong.set()
        else:
            msg = f"a frame of the kind {kind!a}"
            raise MalformedError(msg)
