"""Take what plugins and native libraries write to stdout and stderr into the log."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Capture"]

_Name = Literal["stdout", "stderr"]

_FDS: dict[_Name, int] = {"stdout": 1, "stderr": 2}
_DRAIN_EVERY_S = 0.1
_CHUNK_BYTES = 1 << 16
_LINE_END = re.compile(rb"\r\n|[\r\n]")


class Capture:
    """
    The process's own streams, led into the loggers ``cartridge.stdout`` and ``cartridge.stderr``.

    Whatever writes to the file descriptor is caught: Python, native code, child processes.

    Args:
        names: Which of ``stdout`` and ``stderr``.
    """

    def __init__(self, names: Iterable[_Name]) -> None:
        self._streams = [_Stream(name) for name in names]
        self._over = threading.Event()
        self._drainer = threading.Thread(target=self._drain, name="cartridge-log", daemon=True)
        self._drainer.start()

    def close(self, *, restore: bool) -> None:
        """
        Log what was written so far.

        Args:
            restore: Whether the streams are themselves again. If not, what is written until the
                process ends goes nowhere.
        """
        # The C library has a buffer of its own, and would empty it when the process ends.
        ctypes.CDLL(None).fflush(None)
        self._over.set()
        self._drainer.join()
        for stream in self._streams:
            stream.end()
            if restore:
                stream.restore()

    def _drain(self) -> None:
        while not self._over.wait(_DRAIN_EVERY_S):
            for stream in self._streams:
                stream.drain()


class _Stream:
    """One captured stream."""

    def __init__(self, name: _Name) -> None:
        self._name = name
        self._fd = _FDS[name]
        self._log = logging.getLogger(f"cartridge.{name}")
        self._rest = b""
        self._position = 0
        self._before = getattr(sys, name)
        if self._before is not None:
            self._before.flush()
        # A file, not a pipe: native code that fills a pipe while it holds the GIL would wait for
        # a reader that cannot run.
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 -- closed by restore
        self._kept = os.dup(self._fd)
        os.dup2(self._file.fileno(), self._fd)
        self._python = open(  # noqa: SIM115 -- closed by restore
            self._fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
        )
        setattr(sys, name, self._python)

    def drain(self) -> None:
        """Log the whole lines that were written since the last time."""
        while data := os.pread(self._file.fileno(), _CHUNK_BYTES, self._position):
            self._position += len(data)
            *lines, self._rest = _LINE_END.split(self._rest + data)
            for line in lines:
                self._say(line)

    def end(self) -> None:
        """Log everything that was written."""
        for stream in (self._before, self._python):
            if stream is not None and not stream.closed:
                stream.flush()
        self.drain()
        rest, self._rest = self._rest, b""
        self._say(rest)

    def restore(self) -> None:
        """Give the stream back."""
        setattr(sys, self._name, self._before)
        os.dup2(self._kept, self._fd)
        os.close(self._kept)
        self._python.close()
        self._file.close()

    def _say(self, line: bytes) -> None:
        if text := line.decode("utf-8", "backslashreplace").rstrip():
            self._log.info("%s", text)
