"""The process's side of the line: calls the plugin's hooks for the host."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, cast

from cartridge_core.errors import BackendError, InvalidArgumentError
from cartridge_core.threads import HostThreads
from cartridge_core.wire import Receiver, encode
from cartridge_core.worker.errors_on_wire import encode_error
from cartridge_core.worker.hooks import Hooks
from cartridge_core.worker.hosted import PeerCalls
from cartridge_core.worker.line import Line, send_frame
from cartridge_core.worker.logs import log_to, set_levels

if TYPE_CHECKING:
    from cartridge_core.packing import Buffer
    from cartridge_core.wire import Frame

__all__ = ["Server"]


class _Lane:
    """One lane, as its thread and the plugin's own threads use it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()
        self.receive = Receiver(sock.recv_into).receive

    def send(self, frame: list[Buffer]) -> None:
        """Send a frame; once the host is gone nothing is sent."""
        with self._sending:
            try:
                send_frame(self._sock, frame)
            except OSError:
                return

    def close(self) -> None:
        """Close it, so that the host does not wait for what will not come."""
        self._sock.close()


_RESULT = ("kind", "payload", "segment", "start_s", "end_s", "cartridge_id")


class Server:
    """
    Serves one plugin to the host, until that hangs up.

    Every lane has a thread, which calls the hooks it is asked for. The main thread takes what comes
    over the line.

    Args:
        sock: The line.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._files: deque[int] = deque()
        self._line = Line(sock, self._files)
        self._threads = HostThreads()
        self._peers = PeerCalls(self._line.send)
        self._active: set[int] = set()
        self._hooks = Hooks(self._line.send, self._peers)

    def run(self) -> bool:
        """
        Serve until the host hangs up; on the main thread.

        Returns:
            Whether nothing is left running.
        """
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._take(self._line.receive())
        return not self._active

    def _take(self, frame: Frame) -> None:
        kind, number, values = frame
        if kind == "lane":
            lane = _Lane(socket.socket(fileno=self._files.popleft()))
            threading.Thread(target=self._serve, args=(lane,), daemon=True).start()
        elif kind == "ping":
            self._line.send(encode("pong", number))
        elif kind == "peer":
            self._peers.take(number, values)
        elif kind == "levels":
            set_levels(cast("dict[str, int]", values[0]))
            self._line.send(encode("pong", number))
        elif kind in {"cancel", "cancel_hook"}:
            # What a plugin does then may take long.
            self._threads.run(partial(self._hooks.cancel, kind, number))

    def _serve(self, lane: _Lane) -> None:
        """Call the hooks that are asked for over a lane."""
        log_to(lane.send)
        with contextlib.closing(lane), contextlib.suppress(EOFError, OSError):
            while True:
                kind, number, values = lane.receive()
                self._active.add(number)
                left = cast("int", values[1]) if kind == "pull" else 1
                while left:
                    given, frame = self._answer_to(lane, kind, number, values)
                    lane.send(frame)
                    # After an error or the last result there is no other answer.
                    left = left - 1 if given else 0
                self._active.discard(number)

    def _answer_to(
        self, lane: _Lane, kind: str, number: int, values: list[object]
    ) -> tuple[list[object], list[Buffer]]:
        """Call a hook; give what it gave, nothing where it failed, and the frame that says so."""
        try:
            given = self._hooks.call(kind, lane.send, values)
        except BaseException as exc:  # noqa: BLE001 -- raised again in the host
            return [], encode_error("failed", number, [], exc, trace=True)
        try:
            return given, encode("done", number, given, _RESULT)
        except (InvalidArgumentError, MemoryError) as exc:
            why = str(exc) or "size is beyond this machine's memory"
            hook = f"cartridge_{kind.removesuffix('_once')}"
            msg = f"plugin {self._hooks.name}: {hook} gave a result whose {why}"
            return [], encode_error("failed", number, [], BackendError(msg), trace=False)
