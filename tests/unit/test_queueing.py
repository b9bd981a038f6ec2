"""Places that are given in the order in which they were asked for."""

from __future__ import annotations

import random
import sys
import threading
from functools import partial

import pytest

from cartridge_core.activity import Activity
from cartridge_core.context import Context
from cartridge_core.errors import BusyError, CancelledError, StateError
from cartridge_core.queueing import FairQueue
from cartridge_core.testing.background import Background

PATIENCE_S = 30.0


class Waiting:
    """One who asks for a place on a thread of his own."""

    def __init__(self, queue, context=None):
        self.context = context or Context()
        self.told: list[str] = []
        self._waits = threading.Event()
        self.asking = Background(lambda: queue.enter(self.context, self._tell))

    def _tell(self, why):
        self.told.append(why)
        self._waits.set()

    def has_to_wait(self):
        assert self._waits.wait(PATIENCE_S)
        return self

    def outcome(self):
        self.asking.join(PATIENCE_S)
        assert not self.asking.is_alive()
        return self.asking.error


def queue_of(places=1, timeout_s=PATIENCE_S):
    return FairQueue("a session of fake-echo", places, timeout_s)


@pytest.mark.parametrize("places", [1, 2, 7])
def test_free_places_are_given_at_once(places):
    """Nobody waits, or is told of a wait, while there is a place."""
    queue, told = queue_of(places), list[str]()
    for _ in range(places):
        queue.enter(Context(), told.append)
    assert told == []
    waiting = Waiting(queue).has_to_wait()
    queue.leave()
    assert waiting.outcome() is None


def test_whoever_waits_longest_is_next():
    """Places are given in the order in which they were asked for."""
    queue, order = queue_of(), []
    queue.enter(Context())
    line = [Waiting(queue).has_to_wait() for _ in range(6)]
    while line:
        queue.leave()
        first = line.pop(0)
        assert first.outcome() is None
        order.append([one.asking.is_alive() for one in line])
    assert order == [[True] * number for number in (5, 4, 3, 2, 1, 0)]


def test_one_who_comes_does_not_overtake(eventually):
    """A place that comes free goes to who waits, and not to who happens to come."""
    queue = queue_of()
    queue.enter(Context())
    first = Waiting(queue).has_to_wait()
    queue.leave()
    second = Waiting(queue).has_to_wait()
    assert first.outcome() is None
    assert second.asking.is_alive()
    queue.leave()
    assert second.outcome() is None


def test_a_wait_is_told_with_its_reason():
    """The caller hears what he waits for, how many there are, and who is before him."""
    queue = queue_of(2)
    for _ in range(2):
        queue.enter(Context())
    line = [Waiting(queue).has_to_wait() for _ in range(3)]
    assert [one.told for one in line] == [
        ["Waiting for a session of fake-echo: 2 in use"],
        ["Waiting for a session of fake-echo: 2 in use, 1 before this one"],
        ["Waiting for a session of fake-echo: 2 in use, 2 before this one"],
    ]
    for one in line:
        queue.leave()
        assert one.outcome() is None


def test_error_no_place_in_time():
    """After the queue's time it is a BusyError that names what is in use, and what to do."""
    queue = queue_of(1, 0.02)
    queue.enter(Context())
    with pytest.raises(BusyError, match=r"fake-echo: all 1 are in use.*within 0\.02 s; try again"):
        queue.enter(Context())


def test_who_gave_up_leaves_no_trace():
    """The next place goes to the next, and not to one whose time was over."""
    queue = queue_of(1, 0.02)
    queue.enter(Context())
    for _ in range(3):
        with pytest.raises(BusyError):
            queue.enter(Context())
    queue.leave()
    queue.enter(Context())
    with pytest.raises(BusyError):
        queue.enter(Context())


@pytest.mark.parametrize("whose", ["own", "parents"])
def test_a_wait_is_cancelled(whose):
    """Cancelling, also through a parent, ends the wait; those behind move up."""
    queue, parent = queue_of(), Context()
    queue.enter(Context())
    first = Waiting(queue, Context(parent=parent)).has_to_wait()
    second = Waiting(queue).has_to_wait()
    (first.context if whose == "own" else parent).cancel()
    assert isinstance(first.outcome(), CancelledError)
    queue.leave()
    assert second.outcome() is None


def test_one_who_was_cancelled_before_does_not_wait():
    """A cancelled caller comes out at once, without a place."""
    queue, context = queue_of(), Context()
    queue.enter(Context())
    context.cancel()
    with pytest.raises(CancelledError):
        queue.enter(context)
    queue.leave()
    queue.enter(Context())


def test_a_wait_leaves_nothing_with_its_caller():
    """A caller who waits very often does not grow by what would have to be cancelled."""
    queue, parent = queue_of(), Context()
    for _ in range(3):
        queue.enter(Context())
        waiting = Waiting(queue, Context(parent=parent)).has_to_wait()
        queue.leave()
        assert waiting.outcome() is None
        queue.leave()
    assert not parent._on_cancel


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt], ids=lambda kind: kind.__name__)
def test_what_the_listener_raises_gives_the_turn_back(error):
    """One whose wait is interrupted is not waited for."""
    queue = queue_of()
    queue.enter(Context())

    def fail(why):
        raise error(why)

    with pytest.raises(error):
        queue.enter(Context(), fail)
    queue.leave()
    queue.enter(Context())


def test_the_clock_stands_still_while_waiting(clock, eventually):
    """Waiting for others is no silence of one's own work."""
    clock.rule("activity")
    activity = Activity(10.0)
    queue = queue_of()
    queue.enter(Context())
    waiting = Waiting(queue, Context(activity=activity)).has_to_wait()
    eventually(lambda: clock.reads > 1)
    clock.advance(1000)
    assert activity.overdue() is None
    queue.leave()
    assert waiting.outcome() is None
    assert activity.overdue() is None
    clock.advance(11)
    assert activity.overdue() is not None


def test_error_a_queue_that_gives_no_place_any_more():
    """Those who wait, and those who come, hear why."""
    queue = queue_of()
    queue.enter(Context())
    line = [Waiting(queue).has_to_wait() for _ in range(3)]
    queue.refuse("fake-echo is stuck")
    for one in line:
        assert isinstance(one.outcome(), StateError)
        assert str(one.outcome()) == "fake-echo is stuck"
    with pytest.raises(StateError, match="fake-echo is stuck"):
        queue.enter(Context())
    queue.leave()
    with pytest.raises(StateError, match="fake-echo is stuck"):
        queue.enter(Context())


@pytest.fixture
def hasty():
    """Switch threads as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("places", [1, 3])
def test_no_place_is_lost_or_given_twice(places):
    """Under haste, cancels and timeouts there are never more inside than places, nor fewer."""
    queue = FairQueue("a session", places, 0.004)
    inside, most, lock = 0, 0, threading.Lock()

    def come_and_go(seed):
        nonlocal inside, most
        rng = random.Random(seed)  # noqa: S311 -- not for secrets
        for _ in range(60):
            context = Context()
            if rng.random() < 0.3:
                threading.Timer(rng.random() * 0.004, context.cancel).start()
            try:
                queue.enter(context)
            except (BusyError, CancelledError):
                continue
            with lock:
                inside += 1
                most = max(most, inside)
            if rng.random() < 0.5:
                threading.Event().wait(rng.random() * 0.002)
            with lock:
                inside -= 1
            queue.leave()

    callers = [Background(partial(come_and_go, seed)) for seed in range(8)]
    for caller in callers:
        caller.join(PATIENCE_S)
    assert [caller.error for caller in callers] == [None] * 8
    assert most <= places
    for _ in range(places):
        queue.enter(Context())
    with pytest.raises(BusyError):
        queue.enter(Context())


def test_nothing_is_given_back_to_an_abandoned_queue():
    """It says once how many were inside, and theirs are nobody's places any more."""
    queue = FairQueue("a session", 3, 0.02)
    queue.enter(Context())
    queue.enter(Context())
    assert queue.leave()
    assert [queue.abandon("it was unloaded") for _ in range(2)] == [1, 0]
    assert not queue.leave()
    with pytest.raises(StateError, match="it was unloaded"):
        queue.enter(Context())
