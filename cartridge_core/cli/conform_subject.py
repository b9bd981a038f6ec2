"""What ``conform`` is asked about: an installed cartridge, a pack, or a library."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from cartridge_core.cli.catalog import find_offer
from cartridge_core.cli.conform_run import Rule, Verdict, environment
from cartridge_core.discovery import discover
from cartridge_core.environment import discover_installed
from cartridge_core.errors import CartridgeError, LoadError
from cartridge_core.offers import Index
from cartridge_core.packmaking import make_own_pack

if TYPE_CHECKING:
    from cartridge_core.offers import Offer

__all__ = ["Tried", "find_tried"]

_DESCRIBE = "cartridge_native.describe"
_LIBRARY_ENDS = (".so", ".dylib")
_LIBRARY_RULE = "library_describes_itself"
_LIBRARY_TEXT = "A library loads, speaks the ABI, has all its functions and a valid descriptor."


@attrs.frozen
class Tried:
    """What is held to the contract."""

    name: str

    offer: Offer | None
    """None for a library of which no pack can be made."""

    rules: tuple[Rule, ...] = ()
    """What was found on the way."""


def find_tried(name: str, scratch: Path, limit_s: float) -> Tried:
    """
    Find what a name stands for: an id, else a pack's folder, else a library.

    Args:
        name: As typed.
        scratch: An empty folder, for the pack of a library.
        limit_s: How long a library may take to describe itself.

    Raises:
        NoRouteError: It is nothing of all that.

        LoadError: It is a path of nothing; or a folder, and no pack that can be opened; or a
            library, and cartridge-native is not installed.
    """
    found = discover_installed()
    path = Path(name)
    is_installed = any(offer.id == name for offer in found.offers)
    if not is_installed and path.is_dir():
        return Tried(name, _of_pack(path))
    if not is_installed and path.is_file():
        return _of_library(path, scratch, limit_s)
    if not is_installed and (os.sep in name or name.endswith(_LIBRARY_ENDS)):
        msg = f"{name} is neither a file nor a folder; name a pack's folder, a library, or an id"
        raise LoadError(msg)
    return Tried(name, find_offer(Index(found.offers, found.issues), name))


def _of_pack(folder: Path) -> Offer:
    """Find the one pack in a folder, alone with the plugins: its id may be installed too."""
    found = discover(packs=[folder])
    packs = [offer for offer in found.offers if offer.pack is not None]
    if len(packs) == 1:
        return packs[0]
    if packs:
        msg = f"{folder} holds {len(packs)} packs; name one: {', '.join(map(_place, packs))}"
        raise LoadError(msg)
    own = str(folder.resolve())
    issues = [str(one) for one in found.issues if one.distribution in {own, str(folder)}]
    msg = f"{folder} is no pack that can be opened: {' '.join(issues) or 'nothing is in it'}"
    raise LoadError(msg)


def _place(offer: Offer) -> str:
    return str(offer.pack)


def _of_library(library: Path, scratch: Path, limit_s: float) -> Tried:
    if importlib.util.find_spec("cartridge_native") is None:
        msg = f"{library} is a file, and libraries are opened by cartridge-native, which is not "
        msg += "installed: pip install cartridge-native"
        raise LoadError(msg)
    try:
        source = scratch / "library"
        runtime = source / "artifacts" / "runtime"
        runtime.mkdir(parents=True)
        (source / "descriptor.json").write_bytes(_described(library, limit_s))
        (runtime / library.name).symlink_to(library.absolute())
        make_own_pack(source, scratch / "pack")
    except CartridgeError as exc:
        failed = _rule(Verdict.FAIL, str(exc))
        return Tried(str(library), None, (failed,))
    return Tried(str(library), _of_pack(scratch / "pack"), (_rule(Verdict.PASS),))


def _rule(verdict: Verdict, detail: str = "") -> Rule:
    return Rule(_LIBRARY_RULE, verdict, text=_LIBRARY_TEXT, detail=detail)


def _described(library: Path, limit_s: float) -> bytes:
    """Have a process of its own load a library, and give the descriptor that is built in."""
    command = [sys.executable, "-P", "-m", _DESCRIBE, str(library.absolute())]
    try:
        done = subprocess.run(  # noqa: S603 -- this Python, and a module of a plugin of ours
            command,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        msg = f"{library}: its process was ended: nothing came of it within {limit_s:g} s"
        raise LoadError(msg) from None
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()
        how = f"its process was ended by signal {-done.returncode}: {words}"
        raise LoadError(words if done.returncode > 0 else f"{library}: {how}")
    return done.stdout
