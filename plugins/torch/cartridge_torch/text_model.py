"""A model that embeds texts; the handle of torch-text-embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import LoadError
from cartridge_torch.embedding import TextEmbedding
from cartridge_torch.folder import ModelFolder
from cartridge_torch.options import LoadOptions
from cartridge_torch.sessions import DimensionSession, read_cap
from cartridge_torch.text_session import EmbeddingSession, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.context import Context
    from cartridge_core.pack import Pack
    from cartridge_torch._sentence_transformers import Encoder
    from cartridge_torch.embedding import Cut
    from cartridge_torch.sessions import BatchSession

__all__ = ["TextModel"]


@attrs.define
class TextModel:
    """A loaded model, which many sessions may use at once."""

    name: str
    _encoder: Encoder
    _texts: TextEmbedding = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._texts = TextEmbedding(self._encoder)

    @classmethod
    def open(cls, pack: Pack, options: Mapping[str, object], context: Context) -> TextModel:
        """
        Load a pack.

        Raises:
            LoadError: The folder is no model, or the backend or the model cannot be loaded.

            CancelledError: The context was cancelled.
        """
        folder = ModelFolder.read(pack)
        context.progress(0.0, "importing sentence-transformers")
        try:
            from cartridge_torch import _sentence_transformers  # noqa: PLC0415 -- heavy
        except (ImportError, OSError) as exc:
            msg = f"sentence-transformers cannot be imported ({exc}); pip install cartridge-torch"
            raise LoadError(msg) from exc
        context.check_cancelled()
        encoder = _sentence_transformers.load(folder.path, LoadOptions.read(options), context)
        return cls(folder.name, encoder)

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        return self._encoder.dimension

    @property
    def prompts(self) -> Mapping[str, str]:
        """The model's prompts by name."""
        return self._encoder.prompts

    @property
    def default_prompt(self) -> str | None:
        """The prompt that the model itself says goes before every text."""
        return self._encoder.default_prompt

    def begin(self, cap: str, parameters: Mapping[str, object], context: Context) -> BatchSession:
        """
        Begin a session of one of the two caps.

        Raises:
            InvalidArgumentError: The arguments do not go together, or not with this model.
        """
        if "embeddings-dimensions" in read_cap(cap).tags:
            return DimensionSession(self)
        return EmbeddingSession(self, Settings.read(self, parameters), context=context)

    def embed(
        self,
        texts: Sequence[str],
        prompt: str | None,
        *,
        batch_size: int,
        on_cut: Callable[[Cut], None],
        refuses_cuts: bool,
        context: Context,
    ) -> NDArray[np.float32]:
        """Embed texts, as `TextEmbedding.embed`."""
        return self._texts.embed(
            texts,
            prompt,
            batch_size=batch_size,
            on_cut=on_cut,
            refuses_cuts=refuses_cuts,
            context=context,
        )

    def close(self) -> None:
        """Let go of the weights."""
        self._texts.close()
        self._encoder.close()
