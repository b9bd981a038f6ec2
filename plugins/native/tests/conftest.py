"""The sample cartridges, built once."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import native_packs
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    MakePack = Callable[..., Path]


@pytest.fixture(scope="session")
def make_native_pack() -> MakePack:
    """Build a cartridge in C and make a pack of it; see `native_packs`."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler, cc")
    return native_packs.make_native_pack


@pytest.fixture(scope="session")
def log_energies(make_native_pack: MakePack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pack of the feature extractor, a batch cartridge."""
    return make_native_pack("log_energies", tmp_path_factory.mktemp("log-energies"))


@pytest.fixture(scope="session")
def endpointer(make_native_pack: MakePack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pack of the endpointer, a streaming cartridge."""
    return make_native_pack("endpointer", tmp_path_factory.mktemp("endpointer"))
