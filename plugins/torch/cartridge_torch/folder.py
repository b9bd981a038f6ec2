"""A model's folder, looked over before the backend sees it, so that a wrong one has a name."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import LoadError
from cartridge_torch.weights import read_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cartridge_core.pack import Pack

__all__ = ["ModelFolder"]

_PICKLES = frozenset({".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"})
_TEXTS = frozenset({".json", ".safetensors", ".txt"})
_LFS = b"version https://git-lfs"


@attrs.frozen
class ModelFolder:
    """A folder as sentence-transformers or transformers saves it."""

    path: Path
    weights: tuple[Path, ...]
    """Its safetensors files."""

    @classmethod
    def read(cls, pack: Pack) -> ModelFolder:
        """
        Look a pack over, reading its JSON and the headers of its weights.

        Raises:
            LoadError: It is no folder, lacks ``config.json`` or safetensors weights, holds
                something else under their names, or its modules are code of its own.
        """
        path = _folder(pack)
        files = [file for file in pack.files() if path in file.parents]
        if not files:
            raise _refused(path, "the folder is empty; download the model into it")
        for file in files:
            _check_content(path, file)
        modules = _modules(path)
        for folder, kind in modules:
            _check_module(path, folder, kind)
        weights = tuple(file for file in files if file.suffix == ".safetensors")
        for file in weights:
            read_weights(file)
        return cls(path, weights)

    @property
    def name(self) -> str:
        """
        The model's name: the hub's where the folder lies in the hub's cache, else the folder's.

        Source: huggingface_hub, "Understand caching" (``models--owner--repo/snapshots/commit``).
        """
        repository = self.path.parent.parent.name
        if self.path.parent.name == "snapshots" and repository.startswith("models--"):
            return repository.removeprefix("models--").replace("--", "/", 1)
        return self.path.name

    def memory_bytes(self, item_bytes: int) -> int:
        """Give the size of the loaded weights where a number takes so many bytes."""
        return sum(read_weights(file).bytes_as(item_bytes) for file in self.weights)


def _folder(pack: Pack) -> Path:
    """Give the folder of the model: the pack's own, or where its ``model`` artifacts lie."""
    if pack.descriptor is not None:
        files = pack.files("model")
        if not files:
            raise _refused(pack.path, "the pack lists no artifact with the role model")
        return Path(os.path.commonpath([file.parent for file in files]))
    if not pack.path.is_dir():
        raise _refused(
            pack.path,
            "it is a file, not a folder; name the folder that holds config.json and "
            "the *.safetensors files",
        )
    return pack.path


def _check_content(path: Path, file: Path) -> None:
    if file.suffix not in _TEXTS:
        return
    name = file.relative_to(path)
    try:
        with file.open("rb") as stream:
            start = stream.read(64).lstrip()
    except OSError as exc:
        raise _refused(path, f"{name} cannot be read ({exc})") from exc
    if start.startswith(_LFS):
        raise _refused(path, f"{name} is a Git LFS pointer, not the file; run git lfs pull there")
    if start.startswith(b"<") and file.suffix != ".txt":
        raise _refused(path, f"{name} is an HTML page, not the file; download it again")


def _modules(path: Path) -> list[tuple[Path, str]]:
    """List the folder and the class of each module; a plain transformers folder is one module."""
    file = path / "modules.json"
    if not file.is_file():
        return [(path, "Transformer")]
    document = _json(path, file)
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise _refused(path, "modules.json is no JSON list of objects; download it again")
    found = []
    for module in cast("Sequence[Mapping[str, object]]", document):
        folder, kind = str(module.get("path", "")), str(module.get("type", ""))
        if not kind.startswith("sentence_transformers."):
            # Releases before 6.0 import such a class from a local folder without asking.
            raise _refused(path, f"its module {kind!r} is code of its own, which is never run")
        if PurePath(folder).is_absolute() or ".." in PurePath(folder).parts:
            raise _refused(path, f"modules.json names {folder!r}, which is outside of the folder")
        found.append((path / folder, kind.rpartition(".")[2]))
    return found


def _check_module(path: Path, folder: Path, kind: str) -> None:
    where = folder.relative_to(path) / "*.safetensors" if folder != path else "*.safetensors"
    suffixes = {file.suffix for file in folder.iterdir()} if folder.is_dir() else set()
    if kind == "Transformer":
        if not (folder / "config.json").is_file():
            raise _refused(path, "it has no config.json; is it a transformers model?")
        if not isinstance(_json(path, folder / "config.json"), dict):
            raise _refused(path, "config.json is no JSON object; download it again")
    if ".safetensors" in suffixes:
        return
    if suffixes & _PICKLES:
        raise _refused(
            path,
            f"it has no {where}, only pickled weights, which are never loaded because a pickle "
            "can run code; take a model with safetensors weights",
        )
    if kind == "Transformer":
        raise _refused(path, f"it has no {where}: the weights are missing")


def _json(path: Path, file: Path) -> object:
    try:
        document: object = json.loads(file.read_bytes())
    except (OSError, ValueError) as exc:
        raise _refused(path, f"{file.name} is no JSON ({exc}); download it again") from exc
    return document


def _refused(path: Path, what: str) -> LoadError:
    msg = f"model {path}: {what}"
    return LoadError(msg)
