"""
A child process that describes or preflights a plugin, and says which modules that imported.

Run as a file, so that nothing but what the plugin needs is imported: ``probe.py`` with the module,
the name of the plugin's class in it (empty for a plugin that is a module), and, to preflight, a
cartridge id and a model's path (empty for none). It prints JSON: the new modules, and what the
preflight gave.
"""

from __future__ import annotations

import importlib
import json
import operator
import sys
from typing import TYPE_CHECKING

from cartridge_core.arguments import bind_options
from cartridge_core.pack import Pack
from cartridge_core.preflight import core_checks

if TYPE_CHECKING:
    from cartridge_core.descriptor import Descriptor

__all__ = ["main"]


def main(module: str, name: str, cartridge_id: str = "", path: str = "") -> dict[str, object]:
    """Describe a plugin, and preflight one of its cartridges where one is named."""
    before = set(sys.modules)
    plugin: object = importlib.import_module(module)
    if name:
        make = operator.attrgetter(name)(plugin)
        plugin = make()
    descriptors = operator.methodcaller("cartridge_descriptors")(plugin)
    gave = ""
    if cartridge_id:
        gave = _preflight(plugin, descriptors, cartridge_id, Pack.from_path(path) if path else None)
    return {"modules": sorted(set(sys.modules) - before), "preflight": gave}


def _preflight(
    plugin: object, descriptors: list[Descriptor], cartridge_id: str, pack: Pack | None
) -> str:
    """Preflight as the host does; give the type of the report."""
    own = (one for one in descriptors if one.id == cartridge_id)
    descriptor = pack.descriptor if pack and pack.descriptor else next(own)
    core_checks(descriptor)
    options = bind_options(descriptor, {})
    preflight = operator.methodcaller("cartridge_preflight", cartridge_id, pack, options)
    return type(preflight(plugin)).__name__


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))  # noqa: T201 -- the answer to the parent
