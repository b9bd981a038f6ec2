"""Descriptor files: where a plugin's stand, read without importing it, and what refuses them."""

from __future__ import annotations

import functools
import importlib.util
import json
import stat
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.descriptor import HOOKS_VERSION, Descriptor
from cartridge_core.errors import InvalidArgumentError
from cartridge_core.reports import DiscoveryIssue

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Found",
    "Owner",
    "RefusedError",
    "cap_texts",
    "check_contract",
    "descriptor_files",
    "load_json",
    "module_folder",
    "read_descriptor",
]

_ABI_MAJOR = "0"


class RefusedError(Exception):
    """
    Something found cannot be used.

    Attributes:
        why: What is wrong.
        fix: What to do.
        caps: Texts of the cap URNs that are lost with it.
    """

    def __init__(self, why: str, fix: str, caps: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.fix = fix
        self.caps = caps


@attrs.frozen
class Owner:
    """Who brings something: a plugin of a distribution, or a pack."""

    distribution: str
    """The distribution's name, or the pack's path."""

    version: str | None
    plugin: str | None = attrs.field(default=None, kw_only=True)

    def issue(self, what: str, why: str, fix: str, caps: tuple[str, ...] = ()) -> DiscoveryIssue:
        """Report something of this owner's that cannot be used."""
        return DiscoveryIssue(
            self.distribution, self.version, what, why, fix, plugin=self.plugin, caps=caps
        )

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}" if self.version else self.distribution


@attrs.frozen
class Found:
    """A descriptor that was read, and where it comes from."""

    descriptor: Descriptor
    owner: Owner
    file: Path = attrs.field(kw_only=True)
    pack: Path | None = attrs.field(default=None, kw_only=True)

    def issue(self, why: str, fix: str) -> DiscoveryIssue:
        """Report why this descriptor is refused."""
        caps = tuple(str(cap.urn) for cap in self.descriptor.caps)
        return self.owner.issue(f"descriptor {self.descriptor.id} ({self.file})", why, fix, caps)


def module_folder(module: str, path: Sequence[str] | None) -> Path:
    """
    Find the folder that a module stands in, importing nothing.

    Args:
        module: Dotted name of a module inside a package.
        path: Where to look for the package; None is as an import would.

    Raises:
        RefusedError: There is no such package, or it has no folder.
    """
    top, *inner = module.split(".")[:-1]
    # Only the top-level name: looking for a dotted one imports its parents.
    spec = importlib.util.find_spec(top) if path is None else PathFinder.find_spec(top, path)
    if spec is None:
        why = f"its package {top} cannot be found"
        raise RefusedError(why, _REINSTALL)
    if spec.submodule_search_locations is None:
        why = f"{top} is a single module ({spec.origin}), not a package with a folder"
        raise RefusedError(why, "Its authors must put it into a package, beside descriptors/.")
    folders = [Path(location, *inner) for location in spec.submodule_search_locations]
    return next((folder for folder in folders if _holds(folder, module)), folders[0])


def _holds(folder: Path, module: str) -> bool:
    spec = PathFinder.find_spec(module, [str(folder)])
    return spec is not None and spec.loader is not None


def descriptor_files(folder: Path) -> tuple[Path, ...]:
    """
    List the descriptors beside a module.

    Args:
        folder: The folder that the module stands in.

    Raises:
        RefusedError: There are none.
    """
    descriptors = folder / "descriptors"
    if not descriptors.is_dir():
        why = f"there is no folder {descriptors} beside its module"
        raise RefusedError(why, _REINSTALL)
    files = tuple(sorted(file for file in descriptors.iterdir() if _is_json(file.name)))
    if not files:
        why = f"there is no *.json in {descriptors}"
        raise RefusedError(why, _REINSTALL)
    return files


def _is_json(name: str) -> bool:
    return name.endswith(".json") and not name.startswith(".")


_REINSTALL = "Reinstall it; if that does not help, its wheel is incomplete: tell its authors."


def read_descriptor(file: Path) -> Descriptor:
    """
    Read a descriptor file; one that has not changed since is not read again.

    Raises:
        RefusedError: It cannot be read, or is invalid.
    """
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            why = "it is no regular file"
            raise RefusedError(why, _REINSTALL)
        return _parse(file, status.st_mtime_ns, status.st_size)
    except OSError as exc:
        why = f"it cannot be read: {exc.strerror or exc}"
        raise RefusedError(why, _REINSTALL) from exc
    except InvalidArgumentError as exc:
        caps = cap_texts(file)
        # What was written for another contract may well break the rules of ours: say the cause.
        attributes = _attributes(file)
        _check_versions(attributes.get("abi"), attributes.get("hooks"), caps)
        fix = "Correct that place in the file, or tell its authors."
        raise RefusedError(str(exc), fix, caps) from exc


@functools.lru_cache(maxsize=1024)
def _parse(file: Path, mtime_ns: int, size: int) -> Descriptor:
    del mtime_ns, size
    return Descriptor.from_json(file.read_bytes())


def check_contract(descriptor: Descriptor) -> None:
    """
    Check the versions of the contract that a descriptor states; one that states none passes.

    Raises:
        RefusedError: It was written for another major of the ABI, or for other hooks.
    """
    caps = tuple(str(cap.urn) for cap in descriptor.caps)
    _check_versions(descriptor.abi, descriptor.hooks, caps)


def _check_versions(abi: object, hooks: object, caps: tuple[str, ...]) -> None:
    fix = "Upgrade cartridge-core, or install a version of it made for this cartridge-core."
    if isinstance(abi, str) and abi.partition(".")[0] != _ABI_MAJOR:
        why = f"attributes.abi is {abi!r}, and this cartridge-core speaks ABI {_ABI_MAJOR}.x"
        raise RefusedError(why, fix, caps)
    if isinstance(hooks, int) and hooks != HOOKS_VERSION:
        why = f"attributes.hooks is {hooks}, and this cartridge-core has hooks {HOOKS_VERSION}"
        raise RefusedError(why, fix, caps)


def cap_texts(file: Path) -> tuple[str, ...]:
    """Give the texts of a descriptor's cap URNs, as far as they can be read; never raises."""
    caps = _attributes(file).get("caps")
    if not isinstance(caps, list):
        return ()
    urns = [cap.get("urn") for cap in caps if isinstance(cap, Mapping)]
    return tuple(urn for urn in urns if isinstance(urn, str))


def _attributes(file: Path) -> Mapping[str, object]:
    document = load_json(file)
    attributes = document.get("attributes") if isinstance(document, Mapping) else None
    return cast("Mapping[str, object]", attributes) if isinstance(attributes, Mapping) else {}


def load_json(file: Path) -> object:
    """Read a JSON file as loosely as can be; None where that fails too."""
    try:
        document: object = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return document
