"""Discovering what is installed."""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measuring import interleave, sampler
from benchmarks.rows import Row
from benchmarks.sites import install
from cartridge_core import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring import Effort

__all__ = ["measure"]

_DISCOVER_S = 15e-3
_DISTRIBUTIONS = 100
_PLUGINS = 3


def measure(effort: Effort) -> Iterator[Row]:
    """Discover among a hundred distributions, after a first time."""
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder), _DISTRIBUTIONS, _PLUGINS)
        with _installed_only(folder):
            rounds = interleave([sampler(_discover, effort)], effort)
    yield Row(
        "discovery",
        f"Registry.discover(), {_DISTRIBUTIONS} distributions, {_PLUGINS} plugins",
        measured=statistics.median(times[0] for times in rounds),
        budget=_DISCOVER_S,
        note="warm",
        samples=rounds,
    )


def _discover() -> None:
    with Registry.discover() as registry:
        assert len(registry.descriptors) == 2 * _PLUGINS  # noqa: S101 -- or it measures something else
        assert not registry.issues  # noqa: S101 -- as above


@contextlib.contextmanager
def _installed_only(folder: str) -> Iterator[None]:
    """Let nothing be installed but what is in a folder; what is imported already stays."""
    before = sys.path[:]
    sys.path[:] = [folder]
    try:
        yield
    finally:
        sys.path[:] = before
