"""Every module says what it exports, and exports what it says."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import cartridge_core

ROOT = Path(cartridge_core.__file__).parent


def module_name(path: Path) -> str:
    """Give the dotted name of a module's file."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_name(path): path
    for path in sorted(ROOT.rglob("*.py"))
    if not {"cli", "__main__.py"} & set(path.relative_to(ROOT).parts)
}
FACES = {name for name, path in MODULES.items() if path.name == "__init__.py"}


def defined(tree: ast.Module) -> set[str]:
    """Give the public names that a module's own code binds: classes, functions, constants."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_")}


def is_type_variable(tree: ast.Module, name: str) -> bool:
    """Say whether a name is a TypeVar or a marker that pluggy makes, which is the module's own."""
    makers = {"TypeVar", "ParamSpec", "HookspecMarker"}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            targets = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if name in targets and ast.unparse(node.value.func).rpartition(".")[2] in makers:
                return True
    return False


@pytest.mark.parametrize("name", sorted(MODULES.keys() - FACES))
def test_all_is_what_the_module_defines(name):
    """``__all__`` names every public name a module defines, and only those."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    own = {one for one in defined(tree) if not is_type_variable(tree, one)}
    module = importlib.import_module(name)
    exported = set(getattr(module, "__all__", ()))
    assert own - exported == set(), "public, and not in __all__; add it or name it _so"
    missing = {one for one in exported - own if not hasattr(module, one)}
    assert missing == set(), "in __all__, and nowhere in the module"


@pytest.mark.parametrize("name", sorted(MODULES))
def test_all_names_each_once(name):
    """``__all__`` has no name twice, and none that is private."""
    module = importlib.import_module(name)
    exported = list(getattr(module, "__all__", ()))
    assert len(exported) == len(set(exported))
    assert not [one for one in exported if one.startswith("_")]


@pytest.mark.parametrize("name", sorted(FACES))
def test_every_name_of_a_package_resolves(name):
    """What a package exports is there, and is what ``dir`` shows."""
    package = importlib.import_module(name)
    for exported in getattr(package, "__all__", ()):
        assert getattr(package, exported) is not None
        assert exported in dir(package)


def test_error_unknown_name_of_the_package():
    """Asking the package for what it has not is an AttributeError that names it."""
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = cartridge_core.no_such_name


def test_importing_the_package_imports_no_backend():
    """``import cartridge_core`` brings no array library, no backend and no test framework."""
    code = "import cartridge_core, sys; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "torch", "transformers", "llama_cpp", "whisper", "pytest", "click", "rich"}
    assert heavy & set(done.stdout.split()) == set()
