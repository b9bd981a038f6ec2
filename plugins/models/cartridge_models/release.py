"""One release's files on this machine, installed or cached, held against its RECORD."""

from __future__ import annotations

import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import VerificationError
from cartridge_models.record import Recorded, copy_checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Release", "stamp"]


@attrs.frozen
class Release:
    """Where a release's files lie, and what RECORD says of them."""

    base: Path
    listed: Mapping[str, Recorded | None] = attrs.field(eq=False)
    """By path relative to ``base``; None for a file without a digest."""

    where: str = attrs.field(kw_only=True)
    """Whose files they are, for errors."""

    def inside(self, subpath: str) -> tuple[Recorded, ...]:
        """
        Give what RECORD says of a file, or of the files in a folder.

        Raises:
            VerificationError: RECORD has no digest of one, or no plain path.
        """
        return tuple(
            self._entry(path)
            for path in sorted(self.listed)
            if "__pycache__/" not in path and (path == subpath or path.startswith(subpath + "/"))
        )

    def verify(
        self,
        recorded: Iterable[Recorded],
        verified: set[tuple[object, ...]],
        check_cancelled: Callable[[], None],
    ) -> None:
        """
        Hold files against RECORD.

        Args:
            recorded: The files.
            verified: Stamps of files that need no second look; takes those of these files.
            check_cancelled: Called between reads; may raise to stop.

        Raises:
            VerificationError: A file is not what RECORD lists, or cannot be read.
        """
        for entry in recorded:
            path = self.base / entry.path
            try:
                before = stamp(path, entry)
                if before in verified:
                    continue
                if not stat.S_ISREG(path.stat().st_mode):
                    msg = f"{self.where}: {entry.path} is no regular file"
                    raise VerificationError(msg)
                with path.open("rb") as file:
                    copy_checked(
                        file, None, entry, where=self.where, on_bytes=lambda _: check_cancelled()
                    )
            except OSError as exc:
                msg = f"{self.where}: {entry.path} cannot be read: {exc}"
                raise VerificationError(msg) from exc
            verified.add(before)

    def _entry(self, path: str) -> Recorded:
        entry = self.listed[path]
        if entry is None:
            msg = f"{self.where}: RECORD lists no digest for {path}"
            raise VerificationError(msg)
        if ".." in PurePosixPath(path).parts or "\0" in path:
            msg = f"{self.where}: RECORD lists {path!r}, which is no plain path"
            raise VerificationError(msg)
        return entry


def stamp(path: Path, recorded: Recorded) -> tuple[object, ...]:
    """Give what changes whenever a file, or what RECORD says of it, does."""
    found = path.stat()
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return (recorded.digest, found.st_dev, found.st_ino, found.st_size, *times)
