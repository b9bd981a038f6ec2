"""The one place that knows sentence-transformers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import torch  # noqa: TID253 -- one of the private files that import the backend
from sentence_transformers import SentenceTransformer  # noqa: TID253 -- as above
from sentence_transformers.util import batch_to_device  # noqa: TID253 -- as above

from cartridge_core.errors import BackendError, LoadError
from cartridge_torch._torch import (
    CPU_TOKENS,
    choose_device,
    in_passes,
    lanes,
    tokens_per_pass,
    use_threads,
    watch,
    working,
    wrapped,
)
from cartridge_torch._transformers import check_tokenizer
from cartridge_torch._voices import hearing
from cartridge_torch.tokenizing import Batch, Tokenizing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.context import Context
    from cartridge_torch.options import LoadOptions

__all__ = ["Encoder", "load"]


def load(folder: Path, options: LoadOptions, context: Context) -> Encoder:
    """
    Load a model from a folder; nothing is fetched, and none of its code is run.

    Raises:
        LoadError: The device is not there, or the backend refuses the model.

        CancelledError: The context was cancelled.
    """
    doing = f"model {folder}: sentence-transformers cannot load it"
    with hearing(context), use_threads(options.threads), wrapped(LoadError, doing):
        device = choose_device(options.device)
        model = SentenceTransformer(
            str(folder),
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
        check_tokenizer(folder, model.tokenizer)
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
        self._tokenizing = Tokenizing(self._preprocess, model.tokenizer)
        self.tokens_per_pass = min(CPU_TOKENS, tokens_per_pass(model, model.device))
        self.lanes = lanes(model, model.device, threads)
        self._hooks = watch(model)
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

        Args:
            texts: The texts.
            prompt: What goes before every text.
            context: Says whether to go on.

        Raises:
            BackendError: The tokenizer failed.

            CancelledError: The context was cancelled.
        """
        with wrapped(BackendError, "the tokenizer failed"):
            return self._tokenizing.read(texts, prompt, self._limit(), context)

    def forward(self, batch: Batch, context: Context) -> NDArray[np.float32]:
        """
        Compute a batch.

        Returns:
            float32, shape ``(texts, dimension)``.

        Raises:
            BackendError: torch failed.

            CancelledError: The context was cancelled.
        """
        with working(context, self._threads, BackendError, "the model failed"):
            parts = [self._vectors(part) for part in self._parts(batch.features)]
            return cast("NDArray[np.float32]", torch.cat(parts).float().cpu().numpy())

    def close(self) -> None:
        """Let go of the model, and of the memory that torch keeps for it on a GPU."""
        for hook in self._hooks:
            hook.remove()
        del self._model, self._hooks, self._tokenizing
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _preprocess(self, texts: list[str], prompt: str | None) -> Mapping[str, object]:
        return cast("Mapping[str, object]", self._model.preprocess(texts, prompt=prompt))

    def _vectors(self, features: Mapping[str, object]) -> torch.Tensor:
        # A copy: the modules write into what they are given.
        given = batch_to_device(dict(features), self._device)
        return cast("torch.Tensor", self._model(given)["sentence_embedding"])

    def _parts(self, features: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
        """Cut a batch into forward passes of a size that suits the CPU."""
        tokens = features.get("input_ids")
        if isinstance(tokens, torch.Tensor) and "attention_mask" in features:
            return in_passes(features, tokens.shape[1], self.tokens_per_pass)
        return iter([features])

    def _limit(self) -> int:
        """Give the model's limit in tokens; 0 where it has none."""
        limit = self._model.max_seq_length
        # transformers writes 1e30 for "not known".
        return 0 if limit is None or not math.isfinite(limit) or limit > 1e9 else int(limit)
