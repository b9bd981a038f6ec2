"""Embed many texts: in batches that suit a tokenizer and a model, and in their own order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from cartridge_torch.tokenizing import CHARACTERS
from cartridge_torch.vectors import check_finite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.context import Context
    from cartridge_torch.tokenizing import Batch

__all__ = ["Cut", "TextEncoder", "embed_texts"]

_LEAST_CHARACTERS = 32
"""What a text costs a tokenizer however short it is, as characters."""


class TextEncoder(Protocol):
    """A model that makes vectors of texts."""

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""

    def tokenize(self, texts: Sequence[str], prompt: str | None, context: Context) -> Batch:
        """Turn texts into tokens, and see which are too long."""

    def forward(self, batch: Batch, context: Context) -> NDArray[np.float32]:
        """Compute a batch."""


@attrs.frozen
class Cut:
    """A text that is longer than the model takes; only its beginning counts."""

    row: int
    tokens: int
    """Of the whole text, with the prompt's and the special ones."""

    limit: int = attrs.field(kw_only=True)
    """How many of them the model takes."""


def embed_texts(
    encoder: TextEncoder,
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
        encoder: The model.
        texts: The texts.
        prompt: What goes before every text.
        batch_size: How many texts are taken at a time; fewer where they are long.
        on_cut: Told of every text that is too long, before its batch is computed.
        context: Takes the progress, and says whether to go on.

    Returns:
        float32, shape ``(texts, dimension)``, in the order of ``texts``, as the model gives them.

    Raises:
        BackendError: The backend failed, or gave numbers that are not finite.

        CancelledError: The context was cancelled; the model can be used further.
    """
    import numpy as np

    vectors = np.empty((len(texts), encoder.dimension), dtype=np.float32)
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    done = 0
    for rows in _batches(order, texts, len(prompt or ""), batch_size):
        batch = encoder.tokenize([texts[row] for row in rows], prompt, context)
        for place in sorted(batch.cuts, key=lambda place: rows[place]):
            on_cut(Cut(rows[place], batch.cuts[place], limit=batch.limit))
        vectors[rows] = encoder.forward(batch, context)
        done += len(rows)
        context.progress(done / len(order), f"{done} of {len(order)} embedded")
    check_finite(vectors)
    return vectors


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
