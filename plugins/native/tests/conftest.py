"""The sample cartridges, built once."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import kettle_site
import native_host
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


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example host in C, built by its Makefile without a warning."""
    if shutil.which("cc") is None or shutil.which("make") is None:
        pytest.skip("needs a C compiler, cc, and make")
    return native_host.build_host(tmp_path_factory.mktemp("host"))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for ``sys.path`` in which the plugin ``kettle`` is installed."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler, cc")
    folder = tmp_path_factory.mktemp("kettle") / "site"
    kettle_site.install(folder)
    return folder


@pytest.fixture(scope="session")
def kettle_echo(site: Path) -> Path:
    """The pack of a batch cartridge in Python, exported with its arguments set."""
    words = ["--cap", "cap:echo", "--set", "times=2", "--set", "prefix=hot "]
    kettle_site.export(site, "kettle-echo", site.parent / "echo", *words)
    return site.parent / "echo"


@pytest.fixture(scope="session")
def kettle_stream(site: Path) -> Path:
    """That of a streaming one."""
    kettle_site.export(site, "kettle-stream", site.parent / "stream", "--cap", "cap:hear")
    return site.parent / "stream"


@pytest.fixture(scope="session")
def kettle_levels(site: Path) -> Path:
    """That of one of arrays."""
    kettle_site.export(site, "kettle-levels", site.parent / "levels", "--cap", "cap:scale")
    return site.parent / "levels"


@pytest.fixture(scope="session")
def kettle_aside(site: Path) -> Path:
    """That of one which runs in a process of its own, under an id of its own."""
    words = ["--cap", "cap:echo", "--id", "kettle-in-c"]
    kettle_site.export(site, "kettle-aside", site.parent / "aside", *words)
    return site.parent / "aside"
