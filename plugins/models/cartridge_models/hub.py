"""Models of the Hugging Face hub, in the hub's own shared cache."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import DownloadError, InvalidArgumentError, OfflineError
from cartridge_models import _child, _hub
from cartridge_models.origin import Model, ModelFile, megabytes
from cartridge_models.settings import is_hub_off

if TYPE_CHECKING:
    from cartridge_core.context import Context
    from cartridge_core.modelspec import HubSpec

__all__ = ["HubOrigin"]

_log = logging.getLogger("cartridge.models.hub")
_COMMIT = re.compile(r"[0-9a-f]{40}")

_FAILURES = {
    "repository": (
        "there is no such repository, or it is private and you are not logged in; check the name, "
        "or type `hf auth login` (or set HF_TOKEN)"
    ),
    "gated": (
        "the repository is gated; ask for access at {page}, then type `hf auth login` (or set "
        "HF_TOKEN)"
    ),
    "revision": "it has no branch, tag or commit {revision}; see {page}/tree/main",
    "no-file": "no file of it is meant by include and exclude: {text}",
    "disk": "it cannot be stored in {cache}: {text}; make room, or set HF_HOME to another disk",
    "refused": "the hub refused: {text}",
    "network": (
        "the hub cannot be reached: {text}; check the network, the proxy and HF_ENDPOINT, or set "
        "CARTRIDGE_OFFLINE=1 to use only what is on this machine"
    ),
}


@attrs.frozen
class HubOrigin:
    """
    A repository of the hub, or some of its files.

    A model is the snapshot's folder. It is a file only where ``include`` is one glob and exactly
    one file matches.
    """

    spec: HubSpec

    @property
    def name(self) -> str:
        """The repository's name without its owner."""
        return self.spec.repo_id.partition("/")[2]

    @property
    def repository(self) -> str:
        """Owner and repository."""
        return self.spec.repo_id

    def find(self, context: Context) -> Model | None:
        """
        Look into the hub's cache.

        Raises:
            DownloadError: huggingface_hub is not installed.
        """
        snapshot = self._look(context)
        return None if snapshot is None else self._model(snapshot)

    def fetch(self, context: Context) -> Model:
        """
        Bring it into the hub's cache, and up to date.

        A branch or a tag is looked up each time; where the hub cannot be reached, what is here
        is taken, with a warning. A commit never changes: what is here needs no network.
        """
        before = self._look(context)
        here = before if before is not None and before.complete else None
        is_off = context.offline or is_hub_off()
        if here is not None and (is_off or (self._is_commit and here.certain)):
            return self._model(here)
        self._require_network(context)
        try:
            self._ask("download", context)
        except _UnreachableError as exc:
            if here is None:
                raise DownloadError(str(exc)) from exc
            context.log("warning", f"{exc}; taking what is here, which may be out of date")
            return self._model(here)
        after = self._look(context)
        if after is None or not after.complete:
            msg = (
                f"model {self.spec}: it was downloaded, and yet it is not in {_hub.cache_folder()}"
            )
            raise DownloadError(msg)
        return self._model(after)

    def contents(self, context: Context) -> tuple[ModelFile, ...]:
        """Ask the hub for the list."""
        self._require_library()
        self._require_network(context)
        try:
            return self._ask("list", context)
        except _UnreachableError as exc:
            raise DownloadError(str(exc)) from exc

    @property
    def _is_commit(self) -> bool:
        return self.spec.revision is not None and bool(_COMMIT.fullmatch(self.spec.revision))

    def _look(self, context: Context) -> _hub.Snapshot | None:
        context.check_cancelled()
        self._require_library()
        try:
            return _hub.find_snapshot(self.spec)
        except ValueError as exc:
            msg = f"model {self.spec}: the hub has no such names: {exc}"
            raise InvalidArgumentError(msg, arg="model_spec", value=str(self.spec)) from exc
        except OSError as exc:
            msg = f"model {self.spec}: {_hub.cache_folder()} cannot be read: {exc}"
            raise DownloadError(msg) from exc

    def _model(self, snapshot: _hub.Snapshot) -> Model:
        folder = snapshot.folder
        files = tuple(ModelFile(name, (folder / name).stat().st_size) for name in snapshot.names)
        is_file = snapshot.complete and len(self.spec.include) == 1 and len(files) == 1
        path = folder / files[0].path if is_file else folder
        return Model(path, files, complete=snapshot.complete)

    def _ask(self, action: str, context: Context) -> tuple[ModelFile, ...]:
        answer = _Answer(self.spec, context)
        request = _hub.Request(
            action,
            self.spec.repo_id,
            revision=self.spec.revision,
            include=self.spec.include,
            exclude=self.spec.exclude,
            cache=_hub.cache_folder(),
        )
        module = [sys.executable, "-P", "-m", _hub.__name__, json.dumps(attrs.asdict(request))]
        status = _child.run(
            module,
            env=_child_environment(),
            context=context,
            on_output=answer.take,
            on_error=answer.note,
        )
        if answer.failure is not None:
            raise answer.failure
        if status != 0:
            msg = f"model {self.spec}: the download's process ended with status {status}"
            raise DownloadError(msg)
        return answer.files

    def _require_library(self) -> None:
        try:
            version("huggingface_hub")
        except PackageNotFoundError:
            msg = (
                f"model {self.spec}: it needs the hub's library; type `pip install huggingface_hub`"
            )
            raise DownloadError(msg) from None

    def _require_network(self, context: Context) -> None:
        if context.offline or is_hub_off():
            switch = "CARTRIDGE_OFFLINE" if context.offline else "HF_HUB_OFFLINE"
            msg = (
                f"model {self.spec}: it is not, or not all, in {_hub.cache_folder()}, and {switch} "
                "forbids the network; type "
                f"`cartridge models get {self.spec}` with the network once"
            )
            raise OfflineError(msg)


class _UnreachableError(DownloadError):
    """The hub does not answer at all."""


@attrs.define
class _Answer:
    """What a child says, line by line."""

    spec: HubSpec
    context: Context
    files: tuple[ModelFile, ...] = ()
    failure: DownloadError | None = None

    def take(self, line: str) -> None:
        """Take one event."""
        try:
            event: object = json.loads(line)
        except ValueError:
            event = None
        match event:
            case {"failed": str(kind), "text": str(text)}:
                self.failure = _failure(self.spec, kind, text)
            case {"files": list(files)}:
                self.files = tuple(ModelFile(str(name), int(size)) for name, size in files)
            case {"bytes": int(done), "total_bytes": int(total), "files": int(files), **rest}:
                self._progress(done, total, f"{files} of {rest.get('file_count')} files")
            case _:
                self.note(line)

    def note(self, line: str) -> None:
        """Take a line that is for a person."""
        if line.strip():
            _log.debug("%s", line)
            self.context.log("debug", line.strip())

    def _progress(self, done: int, total: int, files: str) -> None:
        size = f"{megabytes(done)} of {megabytes(total)}"
        message = f"downloading {self.spec.repo_id}: {files}, {size}"
        self.context.progress(done / total if total else 1.0, message)


def _failure(spec: HubSpec, kind: str, text: str) -> DownloadError:
    known = kind if kind in _FAILURES else "refused"
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    what = _FAILURES[known].format(
        page=f"{endpoint}/{spec.repo_id}",
        revision=spec.revision,
        cache=_hub.cache_folder(),
        text=text,
    )
    return (_UnreachableError if known == "network" else DownloadError)(f"model {spec}: {what}")


def _child_environment() -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if Path(path).is_absolute()),
        "PYTHONIOENCODING": "utf-8",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        # Before 1.2 the library passes no bar class on to single files. Its own bars, drawn into
        # the pipe, then say at least that bytes come.
        "TQDM_POSITION": "-1",
    }
