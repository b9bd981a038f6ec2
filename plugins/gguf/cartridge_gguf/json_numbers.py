"""
JSON numbers between bounds, as grammars.

A number without bounds has at most 19 digits before the point, 16 after it and two of exponent, so
that it is finite and comes to an end. One with bounds is written without exponent, with at most 9
digits before the point and 6 after it: 15 digits are what a double tells apart, so that a number
that keeps its bound as a text keeps it as a double.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Final

from cartridge_gguf.grammar_nodes import (
    Characters,
    Choice,
    Node,
    Repeat,
    Series,
    Text,
    one_of,
    optional,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["MILLIONTHS", "first_multiple", "integers", "last_multiple", "numbers"]

_AFTER: Final = 6
MILLIONTHS: Final = 10**_AFTER

_DIGITS = 19
_LARGEST_INTEGER = 10**_DIGITS - 1
_LARGEST_NUMBER = 10**9 * MILLIONTHS - 1

_DIGIT = Characters.among("0123456789")
_NOT_ZERO = Characters.among("123456789")
_MINUS = Text("-")


def first_multiple(bound: Decimal, parts: int, *, excluded: bool) -> int:
    """Count parts (``parts`` of them are 1) up to the first that is not below a bound."""
    scaled = bound * parts
    found = int(scaled.to_integral_value(ROUND_CEILING))
    return found + 1 if excluded and found == scaled else found


def last_multiple(bound: Decimal, parts: int, *, excluded: bool) -> int:
    """Count parts (``parts`` of them are 1) up to the last that is not above a bound."""
    scaled = bound * parts
    found = int(scaled.to_integral_value(ROUND_FLOOR))
    return found - 1 if excluded and found == scaled else found


def integers(first: int | None, last: int | None) -> Node | None:
    """
    Make the integers of a range, without leading zeros.

    Args:
        first: The smallest; None where there is none.
        last: The largest; None where there is none.

    Returns:
        The grammar; None where no integer of at most 19 digits is in the range.
    """
    least = -_LARGEST_INTEGER if first is None else max(first, -_LARGEST_INTEGER)
    most = _LARGEST_INTEGER if last is None else min(last, _LARGEST_INTEGER)
    if least > most:
        return None
    options: list[Node] = []
    if least < 0:
        options += [Series((_MINUS, node)) for node in _between(max(1, -most), -least)]
    if most >= 0:
        options += _between(max(0, least), most)
    return one_of(options)


def numbers(first: int | None, last: int | None) -> Node | None:
    """
    Make the numbers of a range.

    Args:
        first: The smallest, in millionths; None where there is none.
        last: The largest, in millionths; None where there is none.

    Returns:
        The grammar; None where no number of at most 9 digits before the point and 6 after it is in
        the range.
    """
    if first is None and last is None:
        return _ANY_NUMBER
    least = -_LARGEST_NUMBER if first is None else max(first, -_LARGEST_NUMBER)
    most = _LARGEST_NUMBER if last is None else min(last, _LARGEST_NUMBER)
    if least > most:
        return None
    options: list[Node] = []
    if least < 0:
        options += [Series((_MINUS, node)) for node in _decimals(max(1, -most), -least)]
    if most >= 0:
        options += _decimals(max(0, least), most)
    return one_of(options)


def _between(first: int, last: int) -> Iterator[Node]:
    """Give the integers from one to another, neither negative; none where they are crossed."""
    if first > last:
        return
    low, high = str(first), str(last)
    if len(low) == len(high):
        yield from _same_length(low, high)
        return
    yield from _same_length(low, "9" * len(low))
    if len(high) - len(low) > 1:
        yield Series((_NOT_ZERO, Repeat(_DIGIT, len(low), most=len(high) - 2)))
    yield from _same_length("1" + "0" * (len(high) - 1), high)


def _same_length(low: str, high: str) -> Iterator[Node]:
    shared = 0
    while shared < len(low) and low[shared] == high[shared]:
        shared += 1
    start, low, high = low[:shared], low[shared:], high[shared:]
    if not low:
        yield Text(start)
        return
    bottom, top = int(low[0]), int(high[0])
    if low[1:].strip("0"):
        yield from _at_least(start + low[0], low[1:])
    else:
        bottom -= 1
    if high[1:].strip("9"):
        yield from _at_most(start + high[0], high[1:])
    else:
        top += 1
    if bottom + 1 < top:
        yield _from_digit(start, bottom + 1, top - 1, len(low) - 1)


def _at_least(start: str, low: str) -> Iterator[Node]:
    yield Text(start + low)
    for index, digit in enumerate(low):
        if digit != "9":
            yield _from_digit(start + low[:index], int(digit) + 1, 9, len(low) - index - 1)


def _at_most(start: str, high: str) -> Iterator[Node]:
    yield Text(start + high)
    for index, digit in enumerate(high):
        if digit != "0":
            yield _from_digit(start + high[:index], 0, int(digit) - 1, len(high) - index - 1)


def _from_digit(start: str, first: int, last: int, more: int) -> Node:
    """Make what starts so, goes on with a digit of a range, and ends with so many digits."""
    digits = Characters.of([(0x30 + first, 0x30 + last)])
    return Series((Text(start), digits, Repeat(_DIGIT, more, most=more)))


def _decimals(first: int, last: int) -> Iterator[Node]:
    """Give the numbers from one to another, in millionths, neither negative."""
    (low, low_rest), (high, high_rest) = divmod(first, MILLIONTHS), divmod(last, MILLIONTHS)
    if low == high:
        yield _with_fraction([Text(str(low))], low_rest, high_rest)
        return
    yield _with_fraction([Text(str(low))], low_rest, MILLIONTHS - 1)
    yield from (_with_fraction([node], 0, MILLIONTHS - 1) for node in _between(low + 1, high - 1))
    yield _with_fraction([Text(str(high))], 0, high_rest)


def _with_fraction(start: Iterable[Node], first: int, last: int) -> Node:
    digits = Series((Text("."), *_fraction(0, MILLIONTHS, first, last, begun=False)))
    return Series((*start, digits if first else optional(digits)))


def _fraction(base: int, size: int, first: int, last: int, *, begun: bool) -> tuple[Node, ...]:
    """
    Make the digits that follow those of ``base``, for values from ``first`` to ``last``.

    Args:
        base: The smallest value that has the digits so far.
        size: How many values have them.
        first: The smallest value wanted.
        last: The largest value wanted.
        begun: There is a digit already, so that none need follow.
    """
    if first <= base and base + size - 1 <= last:
        left = len(str(size)) - 1
        return (Repeat(_DIGIT, 0 if begun else 1, most=left),) if left else ()
    part = size // 10
    tails: dict[tuple[Node, ...], list[int]] = {}
    for digit in range(10):
        start = base + digit * part
        if start <= last and first < start + part:
            tail = _fraction(start, part, first, last, begun=True)
            tails.setdefault(tail, []).append(0x30 + digit)
    rest = one_of(
        Series((Characters.of((digit, digit) for digit in digits), *tail))
        for tail, digits in tails.items()
    )
    return (optional(rest) if begun and first <= base <= last else rest,)


_ANY_NUMBER = Series(
    (
        optional(_MINUS),
        Choice((Text("0"), Series((_NOT_ZERO, Repeat(_DIGIT, 0, most=_DIGITS - 1))))),
        optional(Series((Text("."), Repeat(_DIGIT, 1, most=16)))),
        optional(
            Series(
                (
                    Characters.among("eE"),
                    optional(Characters.among("+-")),
                    Repeat(_DIGIT, 1, most=2),
                )
            )
        ),
    )
)
