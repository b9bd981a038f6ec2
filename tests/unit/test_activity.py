"""Signs of life: when a cartridge has been silent for too long, and what excuses it."""

from __future__ import annotations

import pytest

from cartridge_core.activity import Activity


@pytest.fixture(autouse=True)
def _rule(clock):
    clock.rule("activity")


@pytest.mark.parametrize(
    ("silent_s", "is_over"),
    [
        pytest.param(0.0, False, id="at-once"),
        pytest.param(119.0, False, id="below-the-limit"),
        pytest.param(120.0, False, id="at-the-limit"),
        pytest.param(121.0, True, id="above-the-limit"),
        pytest.param(1e6, True, id="days"),
    ],
)
def test_silence_may_last_as_long_as_the_limit(clock, silent_s, is_over):
    """After the limit, and not before, the silence is too long."""
    activity = Activity(120.0)
    clock.advance(silent_s)
    assert (activity.overdue() is not None) is is_over


def test_what_is_overdue_says_the_limit_and_what_to_do(clock):
    """The reason names the seconds, and both ways to allow more."""
    activity = Activity(0.5)
    clock.advance(1)
    why = str(activity.overdue())
    assert "no sign of life for 0.5 s" in why
    assert "activity_timeout_s" in why
    assert "report progress" in why


def test_a_sign_of_life_starts_the_silence_anew(clock):
    """What counts is the time since the last sign."""
    activity = Activity(10.0)
    for _ in range(5):
        clock.advance(9)
        activity.sign()
    assert activity.overdue() is None
    clock.advance(11)
    assert activity.overdue() is not None


def test_the_clock_stands_still_while_excused(clock):
    """No time counts inside an excuse, and none of what went before it counts after."""
    activity = Activity(10.0)
    clock.advance(9)
    with activity.excused():
        clock.advance(1000)
        assert activity.overdue() is None
    clock.advance(9)
    assert activity.overdue() is None
    clock.advance(2)
    assert activity.overdue() is not None


def test_excuses_nest(clock):
    """The clock goes on after the last excuse, whichever ends first."""
    activity = Activity(10.0)
    one, two = activity.excused(), activity.excused()
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    clock.advance(1000)
    assert activity.overdue() is None
    two.__exit__(None, None, None)
    clock.advance(11)
    assert activity.overdue() is not None


def test_an_excuse_ends_with_an_error(clock):
    """What is raised inside ends the excuse too."""
    activity = Activity(10.0)
    with pytest.raises(ZeroDivisionError), activity.excused():
        _ = 1 / 0
    clock.advance(11)
    assert activity.overdue() is not None


def test_blocking_work_has_a_limit_of_its_own(clock):
    """Inside, its own limit holds in the place of the clock's, a longer one or a shorter."""
    activity = Activity(10.0)
    with activity.blocking("loading weights", 600.0):
        clock.advance(599)
        assert activity.overdue() is None
        clock.advance(2)
        assert "loading weights has not ended within its limit of 600 s" in str(activity.overdue())
    assert activity.overdue() is None
    with activity.blocking("a short one", 1.0):
        clock.advance(2)
        assert activity.overdue() is not None


def test_the_limit_of_blocking_work_counts_on_through_signs_and_excuses(clock):
    """A report from inside does not give it more time."""
    activity = Activity(10.0)
    with activity.blocking("a library", 5.0), activity.excused():
        for _ in range(3):
            clock.advance(2)
            activity.sign()
        assert "a library" in str(activity.overdue())


def test_blocking_work_nests(clock):
    """Each piece has its own limit; the one that ends leaves the other's."""
    activity = Activity(10.0)
    with activity.blocking("outer", 100.0):
        with activity.blocking("inner", 5.0):
            clock.advance(6)
            assert "inner" in str(activity.overdue())
        assert activity.overdue() is None
        clock.advance(95)
        assert "outer" in str(activity.overdue())


def test_after_the_end_was_asked_for_no_sign_counts(clock):
    """Work that goes on talking when it is to stop gets the limit once more, and no longer."""
    activity = Activity(10.0)
    clock.advance(9)
    activity.expect_end()
    for _ in range(4):
        clock.advance(2)
        activity.sign()
    assert activity.overdue() is None
    with activity.excused():
        clock.advance(3)
        assert activity.overdue() is None
    assert activity.overdue() is not None


def test_asking_again_gives_no_more_time(clock):
    """The silence begins with the first time."""
    activity = Activity(10.0)
    for _ in range(6):
        activity.expect_end()
        clock.advance(2)
    assert activity.overdue() is not None


def test_a_peer_call_answers_for_all_who_wait_for_it(clock):
    """While its own clock decides, the silence of every caller up the chain begins anew."""
    root = Activity(10.0)
    middle = Activity(10.0, root)
    leaf = Activity(100.0, middle)
    clock.advance(9)
    leaf.answer_for_parents()
    clock.advance(9)
    assert [one.overdue() is None for one in (root, middle, leaf)] == [True, True, True]
    clock.advance(2)
    assert [one.overdue() is None for one in (root, middle, leaf)] == [False, False, True]


def test_a_peers_signs_and_excuses_are_its_own(clock):
    """Only where somebody looks at the peer call does it answer for its caller."""
    parent = Activity(10.0)
    child = Activity(10.0, parent)
    clock.advance(11)
    child.sign()
    with child.excused():
        assert parent.overdue() is not None
        assert child.overdue() is None
