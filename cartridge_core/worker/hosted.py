"""A context inside a cartridge's process, and the peer calls it makes through the host."""

from __future__ import annotations

import contextlib
import itertools
from queue import SimpleQueue
from typing import TYPE_CHECKING, Self, cast

from cartridge_core.context import Context
from cartridge_core.progress import Progress
from cartridge_core.wire import encode
from cartridge_core.worker.errors_on_wire import unpack_error
from cartridge_core.worker.plain import unpack_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from cartridge_core.packing import Buffer
    from cartridge_core.progress import Log
    from cartridge_core.results import Result

__all__ = ["HostedCall", "HostedContext", "PeerCalls"]

_NAMES = ("number", "what", "cap", "value", "args")


class HostedContext(Context):
    """
    A context whose other end is in the host.

    Args:
        number: Its number on the line.
        send: Sends a frame to the host.
        peers: The peer calls of this process.
        offline: Whether the network is forbidden.
    """

    def __init__(
        self,
        number: int,
        send: Callable[[list[Buffer]], None],
        peers: PeerCalls,
        *,
        offline: bool,
    ) -> None:
        super().__init__(self._tell, offline=offline)
        self._number = number
        self._send = send
        self._peers = peers
        self._keys = itertools.count(1)

    @property
    def peer(self) -> _HostedPeer:
        """The host, which knows other cartridges."""
        return _HostedPeer(self._number, self._peers)

    def sign(self) -> None:
        """Show a sign of life and say nothing."""
        self._say("alive")

    @contextlib.contextmanager
    def blocking(self, message: str, limit_s: float) -> Iterator[None]:
        """Have the host give a block a limit of its own."""
        key = next(self._keys)
        self._say("blocking", key, str(message), float(limit_s))
        try:
            yield
        finally:
            self._say("unblocking", key)

    def _tell(self, event: Progress | Log) -> None:
        if isinstance(event, Progress):
            self._say("progress", float(event.fraction), str(event.message))
        else:
            self._say("log", str(event.level), str(event.message))

    def _say(self, *words: object) -> None:
        self._send(encode("said", self._number, words))


class PeerCalls:
    """
    The peer calls of a process that are open.

    Args:
        send: Sends a frame to the host.
    """

    def __init__(self, send: Callable[[list[Buffer]], None]) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._answers: dict[int, SimpleQueue[list[object]]] = {}

    def start(self) -> int:
        """Give a number to a new one."""
        number = next(self._numbers)
        self._answers[number] = SimpleQueue()
        return number

    def end(self, number: int) -> None:
        """Forget one."""
        self._answers.pop(number, None)

    def say(self, context: int, number: int, *words: object) -> None:
        """Say something about one that the host does not answer."""
        self._send(encode("peer", context, [number, *words], _NAMES))

    def ask(self, context: int, number: int, *words: object) -> tuple[str, object]:
        """
        Say something about one, and wait for what the host answers.

        Raises:
            InvalidArgumentError: A value cannot cross.

            Exception: What the host raised.
        """
        answers = self._answers[number]
        self.say(context, number, *words)
        kind, *rest = answers.get()
        value = rest[0] if rest else None
        if kind == "failed":
            raise unpack_error(value, "in the host")
        return str(kind), value

    def take(self, number: int, values: list[object]) -> None:
        """Take an answer of the host."""
        answers = self._answers.get(number)
        if answers is not None:
            answers.put(values)


class _HostedPeer:
    """The host's peers, as `Context.peer`."""

    def __init__(self, context: int, peers: PeerCalls) -> None:
        self._context = context
        self._peers = peers

    def call(self, cap: str, value: object = None, **args: object) -> HostedCall:
        """Ask the host for another cartridge's cap."""
        number = self._peers.start()
        try:
            self._peers.ask(self._context, number, "call", str(cap), value, args)
        except BaseException:
            self._peers.end(number)
            raise
        return HostedCall(self._context, number, self._peers)


class HostedCall:
    """A peer call, as the cartridge in a process has it; used as the host's own ``Call``."""

    def __init__(self, context: int, number: int, peers: PeerCalls) -> None:
        self._context = context
        self._number = number
        self._peers = peers
        self._is_over = False
        self._is_closed = False

    def __iter__(self) -> Iterator[Progress | Log | Result]:
        return self

    def __next__(self) -> Progress | Log | Result:
        if self._is_over:
            raise StopIteration
        kind, value = self._ask("next")
        if kind == "end":
            self._is_over = True
            raise StopIteration
        return unpack_event(kind, value)

    def result(self) -> Result:
        """Wait for the FINAL result."""
        kind, value = self._ask("result")
        return cast("Result", unpack_event(kind, value))

    def cancel(self) -> None:
        """Ask the work to stop, from any thread."""
        if not self._is_closed:
            self._peers.say(self._context, self._number, "cancel")

    def close(self) -> None:
        """Cancel what is left, and take no more; again is harmless."""
        if not self._is_closed:
            self._is_over = self._is_closed = True
            self._peers.say(self._context, self._number, "close")
            self._peers.end(self._number)

    def _ask(self, what: str) -> tuple[str, object]:
        try:
            return self._peers.ask(self._context, self._number, what)
        except BaseException:
            self._is_over = True
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
