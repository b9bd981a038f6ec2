"""Who lists the distributions of a folder: what stands in it, or the finders Python was given."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cartridge_core._distributions import Finder, Metadata

__all__ = ["finders"]

_ENDINGS = (".dist-info", ".egg-info")
_USUAL = {"_frozen_importlib_external", "importlib_metadata"}
"""Modules whose finders list what stands in a folder."""


def finders() -> list[Finder]:
    """Give ways to list one folder's distributions; each is for where those before it raise."""
    unusual = [
        finder
        for finder in sys.meta_path
        if hasattr(finder, "find_distributions") and finder.__module__ not in _USUAL
    ]
    return [_by_every_finder, _in_folder] if unusual else [_in_folder]


def _in_folder(folder: str) -> Iterable[Metadata | str]:
    # Spelt out: for these, importing importlib_metadata takes longer than all else.
    if folder.endswith(".egg") or os.path.isfile(folder):
        return _by_every_finder(folder)
    root = os.path.abspath(folder)
    try:
        names = os.listdir(root)
    except OSError:
        return []
    return [os.path.join(root, name) for name in names if name.lower().endswith(_ENDINGS)]


def _by_every_finder(folder: str) -> Iterable[Metadata]:
    from importlib_metadata import distributions  # noqa: PLC0415 -- few folders need it

    return distributions(path=[folder])
