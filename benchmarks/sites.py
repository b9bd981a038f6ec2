"""Folders of installed distributions that are nothing but metadata and descriptors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks.shapes import SHAPES
from cartridge_core.testing import fake_arg, fake_cap, fake_descriptor

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["REQUEST", "install"]

REQUEST = SHAPES[0].request("bench-0", "en")
"""What the first of the plugins serves."""

_PROSE = "A sentence about what this distribution is good for, as there are many in a README.\n"


def install(folder: Path, distributions: int, plugins: int) -> None:
    """
    Fill a folder as pip would.

    Args:
        folder: Where.
        distributions: How many, the plugins included.
        plugins: How many of them are plugins, with two cartridges each, of two caps each.
    """
    for number in range(plugins):
        _install_plugin(folder, number)
    for number in range(distributions - plugins):
        scripts = f"[console_scripts]\nfiller-{number} = filler_{number}:main\n"
        _install_metadata(folder, f"filler-{number}", scripts if number % 3 == 0 else None)


def _install_plugin(folder: Path, number: int) -> None:
    name = f"bench-{number}"
    package = f"cartridge_bench_{number}"
    points = f"[cartridge_core.plugins]\n{name} = {package}.plugin\n"
    _install_metadata(folder, f"cartridge-{name}", points)
    descriptors = folder / package / "descriptors"
    descriptors.mkdir(parents=True)
    for file in ("__init__.py", "plugin.py"):
        (folder / package / file).write_text("raise SystemExit('discovery imported a plugin')\n")
    for place, first in (("one", 0), ("two", 2)):
        caps = [_cap(first, name), _cap(first + 1, name)]
        descriptor = fake_descriptor(f"{name}-{place}", caps=caps, formats=["hf-folder"])
        (descriptors / f"{place}.json").write_text(json.dumps(descriptor.to_json(), indent=2))


def _install_metadata(folder: Path, name: str, entry_points: str | None) -> None:
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\nSummary: A fake.\n"
    (info / "METADATA").write_text(f"{head}\n{_PROSE * 50}")
    if entry_points is not None:
        (info / "entry_points.txt").write_text(entry_points)


def _cap(number: int, backend: str) -> dict[str, object]:
    """Give a cap with ten knobs, as those of model cartridges have."""
    shape = SHAPES[number]
    knobs = [
        *(fake_arg(f"switch_{place}", "boolean", default=True) for place in range(3)),
        *(fake_arg(f"size_{place}", "integer", default=8, minimum=0) for place in range(3)),
        *(fake_arg(f"rate_{place}", "number", default=0.5, maximum=1) for place in range(2)),
        *(fake_arg(f"text_{place}", "string", scope="open") for place in range(2)),
    ]
    markers = ";".join([*shape.markers, backend, "language=en"])
    cap = fake_cap(markers, *knobs, takes=shape.takes, gives=shape.gives)
    return {**cap, "aliases": [f"{backend}-{number}"]}
