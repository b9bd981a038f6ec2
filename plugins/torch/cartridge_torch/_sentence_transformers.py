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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch.utils.hooks import RemovableHandle

    from cartridge_core.context import Context
    from cartridge_torch.model import LoadOptions

__all__ = ["Batch", "Encoder", "load"]

_CPU_TOKENS = 2048
"""Tokens, padding included, of one forward pass on the CPU: larger ones are slower there (a batch
of 32 x 256 takes a fifth more), need more memory, and answer a cancel later."""

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
        # Asked of the model itself: its files may say otherwise, or not at all.
        dimension = model.encode("a", show_progress_bar=False).shape[-1]
    return Encoder(model, dimension, threads=options.threads)


class Encoder:
    """
    A loaded model; may be used from several threads at once.

    Args:
        model: The model, in its place.
        dimension: How many numbers a vector has.
        threads: CPU threads of a forward pass; 0 leaves torch's setting.
    """

    def __init__(self, model: SentenceTransformer, dimension: int, *, threads: int) -> None:
        self.dimension = dimension
        self._model = model
        self._device = model.device
        self._threads = threads
        # A tokenizer's truncation is part of its state, and counting needs another one.
        self._tokenizing = threading.Lock()
        self._hooks = _watch(model)

    @property
    def prompts(self) -> Mapping[str, str]:
        """The model's prompts by name."""
        return {name: text for name, text in self._model.prompts.items() if text is not None}

    @property
    def default_prompt(self) -> str | None:
        """The prompt that goes before every text unless another is given."""
        name = self._model.default_prompt_name
        return None if name is None else self.prompts.get(name)

    def tokenize(self, texts: Sequence[str], prompt: str | None) -> Batch:
        """
        Turn texts into tokens, and see which are too long.

        Raises:
            BackendError: The tokenizer failed.
        """
        with self._tokenizing, _wrapped(BackendError, "the tokenizer failed"):
            features = self._model.preprocess(list(texts), prompt=prompt or None)
            limit = self._limit()
            mask = features.get("attention_mask")
            full = range(len(texts)) if mask is None else _full_rows(mask, limit)
            suspects = list(full) if limit else []
            counts = self._count([(prompt or "") + texts[row] for row in suspects])
        cuts = {row: n for row, n in zip(suspects, counts, strict=True) if n > limit}
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

    def _count(self, texts: Sequence[str]) -> list[int]:
        if not texts:
            return []
        tokenizer = self._model.tokenizer
        found = tokenizer(list(texts), truncation=False, padding=False, verbose=False)
        return [len(ids) for ids in found["input_ids"]]


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
