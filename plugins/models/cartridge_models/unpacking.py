"""A wheel unpacked as data: every member at a safe place, and as its RECORD lists it."""

from __future__ import annotations

import contextlib
import errno
import stat
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from cartridge_core.errors import CartridgeError, VerificationError
from cartridge_models.record import RECORD, Recorded, copy_checked, read_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["unpack_wheel"]

_SIGNATURES = ("", ".jws", ".p7s")
"""What RECORD's own name is followed by, for the files it cannot list a digest of."""

_RECORD_LIMIT_BYTES = 64 << 20

# bz2 gives damaged data as an OSError without a number.
_MEMBERS_OWN = {None, errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EILSEQ}


def unpack_wheel(
    wheel: Path, folder: Path, on_bytes: Callable[[int, int], None]
) -> tuple[Recorded, ...]:
    """
    Unpack a wheel, installing and executing nothing; RECORD is kept with the files.

    Args:
        wheel: The ``.whl`` file.
        folder: Where to; must not exist.
        on_bytes: Told how many bytes are written and how many there are; may raise to stop.

    Returns:
        What was unpacked and checked, without RECORD itself.

    Raises:
        VerificationError: It is no wheel, a member is unsafe, damaged, not listed or not as
            listed, or a listed file is missing.

        OSError: The folder cannot be written.
    """
    with contextlib.ExitStack() as stack:
        with _named(wheel.name, "it is no readable wheel"):
            archive = stack.enter_context(zipfile.ZipFile(wheel))
        record, text = _read_record_text(archive, wheel.name)
        recorded = _checked_members(archive, record, text, wheel.name)
        total = sum(entry.size_bytes for entry in recorded)
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            on_bytes(done, total)

        for entry in recorded:
            with _named(wheel.name, f"the member {entry.path!r:.200} cannot be unpacked"):
                target = folder / entry.path
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry.path) as source, target.open("xb") as copy:
                    copy_checked(source, copy, entry, where=wheel.name, on_bytes=advance)
        with _named(wheel.name, f"the member {record!r:.200} cannot be unpacked"):
            (folder / record).parent.mkdir(parents=True, exist_ok=True)
            (folder / record).write_bytes(text.encode())
    return recorded


@contextlib.contextmanager
def _named(wheel: str, what: str) -> Iterator[None]:
    """Turn whatever a damaged wheel causes into an error that names it."""
    try:
        yield
    except CartridgeError:
        raise
    except Exception as exc:  # zipfile lets through what each decompressor raises
        if isinstance(exc, OSError) and exc.errno not in _MEMBERS_OWN:
            raise
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        msg = f"{wheel}: {what}: {reason or type(exc).__name__}"
        raise VerificationError(msg) from exc


def _read_record_text(archive: zipfile.ZipFile, wheel: str) -> tuple[str, str]:
    """Give RECORD's path and text."""
    records = [info for info in archive.infolist() if RECORD.fullmatch(info.filename)]
    if len(records) != 1:
        msg = f"{wheel}: a wheel has one .dist-info/RECORD, this one has {len(records)}"
        raise VerificationError(msg)
    name = records[0].filename
    if records[0].file_size > _RECORD_LIMIT_BYTES:
        msg = f"{wheel}: the member {name!r:.200} claims {records[0].file_size} bytes"
        raise VerificationError(msg)
    with _named(wheel, f"the member {name!r:.200} cannot be read"):
        return name, archive.read(name).decode()


def _checked_members(
    archive: zipfile.ZipFile, record: str, text: str, wheel: str
) -> tuple[Recorded, ...]:
    """Give what RECORD says of each member, once names and members agree."""
    names = [info.filename for info in archive.infolist() if not info.is_dir()]
    for info in archive.infolist():
        if not _is_safe(info):
            msg = f"{wheel}: the member {info.filename!r:.200} would lie outside, or is a link"
            raise VerificationError(msg)
    listed = read_record(text, wheel)
    unhashed = {record + ending for ending in _SIGNATURES}
    entries = tuple(entry for name, entry in listed.items() if entry and name not in unhashed)
    expected = sorted(entry.path for entry in entries)
    if expected != sorted(name for name in names if name not in unhashed):
        differing = sorted(set(expected) ^ (set(names) - unhashed)) or ["a repeated name"]
        msg = f"{wheel}: its members and its RECORD differ, at {differing[0]:.200} for one"
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
