"""Registries over plugins that are not installed."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cartridge_core.descriptor import read_descriptors
from cartridge_core.discovery import Discovered, PluginSource, discover
from cartridge_core.errors import LoadError
from cartridge_core.offers import NATIVE, Offer
from cartridge_core.pack import Pack
from cartridge_core.registry import Registry

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from cartridge_core.descriptor import Descriptor
    from cartridge_core.limits import Limits

__all__ = ["discovered_of", "plugin_name", "registry_of", "static_descriptors"]

_GROUP = "cartridge_core.plugins"


@runtime_checkable
class _Describes(Protocol):
    def cartridge_descriptors(self) -> Sequence[Descriptor]: ...


def plugin_name(plugin: object) -> str:
    """
    Give the name of a plugin.

    A module has the name of its entry point, or where it is not installed that of its package
    (``cartridge_my_echo`` is ``my-echo``). Another object says it in ``plugin_name``.
    """
    if isinstance(plugin, str):
        return plugin
    if not isinstance(plugin, ModuleType):
        name = getattr(plugin, "plugin_name", type(plugin).__name__.lower())
        return str(name)
    for point in importlib.metadata.entry_points(group=_GROUP):
        if point.value == plugin.__name__:
            return point.name
    return plugin.__name__.partition(".")[0].removeprefix("cartridge_").replace("_", "-")


def static_descriptors(plugin: object) -> tuple[Descriptor, ...]:
    """
    Give what discovery would read: a module's ``descriptors/*.json``, else what its hook says.

    Raises:
        LoadError: The plugin has neither.
    """
    folder = Path(getattr(plugin, "__file__", None) or "").parent / "descriptors"
    if isinstance(plugin, ModuleType) and folder.is_dir():
        return read_descriptors(folder)
    if isinstance(plugin, _Describes):
        return tuple(plugin.cartridge_descriptors())
    msg = f"plugin {plugin!r} has no descriptors: neither a folder nor a cartridge_descriptors hook"
    raise LoadError(msg)


def discovered_of(*plugins: object, packs: Iterable[str | os.PathLike[str]] = ()) -> Discovered:
    """
    Give what a discovery would, had it found these plugins.

    Args:
        *plugins: Each a module, another object with hooks, or the name of an installed plugin.
        packs: Pack folders that these plugins open.

    Raises:
        LoadError: A plugin of that name is not installed, or has no descriptors; a folder is no
            pack.
    """
    installed = [plugin for plugin in plugins if isinstance(plugin, str)]
    found = discover(allowed=installed) if installed else Discovered((), {}, issues=())
    for name in installed:
        if name not in found.plugins:
            issues = "".join(f"\n{issue}" for issue in found.issues)
            msg = f"no usable plugin {name} is installed{issues}"
            raise LoadError(msg)
    sources = dict(found.plugins)
    offers = list(found.offers)
    for plugin in plugins:
        if not isinstance(plugin, str):
            source = _source(plugin)
            sources[source.name] = source
            offers += [Offer(descriptor, source.name) for descriptor in source.descriptors]
    for folder in packs:
        offers.append(_pack_offer(Path(folder), offers))
    return Discovered(tuple(offers), sources, issues=found.issues)


def registry_of(
    *plugins: object,
    packs: Iterable[str | os.PathLike[str]] = (),
    prefer: Iterable[str] = (),
    wrappers: Iterable[object] = (),
    isolation: str | Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> Registry:
    """
    Give a registry of these plugins alone; close it.

    Args:
        *plugins: Each a module, another object with hooks, or the name of an installed plugin.
        packs: Pack folders that these plugins open.
        prefer: As for `Registry`.
        wrappers: As for `Registry`.
        isolation: As for `Registry`; a process can only import what is a module.
        limits: As for `Registry`.

    Raises:
        LoadError: As `discovered_of`.
    """
    return Registry(
        discovered_of(*plugins, packs=packs),
        prefer=prefer,
        wrappers=wrappers,
        isolation=isolation,
        limits=limits,
    )


def _source(plugin: object) -> PluginSource:
    name = plugin_name(plugin)
    return PluginSource(
        name,
        f"cartridge-{name}",
        version=None,
        module=str(getattr(plugin, "__name__", type(plugin).__module__)),
        descriptors=static_descriptors(plugin),
        load=lambda: plugin,
    )


def _pack_offer(folder: Path, offers: Iterable[Offer]) -> Offer:
    """Give a pack's offer; opened by the plugin it names, or by that of its base."""
    descriptor = Pack.from_path(folder).descriptor
    if descriptor is None:
        msg = f"{folder} is no pack: it has no descriptor.json"
        raise LoadError(msg)
    base = next((offer.plugin for offer in offers if offer.id == descriptor.base), None)
    return Offer(descriptor, base or descriptor.plugin or NATIVE, folder)
