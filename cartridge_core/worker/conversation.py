"""All that the host says to one process, and hears of it."""

from __future__ import annotations

import itertools
import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cartridge_core.worker.control import Control
from cartridge_core.worker.held import Held
from cartridge_core.worker.lanes import Lanes
from cartridge_core.worker.line import Line
from cartridge_core.worker.logs import levels

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from cartridge_core.context import Context

__all__ = ["Conversation"]

T = TypeVar("T")

_AHEAD = 8
"""How many results a session may be asked for at once."""

_LEVELS_S = 1.0
"""How long a process may take to hear of other levels; one that hangs hears of them later."""

_log = logging.getLogger("cartridge")


class Conversation:
    """
    The line, the lanes, and the contexts that the process knows.

    Args:
        sock: The line's socket.
        where: In whose process errors are raised, for a person.
        run: Runs a job on another thread.
    """

    def __init__(
        self, sock: socket.socket, where: str, run: Callable[[Callable[[], None]], None]
    ) -> None:
        self.is_over = False
        self._numbers = itertools.count(1)
        self._held: dict[int, Held] = {}
        self._level = _log.getEffectiveLevel()
        self._line = Line(sock)
        self._control = Control(self._line, self._held, run)
        self._lanes = Lanes(self._control.give_lane, where)

    def ask(
        self,
        kind: str,
        values: Sequence[object],
        read: Callable[[list[object]], T],
        names: Sequence[str] = (),
        held: Held | None = None,
    ) -> T:
        """Ask something, of a context or of none; see `Lane.ask`. Not from the main thread."""
        if held is not None:
            return held.lane.ask(kind, next(self._numbers), values, read, names, held)
        lane = self._lanes.take()
        try:
            return lane.ask(kind, next(self._numbers), values, read, names, None)
        finally:
            self._lanes.give_back(lane)

    def pull(self, held: Held, read: Callable[[list[object]], T | None]) -> T | None:
        """
        Take the next result of a session; None where there is none.

        After the flush the process is asked for several at once: it makes them while the ones
        before are on their way, up to `_AHEAD` of them, and not beyond a cancellation.
        """
        left, held.owed = held.owed, 0
        if left:
            result = held.lane.wait(held.question, read, held)
        else:
            left = _AHEAD if held.is_flushed else 1
            held.question = next(self._numbers)
            values = [held.number, left]
            result = held.lane.ask("pull", held.question, values, read, (), held)
        # After an error or the last result there is no other answer.
        if result is not None:
            held.owed = left - 1
        return result

    def tell(self, kind: str, number: int, *values: object) -> None:
        """Say something that has no answer; from any thread."""
        self._control.tell(kind, number, *values)

    def ping(self, timeout_s: float) -> bool:
        """Ask for a sign of life; say whether it came in time."""
        return self._control.ping(next(self._numbers), timeout_s)

    def hold(self, context: Context) -> Held:
        """
        Give a context a number that the process knows it by, until `let_go`.

        Raises:
            LineError: The process is gone.
        """
        level = _log.getEffectiveLevel()
        if level != self._level:
            self._level = level
            # Known to the process before anything is asked of it over another line.
            self._control.ping(next(self._numbers), _LEVELS_S, "levels", levels())
        lane = self._lanes.take()
        number = next(self._numbers)
        held = Held(number, context, lane, partial(self.tell, "cancel", number))
        self._held[number] = held
        return held

    def held(self, number: int) -> Held | None:
        """Give a context by its number; None where it has ended."""
        return self._held.get(number)

    def let_go(self, held: Held) -> None:
        """End the use of a context; again is harmless."""
        if self._held.pop(held.number, None) is not None:
            held.let_go()
            self._control.peers.end(held)
            self.give_back(held)

    def give_back(self, held: Held) -> None:
        """Let others have the lane of a context that has ended."""
        self._lanes.give_back(held.lane)

    def listen(self) -> None:
        """
        Take what is on the line.

        Raises:
            MalformedError: It must not be there.

            EOFError: The process has hung up.

            OSError: It has hung up.
        """
        self._control.read()

    def hang_up(self) -> None:
        """End it; who reads gets what has come, and then comes out."""
        self.is_over = True
        self._lanes.hang_up()
        self._line.hang_up()

    def close(self) -> None:
        """Close what nobody uses any more, after `hang_up`."""
        self._control.end()
        self._lanes.close()
        self._line.close()

    def forget(self) -> None:
        """Close this process's copies of what the parent has open; in a fork."""
        self._line.forget()
        self._lanes.forget()
