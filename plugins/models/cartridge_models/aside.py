"""Work in a thread of its own, so that whoever waits for it can leave at any time."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TYPE_CHECKING, TypeVar

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["THREAD", "aside"]

T = TypeVar("T")

THREAD = "cartridge-models"
"""The name of every such thread."""

_POLL_S = 0.05
_AHEAD = 4


@attrs.frozen
class _Failed:
    error: Exception


@attrs.frozen
class _Ended:
    """There is nothing more."""


def aside(items: Generator[T, None, None], check: Callable[[], None]) -> Generator[T, None, None]:
    """
    Take an iterator's items while another thread makes them.

    Args:
        items: Used and closed in that thread alone. A call that blocks there when the caller
            leaves goes on until it comes back, and its outcome goes nowhere.
        check: Called between items, and every 50 ms while there is none; what it raises ends this.

    Returns:
        The items, at most four of them made ahead. Close it to leave.
    """
    ready: queue.Queue[tuple[T] | _Failed | _Ended] = queue.Queue(_AHEAD)
    left = threading.Event()
    thread = threading.Thread(target=_make, args=(items, ready, left), name=THREAD, daemon=True)
    return _take(thread, ready, left, check)


def _take(
    thread: threading.Thread,
    ready: queue.Queue[tuple[T] | _Failed | _Ended],
    left: threading.Event,
    check: Callable[[], None],
) -> Generator[T, None, None]:
    thread.start()
    try:
        while True:
            check()
            try:
                item = ready.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if not isinstance(item, tuple):
                thread.join()
                if isinstance(item, _Failed):
                    raise item.error
                return
            yield item[0]
    finally:
        left.set()


def _make(
    items: Generator[T, None, None],
    ready: queue.Queue[tuple[T] | _Failed | _Ended],
    left: threading.Event,
) -> None:
    last: _Failed | _Ended = _Ended()
    try:
        with contextlib.closing(items):
            for item in items:
                if not _offer((item,), ready, left):
                    return
    except Exception as exc:  # noqa: BLE001 -- it is the waiting thread's
        last = _Failed(exc)
    _offer(last, ready, left)


def _offer(
    item: tuple[T] | _Failed | _Ended,
    ready: queue.Queue[tuple[T] | _Failed | _Ended],
    left: threading.Event,
) -> bool:
    while not left.is_set():
        try:
            ready.put(item, timeout=_POLL_S)
        except queue.Full:
            continue
        return True
    return False
