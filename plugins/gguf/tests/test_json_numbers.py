"""Numbers between bounds."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from grammar_texts import accepts, derive
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_gguf.json_numbers import (
    MILLIONTHS,
    first_multiple,
    integers,
    last_multiple,
    numbers,
)

if TYPE_CHECKING:
    import random

    from cartridge_gguf.grammar_nodes import Node

BOUNDS = st.none() | st.integers(-2_000, 2_000) | st.integers(-(10**21), 10**21)
FINE = st.none() | st.integers(-3 * MILLIONTHS, 3 * MILLIONTHS) | st.integers(-(10**17), 10**17)


def within(first: int | None, last: int | None, value: Decimal | int) -> bool:
    return (first is None or first <= value) and (last is None or value <= last)


def written(millionths: int) -> set[str]:
    """Give a number's texts with every zero and with none."""
    whole, rest = divmod(abs(millionths), MILLIONTHS)
    long = f"{'-' if millionths < 0 else ''}{whole}.{rest:06d}"
    return {long, long.rstrip("0").removesuffix(".")}


def rules(node: Node | None) -> dict[str, Node]:
    assert node is not None
    return {"root": node}


@given(BOUNDS, BOUNDS, st.randoms(use_true_random=False), st.data())
@settings(deadline=None)
def test_integers_are_those_of_the_range(
    first: int | None, last: int | None, chance: random.Random, data: st.DataObject
) -> None:
    """Exactly the integers between the bounds, of at most 19 digits, each written in one way."""
    node = integers(first, last)
    largest = 10**19 - 1
    least = -largest if first is None else max(first, -largest)
    most = largest if last is None else min(last, largest)
    if node is None:
        assert least > most
        return
    made = derive(rules(node), chance)
    assert str(int(made)) == made
    assert least <= int(made) <= most
    near = st.sampled_from([least, most, 0]).flatmap(lambda n: st.integers(n - 2, n + 2))
    value = data.draw(near | st.integers(-3_000, 3_000))
    assert accepts(rules(node), str(value)) == (least <= value <= most)


@given(FINE, FINE, st.randoms(use_true_random=False), st.data())
@settings(deadline=None)
def test_numbers_are_those_of_the_range(
    first: int | None, last: int | None, chance: random.Random, data: st.DataObject
) -> None:
    """Exactly the numbers between the bounds, of at most 9 digits and 6 after the point."""
    node = numbers(first, last)
    largest = 10**15 - 1
    least = -largest if first is None else max(first, -largest)
    most = largest if last is None else min(last, largest)
    if node is None:
        assert least > most
        return
    made = derive(rules(node), chance)
    assert within(first, last, Decimal(made) * MILLIONTHS)
    if first is None and last is None:
        return
    near = st.sampled_from([least, most, 0]).flatmap(lambda n: st.integers(n - 2, n + 2))
    value = data.draw(near | st.integers(-4 * MILLIONTHS, 4 * MILLIONTHS))
    for text in written(value):
        assert accepts(rules(node), text) == (least <= value <= most), text


@pytest.mark.parametrize("text", ["007", "-0", "+1", "1.", ".5", "1e3", "", "0x1", "1.0"])
def test_other_spellings_are_no_integers(text: str) -> None:
    """There are no leading zeros, no sign before zero, no exponents."""
    assert not accepts(rules(integers(None, None)), text)
    assert not accepts(rules(integers(-5, 2_000)), text)


@pytest.mark.parametrize(
    "text", ["01", "1.", ".5", "1e", "1e999", "", "NaN", "1.1234567890123456789"]
)
def test_other_spellings_are_no_numbers(text: str) -> None:
    """A number without bounds is JSON's, and cannot be endless or infinite."""
    assert not accepts(rules(numbers(None, None)), text)


@pytest.mark.parametrize(
    "text", ["0", "-1", "1.5", "-0.25e-7", "1E+20", "12345678901234567890"[:19]]
)
def test_json_numbers_are_numbers(text: str) -> None:
    """What JSON allows is allowed, up to the limits."""
    assert accepts(rules(numbers(None, None)), text)


@pytest.mark.parametrize(
    ("bound", "excluded", "first", "last"),
    [
        pytest.param("5", False, 5, 5, id="itself"),
        pytest.param("5", True, 6, 4, id="excluded"),
        pytest.param("0.5", False, 1, 0, id="between"),
        pytest.param("0.5", True, 1, 0, id="between-excluded"),
        pytest.param("-1.5", False, -1, -2, id="negative"),
        pytest.param("1e3", False, 1_000, 1_000, id="exponent"),
    ],
)
def test_bounds_become_whole(bound: str, excluded: bool, first: int, last: int) -> None:
    """A bound is rounded towards the inside."""
    assert first_multiple(Decimal(bound), 1, excluded=excluded) == first
    assert last_multiple(Decimal(bound), 1, excluded=excluded) == last
