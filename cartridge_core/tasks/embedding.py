"""Vectors for texts and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.tasks._records import record_with

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.progress import Log, Progress
    from cartridge_core.registry import Registry
    from cartridge_core.results import Result

    Picture = str | os.PathLike[str] | bytes | NDArray[np.generic]

__all__ = [
    "Embeddings",
    "embed_image",
    "embed_text",
]

_EMBED_TEXT = 'cap:generate-embeddings;in="media:enc=utf-8";out="media:embedding-vector;record"'
_EMBED_IMAGE = 'cap:generate-image-embeddings;in=media:image;out="media:embedding-vector;record"'


@attrs.frozen(eq=False)
class Embeddings:
    """Vectors for texts or pictures, in their order."""

    vectors: NDArray[np.float32]
    """float32, shape (texts, dimension), or (chunks, dimension) where the texts were chunked."""

    record: Mapping[str, object] = attrs.field(kw_only=True, repr=False)
    """Everything the cartridge said: what was cut off, the chunks, the model."""


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
    return _embeddings(result)


def embed_image(
    registry: Registry,
    images: Picture | Sequence[Picture],
    *,
    model_spec: str | os.PathLike[str] | None = None,
    normalize: bool | None = None,
    cartridge_id: str | None = None,
    on_progress: Callable[[Progress | Log], None] | None = None,
) -> Embeddings:
    """
    Embed pictures.

    Args:
        registry: Where to ask.
        images: One picture or several: each a path, the bytes of a file, or an array.
        model_spec: The model; None takes the cartridge's default.
        normalize: Whether vectors get unit length; None takes the cartridge's default.
        cartridge_id: Take this cartridge; None lets the registry choose.
        on_progress: Takes progress and log lines.

    Raises:
        CartridgeError: As `Registry.call`.
    """
    result = registry.call(
        _EMBED_IMAGE,
        list(images) if isinstance(images, list | tuple) else images,
        cartridge_id=cartridge_id,
        on_progress=on_progress,
        model_spec=model_spec,
        normalize=normalize,
    )
    return _embeddings(result)


def _embeddings(result: Result) -> Embeddings:
    record = record_with(result, "vectors")
    return Embeddings(_as_array(record["vectors"]), record=record)


def _as_array(vectors: object) -> NDArray[np.float32]:
    """Give an array; what came as JSON, from a library for one, is lists."""
    if not (isinstance(vectors, list) and vectors and isinstance(vectors[0], list)):
        return cast("NDArray[np.float32]", vectors)
    import numpy as np

    return np.asarray(vectors, np.float32)
