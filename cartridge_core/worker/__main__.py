"""A cartridge's process: ``python -P -m cartridge_core.worker LINE HOST CARTRIDGE``."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import os
import signal
import socket
import sys

from cartridge_core.worker.serve import Server

_PR_SET_PDEATHSIG = 1
"""Source: prctl(2)."""

_EXIT_S = 5
"""How long plugins may take to clean up when the process ends."""


def main(line: int, host: int) -> int:
    """
    Serve the host until it hangs up or dies.

    Args:
        line: The descriptor of the line to it.
        host: Its process id.

    Returns:
        An exit status.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not _die_with(host):
        return 1
    # Of the thread that crashed alone: the host keeps only the last lines.
    faulthandler.enable(all_threads=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, encoding="utf-8", errors="backslashreplace")
    is_idle = Server(socket.socket(fileno=line)).run()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    if not is_idle:
        os._exit(0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_EXIT_S)
    return 0


def _die_with(host: int) -> bool:
    """
    Have the system end this process with the host's, also where native code holds Python's lock.

    Elsewhere than on Linux the end of the line has to do.

    Returns:
        Whether the host lives.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == host


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
