"""Host threads, and the exchange between a host thread and a caller."""

from __future__ import annotations

import threading
import time

import pytest

from cartridge_core.errors import StateError
from cartridge_core.threads import END, Exchange, HostThreads


def test_a_thread_is_kept_for_the_next_job():
    """Jobs one after another run on the same thread."""
    threads = HostThreads()
    names = []
    for _ in range(3):
        done = threading.Event()

        def job(done=done):
            names.append(threading.current_thread().name)
            done.set()

        threads.run(job)
        done.wait(5)
        time.sleep(0.02)
    threads.close()
    assert len(set(names)) == 1


def test_jobs_at_once_run_on_threads_of_their_own():
    """A job does not wait for another that is still running."""
    threads = HostThreads()
    both = threading.Barrier(2, timeout=5)
    ends = threading.Barrier(3, timeout=5)

    def job():
        both.wait()
        ends.wait()

    threads.run(job)
    threads.run(job)
    ends.wait()
    threads.close()


def test_closing_ends_idle_and_busy_threads():
    """After close no thread of the pool is left, busy ones end after their job."""
    before = set(threading.enumerate())
    threads = HostThreads()
    go = threading.Event()

    def wait():
        go.wait(5)

    threads.run(wait)
    threads.run(lambda: None)
    time.sleep(0.02)
    threads.close()
    go.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    assert set(threading.enumerate()) <= before


def test_error_a_closed_pool_takes_no_job():
    """A job after close is refused by name."""
    threads = HostThreads()
    threads.close()
    with pytest.raises(StateError, match="the registry is closed"):
        threads.run(lambda: None)


def test_events_come_in_order_and_then_the_end():
    """The caller gets every event in order, then END, and END again."""
    exchange: Exchange[int] = Exchange()
    for number in range(3):
        exchange.put(number)
    exchange.finish()
    assert [exchange.next_event() for _ in range(5)] == [0, 1, 2, END, END]


def test_at_most_eight_events_wait():
    """The ninth event waits until the caller has taken one."""
    exchange: Exchange[int] = Exchange()
    put = []

    def give():
        for number in range(10):
            exchange.put(number)
            put.append(number)

    thread = threading.Thread(target=give)
    thread.start()
    time.sleep(0.1)
    waiting = len(put)
    taken = [exchange.next_event() for _ in range(10)]
    thread.join(5)
    assert waiting == 8
    assert taken == list(range(10))


def test_closing_lets_a_waiting_giver_go():
    """A host thread that waits for room comes out when the caller is gone."""
    exchange: Exchange[int] = Exchange()

    def give():
        for number in range(20):
            exchange.put(number)

    thread = threading.Thread(target=give)
    thread.start()
    time.sleep(0.05)
    exchange.close()
    thread.join(5)
    assert not thread.is_alive()


def test_closing_lets_a_host_thread_that_waits_for_input_go():
    """A host thread that waits for a chunk gets END when the caller is gone."""
    exchange: Exchange[int] = Exchange()
    got = []
    thread = threading.Thread(target=lambda: got.append(exchange.next_chunk()))
    thread.start()
    time.sleep(0.05)
    exchange.close()
    thread.join(5)
    assert got == [END]


def test_what_the_host_offers_comes_in_order_too():
    """The caller gets it among the events, once."""
    exchange: Exchange[int] = Exchange()
    exchange.offer(1)
    exchange.put(2)
    assert [exchange.next_event() for _ in range(2)] == [1, 2]
    exchange.offer(3)
    exchange.finish()
    assert [exchange.next_event() for _ in range(3)] == [3, END, END]


def test_nothing_is_offered_to_one_who_has_something_to_take():
    """A caller who does not read is not buried in words that say that the work goes on."""
    exchange: Exchange[int] = Exchange()
    exchange.put(1)
    exchange.offer(2)
    assert exchange.next_event() == 1
    for number in range(3, 30):
        exchange.offer(number)
    assert exchange.next_event() == 3
    exchange.offer(30)
    exchange.finish()
    assert [exchange.next_event() for _ in range(2)] == [30, END]


def test_nothing_is_offered_to_one_who_is_gone():
    """After close nothing is added."""
    exchange: Exchange[int] = Exchange()
    exchange.close()
    exchange.offer(1)
    exchange.finish()
    assert exchange.next_event() is END


@pytest.mark.parametrize(
    ("event", "waits"), [("none", False), ("put", True), ("offered", False), ("wanted", True)]
)
def test_who_has_something_to_take_or_to_give_is_waited_for(event, waits, eventually):
    """Not so with what the host says by itself, nor once the caller is gone."""
    exchange: Exchange[int] = Exchange()
    thread = threading.Thread(target=exchange.next_chunk)
    if event == "put":
        exchange.put(1)
    elif event == "offered":
        exchange.offer(1)
    elif event == "wanted":
        thread.start()
        eventually(lambda: exchange.waits_for_caller)
    assert exchange.waits_for_caller is waits
    exchange.close()
    assert not exchange.waits_for_caller
    if event == "wanted":
        thread.join(5)


def test_input_is_read_in_the_callers_thread_and_at_most_eight_ahead():
    """Chunks are read by whoever takes events, once the host wants input, and 8 ahead at most."""
    exchange: Exchange[int] = Exchange()
    readers = set()
    read = []
    source = iter(range(30))

    def more():
        readers.add(threading.current_thread())
        chunk = next(source, END)
        read.append(chunk)
        return chunk

    ahead = []

    def host():
        while isinstance(chunk := exchange.next_chunk(), int):
            time.sleep(0.002)
            ahead.append(len(read) - chunk)
            exchange.put(chunk)
        exchange.finish()

    assert not read
    thread = threading.Thread(target=host)
    thread.start()
    events = []
    while (event := exchange.next_event(more)) is not END:
        events.append(event)
    thread.join(5)
    assert events == list(range(30))
    assert readers == {threading.current_thread()}
    assert max(ahead) <= 10  # 8 waiting, one in the host's hands, one in the reader's


def test_no_input_is_read_before_the_host_wants_it():
    """While the model is fetched and loaded the caller's iterable is not touched."""
    exchange: Exchange[int] = Exchange()
    read = []
    exchange.put(1)
    exchange.finish()

    def more():
        read.append(1)
        return END

    assert exchange.next_event(more) == 1
    assert exchange.next_event(more) is END
    assert read == []
