"""
Find what is installed: descriptors are read as data, and no plugin is imported.

What cannot be used becomes a `DiscoveryIssue` and stops nothing else. The order in which things
were installed, or stand on ``sys.path``, decides nothing.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import attrs

from cartridge_core._claims import Claim, allow, claims_of, listed, without_rivals
from cartridge_core._descriptor_files import (
    Found,
    Owner,
    RefusedError,
    cap_texts,
    check_contract,
    descriptor_files,
    module_folder,
    read_descriptor,
)
from cartridge_core._distributions import walk
from cartridge_core._finders import finders
from cartridge_core._pack_folders import check_base, find_packs, pack_opener
from cartridge_core.offers import NATIVE, Offer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from cartridge_core.descriptor import Descriptor
    from cartridge_core.reports import DiscoveryIssue

__all__ = ["Discovered", "PluginSource", "discover"]

T = TypeVar("T")


@attrs.frozen
class PluginSource:
    """An installed plugin, not yet imported."""

    name: str
    distribution: str
    version: str | None = attrs.field(kw_only=True)
    module: str = attrs.field(kw_only=True)

    descriptors: tuple[Descriptor, ...] = attrs.field(default=(), kw_only=True)
    """What its files say, those included that are not offered because something is wrong."""

    load: Callable[[], object] = attrs.field(kw_only=True, eq=False, repr=False)
    """Imports the module and gives it; raises whatever the module raises."""


@attrs.frozen
class Discovered:
    """All that was found; sorted, so that equal installations give equal values."""

    offers: tuple[Offer, ...]
    plugins: Mapping[str, PluginSource]
    issues: tuple[DiscoveryIssue, ...] = attrs.field(kw_only=True)


def discover(
    *,
    packs: Iterable[str | os.PathLike[str]] = (),
    allowed: Collection[str] | None = None,
    path: Sequence[str] | None = None,
) -> Discovered:
    """
    Find the installed plugins and the packs, and what they offer.

    Imports no plugin, and raises nothing for what is wrong with one.

    Args:
        packs: Folders, each a pack or the parent of packs.
        allowed: Names of plugins or distributions to use, as in ``CARTRIDGE_PLUGINS``; naming a
            distribution also decides who has a plugin name that several claim. None allows all.
        path: Folders to search in place of ``sys.path``.
    """
    discovery = _Discovery(path)
    installed = discovery.note(walk(_folders(path), finders()))
    claims = claims_of(installed)
    if allowed is not None:
        claims = discovery.note(allow(claims, allowed))
    for claim in discovery.note(without_rivals(claims, path)):
        discovery.add_plugin(claim)
    for folder in packs:
        discovery.add_packs(Path(folder))
    return discovery.finish()


def _folders(path: Sequence[str] | None) -> list[str]:
    """Give the path without what an import passes over as well: entries that are no text."""
    entries: Sequence[object] = sys.path if path is None else path
    return [entry for entry in entries if isinstance(entry, str)]


@attrs.define
class _Discovery:
    """A discovery under way."""

    path: Sequence[str] | None
    plugins: dict[str, PluginSource] = attrs.field(factory=dict)
    found: list[Found] = attrs.field(factory=list, kw_only=True)
    issues: list[DiscoveryIssue] = attrs.field(factory=list, kw_only=True)

    def note(self, result: tuple[tuple[T, ...], tuple[DiscoveryIssue, ...]]) -> tuple[T, ...]:
        """Keep the issues of a step, and give what it leaves."""
        left, issues = result
        self.issues += issues
        return left

    def attempt(self, owner: Owner, what: str, read: Callable[[], T]) -> T | None:
        """Do one thing on its own: None where it fails, which is then an issue."""
        try:
            return read()
        except RefusedError as refused:
            self.issues.append(owner.issue(what, refused.why, refused.fix, refused.caps))
        except Exception as exc:  # noqa: BLE001 -- one broken thing must not stop the others
            why = f"{type(exc).__name__}: {exc}"
            fix = f"Reinstall {owner.distribution}, or tell its authors."
            self.issues.append(owner.issue(what, why, fix))
        return None

    def add_plugin(self, claim: Claim) -> None:
        """Take in a plugin and its descriptors, each on its own."""
        located = self.attempt(claim.owner, claim.what, lambda: _locate(claim, self.path))
        if located is None:
            return
        source, folder = located
        files = self.attempt(claim.owner, claim.what, lambda: _own_files(claim, folder))
        readable = []
        for file in files or ():
            what = f"descriptor {file}"
            descriptor = self.attempt(claim.owner, what, functools.partial(read_descriptor, file))
            if descriptor is None:
                continue
            readable.append(descriptor)
            check = functools.partial(_check_own, descriptor, file, claim.name)
            if self.attempt(claim.owner, what, check):
                self.found.append(Found(descriptor, claim.owner, file=file))
        self.plugins[claim.name] = attrs.evolve(source, descriptors=tuple(readable))

    def add_packs(self, folder: Path) -> None:
        """Take in the packs of a folder, each on its own and once."""
        owner = Owner(str(folder), None)
        packs = self.attempt(owner, "folder of packs", lambda: find_packs(folder))
        known = {found.pack for found in self.found}
        for pack in packs or ():
            if pack not in known:
                self._add_pack(pack)

    def _add_pack(self, pack: Path) -> None:
        file = pack / "descriptor.json"
        descriptor = self.attempt(Owner(str(pack), None), "pack", lambda: _read_pack(file))
        if descriptor is not None:
            owner = Owner(str(pack), descriptor.version, plugin=descriptor.plugin)
            self.found.append(Found(descriptor, owner, file=file, pack=pack))

    def finish(self) -> Discovered:
        """Refuse ids claimed twice and packs that nobody opens; sort the rest."""
        left = self._without_rivals()
        bases = {found.descriptor.id: found for found in left if found.pack is None}
        offers = []
        for found in left:
            try:
                plugin = _opener(found, bases, self.plugins)
            except RefusedError as refused:
                self.issues.append(found.issue(refused.why, refused.fix))
            else:
                offers.append(Offer(found.descriptor, plugin, found.pack))
        return Discovered(
            tuple(sorted(offers, key=lambda offer: (offer.plugin, offer.descriptor.id))),
            dict(sorted(self.plugins.items())),
            issues=tuple(sorted(dict.fromkeys(self.issues), key=str)),
        )

    def _without_rivals(self) -> list[Found]:
        by_id = defaultdict(list)
        for found in self.found:
            by_id[found.descriptor.id].append(found)
        for rivals in by_id.values():
            if len(rivals) > 1:
                places = listed(f"{found.owner} ({found.file})" for found in rivals)
                why = f"its id is claimed by {places}"
                self.issues += [found.issue(why, _ONE_ID) for found in rivals]
        return [rivals[0] for rivals in by_id.values() if len(rivals) == 1]


_ONE_ID = (
    "Leave one: uninstall the others, leave them out of CARTRIDGE_PLUGINS, or take the packs out "
    "of CARTRIDGE_PACKS."
)


def _locate(claim: Claim, path: Sequence[str] | None) -> tuple[PluginSource, Path]:
    """Give the plugin, and the folder its module stands in."""
    module = claim.module
    folder = module_folder(module, path)
    source = PluginSource(
        claim.name,
        claim.distribution.name,
        version=claim.distribution.version,
        module=module,
        load=functools.partial(importlib.import_module, module),
    )
    return source, folder


def _own_files(claim: Claim, folder: Path) -> tuple[Path, ...]:
    """List a plugin's descriptors; that of libraries needs none, as packs bring them."""
    if claim.name == NATIVE and not (folder / "descriptors").exists():
        return ()
    return descriptor_files(folder)


def _check_own(descriptor: Descriptor, file: Path, plugin: str) -> bool:
    """Check what a plugin's own descriptor has to state more than a pack's; True, or raise."""
    check_contract(descriptor)
    fix = "Its authors must correct that in the file."
    for name, value in (("abi", descriptor.abi), ("hooks", descriptor.hooks)):
        if value is None:
            why = f"attributes.{name} is missing"
            raise RefusedError(why, fix, cap_texts(file))
    if not descriptor.id.startswith(f"{plugin}-"):
        why = f"its id {descriptor.id} does not start with {plugin}-, the name of its plugin"
        raise RefusedError(why, fix, cap_texts(file))
    return True


def _read_pack(file: Path) -> Descriptor:
    descriptor = read_descriptor(file)
    check_contract(descriptor)
    return descriptor


def _opener(found: Found, bases: Mapping[str, Found], plugins: Mapping[str, PluginSource]) -> str:
    """Give the name of the plugin that opens a descriptor, or raise RefusedError."""
    descriptor = found.descriptor
    if found.pack is None:
        return str(found.owner.plugin)
    if descriptor.base is not None:
        base = bases.get(descriptor.base)
        if base is None:
            why = f"it narrows the cartridge {descriptor.base}, which no usable plugin offers"
            raise RefusedError(why, "Install its plugin, or correct attributes.base.")
        check_base(descriptor, base.descriptor)
        return str(base.owner.plugin)
    plugin = pack_opener(descriptor, found.pack)
    if plugin not in plugins:
        why = f"it is opened by the plugin {plugin}, which is not usable here"
        raise RefusedError(why, f"Install that plugin, for one: pip install cartridge-{plugin}")
    return plugin
