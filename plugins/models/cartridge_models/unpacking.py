"""A wheel unpacked as data: every member at a safe place, and as its RECORD lists it."""

from __future__ import annotations

import re
import stat
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from cartridge_core.errors import VerificationError
from cartridge_models.record import Recorded, copy_checked, read_record

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["unpack_wheel"]

_RECORD = re.compile(r"[^/]+\.dist-info/RECORD")
_SIGNATURES = ("", ".jws", ".p7s")
"""What RECORD's own name is followed by, for the files it cannot list a digest of."""


def unpack_wheel(wheel: Path, folder: Path, on_bytes: Callable[[int, int], None]) -> None:
    """
    Unpack a wheel, installing and executing nothing.

    Args:
        wheel: The ``.whl`` file.
        folder: Where to; must not exist.
        on_bytes: Told how many bytes are written and how many there are; may raise to stop.

    Raises:
        VerificationError: It is no wheel, a member is unsafe, not listed or not as listed, or a
            listed file is missing.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            recorded = _checked_members(archive, wheel.name)
            total = sum(entry.size_bytes for entry in recorded)
            done = 0

            def advance(count: int) -> None:
                nonlocal done
                done += count
                on_bytes(done, total)

            for entry in recorded:
                target = folder / entry.path
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry.path) as source, target.open("xb") as copy:
                    copy_checked(source, copy, entry, where=wheel.name, on_bytes=advance)
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError) as exc:
        msg = f"{wheel.name}: it is no readable wheel: {exc}"
        raise VerificationError(msg) from exc


def _checked_members(archive: zipfile.ZipFile, wheel: str) -> list[Recorded]:
    """Give what RECORD says of each member, once names and members agree."""
    names = [info.filename for info in archive.infolist() if not info.is_dir()]
    for info in archive.infolist():
        if not _is_safe(info):
            msg = f"{wheel}: the member {info.filename!r} would lie outside, or is a link"
            raise VerificationError(msg)
    records = [name for name in names if _RECORD.fullmatch(name)]
    if len(records) != 1:
        msg = f"{wheel}: a wheel has one .dist-info/RECORD, this one has {len(records)}"
        raise VerificationError(msg)
    listed = read_record(archive.read(records[0]).decode(), wheel)
    unhashed = {records[0] + ending for ending in _SIGNATURES}
    entries = [entry for name, entry in listed.items() if entry and name not in unhashed]
    expected = sorted(entry.path for entry in entries)
    if expected != sorted(name for name in names if name not in unhashed):
        differing = sorted(set(expected) ^ (set(names) - unhashed)) or ["a repeated name"]
        msg = f"{wheel}: its members and its RECORD differ, at {differing[0]} for one"
        raise VerificationError(msg)
    return entries


def _is_safe(info: zipfile.ZipInfo) -> bool:
    path = PurePosixPath(info.filename)
    return (
        bool(path.parts)
        and not path.is_absolute()
        and ".." not in path.parts
        and not set(info.filename) & set("\\\0")
        and path.as_posix() == info.filename.removesuffix("/")
        and not stat.S_ISLNK(info.external_attr >> 16)
    )
