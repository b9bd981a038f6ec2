"""
SHA-256 of files, remembered for as long as a file stays what it was.

What a pack's files were hashed to is kept in the cache, so that a model of gigabytes is hashed
when it arrives and not in every process that opens it. A digest counts for one state of a file:
device, inode, size and times of change, of which the system sets one itself. The cache is as
private as the user's other files; what others could have written is not read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import stat
import time
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.folders import cache_folder
from cartridge_core.jsondata import as_integer, read_json
from cartridge_core.jsonfields import Fields
from cartridge_core.wholefiles import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["Digests"]

_log = logging.getLogger("cartridge.packs")

_SETTLED_NS = 2_000_000_000
"""A file changed later than this ago may change again within one tick of its time stamps."""

_CHUNK_BYTES = 2**20
"""How much of a file is hashed at once: about a millisecond's work."""

_KEYS = frozenset({"schema_version", "folder", "manifest", "files"})
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

_Stamp = tuple[int, ...]
_Known = dict[str, tuple[_Stamp, str]]

_here: dict[tuple[str, str], _Known] = {}
"""What this process has hashed, by folder and manifest: the cache may be read-only."""


@attrs.define
class Digests:
    """
    The digests of a pack's files.

    Args:
        root: The pack's folder.
        manifest: Digest of the pack's manifest; another one's digests are not taken.
        fresh: Whether everything is hashed anew.
        check_cancelled: Called again and again while a file is hashed; what it raises ends that.
    """

    root: Path
    manifest: str
    fresh: bool = False
    check_cancelled: Callable[[], None] | None = None

    hashed_bytes: int = attrs.field(default=0, init=False)
    remembered_bytes: int = attrs.field(default=0, init=False)
    _known: _Known = attrs.field(factory=dict, init=False)
    _is_changed: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        """Take what was hashed before."""
        self._known = _here.setdefault((self._folder, self.manifest), {})
        if not self.fresh and not self._known:
            self._known |= _read(self._file, self._folder, self.manifest)

    def of(self, path: str, seen: os.stat_result) -> str:
        """
        Give the digest of a file, ``sha256:`` and 64 hex digits.

        Args:
            path: Relative to the pack's folder.
            seen: Its state, looked at before.

        Raises:
            OSError: It cannot be read.
        """
        stamp = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
        before = self._known.get(path)
        if not self.fresh and before is not None and before[0] == stamp:
            self.remembered_bytes += seen.st_size
            return before[1]
        digest = self._hashed(self.root / path)
        self.hashed_bytes += seen.st_size
        if time.time_ns() - max(seen.st_mtime_ns, seen.st_ctime_ns) >= _SETTLED_NS:
            self._known[path] = (stamp, digest)
            self._is_changed = True
        return digest

    def keep(self) -> None:
        """Keep what was hashed for other processes; where that cannot be, it is logged."""
        if not self._is_changed:
            return
        known = dict(self._known)  # another thread may add to it
        document = {
            "schema_version": "1",
            "folder": self._folder,
            "manifest": self.manifest,
            "files": {path: [*stamp, digest] for path, (stamp, digest) in known.items()},
        }
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._file, json.dumps(document), 0o600)
        except (OSError, ValueError, RuntimeError) as exc:
            _log.debug("the digests of pack %s could not be kept: %s", self.root, exc)

    def _hashed(self, path: Path) -> str:
        found, chunk = hashlib.sha256(), memoryview(bytearray(_CHUNK_BYTES))
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(chunk):
                if self.check_cancelled is not None:
                    self.check_cancelled()
                found.update(chunk[:count])
        return f"sha256:{found.hexdigest()}"

    @property
    def _folder(self) -> str:
        return os.path.realpath(self.root)

    @property
    def _file(self) -> Path:
        name = hashlib.sha256(os.fsencode(self._folder)).hexdigest()[:32]
        return cache_folder() / "digests" / f"{name}.json"


def _read(file: Path, folder: str, manifest: str) -> _Known:
    """Read what another process kept; nothing where that is about something else, or odd."""
    try:
        with file.open("rb") as stream:
            seen = os.fstat(stream.fileno())
            if seen.st_uid != os.geteuid() or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return {}
            fields = Fields(read_json(stream.read(), "$"), "$", _KEYS)
        if fields.data.get("folder") != folder or fields.data.get("manifest") != manifest:
            return {}
        return _known(fields.mapping("files"))
    except (OSError, InvalidArgumentError):
        return {}


def _known(files: Mapping[str, object]) -> _Known:
    known: _Known = {}
    for path, entry in files.items():
        if not isinstance(entry, tuple) or len(entry) != 6:
            return {}
        stamp = tuple(number for value in entry[:5] if (number := as_integer(value)) is not None)
        digest = entry[5]
        if len(stamp) != 5 or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            return {}
        known[path] = (stamp, digest)
    return known
