"""Work in a thread of its own: its items, its error, and leaving it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import CancelledError
from cartridge_models.aside import THREAD, aside

if TYPE_CHECKING:
    from collections.abc import Generator


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


def test_items_come_in_order_and_no_thread_is_left() -> None:
    """All items come, made in a thread of the name, which ends."""
    made_in = set()

    def make() -> Generator[int, None, None]:
        for number in range(100):
            made_in.add(threading.current_thread().name)
            yield number

    assert list(aside(make(), lambda: None)) == list(range(100))
    assert made_in == {THREAD}
    assert ours() == []


def test_error_is_the_waiting_threads() -> None:
    """What the work raises is raised where it is waited for, after what came before."""

    def make() -> Generator[int, None, None]:
        yield 1
        msg = "broken"
        raise OSError(msg)

    items = aside(make(), lambda: None)
    assert next(items) == 1
    with pytest.raises(OSError, match="broken"):
        next(items)


def test_no_more_than_a_few_items_are_made_ahead() -> None:
    """Whoever takes slowly is not buried."""
    made = []

    def make() -> Generator[int, None, None]:
        for number in range(100):
            made.append(number)
            yield number

    items = aside(make(), lambda: None)
    next(items)
    time.sleep(0.2)
    assert len(made) <= 7
    items.close()


def test_cancel_leaves_work_that_hangs() -> None:
    """A call that does not come back is left at once, and closed when it does."""
    go, closed = threading.Event(), threading.Event()
    since_s: list[float] = []

    def make() -> Generator[int, None, None]:
        try:
            go.wait(20)
            yield 1
        finally:
            closed.set()

    def check() -> None:
        if not since_s:
            since_s.append(time.monotonic())
        elif time.monotonic() - since_s[0] > 0.2:
            since_s.append(time.monotonic())
            raise CancelledError

    with pytest.raises(CancelledError):
        next(aside(make(), check))
    assert time.monotonic() - since_s[0] < 0.45
    go.set()
    assert closed.wait(5)
