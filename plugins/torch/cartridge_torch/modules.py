"""
The modules that sentence-transformers would load from a folder, and the weights it would take.

A module's weights are looked for under the very names that the libraries look for; anything else
would leave them to load a pickle that lies beside.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_torch.files import read_json, refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Module", "check_index", "read_modules"]

_PICKLES = frozenset({".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"})
_TRANSFORMERS = frozenset({"CLIPModel", "Transformer"})
_ROUTERS = frozenset({"Asym", "Router"})
_WEIGHTED = _TRANSFORMERS | {
    "CNN",
    "Dense",
    "LSTM",
    "LayerNorm",
    "StaticEmbedding",
    "WeightedLayerPooling",
    "WordEmbeddings",
}
_KINDS = _WEIGHTED | _ROUTERS | {"BoW", "Dropout", "Normalize", "Pooling", "WordWeights"}
_SHOWN = 80
_DEEPEST = 8


@attrs.frozen
class Module:
    """One module of a model."""

    path: Path
    """The model's folder."""

    folder: Path
    """The module's own; there is none where the module keeps nothing."""

    kind: str = attrs.field(kw_only=True)
    """The name of its class."""

    def check_config(self) -> None:
        """
        Check what transformers would read first.

        Raises:
            LoadError: A transformers module lacks ``config.json``, or that is no such object.
        """
        if self.kind not in _TRANSFORMERS:
            return
        file = self.folder / "config.json"
        if not file.is_file():
            raise refused(self.path, "it has no config.json; is it a transformers model?")
        config = read_json(self.path, file)
        name = file.relative_to(self.path)
        if not isinstance(config, dict):
            raise refused(self.path, f"{name} is no JSON object; download it again")
        if "transformers_weights" in config:
            what = f"{name} names its weights in transformers_weights; call them model.safetensors"
            raise refused(self.path, what)

    def weights(self) -> tuple[Path, ...]:
        """
        List the safetensors files that would be loaded.

        Raises:
            LoadError: There are none, or a pickle would be loaded.

        Source:
            sentence-transformers, ``Module.load_torch_weights``; transformers,
            ``PreTrainedModel.from_pretrained``.
        """
        single = self.folder / "model.safetensors"
        if single.is_file():
            return (single,)
        index = self.folder / "model.safetensors.index.json"
        if self.kind in _TRANSFORMERS and index.is_file():
            return tuple(self.folder / name for name in check_index(self.path, index))
        where = single.relative_to(self.path)
        if any(file.suffix in _PICKLES for file in self.files()):
            raise refused(
                self.path,
                f"it has no {where}, only pickled weights, which are never loaded because a "
                "pickle can run code; take a model with safetensors weights",
            )
        if self.kind in _WEIGHTED:
            raise refused(self.path, f"it has no {where}: the weights are missing")
        return ()

    def files(self) -> list[Path]:
        """List what lies in its folder."""
        folder = self.folder
        return [file for file in folder.iterdir() if not file.is_dir()] if folder.is_dir() else []


def check_index(path: Path, index: Path) -> list[str]:
    """
    Give the names of the files that the weights are spread over.

    Args:
        path: The model's folder.
        index: The index, a file in it.

    Raises:
        LoadError: It is no index, or names something else than safetensors files beside it.
    """
    document = read_json(path, index)
    shards = document.get("weight_map") if isinstance(document, dict) else None
    name = index.relative_to(path)
    if not isinstance(shards, dict) or not shards:
        raise refused(path, f"{name} has no weight_map; download it again")
    for shard in shards.values():
        if not isinstance(shard, str) or PurePath(shard).name != shard:
            raise refused(path, f"{name}: {_shown(shard)} is no name of a file beside it")
        if not shard.endswith(".safetensors"):
            what = "is no safetensors file, and nothing else is loaded: a pickle can run code"
            raise refused(path, f"{name}: {_shown(shard)} {what}")
    return sorted(set(cast("Mapping[str, str]", shards).values()))


def read_modules(path: Path) -> list[Module]:
    """
    List the modules; a plain transformers folder is one.

    Raises:
        LoadError: ``modules.json``, or the configuration of a router, is malformed, names a
            folder elsewhere, or a module that is code of its own.
    """
    file = path / "modules.json"
    if not file.is_file():
        return [Module(path, path, kind="Transformer")]
    document = read_json(path, file)
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise refused(path, "modules.json is no JSON list of objects; download it again")
    found: list[Module] = []
    for item in cast("Sequence[Mapping[str, object]]", document):
        module = _read(file, path, item.get("path", ""), item.get("type", ""))
        found += _with_children(module, 0)
    return found


def _read(source: Path, path: Path, name: object, type_: object) -> Module:
    """Read one module as a file names it, by its folder beside that file and its class."""
    kind = str(type_)
    if not kind.startswith("sentence_transformers."):
        # Releases before 6.0 import such a class from a local folder without asking.
        raise refused(path, f"its module {_shown(kind)} is code of its own, which is never run")
    if kind.rpartition(".")[2] not in _KINDS:
        raise refused(path, f"its module {_shown(kind)} is not known; known: {sorted(_KINDS)}")
    folder = source.parent / _relative(source, path, str(name))
    return Module(path, folder, kind=kind.rpartition(".")[2])


def _relative(source: Path, path: Path, name: str) -> PurePath:
    relative, where = PurePath(name), f"{source.relative_to(path)} names {_shown(name)}"
    if relative.is_absolute() or ".." in relative.parts:
        raise refused(path, f"{where}, which is outside of the folder")
    if any(part.startswith(".") for part in relative.parts):
        raise refused(path, f"{where}, a hidden folder; rename it")
    try:
        os.stat(source.parent / relative)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as exc:
        raise refused(path, f"{where}, which cannot be read ({exc.strerror})") from exc
    except ValueError as exc:
        raise refused(path, f"{where}, which cannot be read ({exc})") from exc
    return relative


def _with_children(module: Module, depth: int) -> Iterator[Module]:
    yield module
    if module.kind not in _ROUTERS:
        return
    if depth == _DEEPEST:
        raise refused(module.path, f"its routers are nested more than {_DEEPEST} deep")
    for file in (module.folder / "router_config.json", module.folder / "config.json"):
        for name, kind in _children(module.path, file).items():
            yield from _with_children(_read(file, module.path, name, kind), depth + 1)


def _children(path: Path, file: Path) -> Mapping[str, object]:
    if not file.is_file():
        return {}
    document = read_json(path, file)
    types = document.get("types", {}) if isinstance(document, dict) else None
    if not isinstance(types, dict):
        raise refused(path, f"{file.relative_to(path)} is no router's JSON; download it again")
    return types


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
