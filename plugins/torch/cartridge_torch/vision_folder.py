"""A folder with a model that takes pictures, looked over before transformers sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs

from cartridge_torch.files import read_json, refused
from cartridge_torch.folder import ModelFolder
from cartridge_torch.modules import read_modules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cartridge_core.pack import Pack

__all__ = ["BLIP", "CLIP", "Kind", "VisionFolder"]

_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt")
_ENDINGS = ("", "Fast", "Pil")
"""Of the names that the classes of one image processor have had."""


@attrs.frozen
class Kind:
    """A kind of model, as its files name it."""

    model_type: str
    architecture: str = attrs.field(kw_only=True)
    """The class that its weights are for."""

    processor: str = attrs.field(kw_only=True)
    """The class of its image processor."""


CLIP = Kind("clip", architecture="CLIPModel", processor="CLIPImageProcessor")
BLIP = Kind("blip", architecture="BlipForConditionalGeneration", processor="BlipImageProcessor")


@attrs.frozen
class VisionFolder:
    """A folder as transformers or sentence-transformers saves a model that takes pictures."""

    folder: ModelFolder

    path: Path
    """Where its configuration, weights, tokenizer and image processor lie."""

    normalizes: bool = attrs.field(kw_only=True)
    """Whether sentence-transformers would give its vectors unit length."""

    @classmethod
    def read(cls, pack: Pack, kind: Kind) -> VisionFolder:
        """
        Look a pack over, reading its JSON and the headers of its weights.

        Raises:
            LoadError: As `ModelFolder.read`; or it is a model of another kind, or lacks the image
                processor's or the tokenizer's files.
        """
        folder = ModelFolder.read(pack)
        modules = read_modules(folder.path)
        if not modules:
            raise refused(folder.path, "modules.json names no module; download it again")
        path, others = modules[0].folder, modules[1:]
        _check_kind(folder.path, path, kind)
        for module in others:
            if module.kind != "Normalize":
                what = f"its module {module.kind} after the {kind.architecture} is not known here"
                raise refused(folder.path, f"{what}; take a folder with that model alone")
        _check_processor(folder.path, path, kind)
        if not any((path / name).is_file() for name in _TOKENIZERS):
            what = f"it lacks the tokenizer: {' or '.join(_TOKENIZERS)}"
            raise refused(folder.path, f"{what}; download it too")
        return cls(folder, path, normalizes=bool(others))


def _check_kind(path: Path, folder: Path, kind: Kind) -> None:
    config = cast("Mapping[str, object]", read_json(path, folder / "config.json"))
    found = config.get("model_type")
    if found != kind.model_type:
        what = f"its config.json says model_type {found!r}, and {kind.model_type!r} is needed"
        raise refused(path, f"{what}: a {kind.architecture} of transformers")
    classes = config.get("architectures")
    if isinstance(classes, list) and classes and kind.architecture not in classes:
        names = ", ".join(str(name) for name in cast("Sequence[object]", classes))
        raise refused(path, f"its weights are those of {names}, and {kind.architecture} is needed")


def _check_processor(path: Path, folder: Path, kind: Kind) -> None:
    """Look whether pictures are made numbers of as the kind of model does it."""
    config = _processor(path, folder)
    if config is None:
        what = f"it lacks the image processor: {' or '.join(_PROCESSORS)}"
        raise refused(path, f"{what}; download it too")
    name = config.get("image_processor_type")
    if name is not None and str(name) not in {f"{kind.processor}{end}" for end in _ENDINGS}:
        what = f"its image processor is {name!r}, and {kind.processor} is needed"
        raise refused(path, f"{what}; take a folder as transformers saves it")


def _processor(path: Path, folder: Path) -> Mapping[str, object] | None:
    """Read the image processor's configuration: a file of its own, or a part of another."""
    own, whole = (folder / name for name in _PROCESSORS)
    document = read_json(path, own) if own.is_file() else None
    if document is None and whole.is_file():
        parts = read_json(path, whole)
        document = parts.get("image_processor") if isinstance(parts, dict) else None
    return document if isinstance(document, dict) else None
