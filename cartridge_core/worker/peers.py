"""Peer calls of a cartridge in a process, as the host makes them for it."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import StateError
from cartridge_core.packing import MalformedError
from cartridge_core.wire import encode
from cartridge_core.worker.errors_on_wire import encode_error
from cartridge_core.worker.plain import pack_event, pack_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cartridge_core.context import PeerResponse
    from cartridge_core.packing import Buffer
    from cartridge_core.progress import Log, Progress
    from cartridge_core.results import Result
    from cartridge_core.worker.held import Held

__all__ = ["Peers"]

_MAX_CALLS = 64
"""How many peer calls one process may have at once."""

_MAX_QUESTIONS = 128
"""How many questions about them it may have open."""


@attrs.define(eq=False)
class _PeerCall:
    """A peer call that runs."""

    held: Held
    response: PeerResponse
    events: Iterator[Progress | Log | Result]


class Peers:
    """
    Makes peer calls, each question on a thread of its own: a call may be silent for long.

    Args:
        send: Sends a frame to the process.
        run: Runs a job on another thread.
    """

    def __init__(
        self, send: Callable[[list[Buffer]], None], run: Callable[[Callable[[], None]], None]
    ) -> None:
        self._send = send
        self._run = run
        self._calls: dict[int, _PeerCall] = {}
        self._asked = 0
        self._lock = threading.Lock()
        self._verbs: Mapping[str, Callable[[int], list[object] | None]] = {
            "next": self._next,
            "result": self._result,
            "cancel": self._cancel,
            "close": self._close,
        }

    def take(self, held: Held | None, words: list[object]) -> None:
        """
        Take what a cartridge wants of its peers.

        Args:
            held: Its context; None where that has ended.
            words: Which call it is about, and what it wants.

        Raises:
            MalformedError: It is nothing that can be wanted.
        """
        job: Callable[[], list[object] | None]
        match words:
            case [int(number), "call", str(cap), value, dict(args)]:
                job = functools.partial(self._start, held, number, cap, value, args)
            case [int(number), str(what)] if what in self._verbs:
                job = functools.partial(self._verbs[what], number)
            case _:
                msg = f"a peer call that says {str(words)[:60]!a}"
                raise MalformedError(msg)
        with self._lock:
            if self._asked >= _MAX_QUESTIONS:
                msg = f"more than {_MAX_QUESTIONS} questions about peer calls at once"
                raise MalformedError(msg)
            self._asked += 1
        self._run(functools.partial(self._answer, number, job))

    def end(self, held: Held) -> None:
        """Close what a context that ends has left open."""
        for number, call in list(self._calls.items()):
            if call.held is held:
                self._close(number)

    def end_all(self) -> None:
        """Close everything: the process is gone."""
        for number in list(self._calls):
            self._run(functools.partial(self._close, number))

    def _answer(self, number: int, job: Callable[[], list[object] | None]) -> None:
        try:
            answer = job()
            frame = None if answer is None else encode("peer", number, answer)
        except BaseException as exc:  # noqa: BLE001 -- the cartridge that asked is told
            frame = encode_error("peer", number, ["failed"], exc, trace=False)
        finally:
            with self._lock:
                self._asked -= 1
        if frame is not None:
            self._send(frame)

    def _start(
        self,
        held: Held | None,
        number: int,
        cap: str,
        value: object,
        args: Mapping[str, object],
    ) -> list[object]:
        if held is None:
            msg = f"no peer call to {cap}: the session or the load that asks for it has ended"
            raise StateError(msg)
        if number in self._calls or len(self._calls) >= _MAX_CALLS:
            msg = f"no peer call to {cap}: {len(self._calls)} run already; close them"
            raise StateError(msg)
        response = held.context.peer.call(cap, value, **args)
        self._calls[number] = _PeerCall(held, response, iter(response))
        if held.is_over:
            self._close(number)
        return ["started"]

    def _next(self, number: int) -> list[object]:
        event = next(self._call(number).events, None)
        return ["end"] if event is None else pack_event(event)

    def _result(self, number: int) -> list[object]:
        return ["result", pack_result(self._call(number).response.result())]

    def _call(self, number: int) -> _PeerCall:
        try:
            return self._calls[number]
        except KeyError:
            msg = "the peer call is closed, or the session that made it has ended"
            raise StateError(msg) from None

    def _cancel(self, number: int) -> None:
        call = self._calls.get(number)
        if call is not None:
            _do(call.response, "cancel")

    def _close(self, number: int) -> None:
        call = self._calls.pop(number, None)
        if call is not None:
            _do(call.response, "close")


def _do(response: PeerResponse, verb: str) -> None:
    """Do what the host's own responses can, and others need not."""
    do = getattr(response, verb, None)
    if do is not None:
        do()
