"""
One repository in the hub's shared cache, as huggingface_hub lays it out.

::

    models--owner--repo/
        blobs/<digest>                      the files
        refs/<branch or tag>                the commit it was at
        snapshots/<commit>/<path>           links to blobs

Source: huggingface_hub, "Understand caching". Ours are the parts, ``blobs/<digest>.cartridge``,
their locks in ``.locks``, and the lists of files, which lie in the cache of cartridge.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from typing import TYPE_CHECKING

import attrs

from cartridge_models.choosing import is_plain
from cartridge_models.digests import Digest
from cartridge_models.settings import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["HubFile", "Listing", "Repository"]

_COMMIT = re.compile(r"[0-9a-f]{40}")
_PREFIX = "models--"


@attrs.frozen
class HubFile:
    """What the hub states of a file."""

    size_bytes: int
    digest: Digest


@attrs.frozen
class Listing:
    """All of a repository's files at one commit, by path."""

    commit: str
    files: dict[str, HubFile]


@attrs.frozen
class Repository:
    """Where a repository's files are, or would be."""

    cache: Path
    """The hub's shared cache."""

    repo_id: str

    @classmethod
    def all_in(cls, cache: Path) -> Iterator[Repository]:
        """Give those that a cache holds."""
        for folder in sorted(cache.glob(f"{_PREFIX}*")):
            yield cls(cache, folder.name.removeprefix(_PREFIX).replace("--", "/", 1))

    @property
    def folder(self) -> Path:
        """All of it."""
        return self.cache / (_PREFIX + self.repo_id.replace("/", "--"))

    @property
    def locks(self) -> Path:
        """Where the locks of its parts are."""
        return self.cache / ".locks" / self.folder.name

    def blob(self, digest: Digest) -> Path:
        """Where a file's content is."""
        return self.folder / "blobs" / digest.hex

    def part(self, digest: Digest) -> Path:
        """Where the beginning of a file's content is."""
        return self.folder / "blobs" / f"{digest.hex}.cartridge"

    def snapshot(self, commit: str) -> Path:
        """Where a commit's files are."""
        return self.folder / "snapshots" / commit

    def commits(self) -> tuple[str, ...]:
        """Give the commits that something is here of."""
        folders = self.folder.glob("snapshots/*")
        return tuple(sorted(path.name for path in folders if _COMMIT.fullmatch(path.name)))

    def commit_of(self, revision: str | None) -> str | None:
        """Give the commit that a branch or a tag was at; None where that is not known."""
        if revision is not None and _COMMIT.fullmatch(revision):
            return revision
        try:
            text = self._ref(revision).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None
        return text if _COMMIT.fullmatch(text) else None

    def write_ref(self, revision: str | None, commit: str) -> None:
        """Keep which commit a branch or a tag is at; where nothing can be written, do nothing."""
        if self.commit_of(revision) != commit:
            _write(self._ref(revision), commit)

    def refs(self, commit: str) -> tuple[Path, ...]:
        """Give the branches and tags that were at a commit."""
        root = self.folder / "refs"
        files = (path for path in root.rglob("*") if path.is_file())
        return tuple(sorted(path for path in files if path.read_bytes().strip() == commit.encode()))

    def link(self, commit: str, path: str, digest: Digest) -> None:
        """Have a commit's file be a blob."""
        pointer = self.snapshot(commit) / path
        if pointer.exists():
            return
        pointer.parent.mkdir(parents=True, exist_ok=True)
        blob = self.blob(digest)
        if pointer.is_symlink() and not pointer.exists():
            pointer.unlink(missing_ok=True)
        try:
            pointer.symlink_to(os.path.relpath(blob, pointer.parent))
        except FileExistsError:
            return
        except OSError:
            # A file system without links: as huggingface_hub does, the file itself goes there.
            blob.replace(pointer)

    def read_listing(self, commit: str) -> Listing | None:
        """Give the list of a commit's files, where it was kept."""
        try:
            document = json.loads(self.listing_path(commit).read_bytes())
            files = {
                str(path): HubFile(int(size), Digest(str(algorithm), str(digest)))
                for path, (size, algorithm, digest) in document["files"].items()
                if is_plain(path)
            }
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return Listing(commit, files)

    def write_listing(self, listing: Listing) -> None:
        """Keep it; where nothing can be written, do nothing."""
        files = {
            path: (file.size_bytes, file.digest.algorithm, file.digest.hex)
            for path, file in listing.files.items()
        }
        path = self.listing_path(listing.commit)
        if not path.exists():
            _write(path, json.dumps({"repository": self.repo_id, "files": files}, indent=1))

    def listing_path(self, commit: str) -> Path:
        """Where that list is."""
        return cache_folder() / "hub" / self.folder.name / f"{commit}.json"

    def _ref(self, revision: str | None) -> Path:
        # huggingface_hub's name for the default branch, whatever the repository's.
        return self.folder / "refs" / (revision or "main")


def _write(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        file, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
        try:
            os.fchmod(file, 0o644)
            with open(file, "w", encoding="utf-8") as out:
                out.write(text)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
