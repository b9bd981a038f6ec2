"""Ctrl-C in a process that is one command: it cancels the work, and is never waited for long."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import signal
import threading
import time
from typing import NoReturn

__all__ = ["Interrupts"]

_STATUS = 130
_GRACE_S = 1.0
# The terminal itself writes ^C, wherever its cursor stands.
_NOTICE = b"\ncancelling; press Ctrl-C again to stop at once\n"
_SHOW_CURSOR = b"\x1b[?25h"


class Interrupts:
    """
    What Ctrl-C does: the first raises KeyboardInterrupt, the second ends the process.

    Where the work does not come out within a second of the first, the process ends without it:
    an import cannot be interrupted in its thread. Nothing is flushed then, since all that a
    command writes is flushed at once.
    """

    def __init__(self) -> None:
        self._came = threading.Event()
        self._next_ends = False
        self._terminal: int | None = None

    def watch(self) -> None:
        """Take Ctrl-C over, unless the process was started to ignore it."""
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return
        signal.signal(signal.SIGINT, self._handle)
        # The interpreter's last steps would give the signal its deadly default back.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        if os.isatty(2):
            # Others may lead 2 elsewhere; and 0 to 2 must stay free where the caller closed them.
            self._terminal = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 3)
        threading.Thread(target=self._guard, name="cartridge-interrupts", daemon=True).start()

    def finish(self) -> None:
        """Say that the command is over: nothing is left to cancel."""
        self._next_ends = True

    def _handle(self, *_: object) -> None:
        if self._next_ends:
            self._end()
        # Before anything else: the next one may come while this one is handled.
        self._next_ends = True
        self._came.set()
        raise KeyboardInterrupt

    def _guard(self) -> None:
        self._came.wait()
        self._write(_NOTICE)
        time.sleep(_GRACE_S)
        self._end()

    def _end(self) -> NoReturn:
        # A progress bar that is still drawn has hidden it.
        self._write(_SHOW_CURSOR)
        os._exit(_STATUS)

    def _write(self, data: bytes) -> None:
        if self._terminal is not None:
            with contextlib.suppress(OSError):
                os.write(self._terminal, data)
