"""Plugins that pip really installed are found, and are gone once it uninstalled them."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

import cartridge_core

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.integration

CHILD = """
import json, sys
from cartridge_core.discovery import discover

found = discover(allowed=json.loads(sys.argv[1]))
issues = [[issue.distribution, issue.version, issue.plugin, issue.why] for issue in found.issues]
print(json.dumps({
    "offers": [[offer.plugin, offer.id] for offer in found.offers],
    "plugins": {name: [it.distribution, it.version] for name, it in found.plugins.items()},
    "issues": issues,
    "imported": sorted(name for name in sys.modules if name.startswith("sample_")),
}))
"""

HATCHLING = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{distribution}"
version = "{version}"

[project.entry-points."cartridge_core.plugins"]
{plugin} = "{package}.plugin"

[tool.hatch.build.targets.wheel]
packages = ["{package}"]
"""

SETUPTOOLS = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "{distribution}"
version = "{version}"

[project.entry-points."cartridge_core.plugins"]
{plugin} = "{package}.plugin"

[tool.setuptools]
packages = ["{package}"]
package-dir = {{ "{package}" = "elsewhere" }}

[tool.setuptools.package-data]
"{package}" = ["descriptors/*.json"]
"""


def a_project(
    folder: Path,
    distribution: str,
    plugin: str,
    *,
    source: str = "",
    backend: str = HATCHLING,
    directory: str | None = None,
) -> str:
    """Write a whole plugin project; gives its folder, as pip takes it."""
    package = distribution.replace("-", "_")
    root = folder / distribution
    code = root / (directory or package)
    (code / "descriptors").mkdir(parents=True)
    text = backend.format(distribution=distribution, version="0.7", plugin=plugin, package=package)
    (root / "pyproject.toml").write_text(text)
    (code / "__init__.py").write_text("")
    (code / "plugin.py").write_text(source)
    descriptor = {
        "spec_version": "0.3",
        "id": f"{plugin}-sample",
        "version": "0.7.0",
        "family": "sample",
        "modality": "text",
        "task": "sampling",
        "io": {"mode": "batch", "input": {"dtype": "utf8"}, "output": {"dtype": "utf8"}},
        "target": {"hardware": "any", "abi": "any"},
        "performance": {"measured_on": "unmeasured"},
        "execution_mode": "native",
        "license": "MIT",
        "attributes": {"abi": "0.1", "hooks": 1},
    }
    (code / "descriptors" / "sample.json").write_text(json.dumps(descriptor))
    return str(root)


@attrs.frozen
class Found:
    """What a child process discovered."""

    offers: list[list[str]]
    plugins: Mapping[str, list[str]]
    issues: list[list[str]] = attrs.field(kw_only=True)
    imported: list[str] = attrs.field(kw_only=True)


@attrs.frozen
class Environment:
    """A virtual environment that sees the packages of this one."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @classmethod
    def create(cls, folder: Path) -> Environment:
        venv.create(folder)
        environment = cls(folder)
        libraries = environment.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        core = Path(str(cartridge_core.__file__)).parents[1]
        lines = f"{sysconfig.get_path('purelib')}\n{core}\n"
        (Path(libraries.strip()) / "borrowed.pth").write_text(lines)
        return environment

    def run(self, *arguments: str) -> str:
        """Run its Python, away from the sources."""
        return subprocess.run(
            [self.python, *arguments], cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout

    def pip(self, *arguments: str) -> None:
        """Run this environment's pip on it, offline."""
        command = [sys.executable, "-m", "pip", "--python", self.python, "--quiet", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def discover(self, allowed: list[str] | None = None) -> Found:
        return Found(**json.loads(self.run("-c", CHILD, json.dumps(allowed))))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Give an environment with six plugins, two of them of one name."""
    folder = tmp_path_factory.mktemp("projects")
    environment = Environment.create(tmp_path_factory.mktemp("environment"))
    broken = "import no_such_native_lib\n"
    mapped = {"backend": SETUPTOOLS, "directory": "elsewhere"}
    environment.pip(
        *("install", "--no-build-isolation", "--no-deps", "--no-index"),
        a_project(folder, "sample-wheel", "wheel"),
        *("-e", a_project(folder, "sample-editable", "editable")),
        *("-e", a_project(folder, "sample-mapped", "mapped", **mapped)),
        a_project(folder, "sample-broken", "broken", source=broken),
        a_project(folder, "sample-maker-a", "same"),
        a_project(folder, "sample-maker-b", "same"),
    )
    return environment


@pytest.fixture(scope="module")
def found(environment: Environment) -> Found:
    return environment.discover()


@pytest.mark.parametrize("plugin", ["wheel", "editable", "mapped"])
def test_an_installed_plugin_is_found(found: Found, plugin: str) -> None:
    """It is found from a wheel, behind a `.pth` file and behind an editable finder."""
    assert found.plugins[plugin] == [f"sample-{plugin}", "0.7"]
    assert [plugin, f"{plugin}-sample"] in found.offers


def test_a_plugin_that_fails_at_import_is_found(found: Found) -> None:
    """Its descriptors are data; its import is the first call's business."""
    assert ["broken", "broken-sample"] in found.offers


def test_discovery_imports_no_installed_plugin(found: Found) -> None:
    """The child that discovered six plugins has imported none of them."""
    assert found.imported == []


def test_error_two_installed_plugins_of_one_name_are_both_refused(found: Found) -> None:
    """Both distributions are reported, each naming the other."""
    refused = [issue for issue in found.issues if issue[2] == "same"]
    assert [issue[:2] for issue in refused] == [
        ["sample-maker-a", "0.7"],
        ["sample-maker-b", "0.7"],
    ]
    assert all("sample-maker-a 0.7" in why and "sample-maker-b 0.7" in why for *_, why in refused)
    assert "same" not in found.plugins


def test_no_other_sample_has_an_issue(found: Found) -> None:
    """What is good is not complained about."""
    complaints = {issue[0] for issue in found.issues if issue[0].startswith("sample-")}
    assert complaints == {"sample-maker-a", "sample-maker-b"}


def test_allowing_one_of_two_finds_it(environment: Environment) -> None:
    """The one that is named as a distribution has the name."""
    found = environment.discover(allowed=["sample-maker-b", "wheel"])
    assert found.plugins == {
        "same": ["sample-maker-b", "0.7"],
        "wheel": ["sample-wheel", "0.7"],
    }
    assert found.issues == []


def test_an_uninstalled_plugin_is_gone(environment: Environment) -> None:
    """Nothing of it is left: neither an offer nor an issue."""
    environment.pip("uninstall", "--yes", "sample-wheel", "sample-editable", "sample-maker-a")
    found = environment.discover()
    assert not {"wheel", "editable"} & set(found.plugins)
    assert found.plugins["same"] == ["sample-maker-b", "0.7"]
    assert [issue for issue in found.issues if issue[0].startswith("sample-")] == []
