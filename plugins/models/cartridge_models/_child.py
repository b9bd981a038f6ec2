"""A child process whose lines are read as they come, and that ends when the work is cancelled."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cartridge_core.context import Context

__all__ = ["run"]

_POLL_S = 0.05
_GRACE_S = 0.2


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    context: Context,
    on_output: Callable[[str], None],
    on_error: Callable[[str], None],
) -> int:
    """
    Run a command to its end, in its own session and without standard input.

    Args:
        command: The program and its arguments.
        env: The whole environment.
        context: Its cancellation ends the child: asked first, killed 0.1 s later.
        on_output: Takes each line of standard output, in this thread.
        on_error: Takes each line of standard error, in this thread.

    Returns:
        The exit status; minus the signal's number where a signal ended it.

    Raises:
        CancelledError: The context was cancelled; the child has ended.
    """
    child = subprocess.Popen(  # noqa: S603 -- a fixed program; a spec's parts are checked by its grammar
        command,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    lines: queue.SimpleQueue[tuple[Callable[[str], None], str | None]] = queue.SimpleQueue()
    readers = [
        threading.Thread(target=_read, args=(pipe, take, lines), daemon=True)
        for pipe, take in ((child.stdout, on_output), (child.stderr, on_error))
    ]
    for reader in readers:
        reader.start()
    try:
        return _attend(child, lines, len(readers), context)
    finally:
        _stop(child)
        for reader in readers:
            reader.join(timeout=1.0)


def _read(
    pipe: IO[str] | None,
    take: Callable[[str], None],
    lines: queue.SimpleQueue[tuple[Callable[[str], None], str | None]],
) -> None:
    if pipe is not None:
        with pipe:
            for line in pipe:
                lines.put((take, line.rstrip("\n")))
    lines.put((take, None))


def _attend(
    child: subprocess.Popen[str],
    lines: queue.SimpleQueue[tuple[Callable[[str], None], str | None]],
    open_pipes: int,
    context: Context,
) -> int:
    while open_pipes or child.poll() is None:
        context.check_cancelled()
        try:
            take, line = lines.get(timeout=_POLL_S)
        except queue.Empty:
            continue
        if line is None:
            open_pipes -= 1
        else:
            take(line)
    return child.wait()


def _stop(child: subprocess.Popen[str]) -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
