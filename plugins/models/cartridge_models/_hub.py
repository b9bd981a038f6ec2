"""The one file that imports huggingface_hub: what the hub says, who the user is to it."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from cartridge_models.aside import THREAD, aside
from cartridge_models.choosing import chosen, is_plain
from cartridge_models.digests import Digest
from cartridge_models.layout import HubFile, Listing
from cartridge_models.receiving import retry_after_s

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from cartridge_core.modelspec import HubSpec

__all__ = [
    "HubRefusedError",
    "Snapshot",
    "ask",
    "cache_folder",
    "endpoint",
    "file_url",
    "find_snapshot",
    "kind_of_refusal",
    "request_headers",
]

_log = logging.getLogger("cartridge.models.hub")
_HTTP_LIBRARIES = frozenset({"httpcore", "httpcore2", "httpx", "httpx2", "requests", "urllib3"})


class HubRefusedError(Exception):
    """
    The hub gives no list, or no file.

    Attributes:
        kind: Why, in one word.
        wait_s: How long it asks to wait.
    """

    def __init__(self, kind: str, text: str, wait_s: float | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.wait_s = wait_s


@attrs.frozen
class Snapshot:
    """A repository at one commit, as far as another program brought it onto this machine."""

    folder: Path
    names: tuple[str, ...]
    """The files that are meant, relative to the folder, separated by ``/``."""

    complete: bool
    """False where files are known to be missing."""

    certain: bool
    """Whether the library knows the repository's whole list, so that ``complete`` is no guess."""


def cache_folder() -> Path:
    """Give the hub's own shared cache, as huggingface_hub read it from the environment."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser().absolute()


def endpoint() -> str:
    """Give the hub's address."""
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def ask(spec: HubSpec, check: Callable[[], None], stall_s: float) -> Listing:
    """
    Ask the hub what a repository holds at a revision.

    Args:
        spec: The repository and the revision.
        check: Called while there is no answer; may raise to stop.
        stall_s: How long to wait for it.

    Raises:
        HubRefusedError: There is no answer, or it is no list.
    """

    def answer() -> Generator[Listing, None, None]:
        yield _ask(spec, stall_s)

    return next(aside(answer(), check))


def request_headers() -> dict[str, str]:
    """Give what a request for a file says; the user's token, where there is one, with it."""
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    return dict(build_hf_headers(library_name="cartridge-models"))


def file_url(repo_id: str, commit: str, path: str) -> str:
    """Give a file's address."""
    from huggingface_hub import hf_hub_url

    return hf_hub_url(repo_id, path, revision=commit, endpoint=endpoint())


def find_snapshot(spec: HubSpec) -> Snapshot | None:
    """Find what another program fetched; None where no file that is meant is there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    complete = True
    folder: str | None
    try:
        folder = snapshot_download(
            spec.repo_id,
            revision=spec.revision,
            cache_dir=cache_folder(),
            allow_patterns=list(spec.include) or None,
            ignore_patterns=list(spec.exclude) or None,
            local_files_only=True,
        )
    except LocalEntryNotFoundError as exc:
        # Newer versions say where the part of a snapshot is that they have.
        folder, complete = getattr(exc, "snapshot_path", None), False
    if folder is None:
        return None
    here = (path for path in Path(folder).rglob("*") if path.is_file())
    names = chosen((path.relative_to(folder).as_posix() for path in here), spec)
    if not names:
        return None
    certain = _is_listed(spec.repo_id, Path(folder).name)
    return Snapshot(Path(folder), names, complete=complete, certain=certain)


def kind_of_refusal(status: int, code: str) -> str:
    """Put a name to an answer that refuses a file."""
    codes = {
        "GatedRepo": "gated",
        "RepoNotFound": "repository",
        "RevisionNotFound": "revision",
        "EntryNotFound": "no-file",
    }
    if code in codes:
        return codes[code]
    if status == 429:
        return "rate-limited"
    if status == 401:
        return "repository"
    return "network" if status >= 500 or status < 0 else "refused"


def _ask(spec: HubSpec, stall_s: float) -> Listing:
    _keep_quiet()
    try:
        return _list(spec, stall_s)
    except HubRefusedError:
        raise
    except Exception as exc:  # its HTTP library differs by version, and so do its errors
        text = " ".join(str(exc).split()) or type(exc).__name__
        headers = getattr(getattr(exc, "response", None), "headers", {})
        raise HubRefusedError(_kind_of(exc), text, retry_after_s(headers)) from exc


def _list(spec: HubSpec, stall_s: float) -> Listing:
    from huggingface_hub import HfApi

    api = HfApi(endpoint=endpoint(), library_name="cartridge-models")
    info = api.model_info(
        spec.repo_id, revision=spec.revision, files_metadata=True, timeout=stall_s
    )
    if not info.sha:
        kind, text = "refused", "it does not say which commit that is"
        raise HubRefusedError(kind, text)
    files = {}
    for file in info.siblings or []:
        name, size = file.rfilename, file.size
        if not is_plain(name):
            kind, text = "refused", f"it lists {name!r:.200}, which would lie outside"
            raise HubRefusedError(kind, text)
        digest = _digest(file.lfs.sha256 if file.lfs else None, file.blob_id)
        if digest is None or size is None:
            # Not every mirror has what the hub has in its lists; all have what a download needs.
            size, digest = _ask_about(file_url(spec.repo_id, info.sha, name), stall_s)
        if digest is None or size is None:
            kind, text = "refused", f"it states no size and digest of {name!r:.200}"
            raise HubRefusedError(kind, text)
        files[name] = HubFile(size, digest)
    return Listing(info.sha, files)


def _ask_about(url: str, stall_s: float) -> tuple[int | None, Digest | None]:
    """Ask for a file's size and digest."""
    from huggingface_hub import get_hf_file_metadata

    found = get_hf_file_metadata(url, timeout=stall_s)
    name = found.etag or ""
    return found.size, _digest(name if len(name) == 64 else None, name)


def _digest(sha256: str | None, blob_id: str | None) -> Digest | None:
    try:
        return Digest("sha256", sha256) if sha256 else Digest("git-sha1", blob_id or "")
    except ValueError:
        return None


def _is_listed(repo_id: str, commit: str) -> bool:
    import huggingface_hub

    # Older versions keep no list; newer ones none of what another program fetched file by file.
    read = getattr(huggingface_hub, "get_cached_repo_tree", None)
    if read is None:
        return False
    try:
        read(repo_id, revision=commit, cache_dir=cache_folder())
    except huggingface_hub.errors.CachedRepoTreeNotFoundError:
        return False
    return True


def _kind_of(exc: Exception) -> str:
    """Put a name to an error, the same for every version of the library."""
    from huggingface_hub import errors

    response = getattr(exc, "response", None)
    status = getattr(response, "status_code", 0)
    kinds: tuple[tuple[type[Exception], str], ...] = (
        (errors.HFValidationError, "name"),
        (errors.GatedRepoError, "gated"),
        (errors.RepositoryNotFoundError, "repository"),
        (errors.RevisionNotFoundError, "revision"),
        (errors.EntryNotFoundError, "no-file"),
        (errors.HfHubHTTPError, kind_of_refusal(status, "")),
        (ConnectionError, "network"),
        (TimeoutError, "network"),
    )
    known = next((kind for error, kind in kinds if isinstance(exc, error)), None)
    if known is not None:
        return known
    return "network" if type(exc).__module__.partition(".")[0] in _HTTP_LIBRARIES else "refused"


def _keep_quiet() -> None:
    """Have what the library logs for us in our log, and not on stderr."""
    for handler in logging.getLogger("huggingface_hub").handlers:
        if not any(isinstance(known, _Ours) for known in handler.filters):
            handler.addFilter(_Ours())


class _Ours(logging.Filter):
    """Takes what our own threads cause."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is somebody else's."""
        if record.threadName != THREAD or threading.current_thread().name != THREAD:
            return True
        _log.debug("%s", record.getMessage())
        return False
