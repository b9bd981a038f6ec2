"""Packs on disk: where they are, and which plugin opens each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cartridge_core._descriptor_files import RefusedError, load_json
from cartridge_core.offers import NATIVE

if TYPE_CHECKING:
    from pathlib import Path

    from cartridge_core.capdefs import Arg, Cap
    from cartridge_core.descriptor import Descriptor

__all__ = ["check_base", "find_packs", "pack_opener"]

_CORRECT = "Correct the path, here or in CARTRIDGE_PACKS."


def find_packs(folder: Path) -> tuple[Path, ...]:
    """
    Find the packs in a folder: itself, or those of its direct subfolders that are packs.

    Args:
        folder: ``~`` is expanded.

    Returns:
        Their real paths, so that one pack named twice is one.

    Raises:
        RefusedError: There is no such folder, it cannot be read, or there is no pack in it.
    """
    try:
        folder = folder.expanduser().resolve()
        if not folder.is_dir():
            found = "it is a file" if folder.exists() else "there is no such folder"
            raise RefusedError(found, _CORRECT)
        if (folder / "descriptor.json").exists():
            return (folder,)
        packs = tuple(sorted(child.resolve() for child in folder.iterdir() if _is_pack(child)))
    except (OSError, RuntimeError) as exc:
        why = f"it cannot be read: {exc}"
        raise RefusedError(why, _CORRECT) from exc
    if not packs:
        why = "neither it nor a direct subfolder has a descriptor.json"
        raise RefusedError(why, "Name a pack, or the folder that holds packs.")
    return packs


def _is_pack(folder: Path) -> bool:
    try:
        return not folder.name.startswith(".") and (folder / "descriptor.json").exists()
    except OSError:
        return True  # whoever reads it will say why it cannot be read


def pack_opener(descriptor: Descriptor, pack: Path) -> str:
    """
    Give the name of the plugin that opens a pack without a base.

    Raises:
        RefusedError: Neither its descriptor nor its manifest says so.
    """
    if descriptor.plugin is not None:
        return descriptor.plugin
    if _has_runtime(pack / "manifest.json"):
        return NATIVE
    why = "nothing says which plugin opens it"
    fix = (
        "Its descriptor needs attributes.base or attributes.plugin, or its manifest.json an "
        "artifact with the role runtime."
    )
    raise RefusedError(why, fix)


def _has_runtime(manifest: Path) -> bool:
    document = load_json(manifest)
    artifacts = document.get("artifacts") if isinstance(document, Mapping) else None
    return isinstance(artifacts, list) and any(
        isinstance(item, Mapping) and item.get("role") == "runtime" for item in artifacts
    )


def check_base(pack: Descriptor, base: Descriptor) -> None:
    """
    Check that a pack offers what its base does: measured fields may differ, its caps may not.

    Raises:
        RefusedError: The ``io.mode``, a cap or an argument differs, or the pack argument has a
            default.
    """
    difference = _difference(pack, base)
    if difference is not None:
        fix = f"Its descriptor must declare the caps of {base.id} as they are; make the pack anew."
        raise RefusedError(difference, fix)


def _difference(pack: Descriptor, base: Descriptor) -> str | None:
    if pack.mode is not base.mode:
        return f"its io.mode is {pack.mode.value}, and that of {base.id} is {base.mode.value}"
    own = {str(cap.urn): cap for cap in pack.caps}
    bases = {str(cap.urn): cap for cap in base.caps}
    for urn in sorted(own.keys() ^ bases.keys()):
        one, other = (pack.id, base.id) if urn in own else (base.id, pack.id)
        return f"{one} declares {urn}, and {other} does not"
    for urn, cap in own.items():
        what = _different_part(cap, bases[urn])
        if what is not None:
            return f"{what} of {urn} differs from that of {base.id}"
        if cap.pack_arg is not None and cap.pack_arg.has_default:
            return f"the argument {cap.pack_arg.name} of {urn} has a default; the pack is the model"
    return None


def _different_part(cap: Cap, base: Cap) -> str | None:
    own, bases = _args(cap), _args(base)
    for name in sorted(own.keys() | bases.keys()):
        if own.get(name) != bases.get(name):
            return f"the argument {name}"
    return None if cap.outputs == base.outputs else "an output"


def _args(cap: Cap) -> dict[str, Arg | bool]:
    """Give the arguments by name; of the pack argument, only that there is one."""
    return {arg.name: arg.pack or arg for arg in cap.args}
