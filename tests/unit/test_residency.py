"""What stays loaded, and loads that happen once."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from cartridge_core.context import Context
from cartridge_core.errors import CancelledError, LoadError, StateError
from cartridge_core.residency import Lease, Residency, Resident

if TYPE_CHECKING:
    from cartridge_core.offers import Offer


OFFER = cast("Offer", SimpleNamespace(id="fake-echo"))


class FakeBinding:
    """Notes what is closed."""

    def __init__(self):
        self.closed = []

    def close(self, handle):
        if handle == "stubborn":
            msg = "will not close"
            raise RuntimeError(msg)
        self.closed.append(handle)


@pytest.fixture
def binding():
    return FakeBinding()


def loader(binding, handle="one", loads=None):
    def load():
        if loads is not None:
            loads.append(handle)
        return Resident(OFFER, binding, handle)

    return load


def test_a_kept_one_is_loaded_once(binding):
    """A cartridge that a call keeps is there for the next call."""
    residency = Residency()
    loads: list[str] = []
    for _ in range(3):
        residency.acquire("key", loader(binding, loads=loads), Context(), keep=True).release()
    assert loads == ["one"]
    assert binding.closed == []


def test_one_that_is_not_kept_is_closed_by_its_last_lease(binding):
    """Without a call that keeps it, the last to give it back unloads it."""
    residency = Residency()
    first = residency.acquire("key", loader(binding), Context(), keep=False)
    second = residency.acquire("key", loader(binding), Context(), keep=False)
    first.release()
    assert binding.closed == []
    second.release()
    assert binding.closed == ["one"]


def test_releasing_twice_is_harmless(binding):
    """A lease that is given back twice counts once."""
    residency = Residency()
    first = residency.acquire("key", loader(binding), Context(), keep=False)
    second = residency.acquire("key", loader(binding), Context(), keep=False)
    first.release()
    first.release()
    assert binding.closed == []
    second.release()


def test_callers_at_once_share_one_load(binding):
    """Sixteen callers that ask at the same time cause one load."""
    residency = Residency()
    loads: list[str] = []
    leases: list[Lease] = []

    def slow():
        time.sleep(0.1)
        return loader(binding, loads=loads)()

    def ask():
        leases.append(residency.acquire("key", slow, Context(), keep=True))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert loads == ["one"]
    assert len(leases) == 16


def test_error_a_failed_load_is_shared_and_the_next_caller_tries_again(binding):
    """Everyone who waits gets the failure of the one load; later callers load anew."""
    residency, failures, attempts = Residency(), [], []

    def fail():
        attempts.append(1)
        time.sleep(0.1)
        msg = "no such weights"
        raise LoadError(msg)

    def ask():
        try:
            residency.acquire("key", fail, Context(), keep=True)
        except LoadError as exc:
            failures.append(exc)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(attempts) == 1
    assert len(failures) == 4
    residency.acquire("key", loader(binding), Context(), keep=True).release()


def test_one_callers_cancellation_is_not_the_others(binding):
    """When the caller who loads is cancelled, one who waits loads in his place."""
    residency = Residency()
    loading = threading.Event()

    def cancelled():
        loading.set()
        time.sleep(0.1)
        msg = "cancelled"
        raise CancelledError(msg)

    def first():
        with pytest.raises(CancelledError):
            residency.acquire("key", cancelled, Context(), keep=True)

    thread = threading.Thread(target=first)
    thread.start()
    loading.wait(5)
    lease = residency.acquire("key", loader(binding, "two"), Context(), keep=True)
    thread.join(5)
    assert lease.resident.handle == "two"


def test_a_caller_who_waits_can_be_cancelled(binding):
    """Waiting for another's load ends with the waiter's own cancellation."""
    residency, context = Residency(), Context()
    loading, go = threading.Event(), threading.Event()

    def slow():
        loading.set()
        go.wait(5)
        return loader(binding)()

    thread = threading.Thread(
        target=lambda: residency.acquire("key", slow, Context(), keep=True).release()
    )
    thread.start()
    loading.wait(5)
    context.cancel()
    with pytest.raises(CancelledError):
        residency.acquire("key", slow, context, keep=True)
    go.set()
    thread.join(5)
    assert residency.acquire("key", slow, Context(), keep=True).resident.handle == "one"


def test_closing_unloads_what_is_kept_and_goes_on_after_a_failure(binding, caplog):
    """Close unloads everything idle; what fails is logged and the rest is unloaded too."""
    residency = Residency()
    for handle in ("stubborn", "one"):
        residency.acquire(handle, loader(binding, handle), Context(), keep=True).release()
    residency.close()
    assert binding.closed == ["one"]
    assert "closing fake-echo failed" in caplog.text


def test_what_is_in_use_at_close_is_unloaded_by_its_user(binding):
    """A lease outlives close; giving it back unloads."""
    residency = Residency()
    lease = residency.acquire("key", loader(binding), Context(), keep=True)
    residency.close()
    assert binding.closed == []
    lease.release()
    assert binding.closed == ["one"]


def test_error_nothing_is_acquired_after_close(binding):
    """A closed registry loads nothing."""
    residency = Residency()
    residency.close()
    with pytest.raises(StateError, match="the registry is closed"):
        residency.acquire("key", loader(binding), Context(), keep=True)
