"""The thread that looks at what runs."""

from __future__ import annotations

import threading

import pytest

from cartridge_core.testing.background import Background
from cartridge_core.watch import Watch

PATIENCE_S = 30.0


class Duty:
    """Counts how often it is done; says what it is told to say."""

    def __init__(self, answer=False):
        self.answer = answer
        self.count = 0
        self.threads = set()
        self.error: Exception | None = None

    def __call__(self):
        self.count += 1
        self.threads.add(threading.current_thread())
        if self.error is not None:
            raise self.error
        return self.answer


@pytest.fixture
def watch_of():
    made: list[Watch] = []
    before = set(threading.enumerate())

    def make(duty):
        made.append(Watch(duty, 0.001))
        return made[-1]

    yield make
    for watch in made:
        watch.close()
    assert set(threading.enumerate()) <= before


def test_no_thread_starts_before_there_is_something_to_watch(watch_of):
    """A registry that makes no call has no watch."""
    before = threading.active_count()
    watch_of(Duty())
    assert threading.active_count() == before


def test_the_duty_is_done_again_and_again(watch_of, eventually):
    """Once woken, one thread looks while there is anything."""
    duty = Duty(answer=True)
    watch = watch_of(duty)
    for _ in range(5):
        watch.wake()
    eventually(lambda: duty.count > 50)
    assert len(duty.threads) == 1


def test_with_nothing_to_watch_the_thread_sleeps(watch_of, eventually):
    """A host that does nothing is not woken every second; the next call wakes the thread."""
    duty = Duty()
    watch = watch_of(duty)
    watch.wake()
    eventually(lambda: duty.count > 20 and not watch_is_at_work(duty))
    slept = duty.count
    watch.wake()
    eventually(lambda: duty.count > slept)
    assert len(duty.threads) == 1


def watch_is_at_work(duty):
    before = duty.count
    threading.Event().wait(0.1)
    return duty.count > before


def test_error_a_look_that_fails_is_logged_and_the_next_may_go_better(watch_of, eventually, caplog):
    """One broken look does not end the watch."""
    duty = Duty(answer=True)
    duty.error = ValueError("not a good look")
    watch = watch_of(duty)
    watch.wake()
    eventually(lambda: duty.count > 3)
    duty.error = None
    seen = duty.count
    eventually(lambda: duty.count > seen + 3)
    assert "a look at what runs failed" in caplog.text
    assert "not a good look" in caplog.text


@pytest.mark.parametrize("state", ["never-woken", "awake", "asleep"])
def test_closing_ends_the_thread(watch_of, eventually, state):
    """After close no thread is left, wherever it was; closing again is harmless."""
    before = set(threading.enumerate())
    duty = Duty(answer=state == "awake")
    watch = watch_of(duty)
    if state != "never-woken":
        watch.wake()
        eventually(lambda: duty.count > (21 if state == "asleep" else 1))
    watch.close()
    watch.close()
    assert set(threading.enumerate()) <= before


def test_what_is_closed_is_not_woken(watch_of):
    """A call that starts while the registry closes starts no thread."""
    before = threading.active_count()
    duty = Duty()
    watch = watch_of(duty)
    watch.close()
    watch.wake()
    assert threading.active_count() == before


def test_the_duty_itself_may_close_the_watch(watch_of, eventually):
    """Where the last reference goes in the watch's own thread, it does not wait for itself."""
    watches: list[Watch] = []

    def duty():
        watches[0].close()
        return False

    watches.append(watch_of(duty))
    before = threading.active_count()
    watches[0].wake()
    eventually(lambda: threading.active_count() == before)


def test_waking_from_many_threads_starts_one(watch_of, eventually):
    """Calls that start at the same time share one watch."""
    duty = Duty(answer=True)
    watch = watch_of(duty)
    start = threading.Barrier(16)

    def wake():
        start.wait(PATIENCE_S)
        watch.wake()

    for one in [Background(wake) for _ in range(16)]:
        one.join(PATIENCE_S)
    eventually(lambda: duty.count > 3)
    assert len(duty.threads) == 1
