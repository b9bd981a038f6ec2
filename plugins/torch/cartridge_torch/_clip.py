"""The one place that knows transformers' CLIP."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch  # noqa: TID253 -- one of the private files that import the backend
import transformers  # noqa: TID253 -- as above
from PIL import Image
from transformers import CLIPModel  # noqa: TID253 -- as above
from transformers.models.clip.image_processing_pil_clip import (  # noqa: TID253 -- as above
    CLIPImageProcessorPil,
)

from cartridge_core.errors import BackendError, LoadError
from cartridge_torch._pixels import pixels_of
from cartridge_torch._torch import (
    CPU_TOKENS,
    in_passes,
    lanes,
    tokens_per_pass,
    use_threads,
    watch,
    working,
    wrapped,
)
from cartridge_torch._transformers import load_image_processor, load_model, load_tokenizer
from cartridge_torch._voices import hearing
from cartridge_torch.tokenizing import Batch, Tokenizing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from transformers import BaseImageProcessor, CLIPTextConfig, PreTrainedTokenizerBase

    from cartridge_core.context import Context
    from cartridge_torch.options import LoadOptions

__all__ = ["Clip", "load"]


def load(folder: Path, options: LoadOptions, context: Context, *, normalizes: bool) -> Clip:
    """
    Load a model from a folder; nothing is fetched, and none of its code is run.

    Args:
        folder: Where its files lie.
        options: Where and how it runs.
        context: Takes the progress, and says whether to go on.
        normalizes: Whether the model gives its vectors unit length.

    Raises:
        LoadError: The device is not there, or transformers refuses the model, or is of a version
            that gives something else than vectors.

        CancelledError: The context was cancelled.
    """
    doing = f"model {folder}: transformers {transformers.__version__} cannot load it"
    with hearing(context), use_threads(options.threads), wrapped(LoadError, doing):
        return Clip(
            load_model(CLIPModel, folder, options),
            load_tokenizer(folder),
            load_image_processor(CLIPImageProcessorPil, folder),
            threads=options.threads,
            normalizes=normalizes,
        )


class Clip:
    """
    A loaded model; may be used from several threads at once.

    Args:
        model: The model, in its place.
        tokenizer: Makes tokens of texts.
        processor: Makes numbers of pictures.
        threads: CPU threads of a forward pass; 0 leaves torch's setting.
        normalizes: Whether the model gives its vectors unit length.
    """

    def __init__(
        self,
        model: CLIPModel,
        tokenizer: PreTrainedTokenizerBase,
        processor: BaseImageProcessor,
        *,
        threads: int,
        normalizes: bool,
    ) -> None:
        self._model = model
        self._device = model.device
        self._tokenizer = tokenizer
        self._threads = threads
        self._normalizes = normalizes
        self.dimension = cast("int", model.config.projection_dim)
        positions = cast("CLIPTextConfig", model.config.text_config).max_position_embeddings
        self._limit = min(positions, tokenizer.model_max_length)
        self._pixels = pixels_of(processor, model.device)
        self._patches: int = model.vision_model.embeddings.num_positions
        self._tokenizing = Tokenizing(self._preprocess, tokenizer)
        self.tokens_per_pass = min(CPU_TOKENS, tokens_per_pass(model.text_model, model.device))
        self.lanes = lanes(model, model.device, threads)
        self._image_pass = tokens_per_pass(model.vision_model, model.device)
        self._hooks = watch(model)
        self._try()

    @property
    def pictures_per_pass(self) -> int:
        """How many pictures go through the model at a time; 0 where there is no limit."""
        return max(1, self._image_pass // self._patches) if self._image_pass else 0

    def _try(self) -> None:
        """
        Have one text and one picture through the model.

        Raises:
            LoadError: The model gives something else than vectors of its dimension.
        """
        with torch.inference_mode():
            self._text_vectors(self._preprocess(["a"], None))
            self._image_vectors(self._pixels.levels(Image.new("RGB", (40, 30)))[None])

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
            return self._tokenizing.read(texts, prompt, self._limit, context)

    def forward(self, batch: Batch, context: Context) -> NDArray[np.float32]:
        """
        Compute a batch of texts.

        Returns:
            float32, shape ``(texts, dimension)``.

        Raises:
            BackendError: torch failed.

            CancelledError: The context was cancelled.
        """
        with working(context, self._threads, BackendError, "the model failed"):
            width = cast("torch.Tensor", batch.features["input_ids"]).shape[1]
            parts = in_passes(batch.features, width, self.tokens_per_pass)
            return _array([self._text_vectors(part) for part in parts])

    def levels(self, picture: Image.Image, context: Context) -> torch.Tensor:
        """
        Prepare a picture by itself: resize it, and cut out what the model sees.

        Args:
            picture: Of mode RGB.
            context: Hears what the libraries say.

        Returns:
            What `forward_pictures` takes; on the CPU.

        Raises:
            BackendError: The processor failed.
        """
        with hearing(context), wrapped(BackendError, "the image processor failed"):
            return self._pixels.levels(picture)

    def forward_pictures(
        self, levels: Sequence[torch.Tensor], context: Context
    ) -> NDArray[np.float32]:
        """
        Compute a batch of pictures.

        Args:
            levels: What `levels` gave for each.
            context: Says whether to go on.

        Returns:
            float32, shape ``(pictures, dimension)``.

        Raises:
            BackendError: torch failed.

            CancelledError: The context was cancelled.
        """
        with working(context, self._threads, BackendError, "the model failed"):
            batch = {"levels": torch.stack(list(levels))}
            parts = in_passes(batch, self._patches, self._image_pass)
            return _array(
                [self._image_vectors(cast("torch.Tensor", one["levels"])) for one in parts]
            )

    def close(self) -> None:
        """Let go of the model, and of the memory that torch keeps for it on a GPU."""
        for hook in self._hooks:
            hook.remove()
        del self._model, self._hooks, self._tokenizing
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _preprocess(self, texts: list[str], prompt: str | None) -> Mapping[str, object]:
        found = self._tokenizer(
            [(prompt or "") + text for text in texts],
            padding=True,
            truncation=True,
            max_length=self._limit,
            return_tensors="pt",
            verbose=False,
        )
        return cast("Mapping[str, object]", found)

    def _text_vectors(self, features: Mapping[str, object]) -> torch.Tensor:
        ids, mask = (
            cast("torch.Tensor", features[name]).to(self._device)
            for name in ("input_ids", "attention_mask")
        )
        output = self._model.get_text_features(input_ids=ids, attention_mask=mask)
        return self._vectors(output, "get_text_features")

    def _image_vectors(self, levels: torch.Tensor) -> torch.Tensor:
        pixels = self._pixels.numbers(levels.to(self._device))
        output = self._model.get_image_features(pixel_values=pixels)
        return self._vectors(output, "get_image_features")

    def _vectors(self, output: object, method: str) -> torch.Tensor:
        """Take the vectors: transformers 4 gives them as they are, 5 among other things."""
        vectors = getattr(output, "pooler_output", output)
        if not isinstance(vectors, torch.Tensor) or vectors.shape[1:] != (self.dimension,):
            found = f"{type(vectors).__name__} of shape {list(getattr(vectors, 'shape', []))}"
            msg = (
                f"CLIPModel.{method} of transformers {transformers.__version__} gives {found}; "
                f"vectors of {self.dimension} numbers are expected: take another version"
            )
            raise LoadError(msg)
        return torch.nn.functional.normalize(vectors, dim=1) if self._normalizes else vectors


def _array(parts: Sequence[torch.Tensor]) -> NDArray[np.float32]:
    return cast("NDArray[np.float32]", torch.cat(list(parts)).float().cpu().numpy())
