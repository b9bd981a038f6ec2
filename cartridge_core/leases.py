"""The right to use an open cartridge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from cartridge_core.context import Context
    from cartridge_core.offers import Offer
    from cartridge_core.pack import Pack, Trust
    from cartridge_core.resident import Place, Resident
    from cartridge_core.worker.client import Worker

__all__ = ["Lease"]


@attrs.define(eq=False)
class Lease:
    """
    The right to use an open cartridge until `release`.

    Made by a `Loader`; `Residency` opens it.
    """

    key: Hashable
    """What it is opened with: cartridge, pack and options."""

    offer: Offer
    pack: Pack | None

    options: Mapping[str, object]
    """The open arguments, defaults filled in."""

    trust: Trust
    """What the pack must prove."""

    keep: bool = attrs.field(kw_only=True)
    """Whether it stays loaded after the last lease."""

    revoke: Callable[[], None] = attrs.field(kw_only=True)
    """Ends the use that this is for."""

    on_release: Callable[[Lease, Place], None] = attrs.field(kw_only=True)

    place: Place | None = attrs.field(default=None, init=False)

    opening: Context | None = attrs.field(default=None, init=False)
    """The context of who opens it, until it is open."""

    is_doubted: bool = attrs.field(default=False, init=False)
    """Whether its use has been silent for too long, and is to stop."""

    is_revoked: bool = attrs.field(default=False, init=False)
    """Whether the cartridge is taken away: what is not open yet is not opened any more."""

    @property
    def resident(self) -> Resident:
        """
        The open cartridge.

        Raises:
            StateError: The lease was released, or never opened.
        """
        place = self.place
        if place is None or place.resident is None:
            msg = f"{self.offer.id} is closed: open it again"
            raise StateError(msg)
        return place.resident

    def runs_in(self, worker: Worker | None) -> None:
        """Note the process that the load goes on in, so that it can be ended."""
        if self.place is not None:
            self.place.worker = worker

    def take_away(self) -> None:
        """End the opening, or the use that this is for."""
        opening = self.opening
        if opening is not None:
            opening.cancel()
        self.revoke()

    def release(self) -> None:
        """Stop using it; again is harmless."""
        place, self.place = self.place, None
        if place is not None:
            self.on_release(self, place)
