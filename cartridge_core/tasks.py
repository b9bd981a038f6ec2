"""
Typed one-liners for the usual jobs, on top of a registry.

Each asks for a cap by its URN and gives plain, typed values; what they do can be done with
`Registry.call` just as well.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import BackendError, NoRouteError
from cartridge_core.results import Result, ResultKind

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.calls import Call
    from cartridge_core.progress import Log, Progress
    from cartridge_core.registry import Registry

    Picture = str | os.PathLike[str] | bytes | NDArray[np.generic]
    Sound = str | os.PathLike[str] | bytes | NDArray[np.generic]

__all__ = [
    "Download",
    "Embeddings",
    "Generation",
    "ModelInfo",
    "Transcript",
    "TranscriptPiece",
    "Vocabulary",
    "describe_image",
    "download_model",
    "embed_image",
    "embed_text",
    "generate_text",
    "model_info",
    "stream_text",
    "stream_transcribe",
    "transcribe",
    "vocabulary",
]

_EMBED_TEXT = 'cap:generate-embeddings;in="media:enc=utf-8";out="media:embedding-vector;record"'
_EMBED_IMAGE = 'cap:generate-image-embeddings;in=media:image;out="media:embedding-vector;record"'
_DESCRIBE = 'cap:describe-image;in=media:image;out="media:enc=utf-8;image-description"'
_DOWNLOAD = 'cap:download-model;in="media:enc=utf-8;model-spec";out="media:download-result;record"'
_REQUEST = 'in="media:fmt=json;llm-generation-request;record"'
_TEXT = 'out="media:fmt=ndjson;llm-text-stream"'
_GENERATE = f"cap:llm;llm-inference;ml-model;{_REQUEST};{_TEXT}"
_CONSTRAINED = f"cap:constrained;llm;llm-inference-constrained;ml-model;{_REQUEST};{_TEXT}"
_INFO = f'cap:llm;llm-model-info;ml-model;{_REQUEST};out="media:fmt=json;llm-model-info;record"'
_VOCABULARY = (
    f'cap:llm;llm-vocab;ml-model;{_REQUEST};out="media:fmt=json;llm-vocab-response;record"'
)
_TRANSCRIBE = 'cap:in=media:audio;out="media:enc=utf-8;record;transcription";transcribe'
_CONSTRAINTS = frozenset({"grammar", "json_schema", "constraint"})


@attrs.frozen(eq=False)
class Embeddings:
    """Vectors for texts or pictures, in their order."""

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


@attrs.frozen
class Generation:
    """A written text."""

    text: str

    finish_reason: str = attrs.field(kw_only=True)
    """``stop``, ``length`` or ``constraint_satisfied``."""

    record: Mapping[str, object] = attrs.field(kw_only=True, repr=False)
    """Everything the cartridge said: counts of tokens, a parsed value, a tool call."""


@attrs.frozen
class Transcript:
    """What is said in a sound."""

    text: str

    language: str | None = attrs.field(kw_only=True)
    """A code, such as ``en``: of what is said first, where it changes; None where nobody speaks."""

    segments: tuple[Mapping[str, object], ...] = attrs.field(kw_only=True, repr=False)
    """In order, each with ``start_s``, ``end_s`` and ``text``."""

    records: tuple[Mapping[str, object], ...] = attrs.field(kw_only=True, repr=False)
    """Everything the cartridge said: one for a whole sound, one for each utterance of a stream."""


@attrs.frozen
class TranscriptPiece:
    """What is said in an utterance, as far as it has been heard."""

    text: str
    """It takes the place of the one before it of the same utterance."""

    is_final: bool = attrs.field(kw_only=True)
    """Whether it stays so."""

    segment: int = attrs.field(kw_only=True)
    """Which utterance, from 0."""

    start_s: float | None = attrs.field(kw_only=True)
    end_s: float | None = attrs.field(kw_only=True)
    record: Mapping[str, object] = attrs.field(kw_only=True, repr=False)
    """Everything the cartridge said."""


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
    record = _record(result, "vectors")
    return Embeddings(cast("NDArray[np.float32]", record["vectors"]), record=record)


def describe_image(
    registry: Registry,
    image: Picture,
    *,
    prompt: str | None = None,
    max_tokens: int | None = None,
    model_spec: str | os.PathLike[str] | None = None,
    cartridge_id: str | None = None,
    on_progress: Callable[[Progress | Log], None] | None = None,
) -> Generation:
    """
    Describe a picture.

    Args:
        registry: Where to ask.
        image: A path, the bytes of a file, or an array.
        prompt: What to say about it, or how the text begins, as the cartridge takes it; None
            takes the cartridge's default.
        max_tokens: How long the text may be; None takes the cartridge's default.
        model_spec: The model; None takes the cartridge's default.
        cartridge_id: Take this cartridge; None lets the registry choose.
        on_progress: Takes progress and log lines.

    Raises:
        CartridgeError: As `Registry.call`.
    """
    result = registry.call(
        _DESCRIBE,
        image,
        cartridge_id=cartridge_id,
        on_progress=on_progress,
        model_spec=model_spec,
        prompt=prompt,
        max_tokens=max_tokens,
    )
    return _generation(result)


def generate_text(
    registry: Registry,
    prompt: str | Sequence[Mapping[str, str]],
    *,
    model_spec: str | os.PathLike[str] | None = None,
    cartridge_id: str | None = None,
    on_progress: Callable[[Progress | Log], None] | None = None,
    **fields: object,
) -> Generation:
    """
    Write an answer.

    Args:
        registry: Where to ask.
        prompt: A text, or a chat: messages with ``role`` and ``content``.
        model_spec: The model; None takes the cartridge's default.
        cartridge_id: Take this cartridge; None lets the registry choose.
        on_progress: Takes progress and log lines.
        **fields: More of the request: ``max_tokens``, ``temperature``, ``stop_sequences``, ...;
            with ``grammar``, ``json_schema`` or ``constraint``, a cap is asked that must keep it.

    Raises:
        CartridgeError: As `Registry.call`.
    """
    cap, request = _request(prompt, fields)
    result = registry.call(
        cap, request, cartridge_id=cartridge_id, on_progress=on_progress, model_spec=model_spec
    )
    return _generation(result)


def _generation(result: Result) -> Generation:
    record = _record(result, "generated_text")
    text, reason = str(record["generated_text"]), str(record.get("finish_reason", ""))
    return Generation(text, finish_reason=reason, record=record)


def stream_text(
    registry: Registry,
    prompt: str | Sequence[Mapping[str, str]],
    *,
    model_spec: str | os.PathLike[str] | None = None,
    cartridge_id: str | None = None,
    on_progress: Callable[[Progress | Log], None] | None = None,
    **fields: object,
) -> Generator[str]:
    """
    Write an answer, and give its text as it comes; joined, the pieces are the text.

    Closing the iterator, or dropping it, cancels what is left.

    Args:
        registry: Where to ask.
        prompt: A text, or a chat: messages with ``role`` and ``content``.
        model_spec: The model; None takes the cartridge's default.
        cartridge_id: Take this cartridge; None lets the registry choose.
        on_progress: Takes progress and log lines.
        **fields: More of the request, as `generate_text` takes it.

    Raises:
        CartridgeError: As `Registry.stream`, at once or from the iterator.
    """
    cap, request = _request(prompt, fields)
    call = registry.stream(cap, request, cartridge_id=cartridge_id, model_spec=model_spec)
    return _pieces(call, on_progress)


def _request(
    prompt: str | Sequence[Mapping[str, str]], fields: Mapping[str, object]
) -> tuple[str, dict[str, object]]:
    """Give the cap to ask for, and the request record."""
    request = {name: value for name, value in fields.items() if value is not None}
    if isinstance(prompt, str):
        request["prompt"] = prompt
    else:
        request["messages"] = [dict(message) for message in prompt]
    return _CONSTRAINED if request.keys() & _CONSTRAINTS else _GENERATE, request


def _pieces(call: Call, on_progress: Callable[[Progress | Log], None] | None) -> Generator[str]:
    """Give the pieces of a text; all of it at once, where a cartridge gives no pieces."""
    has_begun = False
    with call:
        for event in call:
            if not isinstance(event, Result):
                if on_progress is not None:
                    on_progress(event)
            elif event.kind is ResultKind.PARTIAL:
                has_begun = True
                yield str(event.payload)
            elif not has_begun:
                yield str(_record(event, "generated_text")["generated_text"])


def transcribe(
    registry: Registry,
    audio: Sound | Iterable[Sound],
    *,
    language: str | None = None,
    model_spec: str | os.PathLike[str] | None = None,
    cartridge_id: str | None = None,
    on_progress: Callable[[Progress | Log], None] | None = None,
    **arguments: object,
) -> Transcript:
    """
    Write down what is said in a sound.

    Args:
        registry: Where to ask.
        audio: A path, the bytes of a file, or an array of samples; raw samples, in chunks or not,
            where ``cartridge_id`` names a cartridge that takes them.
        language: What is spoken; None has it detected.
        model_spec: The model; None takes the cartridge's default.
        cartridge_id: Take this cartridge; None lets the registry choose.
        on_progress: Takes progress and log lines.
        **arguments: More that the cap declares: ``word_timestamps``, ``initial_prompt``, ...

    Raises:
        CartridgeError: As `Registry.call`.
    """
    call: Callable[..., Result] = registry.call
    result = call(
        _TRANSCRIBE,
        audio,
        cartridge_id=cartridge_id,
        on_progress=on_progress,
        model_spec=model_spec,
        language=language,
        **arguments,
    )
    payloads = result.payload if isinstance(result.payload, list) else [result.payload]
    records = tuple(_record(attrs.evolve(result, payload=one), "text") for one in payloads)
    languages = [record.get("language") for record in records if record["text"]]
    return Transcript(
        "".join(str(record["text"]) for record in records).strip(),
        language=str(languages[0]) if languages and languages[0] else None,
        segments=tuple(
            segment
            for record in records
            for segment in cast("Sequence[Mapping[str, object]]", record.get("segments", ()))
        ),
        records=records,
    )


def stream_transcribe(
    registry: Registry,
    chunks: Iterable[Sound],
    *,
    language: str | None = None,
    model_spec: str | os.PathLike[str] | None = None,
    cartridge_id: str | None = None,
    on_progress: Callable[[Progress | Log], None] | None = None,
    **arguments: object,
) -> Generator[TranscriptPiece]:
    """
    Write down what is said in a sound while it comes.

    Closing the iterator, or dropping it, cancels what is left. Where only a cartridge is there that
    takes whole sounds, the chunks are joined first.

    Args:
        registry: Where to ask.
        chunks: Raw samples, bytes or arrays; read as they are needed.
        language: What is spoken; None has it detected.
        model_spec: The model; None takes the cartridge's default.
        cartridge_id: Take this cartridge; None lets the registry choose.
        on_progress: Takes progress and log lines.
        **arguments: More that the cap declares: ``sample_rate_hz``, ``dtype``, ``pause_s``, ...

    Raises:
        CartridgeError: As `Registry.stream`, at once or from the iterator.
    """
    try:
        registry.route(_TRANSCRIBE, "streaming", cartridge_id=cartridge_id, model_spec=model_spec)
        audio: object = chunks
    except NoRouteError:
        audio = _joined(chunks)
    stream: Callable[..., Call] = registry.stream
    call = stream(
        _TRANSCRIBE,
        audio,
        cartridge_id=cartridge_id,
        model_spec=model_spec,
        language=language,
        **arguments,
    )
    return _transcript_pieces(call, on_progress)


def _joined(chunks: Iterable[Sound]) -> object:
    """Make one sound of chunks: bytes, or an array along its first axis."""
    if isinstance(chunks, str | bytes | os.PathLike) or hasattr(chunks, "__array__"):
        return chunks
    parts = list(chunks)
    if all(isinstance(part, bytes | bytearray | memoryview) for part in parts):
        return b"".join(cast("list[bytes]", parts))
    import numpy as np

    return np.concatenate(cast("list[NDArray[np.generic]]", parts))


def _transcript_pieces(
    call: Call, on_progress: Callable[[Progress | Log], None] | None
) -> Generator[TranscriptPiece]:
    """Give what was understood; neither pauses nor silence are pieces."""
    with call:
        for event in call:
            if not isinstance(event, Result):
                if on_progress is not None:
                    on_progress(event)
            elif event.kind is not ResultKind.ENDPOINT:
                record = _record(event, "text")
                if record["text"]:
                    yield TranscriptPiece(
                        str(record["text"]).strip(),
                        is_final=event.kind is ResultKind.FINAL,
                        segment=event.segment,
                        start_s=event.start_s,
                        end_s=event.end_s,
                        record=record,
                    )


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
    record = _record(result, "supports_chat")
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
    record = _record(result, "vocab")
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
