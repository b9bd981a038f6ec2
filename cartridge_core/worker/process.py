"""The process of a cartridge: what it writes, and how it ends."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import threading
from collections import deque
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

__all__ = ["Process"]

_STDERR_LINES = 20
"""How many lines of stderr are kept for the error."""

_LINE_BYTES = 8192
"""A longer line is logged in pieces."""

_READ_BYTES = 65_536

_LAST_READS = 64
"""How often an output is read when its process has ended."""

_LOOK_S = 0.1
"""How often a process is looked at where the system does not tell that it ends."""

_REAP_S = 5.0
"""How long a killed process may take to be gone; the system may still be writing its memory."""


class Process:
    """
    A started process; a thread of its own reads what it writes, there and on its line.

    Args:
        started: The process; its stdout and stderr are pipes.
        cartridge_id: Whose it is.
        line: The descriptor of the line to it.
        on_line: Called where there is something on the line; says whether more may come.
        on_end: Called when the process has ended.
    """

    def __init__(
        self,
        started: subprocess.Popen[bytes],
        cartridge_id: str,
        *,
        line: int,
        on_line: Callable[[], bool],
        on_end: Callable[[], None],
    ) -> None:
        self.pid = started.pid
        self.exit_status: int | None = None
        self.ended = threading.Event()
        self._cartridge_id = cartridge_id
        self._started = started
        self._line = line
        self._on_line = on_line
        self._on_end = on_end
        log = logging.getLogger(f"cartridge.{cartridge_id}")
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._pipes = {
            pipe.fd: pipe
            for pipe in (
                _Pipe(started.stdout, lambda line: log.info("%s", line)),
                _Pipe(started.stderr, self._hear(log)),
            )
        }
        self._files = selectors.DefaultSelector()
        self._death = _death_file(self.pid)
        name = f"cartridge-process-{self.pid}"
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
        self._thread.start()

    @property
    def stderr(self) -> str:
        """The last lines it wrote there."""
        return "\n".join(self._stderr)

    @property
    def end_text(self) -> str:
        """How it ended, for a person: ``was ended by SIGSEGV``."""
        status = self.exit_status
        if status is None:
            return "does not end"
        if status >= 0:
            return f"ended with exit status {status}"
        with contextlib.suppress(ValueError):
            name = signal.Signals(-status).name
            hint = " (out of memory, if nobody killed it)" if -status == signal.SIGKILL else ""
            return f"was ended by {name}{hint}"
        return f"was ended by signal {-status}"

    def told(self, how: str) -> str:
        """Give a message about how it did, with the last lines that it wrote to stderr."""
        text = f"{self._cartridge_id}: its process {self.pid} {how}"
        return f"{text}; the last lines it wrote to stderr:\n{self.stderr}" if self.stderr else text

    def rss_bytes(self) -> int | None:
        """Give the memory it has resident; None where the system does not say."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]
        except (OSError, IndexError):
            return None
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """End it at once; whatever it does."""
        self._started.kill()

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; say whether it came in time."""
        return self.ended.wait(timeout_s)

    def reap(self, grace_s: float = 0.0) -> None:
        """Wait for its end, and kill it after the grace; afterwards it is gone, thread and all."""
        if not self.wait(grace_s):
            self.kill()
            self.wait(_REAP_S)
        if self.ended.is_set() and threading.current_thread() is not self._thread:
            self._thread.join(_REAP_S)

    def forget(self) -> None:
        """Close this process's copies of the files, in a fork: the thread is in the parent."""
        self._started.returncode = 0  # or else it would complain that nobody waited for it
        self._close()

    def _hear(self, log: logging.Logger) -> Callable[[str], None]:
        def hear(line: str) -> None:
            self._stderr.append(line)
            log.warning("%s", line)

        return hear

    def _watch(self) -> None:
        for file in (self._line, *self._pipes, self._death):
            if file is not None:
                self._files.register(file, selectors.EVENT_READ)
        timeout_s = _LOOK_S if self._death is None else None
        while True:
            ready = {key.fd for key, _ in self._files.select(timeout_s)}
            for file in ready - {self._death}:
                if not self._read(file):
                    self._files.unregister(file)
            if (self._death in ready or self._death is None) and self._started.poll() is not None:
                break
        for pipe in self._pipes.values():
            # Its own children may go on writing.
            for _ in range(_LAST_READS):
                if not pipe.read():
                    break
        self.exit_status = self._started.returncode
        self.ended.set()
        self._on_end()
        self._close()

    def _read(self, file: int) -> bool:
        """Take what a file has; say whether more may come."""
        return self._on_line() if file == self._line else self._pipes[file].read() != 0

    def _close(self) -> None:
        self._files.close()
        death, self._death = self._death, None
        if death is not None:
            os.close(death)
        for stream in (self._started.stdout, self._started.stderr):
            if stream is not None:
                stream.close()


class _Pipe:
    """What a process writes to one of its outputs, line by line."""

    def __init__(self, stream: IO[bytes] | None, tell: Callable[[str], None]) -> None:
        self.fd = -1 if stream is None else stream.fileno()
        os.set_blocking(self.fd, False)
        self._tell = tell
        self._rest = b""

    def read(self) -> int | None:
        """Take what is there; give how many bytes, 0 at the end, None where there is nothing."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return None
        # A progress bar ends its lines with a return.
        *lines, rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        if not data or len(rest) > _LINE_BYTES:
            lines, rest = [*lines, rest], b""
        self._rest = rest
        for line in filter(None, lines):
            # A handler of the user's may raise, and the thread that reads must not end.
            with contextlib.suppress(Exception):
                self._tell(line.decode("utf-8", "replace"))
        return len(data)


def _death_file(pid: int) -> int | None:
    """Open what can be read when a process has ended; None where the system has no such thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
