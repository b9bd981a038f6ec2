"""Starts processes for cartridges."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from cartridge_core.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["launch"]

_ROOT = str(Path(__file__).resolve().parents[2])

_Job: TypeAlias = "Callable[[], None]"


class _Launcher:
    """One thread that lives as long as this process: on Linux what it starts dies with it."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def run(self, job: _Job) -> None:
        with self._lock:
            if self._thread is None:
                name = "cartridge-launcher"
                self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._thread.start()
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            self._jobs.get()()


_launcher = _Launcher()


def _renew() -> None:
    global _launcher  # noqa: PLW0603 -- the old one's thread is in the parent
    _launcher = _Launcher()


os.register_at_fork(after_in_child=_renew)


def launch(cartridge_id: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """
    Start a process for a cartridge.

    Args:
        cartridge_id: Whose it is, for who looks at a list of processes.

    Returns:
        The process, whose stdout and stderr are pipes, and this end of the line to it.

    Raises:
        LoadError: The system does not start it.
    """
    if not sys.executable:
        msg = (
            f"{cartridge_id} has isolation `process`, and sys.executable does not say where "
            "Python is; set it, or open the cartridge with isolation `inline`"
        )
        raise LoadError(msg)
    ours, theirs = map(_above_stdio, socket.socketpair())
    try:
        command = [sys.executable, "-P", "-m", "cartridge_core.worker"]
        command += [str(theirs.fileno()), str(os.getpid()), cartridge_id]
        return _on_lasting_thread(lambda: _spawn(command, theirs.fileno())), ours
    except OSError as exc:
        ours.close()
        msg = f"{cartridge_id}: no process can be started for it: {exc}"
        # What has a cause is the plugin's.
        raise LoadError(msg) from None
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()


def _above_stdio(sock: socket.socket) -> socket.socket:
    """Keep a line off stdin, stdout and stderr, whose numbers are free where they are closed."""
    if sock.fileno() > 2:
        return sock
    with sock:
        return socket.socket(fileno=fcntl.fcntl(sock, fcntl.F_DUPFD_CLOEXEC, 3))


def _spawn(command: list[str], line: int) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(  # noqa: S603 -- this Python, and what is told to it here
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=(line,),
        env={**os.environ, "PYTHONPATH": path},
        # Ctrl-C is the host's affair, from the first moment on.
        process_group=0,
    )


def _on_lasting_thread(
    spawn: Callable[[], subprocess.Popen[bytes]],
) -> subprocess.Popen[bytes]:
    outcome: SimpleQueue[subprocess.Popen[bytes] | BaseException] = SimpleQueue()

    def job() -> None:
        try:
            outcome.put(spawn())
        except BaseException as exc:  # noqa: BLE001 -- raised by whoever waits
            outcome.put(exc)

    _launcher.run(job)
    try:
        started = outcome.get()
    except BaseException:
        # Ctrl-C. The process is there in a moment, and ends since its line has no other end.
        started = outcome.get()
        if not isinstance(started, BaseException):
            started.kill()
            started.communicate()
        raise
    if isinstance(started, BaseException):
        raise started
    return started
