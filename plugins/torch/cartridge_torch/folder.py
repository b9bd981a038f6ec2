"""A model's folder, looked over before the backend sees it, so that a wrong one has a name."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from cartridge_core.pack import Pack
from cartridge_torch.files import check_plain, refused
from cartridge_torch.modules import Module, check_index, read_modules
from cartridge_torch.weights import read_weights

__all__ = ["ModelFolder"]

_TEXTS = frozenset({".json", ".safetensors", ".txt"})
_LFS = b"version https://git-lfs"
_ADAPTERS = frozenset({"adapter_config.json", "adapter_model.bin"})


@attrs.frozen
class ModelFolder:
    """A folder as sentence-transformers or transformers saves it."""

    path: Path
    weights: tuple[Path, ...]
    """The safetensors files that would be loaded."""

    @classmethod
    def read(cls, pack: Pack) -> ModelFolder:
        """
        Look a pack over, reading its JSON and the headers of its weights.

        Raises:
            LoadError: It is no folder, lacks ``config.json`` or safetensors weights, holds
                something else under their names, is an adapter, or its modules are code of its
                own.
        """
        path = _folder(pack)
        # A pack's manifest need not list everything that the libraries would find.
        files = Pack(path, path).files()
        if not files:
            raise refused(path, "the folder is empty; download the model into it")
        for file in files:
            _check_content(path, file)
        if (path / "config.json").is_file():
            # sentence-transformers takes another library's kind of model from here, whatever
            # modules.json says.
            Module(path, path, kind="Transformer").check_config()
        weights: list[Path] = []
        for module in read_modules(path):
            for file in module.files():
                check_plain(path, file)
            module.check_config()
            weights += module.weights()
        for file in weights:
            read_weights(file)
        return cls(path, tuple(dict.fromkeys(weights)))

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
            raise refused(pack.path, "the pack lists no artifact with the role model")
        return Path(os.path.commonpath([file.parent for file in files]))
    if not pack.path.is_dir():
        raise refused(
            pack.path,
            "it is a file, not a folder; name the folder that holds config.json and "
            "the *.safetensors files",
        )
    return pack.path


def _check_content(path: Path, file: Path) -> None:
    check_plain(path, file)
    name = file.relative_to(path)
    if file.name in _ADAPTERS:
        raise refused(path, f"{name} belongs to an adapter of another model; merge the two first")
    if file.suffix not in _TEXTS:
        return
    try:
        with file.open("rb") as stream:
            start = stream.read(64).lstrip()
    except OSError as exc:
        raise refused(path, f"{name} cannot be read ({exc})") from exc
    if start.startswith(_LFS):
        raise refused(path, f"{name} is a Git LFS pointer, not the file; run git lfs pull there")
    if start.startswith(b"<") and file.suffix != ".txt":
        raise refused(path, f"{name} is an HTML page, not the file; download it again")
    if ".safetensors.index." in file.name:
        check_index(path, file)
