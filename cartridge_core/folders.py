"""Where things are kept on this machine."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """
    Give the folder of what can be made or fetched anew, whether or not it exists.

    ``CARTRIDGE_CACHE``, else ``cartridge`` in ``XDG_CACHE_HOME``, else ``~/.cache/cartridge``.
    """
    if named := os.environ.get("CARTRIDGE_CACHE"):
        return Path(os.path.abspath(os.path.expanduser(named)))
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "cartridge")
