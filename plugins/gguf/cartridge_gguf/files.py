"""From a pack to the files that are loaded: a model, in one file or several, and its projector."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from cartridge_gguf.header import Header, read_header, refused
from cartridge_gguf.projector_tensors import check_projector
from cartridge_gguf.vocabulary import check_loadable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cartridge_core.pack import Pack

__all__ = ["ModelFiles"]

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_SHOWN = 8
_OTHER_KINDS = {
    "mmproj": "the projector of a vision model, and no language model",
    "adapter": "an adapter for another model, and no model",
    "imatrix": "a quantisation's importance matrix, and no model",
}


@attrs.frozen(kw_only=True, eq=False)
class ModelFiles:
    """What is loaded; every file's header has been read, and no file is cut short."""

    headers: tuple[Header, ...]
    """Of the model's files, in order."""

    projector_header: Header | None = None
    """Of the vision projector, where one was asked for."""

    @classmethod
    def of(cls, pack: Pack, *, projector: bool) -> ModelFiles:
        """
        Find what is loaded.

        Args:
            pack: A GGUF file, any of several that are one model, or a folder that holds one model.
            projector: Whether the model comes with a vision projector, in the same folder; where
                not, one that lies there does not count.

        Raises:
            LoadError: There is no model, or more than one; a file is no GGUF file, or cut short; a
                part is missing; there are no weights; the vocabulary is damaged; there is no
                projector, or more than one, or one that is not for pictures, or whose tensors do
                not go together.
        """
        files = cls._find(pack, projector=projector)
        if not any(header.tensors for header in files.headers):
            what = "it holds a vocabulary and no weights; take the model's own file"
            raise refused(files.model, what)
        check_loadable(files.header)
        return files

    @classmethod
    def to_inspect(cls, pack: Pack) -> ModelFiles:
        """
        Find what can be asked about: a model, a vocabulary without weights, a damaged one.

        Raises:
            LoadError: As `of`.
        """
        return cls._find(pack, projector=False)

    @classmethod
    def _find(cls, pack: Pack, *, projector: bool) -> ModelFiles:
        if pack.descriptor is None and not pack.path.is_dir():
            if projector:
                what = "it is a single file; name the folder that holds a model and its projector"
                raise refused(pack.path, what)
            return cls(headers=_read_parts(read_header(pack.path)))
        models, projectors = _sort(pack)
        headers = _read_parts(_only(pack, models, "model"))
        if not projector:
            return cls(headers=headers)
        return cls(headers=headers, projector_header=_seeing(_only(pack, projectors, "projector")))

    @property
    def header(self) -> Header:
        """The model's header; of several files, the first one's, which has the metadata."""
        return self.headers[0]

    @property
    def model(self) -> Path:
        """The model's file; of several, the first, which is the one to load."""
        return self.header.path

    @property
    def shards(self) -> tuple[Path, ...]:
        """All of the model's files, in order; often one."""
        return tuple(header.path for header in self.headers)

    @property
    def projector(self) -> Path | None:
        """The vision projector's file, where one was asked for."""
        return None if self.projector_header is None else self.projector_header.path

    @property
    def file_bytes(self) -> int:
        """Bytes of the model's files."""
        return sum(header.file_size for header in self.headers)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors, the projector's too."""
        projectors = () if self.projector_header is None else (self.projector_header,)
        return sum(header.data_size for header in (*self.headers, *projectors))


def _sort(pack: Pack) -> tuple[list[Header], list[Header]]:
    """Give the models and the projectors among a pack's files; of a model in parts, one part."""
    files = [file for role in ("model", "weights") for file in pack.files(role)]
    candidates = [file for file in files if file.suffix.lower() == ".gguf"]
    if not candidates:
        found = _listed([str(file.relative_to(pack.root)) for file in files])
        what = f"there is no *.gguf file in it, it has {found}"
        raise refused(pack.path, f"{what}; name the folder of a GGUF model, or a file")
    by_model: dict[tuple[Path, str], Path] = {}
    for file in candidates:
        part = _PART.fullmatch(file.name)
        name = f"{part['stem']}-of-{part['count']}" if part else file.name
        by_model.setdefault((file.parent, name), file)
    headers = [read_header(file) for file in by_model.values()]
    return (
        [header for header in headers if header.kind not in _OTHER_KINDS],
        [header for header in headers if header.kind == "mmproj"],
    )


def _only(pack: Pack, headers: Sequence[Header], what: str) -> Header:
    if len(headers) == 1:
        return headers[0]
    if not headers:
        hint = "download it too: include=*.gguf takes all there is"
        raise refused(pack.path, f"there is no {what} among its *.gguf files; {hint}")
    names = _listed([str(header.path.relative_to(pack.root)) for header in headers])
    hint = "keep one there, or name one with include= in the model spec"
    raise refused(pack.path, f"it holds {len(headers)} {what}s: {names}; {hint}")


def _seeing(projector: Header) -> Header:
    """Refuse a projector for sounds alone, or one that is damaged."""
    if projector.metadata.get("clip.has_vision_encoder") is not True:
        what = "it is a projector without a vision encoder, and cannot see"
        raise refused(projector.path, f"{what}; take the model's projector for pictures")
    check_projector(projector)
    return projector


def _read_parts(header: Header) -> tuple[Header, ...]:
    """Read all files of a model, of which one is known."""
    count = header.integer("split.count") or 1
    if count == 1:
        return (_checked(header),)
    folder, name = header.path.parent, _PART.fullmatch(header.path.name)
    if name is None or int(name["count"]) != count:
        what = f"it is one of {count} parts, and its name does not say so"
        raise refused(header.path, f"{what}; name the parts like model-00001-of-{count:05}.gguf")
    paths = [
        folder / f"{name['stem']}-{number:05}-of-{name['count']}{header.path.suffix}"
        for number in range(1, count + 1)
    ]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        what = f"the model has {count} parts, and of these are missing: {_listed(missing)}"
        raise refused(header.path, f"{what}; download them too: include={name['stem']}-*.gguf")
    headers = tuple(header if path == header.path else read_header(path) for path in paths)
    for number, part in enumerate(headers):
        found = (part.integer("split.no"), part.integer("split.count"))
        if found != (number, count):
            what = f"its name says part {number + 1} of {count}, its content does not"
            raise refused(part.path, f"{what}; give the parts back their own names")
    _checked(headers[0])
    wanted, tensors = (
        headers[0].integer("split.tensors.count"),
        sum(len(h.tensors) for h in headers),
    )
    if wanted is not None and wanted != tensors:
        what = f"its parts should hold {wanted} tensors, and hold {tensors}"
        raise refused(headers[0].path, f"{what}: they are not of one model; download them again")
    return headers


def _checked(header: Header) -> Header:
    if header.kind in _OTHER_KINDS:
        raise refused(header.path, f"it is {_OTHER_KINDS[header.kind]}; name the model's own file")
    if header.architecture is None:
        what = "its metadata does not say general.architecture"
        raise refused(header.path, f"{what}; make or download it again")
    return header


def _listed(names: Sequence[str]) -> str:
    """List names, the first few."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(sorted(names)[:_SHOWN]) or "no files") + more
