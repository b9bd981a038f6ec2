"""How long a context may be, and how much memory a model takes with it; from headers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.machine import available_bytes
from cartridge_gguf.states import States

if TYPE_CHECKING:
    from cartridge_gguf.files import ModelFiles
    from cartridge_gguf.header import Header
    from cartridge_gguf.options import LoadOptions

__all__ = ["SHARING_TEXTS", "Estimate", "context_length", "estimate", "writing_bytes"]

SHARING_TEXTS = 16
"""
Texts that share a decode where they are embedded, at most; llama.cpp keeps room for the logits, and
for the states, of as many, used or not.

A context's batch must be a multiple of them: else llama.cpp ends the process.
"""

_MOST_AUTOMATIC = 8192
_LEAST_AUTOMATIC = 512

_CONTEXT_STEP = 256
"""llama.cpp rounds a context up to this many tokens."""

_CACHE_ITEM_BYTES = 2
"""Keys and values are kept as float16."""

_LOGIT_BYTES = 4

_MASK_BYTES = 2
"""Says of each pair of tokens whether one sees the other."""

_MOST_MICROBATCH = 512
"""llama.cpp computes so many tokens at a time, however many a batch has."""

_TOKEN_BYTES, _MERGE_BYTES = 160, 210
"""What a token and a merge of the vocabulary take in llama.cpp's tables; measured."""


def context_length(
    files: ModelFiles,
    options: LoadOptions,
    available: int | None = None,
    *,
    embeds: bool = False,
) -> int:
    """
    Decide how many tokens a sequence may have.

    What is asked for is taken, up to what the model was trained on; more needs RoPE scaling, the
    file's or an argument's. Automatic is what the model was trained on, at most 8192; where memory
    is short, it is halved until it fits, down to 512.

    Args:
        files: The model.
        options: What is asked for.
        available: Bytes of memory that may be taken; None is what this machine has.
        embeds: Whether it is to embed texts, not to write them.

    Raises:
        InvalidArgumentError: More is asked for than the model can do.

        LoadError: The header is damaged.
    """
    asked = options.max_context_length
    if asked:
        _check_trained(files.header, options)
        return asked
    length = min(files.header.context_length or _MOST_AUTOMATIC, _MOST_AUTOMATIC)
    room = available_bytes() if available is None else available
    while room is not None and length > _LEAST_AUTOMATIC:
        if _estimate(files, options, length, embeds=embeds).nbytes <= room:
            break
        length = max(_LEAST_AUTOMATIC, length // 2)
    return length


@attrs.frozen(kw_only=True)
class Estimate:
    """What a model takes; measured against a running one: within a tenth."""

    length: int
    """Tokens of a sequence."""

    model_bytes: int
    context_bytes: int
    """Of one context, with all its sequences: what it remembers, and what it computes in."""

    is_whole: bool
    """False where the model keeps states of a size that its header does not tell."""

    @property
    def nbytes(self) -> int:
        """Bytes that are held once the model is open: the weights, and the first context."""
        return self.model_bytes + self.context_bytes


def estimate(
    files: ModelFiles,
    options: LoadOptions,
    available: int | None = None,
    *,
    embeds: bool = False,
) -> Estimate:
    """
    Say what an open model holds while it works; where it embeds, with texts as long as it takes.

    Args:
        files: The model.
        options: How it would be loaded.
        available: Bytes of memory that may be taken; None is what this machine has.
        embeds: Whether it is to embed texts, not to write them.

    Raises:
        InvalidArgumentError: As `context_length`.

        LoadError: As `context_length`.
    """
    length = context_length(files, options, available, embeds=embeds)
    return _estimate(files, options, length, embeds=embeds)


def _estimate(files: ModelFiles, options: LoadOptions, length: int, *, embeds: bool) -> Estimate:
    states = States.of(files)
    context_bytes = (
        _embedding_bytes(files, options, length, states)
        if embeds
        else writing_bytes(files, options, length)
    )
    return Estimate(
        length=length,
        model_bytes=_model_bytes(files),
        context_bytes=context_bytes,
        is_whole=states.is_known,
    )


def writing_bytes(files: ModelFiles, options: LoadOptions, length: int) -> int:
    """Say what one context takes that texts of so many tokens are written in."""
    states = States.of(files)
    cached = _rounded(length) * options.parallel_sequences
    return (
        cached * _cache_bytes(files.header, states)
        + options.parallel_sequences * states.nbytes
        + min(options.batch_size, _MOST_MICROBATCH, cached) * _compute_bytes(files.header)
    )


def _embedding_bytes(files: ModelFiles, options: LoadOptions, length: int, states: States) -> int:
    """Give the same where a text is computed as a whole, and all its tokens are outputs."""
    header, size = files.header, min(length, options.batch_size)
    # llama.cpp keeps room for the logits of each; where there are any, it computes them too.
    logits = (header.vocabulary_size or 0) * _LOGIT_BYTES * (1 if _is_encoder(header) else 2)
    return (
        _rounded(size) * _cache_bytes(header, states)
        + SHARING_TEXTS * states.nbytes
        + size * (_compute_bytes(header) + logits + _rounded(size) * _MASK_BYTES)
    )


def _rounded(length: int) -> int:
    return -(-length // _CONTEXT_STEP) * _CONTEXT_STEP


def _model_bytes(files: ModelFiles) -> int:
    header = files.header
    return (
        files.weight_bytes
        + (header.vocabulary_size or 0) * _TOKEN_BYTES
        + len(header.texts("tokenizer.ggml.merges") or ()) * _MERGE_BYTES
    )


def _is_encoder(header: Header) -> bool:
    return header.metadata.get(header.key("attention.causal")) is False


def _cache_bytes(header: Header, states: States) -> int:
    """Give the bytes of one token's keys and values, in all layers that keep them."""
    if _is_encoder(header):
        return 0  # an encoder keeps none
    layers, heads = header.block_count or 0, header.head_count or 0
    if not heads:
        return 0  # all layers are recurrent
    size = (header.embedding_length or 0) // heads
    keys = header.integer(header.key("attention.key_length")) or size
    values = header.integer(header.key("attention.value_length")) or size
    counts = header.integers(header.key("attention.head_count_kv")) or (heads,)
    # Layers with a sliding window keep as many as others: llama.cpp's choice, so that a text can
    # go on from any of its tokens.
    one = len(counts) == 1
    kept = counts[0] * (layers - states.without_keys) if one else sum(counts[:layers])
    return kept * (keys + values) * _CACHE_ITEM_BYTES


def _compute_bytes(header: Header) -> int:
    """Give the bytes that one token of a batch takes while it is computed; float32, measured."""
    hidden = header.integer(header.key("feed_forward_length")) or 0
    return 4 * (2 * hidden + 8 * (header.embedding_length or 0))


def _check_trained(header: Header, options: LoadOptions) -> None:
    asked, trained = options.max_context_length, header.context_length
    if trained is None or asked <= trained:
        return
    # A table of positions cannot be stretched, and llama.cpp ends the process beyond its end.
    has_table = any(tensor.name == "position_embd.weight" for tensor in header.tensors)
    scaling = header.text(header.key("rope.scaling.type")) or "none"
    is_scaled = options.rope_freq_base or options.rope_freq_scale or scaling != "none"
    if is_scaled and not has_table:
        return
    rule = f"at most {trained}, what the model was trained on"
    hint = "" if has_table else "; more needs rope_freq_scale or rope_freq_base"
    msg = f"max_context_length: {asked} must be {rule}{hint}"
    raise InvalidArgumentError(msg, arg="max_context_length", value=asked, rule=rule)
