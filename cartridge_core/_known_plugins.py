"""What the project's own plugins offer, to say which one to install for a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cartridge_core.urn import CapUrn

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KNOWN", "find_distributions"]

_SPEC = 'in="media:enc=utf-8;model-spec"'
_DIMENSIONS = 'out="media:integer;model-dim;numeric"'
_EMBEDDINGS = 'in="media:enc=utf-8";ml-model;out="media:embedding-vector;enc=utf-8;record"'

KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "cartridge-models": (
        f'cap:download-model;{_SPEC};out="media:download-result;enc=utf-8;file-path;record"',
        f'cap:{_SPEC};model-contents;out="media:enc=utf-8;model-contents;record"',
        f'cap:{_SPEC};model-path;out="media:enc=utf-8;model-path;record"',
        f'cap:{_SPEC};model-status;out="media:enc=utf-8;model-status;record"',
    ),
    "cartridge-torch": (
        f"cap:embeddings-dimensions;{_SPEC};ml-model;{_DIMENSIONS};torch",
        f"cap:generate-embeddings;{_EMBEDDINGS};torch",
    ),
}
"""Canonical cap URNs by distribution; a test holds them against the plugins' descriptors."""


def find_distributions(request: CapUrn) -> list[str]:
    """Name the distributions whose plugin would serve a request; none where we know of none."""
    return [
        distribution
        for distribution, caps in KNOWN.items()
        if any(CapUrn.parse(cap).is_dispatchable(request) for cap in caps)
    ]
