"""
Downloaded releases, one folder each, with the wheel's RECORD kept beside the files.

A folder appears in one step, whole and checked. Until then the work is in a hidden folder that
its owner holds a lock on: one without is left over from a process that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cartridge_core.errors import VerificationError
from cartridge_models.origin import Removed
from cartridge_models.record import RECORD, read_record
from cartridge_models.release import Release
from cartridge_models.settings import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cartridge_core.modelspec import PackageSpec

__all__ = [
    "publish",
    "read_cached",
    "release_folder",
    "remove",
    "scratch_bytes",
    "scratch_folder",
    "sweep",
]

_SCRATCH = ".part-"
_LOCK = "lock"


def release_folder(spec: PackageSpec) -> Path:
    """Give where a release is kept, whether or not it is."""
    return cache_folder() / "pypi" / spec.name / spec.version


def read_cached(spec: PackageSpec) -> Release | None:
    """
    Find a release in the cache.

    Raises:
        VerificationError: Its folder holds other files than its RECORD lists, or a link.
    """
    folder = release_folder(spec)
    if not os.path.lexists(folder):
        return None
    where = f"{spec.name} {spec.version} in {folder}"
    try:
        here = set(_regular_files(folder, where))
        records = [path for path in here if RECORD.fullmatch(path)]
        if len(records) != 1:
            msg = f"{where}: it has {'more than one' if records else 'no'} RECORD of its wheel"
            raise VerificationError(msg)
        text = (folder / records[0]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        msg = f"{where}: it cannot be read: {exc}"
        raise VerificationError(msg) from exc
    listed = {path: entry for path, entry in read_record(text, where).items() if entry}
    if strange := sorted(here - {records[0]} - set(listed)):
        msg = f"{where}: RECORD does not list {strange[0]!r}"
        raise VerificationError(msg)
    if missing := sorted(set(listed) - here):
        msg = f"{where}: {missing[0]!r} is missing"
        raise VerificationError(msg)
    return Release(folder, listed, where=where)


def _regular_files(folder: Path, where: str) -> Iterator[str]:
    left = [folder]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                path = Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    left.append(path)
                elif entry.is_file(follow_symlinks=False):
                    yield path.relative_to(folder).as_posix()
                else:
                    name = path.relative_to(folder).as_posix()
                    msg = f"{where}: {name!r} is a link or no regular file"
                    raise VerificationError(msg)


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Make a hidden folder to work in, that nobody sweeps; it goes, and an empty parent too."""
    folder, lock = _lock_new_folder(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
        _remove_if_empty(parent)


def scratch_bytes(parent: Path) -> int:
    """Say how much work lies in the hidden folders of a project."""
    total = 0
    for path in parent.glob(f"{_SCRATCH}*/**/*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total


def remove(spec: PackageSpec) -> Removed:
    """Remove a release, in one step for whoever looks."""
    final = release_folder(spec)
    if not final.is_dir():
        return Removed()
    with scratch_folder(final.parent) as scratch:
        gone = scratch / "removed"
        final.rename(gone)
        sizes = [path.lstat().st_size for path in gone.rglob("*") if not path.is_dir()]
    return Removed(len(sizes), sum(sizes))


def sweep(parent: Path) -> None:
    """Remove the hidden folders whose owner is gone."""
    with contextlib.suppress(OSError):
        for folder in list(parent.glob(f"{_SCRATCH}*")):
            with contextlib.suppress(OSError):
                lock = _open_lock(folder)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(lock)
    _remove_if_empty(parent)


def publish(unpacked: Path, final: Path, *, replaces: bool) -> None:
    """
    Move a release's folder to its place, safe from a power cut.

    Args:
        unpacked: The folder, in a scratch folder beside ``final``.
        final: The place. What somebody else published there first stays.
        replaces: Whether what is there is damaged, and is to go.
    """
    _sync(unpacked)
    if replaces:
        with contextlib.suppress(FileNotFoundError):
            final.rename(unpacked.with_name("replaced"))
    try:
        unpacked.rename(final)
    except OSError:
        if not final.is_dir():
            raise
    _sync_one(final.parent)


def _lock_new_folder(parent: Path) -> tuple[Path, int]:
    while True:
        parent.mkdir(parents=True, exist_ok=True)
        try:
            folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=parent))
            lock = _open_lock(folder)
        except FileNotFoundError:
            continue  # somebody removed the empty parent, or swept the folder, just now
        # Where a file system has no locks nothing is swept either.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _LOCK).exists():
            return folder, lock
        os.close(lock)


def _open_lock(folder: Path) -> int:
    return os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        _sync_one(path)
    _sync_one(folder)


def _sync_one(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError:
        # Some file systems cannot sync a folder.
        if not path.is_dir():
            raise
    finally:
        os.close(file)
