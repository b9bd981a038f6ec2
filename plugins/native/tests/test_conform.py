"""The verb ``conform`` on libraries: the samples keep the contract, a broken one fails by name."""

from __future__ import annotations

import contextlib
import io
import json
from typing import TYPE_CHECKING

import native_packs
import pytest

from cartridge_core.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import MakePack

pytestmark = pytest.mark.integration


def conform(*words: str) -> tuple[int, dict[str, str]]:
    """Run the verb; give its status, and what is wrong by the rule that is broken."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main(["conform", "--json", *words])
    rules = json.loads(out.getvalue())["rules"]
    return status, {one["rule"]: one["detail"] for one in rules if one["verdict"] == "fail"}


def test_a_pack_keeps_the_contract(log_energies: Path) -> None:
    """Its input is made up, of the port that it declares."""
    assert conform(str(log_energies)) == (0, {})


def test_a_bare_library_keeps_the_contract(tmp_path: Path, make_native_pack: MakePack) -> None:
    """A pack is made around it for the time being; it says itself where it wants to run."""
    del make_native_pack
    document = native_packs.described("endpointer")
    document["attributes"] = {**as_dict(document["attributes"]), "isolation": "inline"}
    library = tmp_path / "libendpointer.so"
    native_packs.build("endpointer", document, library)
    assert conform(str(library)) == (0, {})
    assert list(tmp_path.iterdir()) == [library]


def as_dict(value: object) -> dict[str, object]:
    """Narrow a JSON object."""
    assert isinstance(value, dict)
    return value


BROKEN = [
    pytest.param("NO_VERSION", "exports no ctg_abi_version", id="no-version"),
    pytest.param("DESCRIPTOR_NOT_UTF8", "UTF-8", id="no-descriptor"),
    pytest.param("CRASH_AT_LOAD", "signal 6", id="crash-at-load"),
]


@pytest.mark.parametrize(("switch", "words"), BROKEN)
def test_error_a_library_that_says_nothing_of_itself(
    switch: str, words: str, tmp_path: Path, make_native_pack: MakePack
) -> None:
    """It fails by the first rule, and no other can be tried."""
    del make_native_pack
    library = tmp_path / "libbroken.so"
    native_packs.build("broken", native_packs.described("broken"), library, f"-DBROKEN={switch}")
    status, broken = conform(str(library))
    assert status == 18
    assert list(broken) == ["library_describes_itself"]
    assert words in broken["library_describes_itself"]


def test_error_a_file_that_is_no_library(tmp_path: Path) -> None:
    """What the loader says of it is told."""
    library = tmp_path / "libnone.so"
    library.write_text("not one")
    status, broken = conform(str(library))
    assert status == 18
    assert "cannot be loaded" in broken["library_describes_itself"]
