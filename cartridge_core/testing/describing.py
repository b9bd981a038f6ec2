"""What holds of every plugin before one of its cartridges is open."""

# ruff: noqa: S101 -- asserts are what a test says it with

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.binding import Binding
from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import AbiMismatchError, InvalidArgumentError
from cartridge_core.modelspec import FileSpec, ModelSpec
from cartridge_core.pack import Pack
from cartridge_core.reports import PreflightReport
from cartridge_core.testing.registries import discovered_of, plugin_name
from cartridge_core.testing.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cartridge_core.registry import Registry
    from cartridge_core.testing.watching import Watch

__all__ = ["Describing"]

_PROBE = Path(__file__).with_name("probe.py")
_PROBE_LIMIT_S = 120.0

_HEAVY = frozenset(
    {"jax", "llama_cpp", "numpy", "onnxruntime", "sentence_transformers", "tensorflow", "torch"}
    | {"transformers", "whisper"}
)
"""Modules that describing and preflighting never need, whatever the backend."""


class Describing(Subject):
    """Facts about descriptors, hooks and preflight."""

    def test_hooks_follow_the_contract(self) -> None:
        """Every hook of its io.mode is there, spelt as the specification spells it."""
        found = discovered_of(self.plugin)
        name = plugin_name(self.plugin)
        descriptors = [offer.descriptor for offer in found.offers]
        try:
            Binding(name, found.plugins[name].load(), descriptors)
        except AbiMismatchError as exc:
            pytest.fail(str(exc))

    def test_descriptors_hook_gives_the_files(self) -> None:
        """The cartridge_descriptors hook gives what ``descriptors/*.json`` hold, all of it."""
        found = discovered_of(self.plugin)
        name = plugin_name(self.plugin)
        source = found.plugins[name]
        told = {one.id: one for one in Binding(name, source.load(), ()).descriptors()}
        files = {one.id: one for one in source.descriptors}
        differing = [key for key in files.keys() | told.keys() if files.get(key) != told.get(key)]
        assert not differing, (
            f"the hook and the files of {name} differ for {', '.join(sorted(differing))}; "
            "let the hook return read_descriptors(...) of its own folder"
        )

    def test_descriptor_survives_json(self, descriptor: Descriptor) -> None:
        """The descriptor written as JSON and read again is the same."""
        text = json.dumps(descriptor.to_json())
        assert Descriptor.from_json(text) == descriptor, f"{descriptor.id} is not plain JSON data"

    def test_id_starts_with_the_name_of_the_plugin(self, descriptor: Descriptor) -> None:
        """A cartridge's id starts with its plugin's name and a hyphen, so that ids stay unique."""
        start = f"{plugin_name(self.plugin)}-"
        assert descriptor.id.startswith(start), (
            f"the id {descriptor.id} must start with {start}: the plugin's name is "
            f"{plugin_name(self.plugin)}"
        )

    def test_declared_defaults_pass_their_own_rules(self, descriptor: Descriptor) -> None:
        """A default is a value that a caller could give as well."""
        for cap in descriptor.caps:
            for arg in cap.args:
                if arg.has_default:
                    _check_default(arg.name, arg.check, arg.default)

    def test_describing_imports_no_backend(self, descriptor: Descriptor) -> None:
        """Importing the plugin and calling cartridge_descriptors imports no inference library."""
        heavy = _heavy(_probe(self.plugin).modules, descriptor)
        assert not heavy, (
            f"describing imports {', '.join(heavy)}; import it inside the function that needs it, "
            "in the one module that knows the backend"
        )

    def test_describing_writes_no_file(self) -> None:
        """Describing leaves the working folder, the home and the temporary folder as they were."""
        written = _probe(self.plugin).written
        assert not written, f"describing writes {', '.join(written)}"

    def test_preflight_loads_nothing(
        self,
        registry: Registry,
        descriptor: Descriptor,
        watch: Watch,
        model_spec: Pack | str | os.PathLike[str] | None,
    ) -> None:
        """Preflight gives a PreflightReport, opens nothing and imports no inference library."""
        report = registry.preflight(descriptor.id, model_spec)
        assert isinstance(report, PreflightReport)
        assert "open" not in watch.calls, "preflight opens the cartridge"
        offer = next(one for one in registry.offers if one.id == descriptor.id)
        path = _path_of(model_spec) if offer.pack is None else str(offer.pack)
        found = _probe(self.plugin, offer.hook_id, path)
        heavy = _heavy(found.modules, descriptor)
        assert not heavy, (
            f"preflight imports {', '.join(heavy)}; ask importlib.metadata for versions, and files "
            "for sizes"
        )
        assert not found.written, f"preflight writes {', '.join(found.written)}"


def _check_default(name: str, check: object, default: object) -> None:
    assert callable(check)
    try:
        check(default)
    except InvalidArgumentError as exc:
        pytest.fail(f"the default of {name} breaks its own rule: {exc}")


@attrs.frozen
class _Probed:
    modules: tuple[str, ...]
    """Imported by it."""

    written: tuple[str, ...]
    """Files and folders."""


def _probe(plugin: object, *preflight: str) -> _Probed:
    """Describe a plugin in a process of its own."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return _run_probe(path, *_import_names(plugin), *preflight)


@functools.cache
def _run_probe(path: str, module: str, *rest: str) -> _Probed:
    """Run the child in new folders; once, as two facts ask for the same."""
    with tempfile.TemporaryDirectory() as folder:
        places = {key: Path(folder, key) for key in ("HOME", "TMPDIR", "CWD")}
        for place in places.values():
            place.mkdir()
        done = _run_child(path, places, module, *rest)
        if done.returncode:
            pytest.fail(f"{module} cannot be described in a process of its own:\n{done.stderr}")
        modules = json.loads(done.stdout.splitlines()[-1])["modules"]
        written = [str(at.relative_to(folder)) for p in places.values() for at in p.rglob("*")]
    return _Probed(tuple(modules), tuple(sorted(written)))


def _run_child(
    path: str, places: dict[str, Path], *arguments: str
) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if not _is_ours(key)}
    environ = {
        **inherited,
        **{key: str(place) for key, place in places.items()},
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(  # noqa: S603 -- this interpreter and a file of ours
        [sys.executable, "-P", str(_PROBE), *arguments],
        env=environ,
        cwd=places["CWD"],
        capture_output=True,
        text=True,
        timeout=_PROBE_LIMIT_S,
        check=False,
    )


def _is_ours(variable: str) -> bool:
    return variable.startswith(("CARTRIDGE_", "XDG_"))


def _import_names(plugin: object) -> tuple[str, str]:
    """Give the module to import, and the class in it; skip the test where there is none."""
    if isinstance(plugin, str):
        return discovered_of(plugin).plugins[plugin].module, ""
    if isinstance(plugin, ModuleType):
        return plugin.__name__, ""
    kind = type(plugin)
    top = kind.__module__.partition(".")[0]
    if "<locals>" in kind.__qualname__ or PathFinder.find_spec(top) is None:
        pytest.skip(f"{kind.__qualname__} cannot be imported in a process of its own")
    return kind.__module__, kind.__qualname__


def _heavy(modules: Iterable[str], descriptor: Descriptor) -> list[str]:
    """Give those of some modules that are inference libraries."""
    tops = {module.partition(".")[0] for module in modules}
    heavy = set(_HEAVY)
    if descriptor.backend is not None:
        wanted = _normal(descriptor.backend.distribution)
        for top, owners in importlib.metadata.packages_distributions().items():
            if wanted in {_normal(owner) for owner in owners}:
                heavy.add(top)
    return sorted(tops & heavy)


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _path_of(model_spec: Pack | str | os.PathLike[str] | None) -> str:
    """Give the path of a model that is on disk; empty for others."""
    if isinstance(model_spec, Pack):
        return str(model_spec.path)
    spec = None if model_spec is None else ModelSpec.parse(model_spec)
    return str(spec.path) if isinstance(spec, FileSpec) else ""
