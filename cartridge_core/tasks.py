"""
Typed one-liners for the usual jobs, on top of a registry.

Each asks for a cap by its URN and gives plain, typed values; what they do can be done with
`Registry.call` just as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import BackendError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.progress import Log, Progress
    from cartridge_core.registry import Registry
    from cartridge_core.results import Result

__all__ = ["Download", "Embeddings", "download_model", "embed_text"]

_EMBED_TEXT = 'cap:generate-embeddings;in="media:enc=utf-8";out="media:embedding-vector;record"'
_DOWNLOAD = 'cap:download-model;in="media:enc=utf-8;model-spec";out="media:download-result;record"'


@attrs.frozen(eq=False)
class Embeddings:
    """Vectors for texts, in their order."""

    vectors: NDArray[np.float32]
    """float32, shape (texts, dimension), or (chunks, dimension) where the texts were chunked."""

    record: Mapping[str, object] = attrs.field(kw_only=True, repr=False)
    """Everything the cartridge said: what was cut off, the chunks, the model."""


@attrs.frozen
class Download:
    """A model on this machine."""

    path: Path
    total_bytes: int = attrs.field(kw_only=True)
    record: Mapping[str, object] = attrs.field(kw_only=True, repr=False)


def embed_text(
    registry: Registry,
    texts: str | Sequence[str],
    *,
    model_spec: str | os.PathLike[str] | None = None,
    normalize: bool | None = None,
    cartridge_id: str | None = None,
    on_progress: Callable[[Progress | Log], None] | None = None,
) -> Embeddings:
    """
    Embed texts.

    Args:
        registry: Where to ask.
        texts: One text or several.
        model_spec: The model; None takes the cartridge's default.
        normalize: Whether vectors get unit length; None takes the cartridge's default.
        cartridge_id: Take this cartridge; None lets the registry choose.
        on_progress: Takes progress and log lines.

    Raises:
        CartridgeError: As `Registry.call`.
    """
    value = texts if isinstance(texts, str) else list(texts)
    result = registry.call(
        _EMBED_TEXT,
        value,
        cartridge_id=cartridge_id,
        on_progress=on_progress,
        model_spec=model_spec,
        normalize=normalize,
    )
    record = _record(result, "vectors")
    return Embeddings(cast("NDArray[np.float32]", record["vectors"]), record=record)


def download_model(
    registry: Registry,
    model_spec: str,
    *,
    on_progress: Callable[[Progress | Log], None] | None = None,
) -> Download:
    """
    Have a model on this machine, fetching what is missing.

    Args:
        registry: Where to ask.
        model_spec: Which model.
        on_progress: Takes progress and log lines.

    Raises:
        DownloadError: It cannot be fetched.

        CartridgeError: As `Registry.call`.
    """
    record = _record(registry.call(_DOWNLOAD, model_spec, on_progress=on_progress), "path")
    total = record.get("total_bytes", 0)
    path = Path(str(record["path"]))
    return Download(path, total_bytes=total if isinstance(total, int) else 0, record=record)


def _record(result: Result, field: str) -> Mapping[str, object]:
    payload = result.payload
    if isinstance(payload, Mapping) and field in payload:
        return cast("Mapping[str, object]", payload)
    msg = f"{result.cartridge_id} gave {type(payload).__name__}; a record with {field} is expected"
    raise BackendError(msg)
