"""Routing a narrow request among ten thousand installed caps."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING

from benchmarks.measuring import interleave, sampler, seconds
from benchmarks.rows import Row
from benchmarks.shapes import BACKENDS, LANGUAGES, SHAPES
from cartridge_core import Registry
from cartridge_core.discovery import Discovered
from cartridge_core.offers import Offer
from cartridge_core.testing import fake_cap, fake_descriptor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring import Effort
    from benchmarks.shapes import Shape

__all__ = ["measure"]

_NEW_S = 1e-3
_REPEATED_S = 2e-6


def measure(effort: Effort) -> Iterator[Row]:
    """Route requests that name capability, backend and language: one cap in ten thousand."""
    offers = [_offer(*pair) for pair in enumerate(itertools.product(SHAPES, BACKENDS))]
    caps = sum(len(offer.descriptor.caps) for offer in offers)
    with Registry(Discovered(tuple(offers), {}, issues=())) as registry:
        yield _new(registry, f"{caps} caps", effort)
        yield _repeated(registry, f"{caps} caps", effort)


def _new(registry: Registry, note: str, effort: Effort) -> Row:
    requests = itertools.product(BACKENDS, LANGUAGES, SHAPES)

    def sample() -> float:
        chosen = [shape.request(*more) for *more, shape in itertools.islice(requests, 100)]

        def work() -> None:
            for request in chosen:
                registry.route(request)

        return seconds(work) / len(chosen)

    sample()
    rounds = interleave([sample], effort)
    median = statistics.median(times[0] for times in rounds)
    name = "route a narrow request, new"
    return Row("route", name, measured=median, budget=_NEW_S, note=note, samples=rounds)


def _repeated(registry: Registry, note: str, effort: Effort) -> Row:
    request = SHAPES[0].request(BACKENDS[-1], LANGUAGES[-1])
    rounds = interleave([sampler(lambda: registry.route(request), effort)], effort)
    median = statistics.median(times[0] for times in rounds)
    name = "route a narrow request, repeated"
    return Row("route", name, measured=median, budget=_REPEATED_S, note=note, samples=rounds)


def _offer(number: int, what: tuple[Shape, str]) -> Offer:
    """Give a cartridge that does one thing with one backend in ten languages."""
    shape, backend = what
    plugin = f"plugin-{backend}"
    caps = [_cap(shape, backend, language) for language in LANGUAGES]
    return Offer(fake_descriptor(f"{plugin}-{number}", caps=caps), plugin)


def _cap(shape: Shape, backend: str, language: str) -> dict[str, object]:
    more = ";".join([*shape.markers, backend, f"language={language}"])
    return {
        **fake_cap(more, takes=shape.takes, gives=shape.gives),
        "aliases": [f"{backend}-{language}"],
    }
