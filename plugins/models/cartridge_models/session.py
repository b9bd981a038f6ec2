"""One call: a model spec in, a record out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.modelspec import ModelSpec
from cartridge_core.results import Result, ResultKind
from cartridge_core.urn import CapUrn

if TYPE_CHECKING:
    from cartridge_core.context import Context
    from cartridge_models.origin import Model, ModelFile, Origin
    from cartridge_models.store import Store

__all__ = ["Session", "begin"]

Answer = Callable[["Origin", "Context"], dict[str, object]]


@attrs.frozen
class Session:
    """One cap at work for one caller."""

    store: Store
    answer: Answer | None
    """None for the list of all models."""

    context: Context

    def infer(self, value: object) -> Result:
        """
        Answer for one model, or list them.

        Args:
            value: The spec's text, or which models.

        Raises:
            InvalidArgumentError: It is no model spec.

            UnsupportedError: Its scheme is not resolved here.

            DownloadError: The model cannot be had, or does not exist.
        """
        if not isinstance(value, str):
            msg = f"model_spec: a model spec is a text, not {type(value).__name__}"
            raise InvalidArgumentError(msg, arg="model_spec", value=value)
        self.context.check_cancelled()
        if self.answer is None:
            return Result(ResultKind.FINAL, _list(self.store, value))
        spec = ModelSpec.parse(value)
        record = self.answer(self.store.origin(spec), self.context)
        return Result(ResultKind.FINAL, {"model_spec": str(spec), **record})


def begin(store: Store, cap: str, context: Context) -> Session:
    """
    Begin a session for one of the cartridge's caps.

    Args:
        store: The open cartridge.
        cap: The declared cap URN.
        context: The session's line to its host.
    """
    tags = CapUrn.parse(cap).tags
    answer = next((known for marker, known in _ANSWERS.items() if marker in tags), None)
    return Session(store, answer, context)


def _download(origin: Origin, context: Context) -> dict[str, object]:
    start_s = time.monotonic()
    model = origin.fetch(context)
    context.progress(1.0, f"{origin.name} is here")
    return {
        "path": str(model.path),
        "success": True,
        "total_bytes": model.total_bytes,
        "file_count": len(model.files),
        "duration_ms": round((time.monotonic() - start_s) * 1000),
        **_revision(model),
    }


def _status(origin: Origin, context: Context) -> dict[str, object]:
    model = origin.find(context)
    if model is None:
        return {"state": "not_found", "total_bytes": 0, "file_count": 0}
    return {
        **_state(model),
        "total_bytes": model.total_bytes + model.part_bytes,
        "file_count": len(model.files),
        **_revision(model),
    }


def _path(origin: Origin, context: Context) -> dict[str, object]:
    model = origin.find(context)
    if model is None or not model.complete:
        return {"exists": False}
    return {"path": str(model.path), "exists": True, **_revision(model)}


def _contents(origin: Origin, context: Context) -> dict[str, object]:
    model = origin.find(context)
    local = model is not None and model.complete
    files: tuple[ModelFile, ...]
    files = model.files if model is not None and model.complete else origin.contents(context)
    return {
        "model_name": origin.name,
        "repository": origin.repository,
        "local": local,
        "all_files": [{"path": file.path, "size_bytes": file.size_bytes} for file in files],
        "total_bytes": sum(file.size_bytes for file in files),
        "file_count": len(files),
    }


def _availability(origin: Origin, context: Context) -> dict[str, object]:
    model = origin.find(context)
    local: dict[str, object] = {"local_available": model is not None and model.complete}
    if context.offline:
        return local
    return {**local, "remote_available": origin.is_offered(context)}


def _remove(origin: Origin, context: Context) -> dict[str, object]:
    removed = origin.remove(context)
    return {
        "removed": removed.file_count > 0 or removed.freed_bytes > 0,
        "file_count": removed.file_count,
        "freed_bytes": removed.freed_bytes,
    }


def _list(store: Store, repository: str) -> dict[str, object]:
    models = [
        {
            "model_spec": listed.model_spec,
            "repository": listed.source,
            **_state(listed.model),
            "total_bytes": listed.model.total_bytes + listed.model.part_bytes,
            "file_count": len(listed.model.files),
        }
        for listed in store.list_models(repository)
    ]
    return {"models": models, "count": len(models), "filter": repository}


def _state(model: Model) -> dict[str, object]:
    if model.complete:
        return {"state": "ready", "path": str(model.path)}
    return {"state": "downloading" if model.coming else "paused"}


def _revision(model: Model) -> dict[str, object]:
    return {} if model.revision is None else {"revision": model.revision}


_ANSWERS: dict[str, Answer] = {
    "download-model": _download,
    "model-status": _status,
    "model-path": _path,
    "model-contents": _contents,
    "model-availability": _availability,
    "remove-model": _remove,
}
