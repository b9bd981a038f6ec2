"""
What the host and a cartridge's process talk over.

One *line* is for what may come at any time: cancellation, signs of life, peer calls, log records.
Everything else goes over *lanes*, each of which one hook at a time has for itself: a question goes
one way, what the cartridge says meanwhile and the answer the other. So the thread that asks is the
one that reads, and no session waits for another.
"""

from __future__ import annotations

import array
import contextlib
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING

from cartridge_core.wire import Receiver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cartridge_core.packing import Buffer

__all__ = ["Line", "LineError", "hang_up", "send_frame"]

_PIECES = 512
"""How many buffers are given to the system at once; it takes no more than 1024."""

_FLAGS = int(getattr(socket, "MSG_NOSIGNAL", 0))
_FILE_FLAGS = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_MAX_FILES = 16


class LineError(Exception):
    """The other process is gone, or has hung up."""


def send_frame(sock: socket.socket, pieces: list[Buffer], files: Sequence[int] = ()) -> None:
    """
    Send a frame; one thread at a time may.

    Args:
        sock: Where to.
        pieces: As `encode` gives them; used up.
        files: Descriptors that go along.

    Raises:
        OSError: The other side is gone.
    """
    if len(pieces) == 1 and not files:
        # Nearly all frames are so, and go in one piece.
        sent = sock.send(pieces[0], _FLAGS)
        if sent == len(pieces[0]):
            return
        pieces[0] = memoryview(pieces[0])[sent:]
    extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else ()
    while pieces:
        sent = sock.sendmsg(pieces[:_PIECES], extra, _FLAGS)
        extra = ()
        done = 0
        for piece in pieces:
            if sent < len(piece):
                break
            sent -= len(piece)
            done += 1
        del pieces[:done]
        if sent:
            pieces[0] = memoryview(pieces[0])[sent:]


def hang_up(sock: socket.socket) -> None:
    """End a socket for both sides; whoever sends or reads comes out."""
    with contextlib.suppress(OSError):  # the other side was faster
        sock.shutdown(socket.SHUT_RDWR)


class Line:
    """
    One end of the line; any thread may send, one reads.

    Args:
        sock: A stream socket; the line's own from now on.
        files: Takes the descriptors that come along; None where none may.
    """

    def __init__(self, sock: socket.socket, files: deque[int] | None = None) -> None:
        self._sock = sock
        self._outbox: deque[tuple[list[Buffer], socket.socket | None]] = deque()
        self._sending = threading.Lock()
        self._files = files
        self.receive = Receiver(self._receive_into).receive

    def fileno(self) -> int:
        """Give the socket's descriptor."""
        return self._sock.fileno()

    def send(self, frame: list[Buffer], lane: socket.socket | None = None) -> None:
        """
        Send a frame, in one piece.

        A thread that comes while another one sends leaves its frame to that one and goes on. Once
        the other side is gone nothing is sent: who reads will notice.

        Args:
            frame: As `encode` gives it.
            lane: A socket to give away with it.
        """
        self._outbox.append((frame, lane))
        # Who finds the lock taken may have come after its holder had looked for the last time.
        while self._outbox and self._sending.acquire(blocking=False):
            try:
                while self._outbox:
                    self._send(*self._outbox.popleft())
            finally:
                self._sending.release()

    def _send(self, frame: list[Buffer], lane: socket.socket | None) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.suppress(OSError))
            if lane is None:
                send_frame(self._sock, frame)
            else:
                stack.enter_context(lane)
                send_frame(self._sock, frame, [lane.fileno()])

    def _receive_into(self, room: memoryview) -> int:
        if self._files is None:
            # Where this is watched, and is not to wait.
            return self._sock.recv_into(room, 0, socket.MSG_DONTWAIT)
        space = socket.CMSG_SPACE(_MAX_FILES * array.array("i").itemsize)
        count, extra, _, _ = self._sock.recvmsg_into([room], space, _FILE_FLAGS)
        for level, kind, data in extra:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._files.extend(array.array("i", data))
        return count

    def hang_up(self) -> None:
        """End the line for both sides."""
        hang_up(self._sock)

    def close(self) -> None:
        """Close this end, which nobody reads any more."""
        with self._sending:
            self._sock.close()

    def forget(self) -> None:
        """Close this process's copy of this end, in a fork: the line is the parent's."""
        self._sock.close()
