"""Loads that would wait for each other."""

from __future__ import annotations

import contextlib
import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from cartridge_core.crossings import Crossings
from cartridge_core.errors import StateError
from cartridge_core.resident import Place

if TYPE_CHECKING:
    from cartridge_core.offers import Offer


@pytest.fixture
def places():
    return [
        Place(name, cast("Offer", SimpleNamespace(id=f"fake-{name}")), None) for name in "abcdef"
    ]


@pytest.fixture
def waits():
    """Let loads wait until the test is over, and give the way to end one."""
    crossings = Crossings()
    with contextlib.ExitStack() as stack:

        def wait(loads, on):
            return stack.enter_context(crossings.wait(loads, on))

        yield wait


def test_work_that_is_no_part_of_a_load_may_wait_for_any(waits, places):
    """A call waits for another's load, whatever that waits for."""
    a, b, *_ = places
    waits([a], b)
    waits([], a)
    waits([], b)


def test_one_may_wait_for_what_does_not_wait_for_it(waits, places):
    """A chain is no circle, nor do two that wait for the same make one."""
    a, b, c, d, *_ = places
    waits([a], b)
    waits([b], c)
    waits([d], c)
    waits([d], b)


@pytest.mark.parametrize("length", [1, 2, 3, 6])
def test_error_a_circle_is_refused_where_it_would_close(waits, places, length):
    """The last of a circle of any length does not wait, and hears which load it is."""
    ring = places[:length]
    for one, following in itertools.pairwise(ring):
        waits([one], following)
    with pytest.raises(StateError, match=f"{ring[0].offer.id} is being opened by a load that"):
        waits([ring[-1]], ring[0])


def test_error_says_what_to_do(waits, places):
    """The plugin's author learns how to avoid it."""
    a, b, *_ = places
    waits([a], b)
    with pytest.raises(StateError, match="make the peer call after the open"):
        waits([b], a)


def test_error_a_load_inside_a_load_counts_as_both(waits, places):
    """What a load loads by a peer call is a part of it."""
    outer, inner, other, another, *_ = places
    waits([other], outer)
    waits([another], inner)
    for one in (other, another):
        with pytest.raises(StateError, match=f"{one.offer.id} is being opened"):
            waits([outer, inner], one)
    waits([inner], other)


def test_who_has_waited_is_in_nobodys_way(places):
    """After the wait, however it ended, the other way round is no circle."""
    a, b, *_ = places
    crossings = Crossings()
    with contextlib.suppress(ZeroDivisionError), crossings.wait([a], b):
        _ = 1 / 0
    with crossings.wait([b], a):
        pass


def test_a_refused_wait_leaves_no_trace(waits, places):
    """After the refusal both may wait for others."""
    a, b, c, *_ = places
    waits([a], b)
    for _ in range(3):
        with pytest.raises(StateError):
            waits([b], a)
    waits([b], c)
    waits([c], places[3])


def test_two_waits_of_one_load_are_two(places):
    """A load may wait from two threads; the circle is there until both have ended."""
    a, b, *_ = places
    crossings = Crossings()
    with crossings.wait([a], b):
        with crossings.wait([a], b):
            pass
        with pytest.raises(StateError), crossings.wait([b], a):
            pass
    with crossings.wait([b], a):
        pass


def test_a_fork_in_the_way_is_followed(waits, places):
    """Every load that one waits for is looked at, not the first alone."""
    a, b, c, d, *_ = places
    waits([a], b)
    waits([a], c)
    waits([c], d)
    with pytest.raises(StateError):
        waits([d], a)
