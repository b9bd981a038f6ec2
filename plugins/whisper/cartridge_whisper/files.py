"""A model's files, looked over before torch sees them, so that a wrong one has a name."""

from __future__ import annotations

import enum
import json
import math
import os
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import LoadError
from cartridge_whisper.ct2 import read_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.pack import Pack

__all__ = ["Format", "ModelFiles"]

_LFS = b"version https://git-lfs"
_ZIP = b"PK\x03\x04"
_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_MOST_HEADER_BYTES = 100_000_000
_TAKEN = (
    "a .pt file of openai-whisper, or a folder with config.json and model.safetensors "
    "(openai/whisper-*) or with config.json and model.bin of CTranslate2 (faster-whisper-*)"
)


class Format(enum.Enum):
    """Who saved a model."""

    WHISPER = "openai-whisper"
    HUGGING_FACE = "transformers"
    CTRANSLATE2 = "ctranslate2"


@attrs.frozen
class ModelFiles:
    """The files that a model is loaded from."""

    format: Format
    path: Path
    """What was named: the file or the folder."""

    weights: tuple[Path, ...]

    @classmethod
    def read(cls, pack: Pack) -> ModelFiles:
        """
        Look a pack over: which format it has, and whether its weights look like weights.

        Raises:
            LoadError: It holds no model that could be loaded.
        """
        path = _path(pack)
        found = cls(*_find(path))
        for file in found.weights:
            _check_content(file)
        return found

    @property
    def name(self) -> str:
        """
        The model's name: the hub's where the folder lies in the hub's cache, else the file's.

        Source: huggingface_hub, "Understand caching" (``models--owner--repo/snapshots/commit``).
        """
        repository = self.path.parent.parent.name
        if self.path.parent.name == "snapshots" and repository.startswith("models--"):
            return repository.removeprefix("models--").replace("--", "/", 1)
        return self.path.stem if self.path.is_file() else self.path.name

    def read_config(self, name: str) -> Mapping[str, object]:
        """
        Read one of the folder's JSON files; empty where it is not there.

        Raises:
            LoadError: It is no JSON object.
        """
        file = self.path / name
        if not file.is_file():
            return {}
        return _read_json(file)

    def number_count(self) -> int:
        """
        Count the numbers of the weights, without reading them.

        Raises:
            LoadError: A file is cut short or malformed.
        """
        if self.format is Format.CTRANSLATE2:
            return sum(one.count for file in self.weights for one in read_variables(file).values())
        if self.format is Format.HUGGING_FACE:
            return sum(_count_safetensors(file) for file in self.weights)
        # Those that OpenAI publishes are float16; a file says it only in its pickle.
        return sum(file.stat().st_size for file in self.weights) // 2


def _path(pack: Pack) -> Path:
    """Give what holds the model: the pack's own path, or where its ``model`` artifacts lie."""
    if pack.descriptor is None:
        return pack.path
    files = pack.files("model")
    if not files:
        raise _refused(pack.path, "the pack lists no artifact with the role model")
    if len(files) == 1:
        return files[0]
    return Path(os.path.commonpath([file.parent for file in files]))


def _find(path: Path) -> tuple[Format, Path, tuple[Path, ...]]:
    if not path.is_dir():
        if path.suffix == ".pt":
            return Format.WHISPER, path, (path,)
        raise _refused(path, f"it is no .pt file; give {_TAKEN}")
    if (path / "config.json").is_file():
        kind = _read_json(path / "config.json").get("model_type")
        shards = _shards(path)
        if shards:
            if kind != "whisper":
                what = f"its config.json says model_type {kind!r}, and 'whisper' is needed"
                raise _refused(path, what)
            return Format.HUGGING_FACE, path, shards
        if (path / "model.bin").is_file():
            return Format.CTRANSLATE2, path, (path / "model.bin",)
        if (path / "pytorch_model.bin").is_file():
            what = "its weights are a pickle, which can run code; download model.safetensors"
            raise _refused(path, what)
    checkpoints = sorted(path.glob("*.pt"))
    if len(checkpoints) == 1:
        return Format.WHISPER, checkpoints[0], (checkpoints[0],)
    if checkpoints:
        names = ", ".join(file.name for file in checkpoints)
        raise _refused(path, f"it holds several models ({names}); name one of the files")
    raise _refused(path, f"it holds no model; give {_TAKEN}")


def _shards(path: Path) -> tuple[Path, ...]:
    """List the safetensors files; empty where there are none."""
    if (path / "model.safetensors").is_file():
        return (path / "model.safetensors",)
    index = path / "model.safetensors.index.json"
    if not index.is_file():
        return ()
    table = _read_json(index).get("weight_map")
    if not isinstance(table, dict):
        raise _refused(path, f"{index.name} has no weight_map; download it again")
    names = sorted({str(name) for name in cast("Mapping[str, object]", table).values()})
    lacking = [name for name in names if Path(name).name != name or not (path / name).is_file()]
    if lacking:
        raise _refused(path, f"{lacking[0]} is missing; download the whole model")
    return tuple(path / name for name in names)


def _read_json(file: Path) -> Mapping[str, object]:
    try:
        document: object = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as exc:
        msg = f"{file}: it is no JSON ({exc}); download it again"
        raise LoadError(msg) from exc
    if not isinstance(document, dict):
        msg = f"{file}: it is no JSON object; download it again"
        raise LoadError(msg)
    return cast("Mapping[str, object]", document)


def _check_content(file: Path) -> None:
    """Name what stands in a weights file's place."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise _refused(file, "it is no regular file; replace it")
        with file.open("rb") as stream:
            start = stream.read(64)
    except OSError as exc:
        raise _refused(file, f"it cannot be read ({exc.strerror})") from exc
    if not start:
        raise _refused(file, "it is empty; download it again")
    if start.startswith(_LFS):
        raise _refused(file, "it is a Git LFS pointer, not the file; run git lfs pull there")
    if start.lstrip().startswith(b"<"):
        raise _refused(file, "it is an HTML page, not the file; download it again")
    if file.suffix == ".pt" and not start.startswith(_ZIP):
        raise _refused(file, "it is no checkpoint as torch saves it; download it again")


def _count_safetensors(file: Path) -> int:
    """
    Count the numbers of a safetensors file.

    Source: safetensors, "Format": eight bytes of length, a JSON header, then the tensors.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if not 0 < length <= min(size - 8, _MOST_HEADER_BYTES):
                msg = "its header is longer than the file"
                raise ValueError(msg)  # noqa: TRY301 -- as what json would say
            header = cast("Mapping[str, Mapping[str, object]]", json.loads(stream.read(length)))
        tensors = [one for name, one in header.items() if name != "__metadata__"]
        ends = [cast("list[int]", one["data_offsets"])[1] for one in tensors]
        if size != 8 + length + max(ends, default=0):
            msg = f"its header promises {8 + length + max(ends, default=0)} bytes, it has {size}"
            raise ValueError(msg)  # noqa: TRY301 -- as above
        return sum(
            math.prod(cast("list[int]", one["shape"])) for one in tensors if one["dtype"] in _FLOATS
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as exc:
        raise _refused(file, f"it is no whole safetensors file ({exc}); download it again") from exc


def _refused(path: Path, what: str) -> LoadError:
    msg = f"model {path}: {what}"
    return LoadError(msg)
