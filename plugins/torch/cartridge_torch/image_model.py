"""A model that embeds pictures, and texts among them; the handle of torch-image-embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import LoadError
from cartridge_core.results import Result, ResultKind
from cartridge_torch.embedding import TextEmbedding
from cartridge_torch.gathering import Gathering
from cartridge_torch.images import read_given, read_pictures
from cartridge_torch.options import LoadOptions
from cartridge_torch.sessions import DimensionSession, read_cap
from cartridge_torch.text_session import EmbeddingSession, Settings
from cartridge_torch.vectors import check_finite, unit_length
from cartridge_torch.vision_folder import CLIP, VisionFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from cartridge_core.context import Context
    from cartridge_core.pack import Pack
    from cartridge_torch._clip import Clip
    from cartridge_torch.embedding import Cut
    from cartridge_torch.images import Given
    from cartridge_torch.sessions import BatchSession

    Vectors = NDArray[np.float32]

__all__ = ["ImageEmbeddingSession", "ImageModel"]

_MOST_PICTURES = 256
"""Of one batch: at 224 x 224 their numbers take 150 MB."""


@attrs.define
class ImageModel:
    """A loaded model, which many sessions may use at once."""

    name: str
    _clip: Clip
    _texts: TextEmbedding = attrs.field(init=False)
    _pictures: Gathering[torch.Tensor, Vectors] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._texts = TextEmbedding(self._clip)
        self._pictures = Gathering(self._embed_gathered, self._fits, lanes=self._clip.lanes)

    @classmethod
    def open(cls, pack: Pack, options: Mapping[str, object], context: Context) -> ImageModel:
        """
        Load a pack.

        Raises:
            LoadError: The folder is no CLIP, or the backend or the model cannot be loaded.

            CancelledError: The context was cancelled.
        """
        found = VisionFolder.read(pack, CLIP)
        context.progress(0.0, "importing transformers")
        try:
            from cartridge_torch import _clip  # noqa: PLC0415 -- heavy
        except (ImportError, OSError) as exc:
            msg = f"transformers cannot be imported ({exc}); pip install cartridge-torch"
            raise LoadError(msg) from exc
        context.check_cancelled()
        clip = _clip.load(
            found.path, LoadOptions.read(options), context, normalizes=found.normalizes
        )
        return cls(found.folder.name, clip)

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        return self._clip.dimension

    def begin(self, cap: str, parameters: Mapping[str, object], context: Context) -> BatchSession:
        """Begin a session of one of the three caps."""
        urn = read_cap(cap)
        if "embeddings-dimensions" in urn.tags:
            return DimensionSession(self)
        normalize = cast("bool", parameters["normalize"])
        batch_size = cast("int", parameters["batch_size"])
        if urn.in_.has("image"):
            return ImageEmbeddingSession(self, context, normalize=normalize, batch_size=batch_size)
        settings = Settings(
            normalize=normalize,
            truncate_dim=None,
            prompt=None,
            batch_size=batch_size,
            chunk_size=0,
            chunk_overlap=0,
            refuses_cuts=parameters["truncation"] == "error",
            can_chunk=False,
        )
        return EmbeddingSession(self, settings, context=context)

    def embed(
        self,
        texts: Sequence[str],
        prompt: str | None,
        *,
        batch_size: int,
        on_cut: Callable[[Cut], None],
        refuses_cuts: bool,
        context: Context,
    ) -> Vectors:
        """Embed texts, as `TextEmbedding.embed`."""
        return self._texts.embed(
            texts,
            prompt,
            batch_size=batch_size,
            on_cut=on_cut,
            refuses_cuts=refuses_cuts,
            context=context,
        )

    def embed_images(
        self, images: Sequence[Given], *, batch_size: int, context: Context
    ) -> Vectors:
        """
        Embed pictures.

        Args:
            images: The pictures. One alone may share a forward pass with those of other calls.
            batch_size: How many are taken at a time, at most.
            context: Takes the progress, and says whether to go on.

        Returns:
            float32, shape ``(images, dimension)``, in the order of ``images``, as the model gives
            them.

        Raises:
            InvalidArgumentError: One is no picture that can be read, or is too oblong.

            BackendError: The backend failed, or gave numbers that are not finite.

            CancelledError: The context was cancelled; the model can be used further.
        """
        if len(images) == 1:
            vectors = self._embed_one(images, context)
        else:
            vectors = self._embed_many(images, batch_size, context)
        check_finite(vectors)
        return vectors

    def _embed_one(self, images: Sequence[Given], context: Context) -> Vectors:
        (levels,) = self._levels(images, context)
        vectors = self._pictures.call(levels, context)
        context.progress(1.0, "1 of 1 embedded")
        return vectors

    def _embed_gathered(self, levels: Sequence[torch.Tensor], context: Context) -> list[Vectors]:
        """Give a picture's vector, as a row, for each of several calls."""
        vectors = self._clip.forward_pictures(levels, context)
        return [vectors[row : row + 1] for row in range(len(vectors))]

    def _fits(self, levels: Sequence[torch.Tensor], other: torch.Tensor) -> bool:
        """Say whether a forward pass of some pictures takes one more."""
        most = self._clip.pictures_per_pass or _MOST_PICTURES
        return len(levels) < most and levels[0].shape == other.shape

    def _embed_many(self, images: Sequence[Given], batch_size: int, context: Context) -> Vectors:
        import numpy as np

        vectors = np.empty((len(images), self.dimension), dtype=np.float32)
        step = min(batch_size, _MOST_PICTURES)
        for start in range(0, len(images), step):
            batch = images[start : start + step]
            levels = self._levels(batch, context)
            vectors[start : start + step] = self._clip.forward_pictures(levels, context)
            done = start + len(batch)
            context.progress(done / len(images), f"{done} of {len(images)} embedded")
        return vectors

    def _levels(self, images: Sequence[Given], context: Context) -> list[torch.Tensor]:
        """Read pictures, one after another, and keep of each what the model sees."""
        return [self._clip.levels(picture, context) for picture in read_pictures(images, context)]

    def close(self) -> None:
        """Let go of the weights."""
        self._texts.close()
        self._pictures.close()
        self._clip.close()


@attrs.frozen
class ImageEmbeddingSession:
    """Turns pictures into vectors."""

    _model: ImageModel
    _context: Context
    _normalize: bool = attrs.field(kw_only=True)
    _batch_size: int = attrs.field(kw_only=True)

    def infer(self, value: object) -> Result:
        """
        Embed a picture or a list of pictures.

        Returns:
            A FINAL result whose payload holds ``vectors`` (float32, shape ``(images, dimension)``,
            a row per picture), ``embedding_dim`` and ``model_name``.

        Raises:
            InvalidArgumentError: One is no picture that can be read, or is too oblong; in a list
                it is named by its index.

            BackendError: The backend failed.

            CancelledError: The context was cancelled.
        """
        vectors = self._model.embed_images(
            read_given(value), batch_size=self._batch_size, context=self._context
        )
        payload = {
            "vectors": unit_length(vectors) if self._normalize else vectors,
            "embedding_dim": vectors.shape[1],
            "model_name": self._model.name,
        }
        return Result(ResultKind.FINAL, payload)
