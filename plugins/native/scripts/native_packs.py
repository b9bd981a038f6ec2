"""Build the sample cartridges in C and make packs of them, as an author would."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import cartridge_native
from cartridge_core.packmaking import make_own_pack

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["INCLUDE", "STRICT", "build", "described", "library_of", "make_native_pack"]

INCLUDE = Path(cartridge_native.__file__).parent / "include"
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
_SOURCES = Path(__file__).parents[1] / "tests" / "cartridges"
_TIMEOUT_S = 60.0


def described(name: str) -> dict[str, object]:
    """Give the descriptor of a cartridge among the sources."""
    document: dict[str, object] = json.loads((_SOURCES / f"{name}.json").read_text())
    return document


def library_of(pack: Path) -> Path:
    """Give the library of a pack."""
    (library,) = (pack / "artifacts" / "runtime").iterdir()
    return library


def build(name: str, descriptor: Mapping[str, object], target: Path, *flags: str) -> None:
    """Compile a cartridge with its descriptor built in."""
    target.parent.mkdir(parents=True, exist_ok=True)
    numbers = ", ".join(map(str, [*json.dumps(descriptor).encode(), 0]))
    header = target.parent / f".{target.name}" / "descriptor.h"
    header.parent.mkdir()
    header.write_text(f"static const char DESCRIPTOR[] = {{{numbers}}};\n")
    includes = ["-I", str(INCLUDE), "-I", str(header.parent)]
    how = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-shared", *STRICT, *includes, *flags]
    source = str(_SOURCES / f"{name}.c")
    subprocess.run(  # noqa: S603 -- a compiler, and files of ours
        [*how, source, "-o", str(target), "-lm"], check=True, timeout=_TIMEOUT_S
    )
    shutil.rmtree(header.parent)


def make_native_pack(
    name: str,
    folder: Path,
    *flags: str,
    stated: Mapping[str, object] | None = None,
    built_in: Mapping[str, object] | None = None,
) -> Path:
    """
    Build a cartridge and make a pack of it.

    Args:
        name: Of the source.
        folder: Where to work; the pack is the folder ``pack`` in it.
        *flags: For the compiler.
        stated: The pack's descriptor; None is the source's own.
        built_in: The library's, where it is another.
    """
    stated = described(name) if stated is None else stated
    library = folder / "made" / "artifacts" / "runtime" / f"lib{name}.so"
    build(name, stated if built_in is None else built_in, library, *flags)
    (folder / "made" / "descriptor.json").write_text(json.dumps(stated, indent=2))
    make_own_pack(folder / "made", folder / "pack")
    return folder / "pack"
