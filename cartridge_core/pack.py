"""`Pack`: a model's files on this machine, by role; with a descriptor or bare."""

from __future__ import annotations

import enum
import os
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

import attrs

from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import InvalidArgumentError, LoadError
from cartridge_core.jsondata import read_json, refusal
from cartridge_core.jsonfields import Fields

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Pack", "Trust"]

_BARE_ROLE = "model"


class Trust(enum.StrEnum):
    """How much a pack must prove before it is opened."""

    REQUIRED = "required"
    """It has a manifest, signed by a key of the trust store."""

    IF_SIGNED = "if-signed"
    """A manifest, where there is one, is right; and so is every signature it has."""

    OFF = "off"
    """Nothing is checked."""


@attrs.frozen
class _Artifact:
    """One file that a manifest lists."""

    role: str
    path: PurePosixPath
    """Relative to the pack's root; never leaves it."""


@attrs.frozen
class Pack:
    """
    A model's files on this machine.

    A *bare* pack is a plain model file or folder: it has no descriptor, and all its files have
    the role ``model``. A full pack is a folder with ``descriptor.json`` and ``manifest.json``.
    Nothing is verified here, and no file but those two is opened.

    Source:
        Cartridge ABI 0.1, "pack_dir".
    """

    root: Path
    """The folder; for a bare file, the one it lies in."""

    path: Path
    """What was named: the file or the folder, absolute."""

    descriptor: Descriptor | None = attrs.field(default=None, kw_only=True)

    _artifacts: tuple[_Artifact, ...] | None = attrs.field(default=None, kw_only=True, repr=False)

    _stamps: tuple[_Stamp, ...] = attrs.field(init=False, eq=False, repr=False)

    identity: tuple[object, ...] = attrs.field(init=False, eq=False, repr=False)
    """
    What tells this pack from another, and from itself before it was changed.

    Hashable: the real path, then every file's relative path, size in bytes and time of change in
    nanoseconds, as they were when the pack was made.
    """

    @_stamps.default
    def _look(self) -> tuple[_Stamp, ...]:
        try:
            return tuple(_look(str(self.path)))
        except OSError as exc:
            raise _unreadable(self.path, exc) from exc

    @identity.default
    def _identify(self) -> tuple[object, ...]:
        root = len(self._stamps[0].path)
        files = [
            (seen.path[root:], seen.size, seen.mtime_ns)
            for seen in self._stamps
            if not stat.S_ISDIR(seen.mode)
        ]
        return (os.path.realpath(self.path), *files)

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Pack:
        """
        Take a file or a folder as a pack.

        Args:
            path: A model file, a model folder, or the folder of a full pack; ``~`` is expanded.

        Raises:
            LoadError: There is no such file or folder, it or something in it cannot be read, its
                descriptor or manifest is malformed, or it has the manifest of a pack and no
                descriptor.
        """
        named = Path(path).expanduser().absolute()
        try:
            if not named.is_dir():
                named.stat()
                return cls(named.parent, named)
            if not (named / "descriptor.json").is_file():
                _refuse_half(named / "manifest.json")
                return cls(named, named)
            descriptor = _read_descriptor(named / "descriptor.json")
            artifacts = _read_artifacts(named / "manifest.json")
        except (OSError, ValueError, RuntimeError) as exc:
            raise _unreadable(named, exc) from exc
        return cls(named, named, descriptor=descriptor, artifacts=artifacts)

    def files(self, role: str | None = None) -> tuple[Path, ...]:
        """
        Give the files with a role, in a stable order.

        Args:
            role: ``model``, ``weights``, ``tokenizer``, ``runtime``, …; None is every file.
                Names that start with a dot, and what is below them, do not count.

        Raises:
            LoadError: The folder cannot be read.
        """
        if self._artifacts is not None:
            return tuple(
                self.root / artifact.path
                for artifact in self._artifacts
                if role in {None, artifact.role}
            )
        if role not in {None, _BARE_ROLE}:
            return ()
        return _walk(self.path) if self.path.is_dir() else (self.path,)

    def is_unchanged(self) -> bool:
        """Say whether the files are still what they were when the pack was made."""
        look = os.stat
        try:
            # Spelt out, since every call asks.
            for path, inode, mode, size, mtime_ns in self._stamps:
                now = look(path)
                if now.st_mtime_ns != mtime_ns or now.st_size != size:
                    return False
                if now.st_ino != inode or now.st_mode != mode:
                    return False
        except OSError:
            return False
        return True


class _Stamp(NamedTuple):
    """A file or a folder as it was seen."""

    path: str
    inode: int
    mode: int
    size: int
    mtime_ns: int


def _stamp(path: str) -> _Stamp:
    seen = os.stat(path)
    return _Stamp(path, seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns)


def _look(path: str) -> Iterator[_Stamp]:
    """Look at a path, and at everything below it whose name does not start with a dot."""
    seen = _stamp(path)
    yield seen
    if stat.S_ISDIR(seen.mode):
        with os.scandir(path) as entries:
            below = sorted(entry.path for entry in entries if not entry.name.startswith("."))
        for one in below:
            yield from _look(one)


def _unreadable(path: Path, exc: Exception) -> LoadError:
    if not os.path.lexists(path):
        msg = f"model path {path}: there is no such file or folder; check the path"
    else:
        msg = f"model path {path}: it cannot be read: {exc}"
    return LoadError(msg)


def _walk(folder: Path) -> tuple[Path, ...]:
    def fail(exc: OSError) -> None:
        raise _unreadable(folder, exc) from exc

    found: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(parent, name) for name in names if not name.startswith(".")]
    return tuple(sorted(found))


def _read_descriptor(file: Path) -> Descriptor:
    try:
        return Descriptor.from_json(file.read_bytes())
    except InvalidArgumentError as exc:
        raise _malformed(file, exc) from exc


def _refuse_half(file: Path) -> None:
    """Refuse a folder without a descriptor whose manifest is a pack's: nothing would verify it."""
    if not file.is_file():
        return
    try:
        manifest = Fields(read_json(file.read_bytes(), "$"), "$")
    except InvalidArgumentError:
        return
    if not {"schema_version", "digest_alg", "artifacts"} <= manifest.data.keys():
        return  # a model's own file, which has this name for a reason of its own
    if manifest.data.get("kind") == "weights-update":
        msg = (
            f"{file.parent} is a weights update, which cannot be opened: it replaces files of the "
            "pack that it is for"
        )
    else:
        msg = f"pack {file.parent}: it has manifest.json but no descriptor.json; fetch it again"
    raise LoadError(msg)


def _read_artifacts(file: Path) -> tuple[_Artifact, ...]:
    if not file.is_file():
        msg = (
            f"pack {file.parent}: it has descriptor.json but no manifest.json; a full pack has "
            "both, a plain model folder neither"
        )
        raise LoadError(msg)
    try:
        manifest = Fields(read_json(file.read_bytes(), "$"), "$")
        manifest.value("artifacts")
        return tuple(_read_artifact(item, where) for item, where in manifest.items("artifacts"))
    except InvalidArgumentError as exc:
        raise _malformed(file, exc) from exc


def _read_artifact(item: object, where: str) -> _Artifact:
    fields = Fields(item, where)
    text = fields.text("path")
    path = PurePosixPath(text)
    if not path.parts or path.is_absolute() or ".." in path.parts or set(text) & set("\\\0"):
        raise refusal(fields.at("path"), "must be a plain path below the pack's folder", text)
    return _Artifact(fields.text("role"), path)


def _malformed(file: Path, exc: InvalidArgumentError) -> LoadError:
    msg = f"pack {file.parent}: {file.name}: {exc}"
    return LoadError(msg)
