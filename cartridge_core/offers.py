"""What is on offer: descriptors with the plugin that opens them, indexed for requests."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from cartridge_core.capdefs import Cap
    from cartridge_core.descriptor import Descriptor, Isolation
    from cartridge_core.reports import DiscoveryIssue
    from cartridge_core.urn import CapUrn

__all__ = ["NATIVE", "Index", "Offer", "OfferedCap"]

NATIVE = "native"
"""The plugin that opens libraries; all its cartridges are packs."""


@attrs.frozen
class Offer:
    """A descriptor, the plugin that opens it, and the pack it stands in."""

    descriptor: Descriptor
    plugin: str

    pack: Path | None = None
    """The pack's folder; None for a plugin's own descriptor."""

    @property
    def id(self) -> str:
        """The cartridge's id."""
        return self.descriptor.id

    @property
    def hook_id(self) -> str:
        """The cartridge id the plugin's hooks are given; a pack's is its base's."""
        return self.descriptor.base or self.descriptor.id

    @property
    def isolation(self) -> Isolation:
        """Where it runs unless the host says otherwise: a library in a process, if it is silent."""
        is_silent = "isolation" not in self.descriptor.attributes
        return "process" if self.plugin == NATIVE and is_silent else self.descriptor.isolation


@attrs.frozen(eq=False)
class OfferedCap:
    """One cap of one offer: what a request can go to."""

    offer: Offer
    cap: Cap


class Index:
    """
    Every offer, ready to be asked.

    Args:
        offers: What discovery found; ids are unique.
        issues: What discovery could not use.
        system: The platform, as ``sys.platform`` names it.
        machine: The processor, as ``platform.machine()`` names it.
    """

    def __init__(
        self,
        offers: Iterable[Offer] = (),
        issues: Iterable[DiscoveryIssue] = (),
        *,
        system: str = sys.platform,
        machine: str | None = None,
    ) -> None:
        self.offers = tuple(sorted(offers, key=lambda offer: offer.id))
        self.issues = tuple(issues)
        self.system = system
        self.machine = platform.machine() if machine is None else machine
        self.caps = tuple(
            OfferedCap(offer, cap) for offer in self.offers for cap in offer.descriptor.caps
        )
        self._by_id = {offer.id: offer for offer in self.offers}
        self._having: dict[tuple[str, ...], list[OfferedCap]] = {}
        for offered in self.caps:
            for feature in _features(offered.cap.urn):
                self._having.setdefault(feature, []).append(offered)

    def get(self, cartridge_id: str) -> Offer | None:
        """Find an offer by its cartridge id."""
        return self._by_id.get(cartridge_id)

    def without(self, plugin: str, issue: DiscoveryIssue) -> Index:
        """Give an index in which one plugin offers nothing any more, and the issue says why."""
        left = [offer for offer in self.offers if offer.plugin != plugin]
        issues = (*self.issues, issue)
        return Index(left, issues, system=self.system, machine=self.machine)

    def dispatchable(self, request: CapUrn) -> Iterator[OfferedCap]:
        """Give the caps that serve a request, sorted by cartridge id."""
        # The rarest thing that the request needs leaves the fewest caps to look at.
        having = [self._having.get(feature, []) for feature in _needs(request)]
        for offered in min(having, key=len, default=self.caps):
            if offered.cap.urn.is_dispatchable(request):
                yield offered


def _features(urn: CapUrn) -> Iterator[tuple[str, ...]]:
    """Name what a cap has, so that a request that needs it finds it."""
    for place, tags in (("tag", urn.tags), ("out", urn.out.tags)):
        for key, value in tags.items():
            yield (place, key)
            if _is_exact(value):
                yield (place, key, value)


def _needs(request: CapUrn) -> Iterator[tuple[str, ...]]:
    """Name what a cap must have to serve a request; not all of it, what can be looked up."""
    for place, tags in (("tag", request.tags), ("out", request.out.tags)):
        for key, value in tags.items():
            if _is_exact(value):
                yield (place, key, value)
            elif value == "*" or value.startswith("!="):
                yield (place, key)


def _is_exact(value: str) -> bool:
    return value not in {"*", "?", "!"} and not value.startswith(("?=", "!="))
