"""Calls of one item, gathered: who shares a batch, who gets what, and who may leave."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.activity import Activity
from cartridge_core.context import Context
from cartridge_core.errors import BackendError, CancelledError
from cartridge_torch.gathering import Gathering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cartridge_core.progress import Log, Progress

WAIT_S = 10.0
"""Of a test that would fail: far more than anything here takes."""


class Model:
    """Doubles numbers, notes its batches, and waits inside each until it is let go."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.threads: list[threading.Thread] = []
        self.contexts: list[Context] = []
        self.stopped = 0
        self._going = threading.Semaphore(0)
        self._is_open = is_open

    def run(self, items: Sequence[int], context: Context) -> list[int]:
        """Double them; 13 cannot be computed, and whoever asks is told of 7."""
        self.batches.append(list(items))
        self.threads.append(threading.current_thread())
        self.contexts.append(context)
        while not self._is_open and not self._going.acquire(timeout=0.002):
            if context.cancelled:
                self.stopped += 1
                context.check_cancelled()
        if 13 in items:
            msg = "13 in the batch"
            raise BackendError(msg)
        if 7 in items:
            context.log("warning", "a seven")
        return [2 * item for item in items]

    def let(self, batches: int = 1) -> None:
        """Let so many batches go."""
        self._going.release(batches)

    def open(self) -> None:
        """Let all batches go from here on."""
        self._is_open = True


def fits(items: Sequence[int], other: int) -> bool:
    """Say yes to four at most, all below 100, or all of one hundred."""
    return len(items) < 4 and items[0] // 100 == other // 100


class Callers:
    """Threads that call, one after another."""

    def __init__(self, gathering: Gathering[int, int], pool: ThreadPoolExecutor) -> None:
        self._gathering = gathering
        self._pool = pool

    def call(self, item: int, context: Context | None = None) -> Future[int]:
        """Call from a thread; give what will come of it, once the call is in the queue or runs."""
        context = context or Context()
        before = len(self._gathering._queue), self._gathering._free
        future = self._pool.submit(self._gathering.call, item, context)
        until(lambda: (len(self._gathering._queue), self._gathering._free) != before)
        return future


def until(condition: Callable[[], bool]) -> None:
    """Wait for something."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "it never came"
        time.sleep(0.001)


@pytest.fixture
def model() -> Iterator[Model]:
    """A model that holds every batch; at the end it lets all go."""
    model = Model()
    yield model
    model.open()


@pytest.fixture
def pool(model: Model) -> Iterator[ThreadPoolExecutor]:
    """Threads of callers."""
    pool = ThreadPoolExecutor(16)
    yield pool
    model.open()
    pool.shutdown()


@pytest.fixture
def gathering(model: Model) -> Gathering[int, int]:
    """One lane, at most four items in a batch."""
    return Gathering(model.run, fits)


@pytest.fixture
def callers(gathering: Gathering[int, int], pool: ThreadPoolExecutor) -> Callers:
    """Callers of it."""
    return Callers(gathering, pool)


def test_a_lone_caller_works_in_his_own_thread_with_his_own_context() -> None:
    """Nothing stands between him and the model, and no thread is started."""
    model = Model(is_open=True)
    context = Context()
    gathering = Gathering(model.run, fits)
    assert [gathering.call(item, context) for item in (1, 2)] == [2, 4]
    assert model.batches == [[1], [2]]
    assert set(model.threads) == {threading.current_thread()}
    assert model.contexts == [context, context]


def test_what_queued_while_a_batch_ran_is_the_next_batch(model: Model, callers: Callers) -> None:
    """In the order of their coming, and each gets his own."""
    found = [callers.call(item) for item in (1, 2, 3, 4)]
    model.let(2)
    assert [future.result(WAIT_S) for future in found] == [2, 4, 6, 8]
    assert model.batches == [[1], [2, 3, 4]]


def test_a_batch_is_bounded(model: Model, callers: Callers) -> None:
    """Whoever finds no place in it is in the next one."""
    found = [callers.call(item) for item in range(7)]
    model.let(3)
    assert [future.result(WAIT_S) for future in found] == [0, 2, 4, 6, 8, 10, 12]
    assert model.batches == [[0], [1, 2, 3, 4], [5, 6]]


def test_a_batch_is_of_what_fits_and_the_oldest_decides(model: Model, callers: Callers) -> None:
    """Whoever does not fit waits his turn, and is not overtaken by later ones that would have."""
    found = [callers.call(item) for item in (1, 102, 203, 104, 5, 206)]
    model.let(4)
    assert [future.result(WAIT_S) for future in found] == [2, 204, 406, 208, 10, 412]
    assert model.batches == [[1], [102, 104], [203, 206], [5]]


def test_lanes_run_side_by_side(model: Model, pool: ThreadPoolExecutor) -> None:
    """With two, two callers are alone, and the rest waits for the one that comes free first."""
    callers = Callers(Gathering(model.run, fits, lanes=2), pool)
    found = [callers.call(item) for item in range(4)]
    until(lambda: len(model.batches) == 2)
    model.let(2)
    until(lambda: len(model.batches) == 3)
    model.let(1)
    assert [future.result(WAIT_S) for future in found] == [0, 2, 4, 6]
    assert model.batches[2] == [2, 3]


def test_no_thread_is_left_behind(
    model: Model, callers: Callers, gathering: Gathering[int, int]
) -> None:
    """What runs batches ends with the queue, and closing waits for it."""
    found = [callers.call(item) for item in range(3)]
    model.open()
    assert [future.result(WAIT_S) for future in found] == [0, 2, 4]
    gathering.close()
    model.threads[1].join(WAIT_S)
    assert not model.threads[1].is_alive()
    assert model.threads[1] is not threading.current_thread()


def test_where_no_thread_can_be_started_the_queue_is_served_all_the_same(
    model: Model, callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the thread that would have started one."""
    found = [callers.call(item) for item in range(3)]

    def refuse(thread: threading.Thread) -> None:
        msg = f"can't start {thread.name}"
        raise RuntimeError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        model.open()
        assert [future.result(WAIT_S) for future in found] == [0, 2, 4]


def test_error_a_lone_callers_own(model: Model, callers: Callers) -> None:
    """It reaches him, and the lane is free again."""
    model.open()
    with pytest.raises(BackendError, match="13 in the batch"):
        callers._gathering.call(13, Context())
    assert callers._gathering.call(1, Context()) == 2


def test_error_a_bad_item_is_no_matter_of_the_others(model: Model, callers: Callers) -> None:
    """Where a batch fails each item is computed alone, and only the bad one's caller hears it."""
    found = [callers.call(item) for item in (1, 2, 13, 3)]
    model.open()
    assert [found[place].result(WAIT_S) for place in (0, 1, 3)] == [2, 4, 6]
    with pytest.raises(BackendError, match="13 in the batch"):
        found[2].result(WAIT_S)
    assert model.batches == [[1], [2, 13, 3], [2], [13], [3]]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, MemoryError, GeneratorExit])
def test_error_whatever_a_batch_raises_nobody_waits_for_ever(
    pool: ThreadPoolExecutor, error: type[BaseException]
) -> None:
    """It reaches the callers of the batch, and the next one is served."""
    gate = threading.Event()

    def run(items: Sequence[int], context: Context) -> Sequence[int]:
        del context
        gate.wait(WAIT_S)
        if 13 in items:
            raise error
        return items

    gathering = Gathering(run, fits)
    callers = Callers(gathering, pool)
    found = [callers.call(item) for item in (1, 13, 2)]
    gate.set()
    assert [found[0].result(WAIT_S), found[2].result(WAIT_S)] == [1, 2]
    with pytest.raises(error):
        found[1].result(WAIT_S)
    assert gathering.call(5, Context()) == 5


@pytest.mark.parametrize("count", [0, 1, 3])
def test_error_a_wrong_number_of_results(pool: ThreadPoolExecutor, count: int) -> None:
    """Nobody gets another's result, and nobody waits for ever."""
    gate = threading.Event()

    def run(items: Sequence[int], context: Context) -> Sequence[int]:
        del context
        gate.wait(WAIT_S)
        return [0] * count if len(items) == 2 else items

    callers = Callers(Gathering(run, fits), pool)
    found = [callers.call(item) for item in (1, 2, 3)]
    gate.set()
    assert [future.result(WAIT_S) for future in found] == [1, 2, 3]


def test_a_caller_who_cancels_in_the_queue_returns_at_once(model: Model, callers: Callers) -> None:
    """His item is never computed; the others' are."""
    context = Context()
    running, waiting, other = callers.call(1), callers.call(2, context), callers.call(3)
    context.cancel()
    with pytest.raises(CancelledError):
        waiting.result(WAIT_S)
    assert not running.done()
    model.open()
    assert (running.result(WAIT_S), other.result(WAIT_S)) == (2, 6)
    assert model.batches == [[1], [3]]


@pytest.mark.parametrize("leaving", [0, 1, 2], ids=["the-first", "the-second", "the-last"])
def test_a_caller_who_cancels_in_a_batch_returns_at_once(
    model: Model, callers: Callers, leaving: int
) -> None:
    """Whoever of them it is; the batch goes on for the others."""
    contexts = [Context() for _ in range(3)]
    first = callers.call(9)
    found = [callers.call(item, context) for item, context in enumerate(contexts)]
    model.let(1)
    first.result(WAIT_S)
    until(lambda: len(model.batches) == 2)
    contexts[leaving].cancel()
    with pytest.raises(CancelledError):
        found[leaving].result(WAIT_S)
    assert model.stopped == 0
    model.open()
    stay = [place for place in range(3) if place != leaving]
    assert [found[place].result(WAIT_S) for place in stay] == [2 * place for place in stay]
    assert (len(model.batches), model.stopped) == (2, 0)


def test_a_batch_is_stopped_once_all_have_cancelled(
    model: Model, callers: Callers, gathering: Gathering[int, int]
) -> None:
    """Then it is computed for nobody; closing waits until it has stopped."""
    contexts = [Context() for _ in range(3)]
    first = callers.call(9)
    found = [callers.call(item, context) for item, context in enumerate(contexts)]
    model.let(1)
    first.result(WAIT_S)
    until(lambda: len(model.batches) == 2)
    for context in contexts:
        assert model.stopped == 0
        context.cancel()
    gathering.close()
    assert model.stopped == 1
    for future in found:
        with pytest.raises(CancelledError):
            future.result(WAIT_S)
    assert len(model.batches) == 2


def test_a_lone_caller_who_cancels_stops_his_own(model: Model, callers: Callers) -> None:
    """The queue behind him goes on."""
    context = Context()
    alone, behind = callers.call(1, context), callers.call(2)
    context.cancel()
    with pytest.raises(CancelledError):
        alone.result(WAIT_S)
    model.open()
    assert behind.result(WAIT_S) == 4
    assert model.stopped == 1


def test_a_parents_cancel_counts(model: Model, callers: Callers) -> None:
    """A context is cancelled with the one it belongs to."""
    parent = Context()
    first, second = callers.call(1), callers.call(2, Context(parent=parent))
    parent.cancel()
    with pytest.raises(CancelledError):
        second.result(WAIT_S)
    model.open()
    assert first.result(WAIT_S) == 2


def test_a_caller_who_is_interrupted_leaves_his_place(model: Model, callers: Callers) -> None:
    """Ctrl-C in one who waits: nothing is computed for him."""

    def interrupt(event: Progress | Log) -> None:
        raise KeyboardInterrupt(event.message)

    found = [callers.call(1), callers.call(102), callers.call(3, Context(interrupt))]
    model.let(1)
    with pytest.raises(KeyboardInterrupt, match="waiting for its turn"):
        found[2].result(WAIT_S)
    model.open()
    assert found[1].result(WAIT_S) == 204
    assert model.batches == [[1], [102]]


def test_what_is_said_of_a_batch_reaches_each_of_its_callers(
    model: Model, callers: Callers
) -> None:
    """In each one's own thread, so that one who is slow to listen holds nobody up."""
    said: dict[int, list[tuple[str, str]]] = {1: [], 7: []}

    def hear(item: int) -> Context:
        def report(event: Progress | Log) -> None:
            said[item].append((threading.current_thread().name, event.message))

        return Context(report)

    callers.call(5)
    found = [callers.call(item, hear(item)) for item in said]
    model.open()
    assert [future.result(WAIT_S) for future in found] == [2, 14]
    assert [[message for _, message in lines] for lines in said.values()] == [["a seven"]] * 2
    assert len({thread for lines in said.values() for thread, _ in lines}) == 2


def heard_s(context: Context) -> float:
    """Give when a context gave its last sign of life."""
    assert context.activity is not None
    return context.activity._heard_s


def test_a_queue_that_moves_is_a_sign_of_life(model: Model, callers: Callers) -> None:
    """Whoever waits behind it is not taken for dead."""
    context = Context(activity=Activity(0.1))
    callers.call(1)
    callers.call(102)
    waiting = callers.call(203, context)
    began_s = heard_s(context)
    model.let(1)
    until(lambda: heard_s(context) > began_s)
    model.open()
    assert waiting.result(WAIT_S) == 406


def test_a_batch_that_hangs_gives_no_sign_of_life(model: Model, pool: ThreadPoolExecutor) -> None:
    """Neither for those in it, whatever happens beside them, nor for those behind it."""
    gathering = Gathering(model.run, fits, lanes=2)
    callers = Callers(gathering, pool)
    inside, behind = Context(activity=Activity(0.1)), Context(activity=Activity(0.1))
    found = [callers.call(1), callers.call(2), callers.call(103, inside)]
    until(lambda: len(model.batches) == 2)
    model.let(1)
    until(lambda: len(model.batches) == 3)
    began_s = heard_s(inside)
    turns, gathering._turns = gathering._turns, gathering._turns + 1  # beside them
    time.sleep(0.6)
    assert heard_s(inside) == began_s
    found.append(callers.call(204, behind))
    began_s = heard_s(behind)
    time.sleep(0.6)
    assert (heard_s(behind), gathering._turns) == (began_s, turns + 1)
    model.open()
    assert [future.result(WAIT_S) for future in found] == [2, 4, 206, 408]


@settings(max_examples=30, deadline=None)
@given(
    calls=st.lists(
        st.tuples(st.sampled_from([0, 1, 2, 13, 100, 101, 113]), st.booleans()),
        min_size=1,
        max_size=24,
    ),
    lanes=st.integers(1, 3),
)
def test_everybody_gets_what_he_would_get_alone(calls: list[tuple[int, bool]], lanes: int) -> None:
    """Whatever comes together: bad items, others that do not fit, and callers who cancel."""
    batches: list[list[int]] = []
    running = threading.Semaphore(lanes)

    def run(items: Sequence[int], context: Context) -> list[str]:
        assert running.acquire(blocking=False), "more batches than lanes"
        try:
            batches.append(list(items))
            time.sleep(0.0005)
            context.check_cancelled()
            if any(item % 100 == 13 for item in items):
                msg = "13"
                raise BackendError(msg)
            return [f"it is {item}" for item in items]
        finally:
            running.release()

    gathering = Gathering(run, fits, lanes=lanes)
    contexts = [Context() for _ in calls]

    def call(place: int) -> str:
        try:
            return gathering.call(calls[place][0], contexts[place])
        except (BackendError, CancelledError) as exc:
            return type(exc).__name__

    with ThreadPoolExecutor(len(calls)) as pool:
        found = [pool.submit(call, place) for place in range(len(calls))]
        for context, (_, cancels) in zip(contexts, calls, strict=True):
            if cancels:
                context.cancel()
        results = [future.result(WAIT_S) for future in found]
    for result, (item, cancels) in zip(results, calls, strict=True):
        alone = "BackendError" if item % 100 == 13 else f"it is {item}"
        assert result == alone or (cancels and result == "CancelledError")
    assert all(
        fits(items[:place], items[place]) for items in batches for place in range(1, len(items))
    )
    gathering.close()
    assert (gathering._free, gathering._queue) == (lanes, [])
