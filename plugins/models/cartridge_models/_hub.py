"""
The one file that imports huggingface_hub.

What needs no network runs in this process. What does runs in a child, ``python -m
cartridge_models._hub REQUEST``: there the library's environment variables, warnings and bars are
nobody else's, and cancelling stops its threads at once. The child writes one JSON object a line.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from cartridge_models.origin import megabytes, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cartridge_core.modelspec import HubSpec

__all__ = ["Request", "Snapshot", "cache_folder", "find_snapshot"]

_REPORT_EVERY_S = 0.1
_HTTP_LIBRARIES = frozenset({"httpcore", "httpcore2", "httpx", "httpx2", "requests", "urllib3"})


@attrs.frozen
class Request:
    """What a child is asked for."""

    action: str
    """``download`` or ``list``."""

    repo_id: str
    revision: str | None = attrs.field(kw_only=True)
    include: tuple[str, ...] = attrs.field(kw_only=True)
    exclude: tuple[str, ...] = attrs.field(kw_only=True)
    cache: str = attrs.field(kw_only=True)
    """The hub's own shared cache."""


@attrs.frozen
class Snapshot:
    """A repository at one commit, as far as it is on this machine."""

    folder: Path
    names: tuple[str, ...]
    """The files that are meant, relative to the folder, separated by ``/``."""

    complete: bool
    """False where files are known to be missing."""

    certain: bool
    """Whether the library knows the repository's whole list, so that ``complete`` is no guess."""


def cache_folder() -> str:
    """Give the hub's own shared cache, as huggingface_hub read it from the environment."""
    from huggingface_hub import constants

    return str(constants.HF_HUB_CACHE)


def find_snapshot(spec: HubSpec) -> Snapshot | None:
    """Look into the hub's cache, without the network; None where no file that is meant is there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    complete = True
    folder: str | None
    try:
        folder = snapshot_download(
            spec.repo_id,
            revision=spec.revision,
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
    names = _matching((path.relative_to(folder).as_posix() for path in here), spec)
    if not names:
        return None
    certain = _is_listed(spec.repo_id, Path(folder).name)
    return Snapshot(Path(folder), names, complete=complete, certain=certain)


def _is_listed(repo_id: str, commit: str) -> bool:
    import huggingface_hub

    # Older versions keep no list; newer ones none of what another program fetched file by file.
    read = getattr(huggingface_hub, "get_cached_repo_tree", None)
    if read is None:
        return False
    try:
        read(repo_id, revision=commit)
    except huggingface_hub.errors.CachedRepoTreeNotFoundError:
        return False
    return True


def _matching(names: Iterable[str], wanted: HubSpec | Request) -> tuple[str, ...]:
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    include, exclude = list(wanted.include) or None, list(wanted.exclude) or None
    return tuple(
        sorted(filter_repo_objects(names, allow_patterns=include, ignore_patterns=exclude))
    )


def main(argv: list[str]) -> int:
    """Answer one request, as the child."""
    signal.signal(signal.SIGTERM, _abandon)
    request = Request(**json.loads(argv[1]))
    try:
        plan = _ask_plan(request)
        if request.action == "download":
            _download(request, plan)
        else:
            _say({"files": sorted(plan.sizes.items())})
    except _FailedError as exc:
        _say({"failed": exc.kind, "text": str(exc)})
    except Exception as exc:  # noqa: BLE001 -- its HTTP library differs by version, and so do its errors
        text = " ".join(str(exc).split()) or type(exc).__name__
        _say({"failed": _kind_of(exc), "text": text})
    else:
        return 0
    return 1


class _FailedError(Exception):
    """What the hub does not refuse but cannot be done all the same."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _say(event: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def _abandon(signum: int, frame: object) -> None:
    """End at once, without the files that are half written: the library never goes on with one."""
    del frame
    for link in Path("/proc/self/fd").glob("*"):
        try:
            file = link.readlink()
            if file.suffix == ".incomplete":
                file.unlink()
        except OSError:
            continue
    os._exit(128 + signum)


@attrs.frozen
class _Plan:
    """What is meant: one commit, and files with their sizes in bytes."""

    commit: str | None
    sizes: dict[str, int]


def _ask_plan(request: Request) -> _Plan:
    from huggingface_hub import HfApi

    info = HfApi().model_info(request.repo_id, revision=request.revision, files_metadata=True)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    names = _matching(sizes, request)
    if not names:
        asked = ",".join(request.include).replace("*", "")
        kind, text = "no-file", f"it has {len(sizes)} files, {nearest(asked, sizes)}"
        raise _FailedError(kind, text)
    return _Plan(info.sha, {name: sizes[name] for name in names})


def _download(request: Request, plan: _Plan) -> None:
    from huggingface_hub import snapshot_download

    missing_bytes = _missing_bytes(request, plan)
    _check_room(Path(request.cache), missing_bytes)
    tally = _Tally(len(plan.sizes), missing_bytes)
    snapshot_download(
        request.repo_id,
        revision=request.revision,
        cache_dir=request.cache,
        allow_patterns=list(request.include) or None,
        ignore_patterns=list(request.exclude) or None,
        tqdm_class=_bar_class(tally.take),
        library_name="cartridge-models",
    )


def _missing_bytes(request: Request, plan: _Plan) -> int:
    from huggingface_hub import try_to_load_from_cache

    here = (
        (size, try_to_load_from_cache(request.repo_id, name, request.cache, plan.commit))
        for name, size in plan.sizes.items()
    )
    return sum(size for size, found in here if not isinstance(found, str))


def _check_room(cache: Path, needed: int) -> None:
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        kind, text = "disk", f"it needs {megabytes(needed)}, {existing} has {megabytes(free)} free"
        raise _FailedError(kind, text)


class _Tally:
    """Adds up the library's bars, and says how far it is."""

    def __init__(self, file_count: int, total_bytes: int) -> None:
        self._file_count = file_count
        self._total_bytes = total_bytes
        self._files = 0
        self._bytes = 0
        self._next_s = 0.0
        self._lock = threading.Lock()

    def take(self, unit: str, count: int) -> None:
        """Take a bar's count; several bars may count the same bytes in different places."""
        with self._lock:
            if unit == "B":
                self._bytes = max(self._bytes, count)
            else:
                self._files = max(self._files, count)
            now_s = time.monotonic()
            if now_s < self._next_s and self._files < self._file_count:
                return
            self._next_s = now_s + _REPORT_EVERY_S
            _say(
                {
                    "bytes": min(self._bytes, self._total_bytes),
                    "total_bytes": self._total_bytes,
                    "files": self._files,
                    "file_count": self._file_count,
                }
            )


def _bar_class(take: Callable[[str, int], None]) -> type[object]:
    """Make a progress bar that draws nothing and passes its count on."""
    from tqdm import tqdm  # type: ignore[import-untyped]  # noqa: PLC0415 -- comes with the backend

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: object, **kwargs: object) -> None:
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "file": io.StringIO()})

        def update(self, n: float | None = 1) -> bool | None:
            drawn: bool | None = super().update(n)
            take(str(self.unit), int(self.n))
            return drawn

        def display(self, *args: object, **kwargs: object) -> None:
            """Draw nothing."""

    return Bar


def _kind_of(exc: Exception) -> str:
    """Put a name to an error, the same for every version of the library."""
    from huggingface_hub import errors

    kinds: tuple[tuple[type[Exception], str], ...] = (
        (errors.GatedRepoError, "gated"),
        (errors.RepositoryNotFoundError, "repository"),
        (errors.RevisionNotFoundError, "revision"),
        (errors.LocalEntryNotFoundError, "network"),
        (errors.EntryNotFoundError, "no-file"),
        (errors.HfHubHTTPError, _kind_of_status(exc)),
        (PermissionError, "disk"),
        (ConnectionError, "network"),
        (TimeoutError, "network"),
    )
    known = next((kind for error, kind in kinds if isinstance(exc, error)), None)
    if known is not None:
        return known
    if isinstance(exc, OSError) and exc.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS}:
        return "disk"
    return "network" if type(exc).__module__.partition(".")[0] in _HTTP_LIBRARIES else "refused"


def _kind_of_status(exc: Exception) -> str:
    status = getattr(getattr(exc, "response", None), "status_code", 0)
    return "network" if status >= 500 else "refused"


if __name__ == "__main__":
    sys.exit(main(sys.argv))
