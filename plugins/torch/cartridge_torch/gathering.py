"""
Calls of one item each, gathered: what queued while a batch ran is the next batch.

Whoever finds a free lane runs at once, alone, and in his own thread: a lone caller pays nothing.
Where every lane is busy callers queue, and a lane that comes free takes the oldest of them with all
that can share a batch with him. That batch runs in a thread of its own, which ends when nobody
queues any more: so every one of its callers can leave at once, and nobody works for others.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs

from cartridge_core.context import Context
from cartridge_core.progress import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cartridge_core.progress import Progress

__all__ = ["Gathering"]

T = TypeVar("T")
R = TypeVar("R")

_LOOK_S = 0.25
"""How often one who waits looks whether the queue moves, in seconds."""

_CLOSE_S = 5.0
"""How long a batch that nobody wants any more is waited for, in seconds."""


@attrs.define(eq=False)
class _Seat(Generic[T, R]):
    """A caller in the queue, later in a batch."""

    item: T
    context: Context
    awake: threading.Event = attrs.field(factory=threading.Event)
    is_served: bool = False
    has_left: bool = False
    """Whether nobody waits for its result any more."""

    results: Sequence[R] = ()
    """Once there, the one."""

    error: BaseException | None = None
    said: Sequence[Progress | Log] = ()


class _Shared(Context, Generic[T, R]):
    """
    The context of a batch: cancelled once all callers have left.

    It keeps what is said, for a caller who is slow to listen must not hold up the others.
    """

    def __init__(self, batch: Sequence[_Seat[T, R]]) -> None:
        self.said: list[Progress | Log] = []
        super().__init__(self.said.append)
        self._batch = batch

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants the batch any more."""
        return all(seat.has_left for seat in self._batch)


class Gathering(Generic[T, R]):
    """
    Gathers calls from many threads.

    Args:
        run: Computes the items of a batch, and gives as many results, in their order, each what it
            would be alone. Its context can be asked whether to go on, and told log lines.
        fits: Says whether a batch of some items takes one more.
        lanes: How many batches may run at once.
    """

    def __init__(
        self,
        run: Callable[[Sequence[T], Context], Sequence[R]],
        fits: Callable[[Sequence[T], T], bool],
        *,
        lanes: int = 1,
    ) -> None:
        self._run = run
        self._fits = fits
        self._lanes = self._free = lanes
        self._lock = threading.Lock()
        self._all_free = threading.Condition(self._lock)
        self._queue: list[_Seat[T, R]] = []
        self._turns = 0

    def call(self, item: T, context: Context) -> R:
        """
        Compute one item, alone or among others.

        Args:
            item: The item.
            context: The caller's; once it is cancelled he waits no longer, and the computation
                goes on only for others.

        Raises:
            CancelledError: The context was cancelled.

            BaseException: What ``run`` raised for this item alone.
        """
        with self._lock:
            is_alone = self._free > 0
            if is_alone:
                self._free -= 1
            else:
                seat = _Seat[T, R](item, context)
                self._queue.append(seat)
        if not is_alone:
            return self._wait(seat)
        try:
            (result,) = self._run([item], context)
        finally:
            self._pass_on()
        return result

    def close(self) -> None:
        """Wait for what still runs although its callers have left; there must be no others."""
        with self._all_free:
            self._all_free.wait_for(lambda: self._free == self._lanes, _CLOSE_S)

    def _wait(self, seat: _Seat[T, R]) -> R:
        context, turns = seat.context, self._turns
        context.on_cancel(seat.awake.set)
        try:
            while not seat.awake.wait(_LOOK_S):
                # A queue that moves is a sign of life; a batch has to give its own.
                if not seat.is_served and self._turns != turns:
                    turns = self._turns
                    context.progress(0.0, "waiting for its turn")
        finally:
            seat.has_left = True
            context.forget(seat.awake.set)
        context.check_cancelled()
        for event in seat.said:
            if isinstance(event, Log):
                context.log(event.level, event.message)
        if seat.error is not None:
            raise seat.error
        return seat.results[0]

    def _pass_on(self) -> None:
        """Give a lane to those who queue."""
        if batch := self._next():
            thread = threading.Thread(
                target=self._serve, args=(batch,), name="cartridge-torch-batches", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # there is no thread to be had: better by this one than by none
                self._serve(batch)

    def _next(self) -> list[_Seat[T, R]]:
        """Take the next batch from the queue; none, and the lane is free."""
        batch: list[_Seat[T, R]] = []
        rest: list[_Seat[T, R]] = []
        with self._lock:
            self._turns += 1
            for seat in self._queue:
                if not seat.has_left:
                    joins = not batch or self._fits([one.item for one in batch], seat.item)
                    (batch if joins else rest).append(seat)
            self._queue = rest
            if not batch:
                self._free += 1
                self._all_free.notify_all()
        return batch

    def _serve(self, batch: list[_Seat[T, R]]) -> None:
        """Run batches until nobody queues."""
        while batch:
            self._answer(batch)
            batch = self._next()

    def _answer(self, batch: Sequence[_Seat[T, R]]) -> None:
        shared = _Shared(batch)
        for seat in batch:
            seat.is_served = True
        try:
            results = self._run([seat.item for seat in batch], shared)
            answered = list(zip(batch, results, strict=True))
        except BaseException as exc:  # noqa: BLE001 -- raised where its caller waits
            if len(batch) > 1:
                self._answer_each(batch)
                return
            batch[0].error = exc
        else:
            for seat, result in answered:
                seat.results = (result,)
        for seat in batch:
            seat.said = shared.said
            seat.awake.set()

    def _answer_each(self, batch: Sequence[_Seat[T, R]]) -> None:
        """Compute each item alone: what is wrong with one is no matter of the others."""
        for seat in batch:
            seat.is_served = False
        for seat in batch:
            self._turns += 1
            if not seat.has_left:
                self._answer([seat])
