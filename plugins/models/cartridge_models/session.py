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
    from cartridge_models.origin import ModelFile, Origin
    from cartridge_models.store import Store

__all__ = ["Session", "begin"]

Answer = Callable[["Origin", ModelSpec, "Context"], dict[str, object]]


@attrs.frozen
class Session:
    """One cap at work for one caller."""

    store: Store
    answer: Answer
    context: Context

    def infer(self, value: object) -> Result:
        """
        Answer for one model.

        Args:
            value: The spec's text.

        Raises:
            InvalidArgumentError: It is no model spec.

            UnsupportedError: Its scheme is not resolved here.

            DownloadError: The model cannot be had, or does not exist.
        """
        if not isinstance(value, str):
            msg = f"model_spec: a model spec is a text, not {type(value).__name__}"
            raise InvalidArgumentError(msg, arg="model_spec", value=value)
        spec = ModelSpec.parse(value)
        self.context.check_cancelled()
        record = self.answer(self.store.origin(spec), spec, self.context)
        return Result(ResultKind.FINAL, {"model_spec": str(spec), **record})


def begin(store: Store, cap: str, context: Context) -> Session:
    """
    Begin a session for one of the cartridge's caps.

    Args:
        store: The open cartridge.
        cap: The declared cap URN.
        context: The session's line to its host.
    """
    marker = next(tag for tag in CapUrn.parse(cap).tags if tag in _ANSWERS)
    return Session(store, _ANSWERS[marker], context)


def _download(origin: Origin, spec: ModelSpec, context: Context) -> dict[str, object]:
    del spec
    start_s = time.monotonic()
    model = origin.fetch(context)
    context.progress(1.0, f"{origin.name} is here")
    return {
        "path": str(model.path),
        "success": True,
        "total_bytes": model.total_bytes,
        "file_count": len(model.files),
        "duration_ms": round((time.monotonic() - start_s) * 1000),
    }


def _status(origin: Origin, spec: ModelSpec, context: Context) -> dict[str, object]:
    del spec
    model = origin.find(context)
    if model is None:
        return {"state": "not_found", "total_bytes": 0, "file_count": 0}
    return {
        "state": "ready" if model.complete else "paused",
        **({"path": str(model.path)} if model.complete else {}),
        "total_bytes": model.total_bytes,
        "file_count": len(model.files),
    }


def _path(origin: Origin, spec: ModelSpec, context: Context) -> dict[str, object]:
    del spec
    model = origin.find(context)
    if model is None or not model.complete:
        return {"exists": False}
    return {"path": str(model.path), "exists": True}


def _contents(origin: Origin, spec: ModelSpec, context: Context) -> dict[str, object]:
    del spec
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


_ANSWERS: dict[str, Answer] = {
    "download-model": _download,
    "model-status": _status,
    "model-path": _path,
    "model-contents": _contents,
}
