"""Parsing URNs, and asking whether a cap serves a request; always ones not seen before."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING

from benchmarks.measuring import interleave, seconds
from benchmarks.rows import Row
from benchmarks.shapes import unseen, unseen_in_and_out
from cartridge_core import CapUrn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring import Effort
    from benchmarks.shapes import Shape

__all__ = ["measure"]

_PARSE_S = 20e-6
_DISPATCH_S = 5e-6

_numbers = itertools.count()


def measure(effort: Effort) -> Iterator[Row]:
    """Parse and dispatch."""
    yield _row("parse a cap URN, its media URNs seen", _PARSE_S, lambda: _parse(unseen), effort)
    yield _row("parse a cap URN, nothing seen", _PARSE_S, lambda: _parse(unseen_in_and_out), effort)
    yield _row("dispatch, the cap serves", _DISPATCH_S, lambda: _dispatch(serves=True), effort)
    yield _row("dispatch, another backend's", _DISPATCH_S, lambda: _dispatch(serves=False), effort)


def _row(name: str, budget: float, sample: Callable[[], float], effort: Effort) -> Row:
    sample()
    rounds = interleave([sample], effort)
    median = statistics.median(times[0] for times in rounds)
    return Row("urn", name, measured=median, budget=budget, samples=rounds)


_MANY = 2000


def _parse(generate: Callable[[int], tuple[Shape, str, str]]) -> float:
    generated = map(generate, itertools.islice(_numbers, _MANY))
    texts = [shape.cap(backend, language) for shape, backend, language in generated]

    def work() -> None:
        for text in texts:
            CapUrn.parse(text)

    return seconds(work) / _MANY


def _dispatch(*, serves: bool) -> float:
    pairs = [_pair(number, serves=serves) for number in itertools.islice(_numbers, _MANY)]
    assert all(cap.is_dispatchable(request) is serves for cap, request in pairs)  # noqa: S101 -- or it measures something else
    pairs = [_pair(number, serves=serves) for number in itertools.islice(_numbers, _MANY)]

    def work() -> None:
        for cap, request in pairs:
            cap.is_dispatchable(request)

    return seconds(work) / _MANY


def _pair(number: int, *, serves: bool) -> tuple[CapUrn, CapUrn]:
    shape, backend, language = unseen_in_and_out(number)
    asked = backend if serves else "another-engine"
    return CapUrn.parse(shape.cap(backend, language)), CapUrn.parse(shape.request(asked))
