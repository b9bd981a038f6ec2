"""Models that are one file on the web, known by their digest."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

import attrs

from cartridge_core.errors import BusyError, DownloadError, OfflineError
from cartridge_models.aside import aside
from cartridge_models.digests import Digest
from cartridge_models.fetching import Order, fetch
from cartridge_models.locks import owner_of
from cartridge_models.origin import Listed, Model, ModelFile, Removed
from cartridge_models.receiving import BrokenOffError, Head, RefusedError, receive
from cartridge_models.remote import Patience, RemoteFile, discard
from cartridge_models.settings import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cartridge_core.context import Context
    from cartridge_core.modelspec import UrlSpec

__all__ = ["WebOrigin", "list_web"]

_ADVICE = "set CARTRIDGE_CACHE to a folder on another disk"
_INFO = ".source.json"
_GONE = frozenset({401, 403, 404, 410})
_LONGEST_NAME = 200
_PIECE_BYTES = 1 << 20


@attrs.frozen
class WebOrigin:
    """
    A file on the web.

    It lies in a folder named by its digest, under the last name of its address.
    """

    spec: UrlSpec
    patience: Patience

    @property
    def name(self) -> str:
        """The last name of the address."""
        name = unquote(urlsplit(self.spec.url).path).rpartition("/")[2][-_LONGEST_NAME:]
        is_plain = name.isprintable() and "\\" not in name and not name.startswith(".")
        return name if name and is_plain else "model"

    @property
    def repository(self) -> str:
        """The address, without what it may hold of secrets."""
        parts = urlsplit(self.spec.url)
        return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))

    def find(self, context: Context) -> Model | None:
        """Look into the cache."""
        context.check_cancelled()
        file = self._remote
        size, part = _size(file.target), max(_size(file.part), 0)
        coming = owner_of(self._lock) is not None
        if size >= 0 and self._is_whole(context):
            return Model(file.target, (ModelFile(self.name, size),))
        if not part and not coming:
            return None
        return Model(file.target, (), complete=False, part_bytes=part, coming=coming)

    def fetch(self, context: Context) -> Model:
        """Find it, or bring it into the cache."""
        found = self.find(context)
        if found is not None and found.complete:
            return found
        self._require_network(context)
        file = self._remote
        if _size(file.target) >= 0 and not self._is_whole(context):
            # It is damaged, as by a power cut.
            file.target.unlink(missing_ok=True)
        order = Order(self.name, [file], self._lock.parent, _ADVICE, self._write_info)
        fetch(order, context, self.patience)
        return Model(file.target, (ModelFile(self.name, _size(file.target)),))

    def contents(self, context: Context) -> tuple[ModelFile, ...]:
        """Ask the server how large it is."""
        self._require_network(context)
        head = self._probe(context)
        size = head.span[1] if head.status == 206 else head.length
        if size is None:
            msg = f"model {self._what}: the server does not say how large it is"
            raise DownloadError(msg)
        return (ModelFile(self.name, size),)

    def is_offered(self, context: Context) -> bool:
        """Ask the server for its first byte."""
        self._require_network(context)
        try:
            self._probe(context)
        except RefusedError as exc:
            if exc.http_status in _GONE:
                return False
            raise
        return True

    def remove(self, context: Context) -> Removed:
        """Remove it, and what is here of it."""
        context.check_cancelled()
        if (owner := owner_of(self._lock)) is not None:
            msg = f"model {self._what}: {owner} is fetching it; end that first"
            raise BusyError(msg)
        file = self._remote
        size, part = _size(file.target), _size(file.part)
        try:
            file.target.unlink(missing_ok=True)
            discard(file)
            (self._folder / _INFO).unlink(missing_ok=True)
        except OSError as exc:
            msg = f"model {self._what}: it cannot be removed: {exc}"
            raise DownloadError(msg) from exc
        with contextlib.suppress(OSError):
            self._folder.rmdir()
        return Removed(int(size >= 0), max(size, 0) + max(part, 0))

    @property
    def _what(self) -> str:
        return f"{self.repository}#sha256={self.spec.sha256}"

    @property
    def _folder(self) -> Path:
        return cache_folder() / "https" / self.spec.sha256

    @property
    def _lock(self) -> Path:
        return cache_folder() / "locks" / f"{self._remote.part.name}.lock"

    @property
    def _remote(self) -> RemoteFile:
        return RemoteFile(
            what=f"model {self._what}",
            name=self.name,
            url=self.spec.url,
            digest=Digest("sha256", self.spec.sha256),
            size_bytes=None,
            target=self._folder / self.name,
            part=self._folder / f".{self.spec.sha256}.part",
        )

    def _is_whole(self, context: Context) -> bool:
        """Say whether the file is what was fetched; one that was written since is hashed again."""
        file, info = self._remote, _read_info(self._folder)
        try:
            seen = file.target.stat()
            if info.get("size_bytes", seen.st_size) != seen.st_size:
                return False
            if info.get("mtime_ns", seen.st_mtime_ns) == seen.st_mtime_ns:
                return True
            hasher = file.digest.hasher(seen.st_size)
            with file.target.open("rb") as stream:
                while piece := stream.read(_PIECE_BYTES):
                    context.check_cancelled()
                    hasher.update(piece)
            if hasher.hexdigest() != file.digest.hex:
                return False
        except OSError:
            return False
        with contextlib.suppress(OSError):  # a cache that nobody can write to is hashed each time
            self._write_info(file)
        return True

    def _write_info(self, file: RemoteFile) -> None:
        seen = file.target.stat()
        info = {
            "url": self.repository,
            "name": self.name,
            "size_bytes": seen.st_size,
            "mtime_ns": seen.st_mtime_ns,
        }
        (self._folder / _INFO).write_text(json.dumps(info), encoding="utf-8")

    def _probe(self, context: Context) -> Head:
        asked = receive(self.spec.url, {"Range": "bytes=0-0"}, self.patience.stall_s)
        answer = aside(asked, context.check_cancelled)
        try:
            with contextlib.closing(answer):
                head = next(answer)
        except (BrokenOffError, RefusedError) as exc:
            msg = f"model {self._what}: {exc}"
            status = exc.http_status if isinstance(exc, RefusedError) else exc.status
            raise RefusedError(msg, http_status=status) from exc
        assert isinstance(head, Head)  # noqa: S101 -- what comes first
        return head

    def _require_network(self, context: Context) -> None:
        if context.offline:
            msg = (
                f"model {self._what}: it is not in {cache_folder()}, and CARTRIDGE_OFFLINE forbids "
                "the network; type `cartridge models get` with the network once"
            )
            raise OfflineError(msg)


def list_web() -> Iterator[Listed]:
    """Give what the cache holds."""
    for folder in sorted((cache_folder() / "https").glob("*")):
        info = _read_info(folder)
        url, name = str(info.get("url")), str(info.get("name"))
        size = _size(folder / name)
        if size >= 0:
            files = (ModelFile(name, size),)
            complete = size == info.get("size_bytes")
            model = Model(folder / name, files, complete=complete)
            yield Listed(f"{url}#sha256={folder.name}", "https", model)


def _read_info(folder: Path) -> dict[str, object]:
    try:
        info: object = json.loads((folder / _INFO).read_bytes())
    except (OSError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
