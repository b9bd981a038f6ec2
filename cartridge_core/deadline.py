"""An end to what a process does before there is a session that could be ended."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING

from cartridge_core.errors import ActivityTimeoutError, CancelledError, CartridgeDiedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cartridge_core.context import Context
    from cartridge_core.worker.client import Worker

__all__ = ["deadline"]


@contextlib.contextmanager
def deadline(
    worker: Worker | None, context: Context, what: str, *, limit_s: float, grace_s: float
) -> Iterator[None]:
    """
    Kill a process in which a block takes too long, or does not stop when it is cancelled.

    Args:
        worker: The process; what runs in this one cannot be ended.
        context: Who it is for; where a call's clock counts, that decides what is too long.
        what: What it does, for a person.
        limit_s: Seconds it may take.
        grace_s: Seconds it may take to stop.

    Raises:
        ActivityTimeoutError: It took longer.

        CancelledError: It was cancelled, and its process ended.
    """
    if worker is None:
        yield
        return
    timers: list[threading.Timer] = []

    def kill_after(seconds: float, why: str) -> None:
        timer = threading.Timer(seconds, worker.kill, [why])
        timer.daemon = True
        timers.append(timer)
        timer.start()

    late = f"{what} has not ended within its limit of {limit_s:g} s"
    if context.activity is None:
        kill_after(limit_s, late)
    stop = partial(kill_after, grace_s, f"{what} was cancelled, and did not stop")
    context.on_cancel(stop)
    try:
        yield
    except CartridgeDiedError as exc:
        if context.cancelled:
            msg = f"{what} was cancelled"
            raise CancelledError(msg) from exc
        if late in str(exc):
            msg = f"{late}; where that is too early, the cartridge has to allow itself more"
            raise ActivityTimeoutError(msg) from exc
        raise
    finally:
        context.forget(stop)
        for timer in timers:
            timer.cancel()
