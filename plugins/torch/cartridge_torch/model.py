"""The handle of an open cartridge: one model, which many sessions may use at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import BackendError, InvalidArgumentError, LoadError
from cartridge_torch.folder import ModelFolder
from cartridge_torch.spans import CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.context import Context
    from cartridge_core.pack import Pack
    from cartridge_torch._sentence_transformers import Encoder

__all__ = ["Cut", "LoadOptions", "Model"]

_LEAST_CHARACTERS = 32
"""What a text costs a tokenizer however short it is, as characters."""


@attrs.frozen
class LoadOptions:
    """The open arguments of both caps."""

    device: str
    dtype: str
    threads: int = attrs.field(kw_only=True)

    @classmethod
    def read(cls, options: Mapping[str, object]) -> LoadOptions:
        """Take them as the host gives them, checked and with defaults filled in."""
        return cls(
            cast("str", options["device"]),
            cast("str", options["dtype"]),
            threads=cast("int", options["threads"]),
        )


@attrs.frozen
class Cut:
    """A text that is longer than the model takes; only its beginning counts."""

    row: int
    tokens: int
    """Of the whole text, with the prompt's and the special ones."""

    limit: int = attrs.field(kw_only=True)
    """How many of them the model takes."""


@attrs.define
class Model:
    """A loaded model."""

    name: str
    _encoder: Encoder

    @classmethod
    def open(cls, pack: Pack | None, options: LoadOptions, context: Context) -> Model:
        """
        Load a pack.

        Raises:
            InvalidArgumentError: There is no pack.

            LoadError: The folder is no model, or the backend or the model cannot be loaded.

            CancelledError: The context was cancelled.
        """
        if pack is None:
            msg = "model_spec: the cartridge needs a model, and none was given"
            raise InvalidArgumentError(msg, arg="model_spec", rule="a model")
        folder = ModelFolder.read(pack)
        context.progress(0.0, "importing sentence-transformers")
        try:
            from cartridge_torch import _sentence_transformers  # noqa: PLC0415 -- heavy
        except (ImportError, OSError) as exc:
            msg = f"sentence-transformers cannot be imported ({exc}); pip install cartridge-torch"
            raise LoadError(msg) from exc
        context.check_cancelled()
        return cls(folder.name, _sentence_transformers.load(folder.path, options, context))

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

    def embed(
        self,
        texts: Sequence[str],
        prompt: str | None,
        *,
        batch_size: int,
        on_cut: Callable[[Cut], None],
        context: Context,
    ) -> NDArray[np.float32]:
        """
        Embed texts; the longest first, so that texts of one length share a batch.

        Args:
            texts: The texts.
            prompt: What goes before every text.
            batch_size: How many texts are taken at a time; fewer where they are long.
            on_cut: Told of every text that is too long, before its batch is computed.
            context: Takes the progress, and says whether to go on.

        Returns:
            float32, shape ``(texts, dimension)``, in the order of ``texts``, as the model gives
            them.

        Raises:
            BackendError: The backend failed, or gave numbers that are not finite.

            CancelledError: The context was cancelled; the model can be used further.
        """
        import numpy as np

        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
        done = 0
        for rows in _batches(order, texts, len(prompt or ""), batch_size):
            batch = self._encoder.tokenize([texts[row] for row in rows], prompt, context)
            for place in sorted(batch.cuts, key=lambda place: rows[place]):
                on_cut(Cut(rows[place], batch.cuts[place], limit=batch.limit))
            vectors[rows] = self._encoder.forward(batch, context)
            done += len(rows)
            context.progress(done / len(order), f"{done} of {len(order)} embedded")
        _check_finite(np.isfinite(vectors))
        return vectors

    def close(self) -> None:
        """Let go of the weights."""
        self._encoder.close()


def _batches(
    rows: Sequence[int], texts: Sequence[str], prompt_length: int, most: int
) -> Iterator[Sequence[int]]:
    """Cut rows into batches of at most so many texts, of which a tokenizer makes short work."""
    batch: list[int] = []
    characters = 0
    for row in rows:
        length = max(_LEAST_CHARACTERS, prompt_length + len(texts[row]))
        if batch and (len(batch) == most or characters + length > CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(row)
        characters += length
    if batch:
        yield batch


def _check_finite(finite: NDArray[np.bool_]) -> None:
    if not finite.all():
        row = int(finite.argmin()) // finite.shape[1]
        msg = (
            f"the model's vector for row {row} has numbers that are not finite; its weights are "
            "damaged, or dtype='float16' is too narrow for it: try 'float32' or 'bfloat16'"
        )
        raise BackendError(msg)
