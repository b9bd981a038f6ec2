"""Imports point down: every module has a row, and knows only modules of lower rows."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import cartridge_core

ROOT = Path(cartridge_core.__file__).parent

# From the top down. A subpackage is one unit, whose own modules may know each other.
ROWS = """
    __init__ __main__
    cli
    tasks testing verification
    registry
    running
    calls
    phases router
    cartridge loading models
    residency session
    room
    activation crossings leases places
    deadline environment resident
    worker
    binding discovery packmaking
    _claims _pack_folders signing
    _descriptor_files licences routing updates
    golden hookspecs manifest preflight selection
    arguments offers pack platforms
    queueing
    _known_plugins context descriptor
    _manifest_reading capdefs
    _manifest_blocks capreading caprules
    capparts signatures
    _finders blocks digests floors modelspec schema urn wire
    _distributions _urn_tagged failures jsonfields limits
    _ed25519 packing reporting schemarules threads watch
    _urn_grammar _urn_relations jsondata
    errors
    activity distances folders machine progress records reports results stats versions wholefiles
"""
ROW = {unit: -number for number, row in enumerate(ROWS.split("\n")) for unit in row.split()}

FOR_TESTS_ALONE = {"pytest", "_pytest", "hypothesis"}


def unit_of(path: Path) -> str:
    """Give what has a row: a module, or the subpackage it is in."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(source: str) -> set[str]:
    """Give the dotted names that a module imports, wherever in it the import stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def units_in(names: set[str]) -> set[str]:
    """Give the units of core among imported names; the package's own names are its face's."""
    own = [name.split(".") for name in names if name.partition(".")[0] == "cartridge_core"]
    return {parts[1] if len(parts) > 1 and parts[1] in UNITS else "__init__" for parts in own}


def breaches(unit: str, known: set[str]) -> list[str]:
    """Say which of the units that one knows it must not."""
    return [
        f"{unit} imports {other}, which is not below it"
        for other in sorted(known - {unit})
        if ROW.get(other, 0) >= ROW[unit]
    ]


FILES = sorted(ROOT.rglob("*.py"))
UNITS = {unit_of(path) for path in FILES}
IDS = [path.relative_to(ROOT).as_posix() for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_imports_point_down(path):
    """A module knows lower rows alone, also in functions and for type checking."""
    known = units_in(imported(path.read_text(encoding="utf-8")))
    assert breaches(unit_of(path), known) == []


def test_every_module_has_a_row():
    """A new module is given its row, and a row names no module that is gone."""
    assert sorted(ROW) == sorted(UNITS)


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_only_the_kit_knows_the_test_framework(path):
    """Pytest is an extra: no module but those of ``testing`` imports it."""
    tops = {name.partition(".")[0] for name in imported(path.read_text(encoding="utf-8"))}
    assert unit_of(path) == "testing" or not tops & FOR_TESTS_ALONE


CAUGHT = [
    pytest.param("from cartridge_core.registry import Registry", id="upwards"),
    pytest.param("from cartridge_core.discovery import discover", id="equal-row"),
    pytest.param("from cartridge_core import registry", id="module-of-the-package"),
    pytest.param("from cartridge_core import Registry", id="name-of-the-face"),
    pytest.param("import cartridge_core.calls", id="plain-import"),
    pytest.param("def f():\n    from cartridge_core.calls import Call", id="deferred"),
    pytest.param("if TYPE_CHECKING:\n    from cartridge_core.calls import Call", id="for-types"),
]


@pytest.mark.parametrize("source", CAUGHT)
def test_error_import_that_points_up_is_caught(source):
    """An import of a higher or an equal row is seen wherever and however it is written."""
    assert breaches("binding", units_in(imported(source)))
