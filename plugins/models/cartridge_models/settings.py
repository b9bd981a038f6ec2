"""What the environment says, read at the time it is asked."""

from __future__ import annotations

import os
from pathlib import Path

from cartridge_core.errors import DownloadError

__all__ = ["cache_folder", "is_hub_off"]

_TRUE = frozenset({"1", "on", "true", "yes"})


def cache_folder() -> Path:
    """
    Give the folder for downloaded wheels, whether or not it exists.

    ``CARTRIDGE_CACHE``, else ``cartridge`` in ``XDG_CACHE_HOME``, else ``~/.cache/cartridge``.

    Raises:
        DownloadError: It begins with the home folder of somebody who has none here.
    """
    if named := os.environ.get("CARTRIDGE_CACHE"):
        return _absolute("CARTRIDGE_CACHE", named)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return _absolute("XDG_CACHE_HOME", base) / "cartridge"
    return _absolute("HOME", "~/.cache") / "cartridge"


def _absolute(variable: str, value: str) -> Path:
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError as exc:
        msg = (
            f"the cache of downloaded wheels, from {variable}: {value!r} names no home folder here "
            f"({exc}); set CARTRIDGE_CACHE to a folder's whole path"
        )
        raise DownloadError(msg) from exc


def is_hub_off() -> bool:
    """Tell whether ``HF_HUB_OFFLINE`` keeps the hub's own library from the network."""
    return os.environ.get("HF_HUB_OFFLINE", "").strip().lower() in _TRUE
