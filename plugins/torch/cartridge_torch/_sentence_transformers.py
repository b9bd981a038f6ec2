"""The one place that knows sentence-transformers and torch."""

from __future__ import annotations

import contextlib
import math
import threading
from typing import TYPE_CHECKING, cast

import attrs
import torch  # noqa: TID253 -- this file is the one that imports the backend
from sentence_transformers import SentenceTransformer  # noqa: TID253 -- as above
from sentence_transformers.util import batch_to_device  # noqa: TID253 -- as above
from transformers.utils.logging import set_tqdm_hook  # noqa: TID253 -- as above

from cartridge_core.errors import BackendError, CartridgeError, LoadError
from cartridge_torch._voices import hearing, keep_quiet, speaker
from cartridge_torch.spans import CHARACTERS, end_of_span, spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Encoding
    from torch.utils.hooks import RemovableHandle

    from cartridge_core.context import Context
    from cartridge_torch.model import LoadOptions

__all__ = ["Batch", "Encoder", "load"]

_CPU_TOKENS = 2048
"""Tokens, padding included, of one forward pass on the CPU: larger ones are slower there (a batch
of 32 x 256 takes a fifth more), need more memory, and answer a cancel later."""

_MARGIN = 512
"""Tokens. A word of more than 100 characters is one to WordPiece, and many to others."""

_GROWTH = 4

keep_quiet(set_tqdm_hook)


@attrs.frozen
class Batch:
    """Texts as tokens."""

    features: Mapping[str, object]
    cuts: Mapping[int, int]
    """The place in the batch of every text that is too long, and how many tokens it has."""

    limit: int = attrs.field(kw_only=True)
    """How many tokens of a text the model takes; 0 where there is no limit."""


def load(folder: Path, options: LoadOptions, context: Context) -> Encoder:
    """
    Load a model from a folder; nothing is fetched, and none of its code is run.

    Raises:
        LoadError: The device is not there, or the backend refuses the model.

        CancelledError: The context was cancelled.
    """
    doing = f"model {folder}: sentence-transformers cannot load it"
    with hearing(context), _threads(options.threads), _wrapped(LoadError, doing):
        device = _device(options.device)
        model = SentenceTransformer(
            str(folder),
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
        _check_tokenizer(folder, model)
        # The whole model, not the transformer alone: a Dense module has a dtype of its own.
        model.to(device=device, dtype=getattr(torch, options.dtype)).eval()
        return Encoder(model, threads=options.threads)


class Encoder:
    """
    A loaded model; may be used from several threads at once.

    Args:
        model: The model, in its place.
        threads: CPU threads of a forward pass; 0 leaves torch's setting.
    """

    def __init__(self, model: SentenceTransformer, *, threads: int) -> None:
        self._model = model
        self._device = model.device
        self._threads = threads
        # A tokenizer's truncation is part of its state, and counting needs another one.
        self._tokenizing = threading.Lock()
        self._hooks = _watch(model)
        # Asked of the model itself: its files may say otherwise, or not at all. And not by encode,
        # whose progress bar starts a thread of tqdm's that stays, even where it is switched off.
        with torch.inference_mode():
            self.dimension = self._vectors(model.preprocess(["a"])).shape[-1]

    @property
    def prompts(self) -> Mapping[str, str]:
        """The model's prompts by name."""
        return {name: text for name, text in self._model.prompts.items() if text is not None}

    @property
    def default_prompt(self) -> str | None:
        """The prompt that goes before every text unless another is given."""
        name = self._model.default_prompt_name
        return None if name is None else self.prompts.get(name)

    def tokenize(self, texts: Sequence[str], prompt: str | None, context: Context) -> Batch:
        """
        Turn texts into tokens, and see which are too long.

        Of a text by itself only as much is tokenized at once as the model takes; what follows is
        counted span by span. Where a span has no white space to end at, the count can be off by
        the tokens of the word that was cut.

        Args:
            texts: The texts.
            prompt: What goes before every text.
            context: Says whether to go on; asked between the calls of the tokenizer.

        Raises:
            BackendError: The tokenizer failed.

            CancelledError: The context was cancelled.
        """
        with _wrapped(BackendError, "the tokenizer failed"):
            limit = self._limit()
            if len(texts) == 1:
                features, count = self._tokenize_one(texts[0], prompt, limit, context)
                counts = [count]
            else:
                features = self._preprocess(texts, prompt, context)
                counts = self._counts(features, texts, prompt, limit)
        cuts = {row: count for row, count in enumerate(counts) if limit and count > limit}
        return Batch(features, cuts, limit=limit)

    def forward(self, batch: Batch, context: Context) -> NDArray[np.float32]:
        """
        Compute a batch.

        Returns:
            float32, shape ``(texts, dimension)``.

        Raises:
            BackendError: torch failed.

            CancelledError: The context was cancelled.
        """
        with (
            hearing(context),
            _threads(self._threads),
            _wrapped(BackendError, "the model failed"),
            torch.inference_mode(),
        ):
            parts = [self._vectors(part) for part in self._parts(batch.features)]
            return cast("NDArray[np.float32]", torch.cat(parts).float().cpu().numpy())

    def close(self) -> None:
        """Let go of the model, and of the memory that torch keeps for it on a GPU."""
        for hook in self._hooks:
            hook.remove()
        del self._model, self._hooks
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _vectors(self, features: Mapping[str, object]) -> torch.Tensor:
        # A copy: the modules write into what they are given.
        given = batch_to_device(dict(features), self._device)
        return cast("torch.Tensor", self._model(given)["sentence_embedding"])

    def _parts(self, features: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
        """Cut a batch into forward passes of a size that suits the CPU."""
        tokens = features.get("input_ids")
        padded = isinstance(tokens, torch.Tensor) and "attention_mask" in features
        if self._device.type != "cpu" or not padded:
            yield features
            return
        rows, width = cast("torch.Tensor", tokens).shape
        step = max(1, _CPU_TOKENS // max(1, width))
        for start in range(0, rows, step):
            yield {key: _rows(value, rows, start, step) for key, value in features.items()}

    def _limit(self) -> int:
        """Give the model's limit in tokens; 0 where it has none."""
        limit = self._model.max_seq_length
        # transformers writes 1e30 for "not known".
        return 0 if limit is None or not math.isfinite(limit) or limit > 1e9 else int(limit)

    def _preprocess(
        self, texts: Sequence[str], prompt: str | None, context: Context
    ) -> Mapping[str, object]:
        context.check_cancelled()
        with self._tokenizing:
            found = self._model.preprocess(list(texts), prompt=prompt or None)
        return cast("Mapping[str, object]", found)

    def _tokenize_one(
        self, text: str, prompt: str | None, limit: int, context: Context
    ) -> tuple[Mapping[str, object], int]:
        """Tokenize the beginning of a text that is sure to fill the model; count the rest."""
        from_the_left = getattr(self._model.tokenizer, "truncation_side", None) == "right"
        length = CHARACTERS if limit and from_the_left else len(text)
        while True:
            end = end_of_span(text, 0, length)
            features = self._preprocess([text[:end]], prompt, context)
            (count,) = self._counts(features, [text[:end]], prompt, limit)
            # What a cut does to the tokens before it stays within the margin.
            if end == len(text) or count >= limit + _MARGIN:
                break
            length *= _GROWTH
        for span in spans(text, end):
            context.check_cancelled()
            count += self._count(span, special=False)
        return features, count

    def _counts(
        self, features: Mapping[str, object], texts: Sequence[str], prompt: str | None, limit: int
    ) -> list[int]:
        """Count the tokens of each text; 0 where they are not too many."""
        mask = features.get("attention_mask")
        rows = range(len(texts))
        full = rows if mask is None else _full_rows(cast("torch.Tensor", mask), limit)
        counts = [0] * len(texts)
        for row in full if limit else ():
            known = _known_count(features, row)
            text = (prompt or "") + texts[row]
            counts[row] = self._count(text, special=True) if known is None else known
        return counts

    def _count(self, text: str, *, special: bool) -> int:
        with self._tokenizing:
            found = self._model.tokenizer(
                text, truncation=False, padding=False, add_special_tokens=special, verbose=False
            )
        return len(found["input_ids"])


def _check_tokenizer(folder: Path, model: SentenceTransformer) -> None:
    """Refuse a tokenizer without words: transformers makes one where its files are missing."""
    tokenizer = model.tokenizer
    special = getattr(tokenizer, "all_special_ids", None)
    if special is not None and len(tokenizer) <= len(special):
        msg = f"model {folder}: it has no tokenizer; download tokenizer.json or vocab.txt too"
        raise LoadError(msg)


def _full_rows(mask: torch.Tensor, limit: int) -> list[int]:
    """List the rows with as many tokens as the model takes: only these can have lost some."""
    return [row for row, count in enumerate(mask.sum(dim=1).tolist()) if count >= limit]


def _known_count(features: Mapping[str, object], row: int) -> int | None:
    """Count a text's tokens by what the tokenizer cut off and kept; None where it keeps nothing."""
    encodings = cast("Sequence[Encoding] | None", getattr(features, "encodings", None))
    if encodings is None:
        return None
    kept = encodings[row]
    return sum(kept.attention_mask) + sum(
        seen and not special
        for part in kept.overflowing
        for seen, special in zip(part.attention_mask, part.special_tokens_mask, strict=True)
    )


def _rows(value: object, rows: int, start: int, step: int) -> object:
    if isinstance(value, torch.Tensor) and value.ndim and value.shape[0] == rows:
        return value[start : start + step]
    return value


def _watch(model: torch.nn.Module) -> list[RemovableHandle]:
    """
    Have the repeated layers ask first whether their thread's work was cancelled.

    Every hook costs a short text some microseconds; a pass has at most 2 048 tokens, and one of
    its layers takes far less than the 250 ms that a cancel may. A model without a list of layers
    asks in its innermost modules.
    """
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    layers = [layer for one in lists for layer in one]
    inner = [module for module in model.modules() if not any(True for _ in module.children())]
    return [module.register_forward_pre_hook(_stop_if_cancelled) for module in layers or inner]


def _stop_if_cancelled(module: torch.nn.Module, args: tuple[object, ...]) -> None:
    del module, args
    context = speaker()
    if context is not None:
        context.check_cancelled()


def _device(name: str) -> str:
    """Choose the device."""
    there = [
        *(["cuda"] if torch.cuda.is_available() else []),
        *(["mps"] if torch.backends.mps.is_available() else []),
        "cpu",
    ]
    if name == "auto":
        return there[0]
    if name not in there:
        msg = f"device={name!r}: torch {torch.__version__} finds none here; take device='cpu'"
        raise LoadError(msg)
    return name


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """
    Let torch use so many CPU threads in this thread.

    torch keeps the number for each thread, so calls side by side do not disturb one another.
    A thread that uses torch for the first time during such a call begins with its number.
    """
    before = torch.get_num_threads()
    if count in {0, before}:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _wrapped(error: type[CartridgeError], doing: str) -> Iterator[None]:
    """Turn whatever the backend raises into one of our errors."""
    try:
        yield
    except CartridgeError:
        raise
    except Exception as exc:
        msg = f"{doing}: {type(exc).__name__}: {exc}"
        raise error(msg) from exc
