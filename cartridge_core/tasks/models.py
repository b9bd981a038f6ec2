"""Models themselves: having one here, and what one says of itself."""

from __future__ import annotations

import binascii
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import BackendError
from cartridge_core.tasks._records import record_with

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from cartridge_core.progress import Log, Progress
    from cartridge_core.registry import Registry

__all__ = [
    "Download",
    "ModelInfo",
    "Vocabulary",
    "download_model",
    "model_info",
    "vocabulary",
]

_DOWNLOAD = 'cap:download-model;in="media:enc=utf-8;model-spec";out="media:download-result;record"'
_REQUEST = 'in="media:fmt=json;llm-generation-request;record"'
_INFO = f'cap:llm;llm-model-info;ml-model;{_REQUEST};out="media:fmt=json;llm-model-info;record"'
_VOCABULARY = (
    f'cap:llm;llm-vocab;ml-model;{_REQUEST};out="media:fmt=json;llm-vocab-response;record"'
)


@attrs.frozen
class Download:
    """A model on this machine."""

    path: Path
    total_bytes: int = attrs.field(kw_only=True)
    record: Mapping[str, object] = attrs.field(kw_only=True, repr=False)


@attrs.frozen(kw_only=True)
class ModelInfo:
    """What a language model says of itself; None where it does not say."""

    architecture: str | None
    context_length: int | None
    embedding_dim: int | None
    layer_count: int | None
    vocab_size: int | None
    file_size_bytes: int | None
    supports_chat: bool
    supports_tools: bool
    record: Mapping[str, object] = attrs.field(repr=False)


@attrs.frozen(eq=False)
class Vocabulary:
    """The tokens of a language model."""

    pieces: tuple[bytes, ...] = attrs.field(repr=lambda pieces: f"<{len(pieces)} tokens>")
    """What each token adds to a text, by id; often no whole characters."""

    record: Mapping[str, object] = attrs.field(kw_only=True, repr=False)
    """Everything the cartridge said: text, kind and score of each token."""


def model_info(
    registry: Registry,
    model_spec: str | os.PathLike[str] | None = None,
    *,
    on_progress: Callable[[Progress | Log], None] | None = None,
) -> ModelInfo:
    """
    Ask what a language model is, without loading it where the cartridge can.

    Args:
        registry: Where to ask.
        model_spec: The model; None takes the cartridge's default.
        on_progress: Takes progress and log lines.

    Raises:
        CartridgeError: As `Registry.call`.
    """
    result = registry.call(_INFO, {}, on_progress=on_progress, model_spec=model_spec)
    record = record_with(result, "supports_chat")
    return ModelInfo(
        architecture=cast("str | None", record.get("architecture")),
        context_length=cast("int | None", record.get("context_length")),
        embedding_dim=cast("int | None", record.get("embedding_dim")),
        layer_count=cast("int | None", record.get("layer_count")),
        vocab_size=cast("int | None", record.get("vocab_size")),
        file_size_bytes=cast("int | None", record.get("file_size_bytes")),
        supports_chat=bool(record["supports_chat"]),
        supports_tools=bool(record.get("supports_tools", False)),
        record=record,
    )


def vocabulary(
    registry: Registry,
    model_spec: str | os.PathLike[str] | None = None,
    *,
    on_progress: Callable[[Progress | Log], None] | None = None,
) -> Vocabulary:
    """
    List the tokens of a language model, lossless.

    Args:
        registry: Where to ask.
        model_spec: The model; None takes the cartridge's default.
        on_progress: Takes progress and log lines.

    Raises:
        CartridgeError: As `Registry.call`.
    """
    result = registry.call(_VOCABULARY, {}, on_progress=on_progress, model_spec=model_spec)
    record = record_with(result, "vocab")
    entries = cast("Sequence[Mapping[str, object]]", record["vocab"])
    try:
        pieces = tuple(b64decode(str(entry["bytes"]), validate=True) for entry in entries)
    except (KeyError, binascii.Error) as exc:
        msg = f"{result.cartridge_id} gave a token without its bytes in base64: {exc}"
        raise BackendError(msg) from exc
    return Vocabulary(pieces, record=record)


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
    record = record_with(registry.call(_DOWNLOAD, model_spec, on_progress=on_progress), "path")
    total = record.get("total_bytes", 0)
    path = Path(str(record["path"]))
    return Download(path, total_bytes=total if isinstance(total, int) else 0, record=record)
