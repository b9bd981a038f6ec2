"""The one place that knows transformers' BLIP."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, cast

import attrs
import torch  # noqa: TID253 -- one of the private files that import the backend
import transformers  # noqa: TID253 -- as above
from PIL import Image
from transformers import BlipForConditionalGeneration  # noqa: TID253 -- as above
from transformers.models.blip.image_processing_pil_blip import (  # noqa: TID253 -- as above
    BlipImageProcessorPil,
)

from cartridge_core.errors import BackendError, LoadError
from cartridge_torch._torch import use_threads, watch, working, wrapped
from cartridge_torch._transformers import load_image_processor, load_model, load_tokenizer
from cartridge_torch._voices import hearing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from transformers import BaseImageProcessor, BlipTextConfig, PreTrainedTokenizerBase

    from cartridge_core.context import Context
    from cartridge_torch.options import LoadOptions

__all__ = ["Blip", "Seen", "load"]


def load(folder: Path, options: LoadOptions, context: Context) -> Blip:
    """
    Load a model from a folder; nothing is fetched, and none of its code is run.

    Raises:
        LoadError: The device is not there, or transformers refuses the model.

        CancelledError: The context was cancelled.
    """
    doing = f"model {folder}: transformers {transformers.__version__} cannot load it"
    with hearing(context), use_threads(options.threads), wrapped(LoadError, doing):
        return Blip(
            load_model(BlipForConditionalGeneration, folder, options),
            load_tokenizer(folder),
            load_image_processor(BlipImageProcessorPil, folder),
            threads=options.threads,
        )


@attrs.define
class Seen:
    """A picture that the model has looked at, and what it has written about it so far."""

    picture: torch.Tensor
    cache: object = attrs.field(init=False, default=None)


class Blip:
    """
    A loaded model; may be used from several threads at once.

    Args:
        model: The model, in its place.
        tokenizer: Makes tokens of texts, and texts of tokens.
        processor: Makes numbers of pictures.
        threads: CPU threads of a forward pass; 0 leaves torch's setting.
    """

    def __init__(
        self,
        model: BlipForConditionalGeneration,
        tokenizer: PreTrainedTokenizerBase,
        processor: BaseImageProcessor,
        *,
        threads: int,
    ) -> None:
        self._model = model
        self._device = model.device
        self._tokenizer = tokenizer
        self._processor = processor
        self._threads = threads
        # Releases of transformers differ in what they call the keys and values that are kept.
        names = inspect.signature(model.text_decoder.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        config = cast("BlipTextConfig", model.config.text_config)
        self._first = cast("int", config.bos_token_id)
        self.end = cast("int", config.sep_token_id)
        self.limit = config.max_position_embeddings
        self._hooks = watch(model)
        self._try()

    def _try(self) -> None:
        """
        Have one picture and one word through the model.

        Raises:
            LoadError: The model gives no scores.
        """
        # A tokenizer's padding is part of its state: set by the first text, before there are
        # threads, it is never changed again.
        tokens = self.prompt("a")
        try:
            with torch.inference_mode():
                self._step(tokens, Seen(self._look(Image.new("RGB", (40, 30)))))
        except BackendError as exc:
            raise LoadError(str(exc)) from exc

    def prompt(self, text: str) -> list[int]:
        """
        Give the tokens that a caption begins with.

        Args:
            text: What it begins with; may be empty.

        Returns:
            The model's own first token, and those of the text.

        Raises:
            BackendError: The tokenizer failed.
        """
        with wrapped(BackendError, "the tokenizer failed"):
            found = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
            return [self._first, *cast("list[int]", found)]

    def text(self, tokens: Sequence[int]) -> str:
        """
        Give the text of tokens, without the special ones.

        Raises:
            BackendError: The tokenizer failed.
        """
        with wrapped(BackendError, "the tokenizer failed"):
            return cast("str", self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def look(self, image: Image.Image, context: Context) -> Seen:
        """
        Look at a picture.

        Args:
            image: Of mode RGB.
            context: Says whether to go on.

        Raises:
            BackendError: The processor or the model failed.

            CancelledError: The context was cancelled.
        """
        with working(context, self._threads, BackendError, "the model failed"):
            return Seen(self._look(image))

    def step(self, tokens: Sequence[int], seen: Seen, context: Context) -> int:
        """
        Read tokens, and give the likeliest one after them.

        Args:
            tokens: What was not read yet: the prompt, later the token that was given last.
            seen: The picture; what was read is kept with it.
            context: Says whether to go on.

        Returns:
            A token; `end` ends the caption.

        Raises:
            BackendError: The model failed, or gave numbers that are not finite.

            CancelledError: The context was cancelled.
        """
        context.check_cancelled()
        with working(context, self._threads, BackendError, "the model failed"):
            return self._step(tokens, seen)

    def close(self) -> None:
        """Let go of the model, and of the memory that torch keeps for it on a GPU."""
        for hook in self._hooks:
            hook.remove()
        del self._model, self._hooks
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _look(self, image: Image.Image) -> torch.Tensor:
        pixels = cast("torch.Tensor", self._processor([image], return_tensors="pt")["pixel_values"])
        return cast("torch.Tensor", self._model.vision_model(pixels.to(self._device))[0])

    def _step(self, tokens: Sequence[int], seen: Seen) -> int:
        output = self._model.text_decoder(
            input_ids=torch.tensor([list(tokens)], device=self._device),
            encoder_hidden_states=seen.picture,
            use_cache=True,
            **{self._cache_name: seen.cache},
        )
        seen.cache = getattr(output, self._cache_name)
        scores = output.logits[0, -1]
        if not bool(torch.isfinite(scores).all()):
            msg = (
                "the model's scores have numbers that are not finite; its weights are damaged, or "
                "dtype='float16' is too narrow for it: try 'float32' or 'bfloat16'"
            )
            raise BackendError(msg)
        return int(scores.argmax())
