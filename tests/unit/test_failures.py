"""Loads that failed a moment ago."""

from __future__ import annotations

import gc
import weakref

import pytest

from cartridge_core.errors import LoadError, PreflightError
from cartridge_core.failures import Failures
from cartridge_core.reports import Check, PreflightReport


@pytest.fixture
def failures(clock):
    clock.rule("failures")
    return Failures()


def fail(failures, error=None, key="key", times=1):
    for _ in range(times):
        failures.note(key, "fake-echo", error or LoadError("no such weights"))


def test_the_first_failure_holds_nobody_up(failures):
    """Whatever was wrong may have been put right."""
    fail(failures)
    failures.check("key")
    assert failures.held_up() == []


@pytest.mark.parametrize(
    ("times", "wait_s"),
    [(2, 1), (3, 2), (4, 4), (5, 8), (7, 32), (8, 60), (9, 60), (2000, 60)],
)
def test_from_the_second_on_the_wait_doubles_up_to_a_minute(failures, clock, times, wait_s):
    """So long the last error is given without another attempt, and then no longer."""
    fail(failures, times=times)
    clock.advance(wait_s - 0.01)
    with pytest.raises(LoadError, match="no such weights"):
        failures.check("key")
    assert [(one.cartridge_id, one.count) for one in failures.held_up()] == [("fake-echo", times)]
    clock.advance(0.02)
    failures.check("key")
    assert failures.held_up() == []


def test_what_never_failed_is_not_held_up(failures):
    """Each key has its own failures."""
    fail(failures, times=5)
    failures.check("other")


def test_a_success_is_a_new_beginning(failures):
    """After it the first failure holds nobody up again."""
    fail(failures, times=5)
    failures.clear("key")
    failures.check("key")
    fail(failures)
    failures.check("key")


def test_clearing_what_never_failed_is_harmless(failures):
    """Most loads go well the first time."""
    failures.clear("key")


def test_the_last_error_counts(failures):
    """Callers get what failed last, of the same class, with its data."""
    report = PreflightReport((Check("npu", ok=False),))
    fail(failures, LoadError("first"))
    fail(failures, PreflightError("second", report=report))
    with pytest.raises(PreflightError, match="second") as caught:
        failures.check("key")
    assert caught.value.report is report


def raised(value):
    """Give an error whose traceback and cause hold on to a value."""

    def load(held):
        msg = f"failed with {type(held).__name__}"
        raise KeyError(msg)

    try:
        try:
            load(value)
        except KeyError as exc:
            msg = "wrapped"
            raise LoadError(msg) from exc
    except LoadError as error:
        return error


class Big:
    """Something that should not live on."""


def test_nothing_of_a_failed_call_is_kept_alive(failures):
    """What is remembered has no traceback: its frames hold every caller's values."""
    value = Big()
    gone = weakref.ref(value)
    for _ in range(3):
        fail(failures, raised(value))
    with pytest.raises(LoadError) as caught:
        failures.check("key")
    assert caught.value.__cause__ is None
    del value, caught
    gc.collect()
    assert gone() is None


def test_each_caller_gets_an_error_of_his_own(failures):
    """An error that is raised again and again would grow with every caller's traceback."""
    fail(failures, times=2)
    seen = []
    for _ in range(2):
        with pytest.raises(LoadError) as caught:
            failures.check("key")
        seen.append(caught.value)
    assert seen[0] is not seen[1]


def test_a_note_on_the_error_is_kept(failures):
    """What a plugin added for a person is still there."""
    error = LoadError("no")
    error.add_note("look at the disk")
    fail(failures, error, times=2)
    with pytest.raises(LoadError) as caught:
        failures.check("key")
    assert caught.value.__notes__ == ["look at the disk"]


class AwkwardError(Exception):
    """Cannot be copied: it needs two arguments, and passes one on."""

    def __init__(self, path, why):
        super().__init__(f"{path}: {why}")


def test_an_error_that_cannot_be_copied_is_told_in_words(failures):
    """A plugin's own class is named in a LoadError then."""
    fail(failures, AwkwardError("model.bin", "torn"), times=2)
    with pytest.raises(LoadError, match=r"AwkwardError: model\.bin: torn"):
        failures.check("key")


def test_the_memory_is_bounded(failures):
    """Of very many that fail the oldest are forgotten."""
    for number in range(1000):
        fail(failures, key=number, times=2)
    assert len(failures.held_up()) == 256
    failures.check(0)
    with pytest.raises(LoadError):
        failures.check(999)
