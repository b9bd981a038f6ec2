"""What the ``CARTRIDGE_*`` variables say when a registry is made."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cartridge_core.discovery import discover
from cartridge_core.errors import DiscoveryError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cartridge_core.discovery import Discovered

__all__ = ["discover_installed", "is_offline", "preferred"]


def discover_installed(packs: Iterable[str | os.PathLike[str]] = ()) -> Discovered:
    """
    Find what is installed, as ``CARTRIDGE_PLUGINS`` and ``CARTRIDGE_PACKS`` say.

    Args:
        packs: Folders besides those of ``CARTRIDGE_PACKS``.

    Raises:
        DiscoveryError: Something cannot be used, and ``CARTRIDGE_STRICT=1`` is set.
    """
    listed = [path for path in os.environ.get("CARTRIDGE_PACKS", "").split(os.pathsep) if path]
    found = discover(packs=[*packs, *listed], allowed=_names("CARTRIDGE_PLUGINS") or None)
    if found.issues and _is_on("CARTRIDGE_STRICT"):
        msg = "\n".join(str(issue) for issue in found.issues)
        raise DiscoveryError(msg, issues=found.issues)
    return found


def preferred() -> tuple[str, ...]:
    """Give the cartridge ids and plugin names of ``CARTRIDGE_PREFER``."""
    return _names("CARTRIDGE_PREFER")


def is_offline() -> bool:
    """Say whether ``CARTRIDGE_OFFLINE`` forbids the network."""
    return _is_on("CARTRIDGE_OFFLINE")


def _names(variable: str) -> tuple[str, ...]:
    names = os.environ.get(variable, "").split(",")
    return tuple(name.strip() for name in names if name.strip())


def _is_on(variable: str) -> bool:
    text = os.environ.get(variable, "")
    return text.strip().lower() not in {"", "0", "false", "no", "off"}
