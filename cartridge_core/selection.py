"""
Choose among the caps that serve a request: rule out, rank, leave ties.

Everything here is pure: it reads descriptors, imports and calls no plugin, and the order in
which things were installed decides nothing.

Source: CapDAG, dispatch and ranking; Cartridge ABI 0.1, selection.
"""

from __future__ import annotations

import enum
import os
from functools import partial
from typing import TYPE_CHECKING

import attrs

from cartridge_core.descriptor import IoMode
from cartridge_core.modelspec import ModelSpec, format_of
from cartridge_core.platforms import what_is_foreign

if TYPE_CHECKING:
    from collections.abc import Callable

    from cartridge_core.capdefs import Cap
    from cartridge_core.offers import Index, Offer, OfferedCap
    from cartridge_core.urn import CapUrn

__all__ = ["Dropped", "Ground", "Request", "Selection", "reads_value", "select"]


@attrs.frozen(kw_only=True)
class Request:
    """What a caller asks for."""

    cap: CapUrn

    mode: IoMode | None = None
    """The ``io.mode`` asked for; None leaves it to ``usual_mode``."""

    usual_mode: IoMode = IoMode.BATCH
    """The mode taken where cartridges of both are left and none was asked for."""

    cartridge_id: str | None = None

    prefer: tuple[str, ...] = ()
    """Cartridge ids or plugin names, the earliest wins; a later one chooses among what it left."""

    model_spec: ModelSpec | None = None
    """The model spec as passed; a default does not count."""

    value: object = None
    """The main value: it is the model spec for a cap whose main argument is one."""


class Ground(enum.Enum):
    """On what ground a cap that serves a request is not the one that gets it."""

    MISFIT = "misfit"
    """It cannot take the model, or is not built for this machine."""

    OTHER_ID = "other-id"
    """Another cartridge was asked for by its id."""

    OTHER_MODE = "other-mode"
    """The other ``io.mode`` was asked for."""

    OUTRANKED = "outranked"
    """It would do, and another comes first."""


@attrs.frozen(eq=False)
class Dropped:
    """A cap that serves the request and does not get it."""

    offered: OfferedCap
    ground: Ground

    why: str = attrs.field(kw_only=True)
    """For a person: the rule that decided, or what a misfit lacks."""


@attrs.define(eq=False)
class Selection:
    """The caps that serve a request: those that are left, and those that were dropped."""

    left: list[OfferedCap]

    dropped: list[Dropped] = attrs.field(factory=list, init=False)
    """Those dropped last come first; caps dropped together are sorted by cartridge id."""

    def drop(self, ground: Ground, why: Callable[[OfferedCap], str | None]) -> None:
        """Drop every cap for which there is a reason why."""
        reasons = [(offered, why(offered)) for offered in self.left]
        self.left = [offered for offered, reason in reasons if reason is None]
        self.dropped[:0] = [
            Dropped(offered, ground, why=reason)
            for offered, reason in reasons
            if reason is not None
        ]

    def demand(self, ground: Ground, rule: str, holds: Callable[[OfferedCap], bool]) -> None:
        """Drop every cap for which a rule does not hold, though it were all of them."""
        self.drop(ground, lambda offered: None if holds(offered) else rule)

    def wish(self, rule: str, holds: Callable[[OfferedCap], bool]) -> None:
        """Drop the caps for which a rule does not hold, where there are some for which it does."""
        if any(map(holds, self.left)):
            self.demand(Ground.OUTRANKED, rule, holds)


def select(index: Index, request: Request) -> Selection:
    """
    Take the caps that serve a request through every rule, until one or equals are left.

    Raises:
        InvalidArgumentError: The main value stands for a model spec, and is malformed.
    """
    selection = Selection(list(index.dispatchable(request.cap)))
    selection.drop(Ground.MISFIT, partial(_misfit, index, request))
    _apply_demands(selection, request)
    _apply_wishes(selection, request)
    return selection


# What was asked for comes before what is preferred: a preference never leaves a request with
# nothing.
def _apply_demands(selection: Selection, request: Request) -> None:
    cartridge_id, mode = request.cartridge_id, request.mode
    if cartridge_id is not None:
        rule = f"cartridge_id {cartridge_id} was asked for"
        selection.demand(Ground.OTHER_ID, rule, lambda one: one.offer.id == cartridge_id)
    if mode is not None:
        rule = f"io.mode {mode.value} was asked for"
        selection.demand(Ground.OTHER_MODE, rule, lambda one: _mode(one) is mode)


def _apply_wishes(selection: Selection, request: Request) -> None:
    usual = request.usual_mode
    for name in request.prefer:
        selection.wish(f"{name} is preferred", partial(_is_called, name))
    selection.wish(f"io.mode {usual.value} is usual here", lambda one: _mode(one) is usual)
    selection.wish("a native cartridge comes before an eager one", _is_native)
    distances = {one: one.cap.urn.distance(request.cap) for one in selection.left}
    least = min(distances.values(), default=None)
    selection.wish("the cap nearest to the request wins", lambda one: distances[one] == least)
    bases = {one.offer.descriptor.base for one in selection.left}
    selection.wish("a pack comes before its base", lambda one: one.offer.id not in bases)


def _mode(offered: OfferedCap) -> IoMode:
    return offered.offer.descriptor.mode


def _is_called(name: str, offered: OfferedCap) -> bool:
    return name in {offered.offer.id, offered.offer.plugin}


def _is_native(offered: OfferedCap) -> bool:
    return offered.offer.descriptor.execution_mode == "native"


def reads_value(index: Index, request: Request) -> bool:
    """Say whether a cap that serves the request takes its model spec from the main value."""
    return any(_takes_spec(offered.cap) for offered in index.dispatchable(request.cap))


def _takes_spec(cap: Cap) -> bool:
    return cap.main is not None and cap.main.media_urn.has("model-spec")


def _misfit(index: Index, request: Request, offered: OfferedCap) -> str | None:
    """Say what rules a cap out for this request on this machine, if something does."""
    spec = request.model_spec
    value = request.value
    if spec is None and isinstance(value, str | os.PathLike) and _takes_spec(offered.cap):
        spec = ModelSpec.parse(value)
    unread = None if spec is None else _unread(offered.offer, spec)
    return unread or what_is_foreign(offered.offer.descriptor, index.system, index.machine)


def _unread(offer: Offer, spec: ModelSpec) -> str | None:
    """Say why an offer cannot take a model, if so."""
    formats, schemes = offer.descriptor.formats, offer.descriptor.schemes
    if offer.pack is not None:
        return f"it is a pack, its own model, and {spec} was asked for"
    if schemes and spec.scheme not in schemes:
        return f"it takes {' and '.join(schemes)}, and {spec} is {spec.scheme}"
    found = format_of(spec) if formats else None
    if found is not None and found not in formats:
        return f"it reads {' and '.join(formats)}, and {spec} is {found}"
    return None
