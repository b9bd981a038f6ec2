"""What the environment says, read at the time it is asked."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder", "is_hub_off"]

_TRUE = frozenset({"1", "on", "true", "yes"})


def cache_folder() -> Path:
    """
    Give the folder for downloaded wheels, whether or not it exists.

    ``CARTRIDGE_CACHE``, else ``cartridge`` in ``XDG_CACHE_HOME``, else ``~/.cache/cartridge``.
    """
    if named := os.environ.get("CARTRIDGE_CACHE"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base or "~/.cache").expanduser().absolute() / "cartridge"


def is_hub_off() -> bool:
    """Tell whether ``HF_HUB_OFFLINE`` keeps the hub's own library from the network."""
    return os.environ.get("HF_HUB_OFFLINE", "").strip().lower() in _TRUE
