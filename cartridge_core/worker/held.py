"""The host's side of a context whose cartridge is in a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cartridge_core.packing import MalformedError

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from cartridge_core.context import Context
    from cartridge_core.worker.lanes import Lane

__all__ = ["Held"]


class Held:
    """
    A context that a process knows by a number.

    Args:
        number: The number; the session or the handle has the same one.
        context: The host's own.
        lane: What the hooks of the context go over.
        stop: Sends the context's cancellation to the process.

    Attributes:
        is_flushed: Whether its session takes no more input: results may be made ahead.
        question: The number of the last question for results.
        owed: How many more answers to that may come.
    """

    def __init__(self, number: int, context: Context, lane: Lane, stop: Callable[[], None]) -> None:
        self.number = number
        self.context = context
        self.lane = lane
        self.is_over = False
        self._stop = stop
        self.is_known = False
        self.is_flushed = False
        self.question = 0
        self.owed = 0
        self._blocks: dict[int, contextlib.AbstractContextManager[None]] = {}
        context.on_cancel(self.cancel)

    def begin(self) -> None:
        """Note that the process knows the context, so that it can be told of its cancellation."""
        self.is_known = True
        if self.context.cancelled:
            self._stop()

    def cancel(self) -> None:
        """Have the work in the process stop."""
        if self.is_known:
            self._stop()

    def hear(self, words: list[object]) -> None:
        """
        Tell the context what the cartridge says to it.

        Raises:
            MalformedError: It is nothing that can be said.
        """
        match words:
            case ["progress", float(fraction), str(message)]:
                self.context.progress(fraction, message)
            case ["log", str(level), str(message)]:
                self.context.log(level, message)
            case ["blocking", int(key), str(message), float(limit_s)]:
                block = self.context.blocking(message, limit_s)
                block.__enter__()
                self._blocks[key] = block
            case ["alive"]:
                if self.context.activity is not None:
                    self.context.activity.sign()
            case ["unblocking", int(key)] if key in self._blocks:
                self._blocks.pop(key).__exit__(None, None, None)
            case _:
                msg = f"a context that says {str(words)[:60]!a}"
                raise MalformedError(msg)

    def let_go(self) -> None:
        """End it: nothing more will be said."""
        self.is_over = True
        self.context.forget(self.cancel)
        while self._blocks:
            self._blocks.popitem()[1].__exit__(None, None, None)
