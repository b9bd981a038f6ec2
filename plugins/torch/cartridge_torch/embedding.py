"""Embed texts: the many of one call in batches that suit a model, single ones of many together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from cartridge_torch.gathering import Gathering
from cartridge_torch.tokenizing import CHARACTERS
from cartridge_torch.vectors import check_finite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.context import Context
    from cartridge_torch.tokenizing import Batch

__all__ = ["Cut", "TextEmbedding", "TextEncoder"]

_LEAST_CHARACTERS = 32
"""What a text costs a tokenizer however short it is, as characters."""

_CHARACTERS_OF_A_TOKEN = 4

_MOST_UNEQUAL = 2
"""How many times as long as the shortest text of a gathered batch the longest may be: all are
padded to that."""


class TextEncoder(Protocol):
    """A model that makes vectors of texts; may be used from several threads at once."""

    tokens_per_pass: int
    """How many tokens go through it at a time; 0 where there is no limit."""

    lanes: int
    """How many forward passes it is worth to have at once."""

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


@attrs.frozen
class _Single:
    """The only text of a call."""

    text: str
    prompt: str | None

    @property
    def characters(self) -> int:
        """What it costs, as characters."""
        return max(_LEAST_CHARACTERS, len(self.prompt or "") + len(self.text))


class TextEmbedding:
    """
    Embeds texts with a model.

    Args:
        encoder: The model.
    """

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._gathering = Gathering(self._embed_gathered, self._fits, lanes=encoder.lanes)

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
        """
        Embed texts.

        Args:
            texts: The texts. One alone may share a forward pass with those of other calls.
            prompt: What goes before every text.
            batch_size: How many texts are taken at a time; fewer where they are long.
            on_cut: Told of every text that is too long.
            refuses_cuts: Whether it raises then. It is told of the first of them before anything is
                embedded; that takes to tokenize all texts twice.
            context: Takes the progress, and says whether to go on.

        Returns:
            float32, shape ``(texts, dimension)``, in the order of ``texts``, as the model gives
            them.

        Raises:
            BackendError: The backend failed, or gave numbers that are not finite.

            CancelledError: The context was cancelled; the model can be used further.
        """
        if refuses_cuts:
            self._refuse_cuts(texts, prompt, batch_size, on_cut, context)
        if len(texts) == 1 and self._fits([single := _Single(texts[0], prompt)], single):
            vectors, cut = self._gathering.call(single, context)
            if cut is not None:
                on_cut(cut)
            context.progress(1.0, "1 of 1 embedded")
        else:
            vectors = self._embed_many(texts, prompt, batch_size, on_cut, context)
        check_finite(vectors)
        return vectors

    def close(self) -> None:
        """Wait until the model is not used any more."""
        self._gathering.close()

    def _refuse_cuts(
        self,
        texts: Sequence[str],
        prompt: str | None,
        batch_size: int,
        on_cut: Callable[[Cut], None],
        context: Context,
    ) -> None:
        cuts: list[Cut] = []
        done = 0
        for rows, batch in self._tokenized(texts, prompt, batch_size, context):
            cuts += _cuts(rows, batch)
            done += len(rows)
            context.progress(0.0, f"{done} of {len(texts)} measured")
        if cuts:
            on_cut(min(cuts, key=lambda cut: cut.row))

    def _embed_many(
        self,
        texts: Sequence[str],
        prompt: str | None,
        batch_size: int,
        on_cut: Callable[[Cut], None],
        context: Context,
    ) -> NDArray[np.float32]:
        import numpy as np

        vectors = np.empty((len(texts), self._encoder.dimension), dtype=np.float32)
        done = 0
        for rows, batch in self._tokenized(texts, prompt, batch_size, context):
            for cut in _cuts(rows, batch):
                on_cut(cut)
            vectors[rows] = self._encoder.forward(batch, context)
            done += len(rows)
            context.progress(done / len(texts), f"{done} of {len(texts)} embedded")
        return vectors

    def _tokenized(
        self, texts: Sequence[str], prompt: str | None, batch_size: int, context: Context
    ) -> Iterator[tuple[Sequence[int], Batch]]:
        """Give batches and their rows, the longest first: texts of one length share a batch."""
        order = _longest_first(texts)
        for rows in _batches(order, texts, len(prompt or ""), batch_size, self._characters):
            yield rows, self._encoder.tokenize([texts[row] for row in rows], prompt, context)

    def _embed_gathered(
        self, singles: Sequence[_Single], context: Context
    ) -> list[tuple[NDArray[np.float32], Cut | None]]:
        """Give a text's vector, as a row, and what it was cut by, for each of several calls."""
        order = _longest_first([single.text for single in singles])
        texts = [singles[row].text for row in order]
        batch = self._encoder.tokenize(texts, singles[0].prompt, context)
        vectors = self._encoder.forward(batch, context)
        places = sorted(range(len(order)), key=order.__getitem__)
        return [(vectors[place : place + 1], _cut_of_one(batch, place)) for place in places]

    def _fits(self, singles: Sequence[_Single], other: _Single) -> bool:
        """Say whether a forward pass of some texts takes one more, without much padding."""
        lengths = [other.characters, *(single.characters for single in singles)]
        return (
            other.prompt == singles[0].prompt
            and max(lengths) <= _MOST_UNEQUAL * min(lengths)
            and max(lengths) * len(lengths) <= self._characters
        )

    @property
    def _characters(self) -> int:
        """How much text makes a forward pass, about."""
        tokens = self._encoder.tokens_per_pass
        return min(CHARACTERS, tokens * _CHARACTERS_OF_A_TOKEN) if tokens else CHARACTERS


def _longest_first(texts: Sequence[str]) -> list[int]:
    return sorted(range(len(texts)), key=lambda row: -len(texts[row]))


def _cuts(rows: Sequence[int], batch: Batch) -> list[Cut]:
    return [Cut(rows[place], tokens, limit=batch.limit) for place, tokens in batch.cuts.items()]


def _cut_of_one(batch: Batch, place: int) -> Cut | None:
    tokens = batch.cuts.get(place)
    return None if tokens is None else Cut(0, tokens, limit=batch.limit)


def _batches(
    rows: Sequence[int], texts: Sequence[str], prompt_length: int, most: int, most_characters: int
) -> Iterator[Sequence[int]]:
    """Cut rows into batches of at most so many texts, and so many characters or one text."""
    batch: list[int] = []
    characters = 0
    for row in rows:
        length = max(_LEAST_CHARACTERS, prompt_length + len(texts[row]))
        if batch and (len(batch) == most or characters + length > most_characters):
            yield batch
            batch, characters = [], 0
        batch.append(row)
        characters += length
    if batch:
        yield batch
