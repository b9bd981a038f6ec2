"""Texts as tokens, and which of them are longer than a model takes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol, cast

import attrs

from cartridge_media.spans import end_of_span, spans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from tokenizers import Encoding

    from cartridge_core.context import Context

__all__ = ["CHARACTERS", "Batch", "Tokenizer", "Tokenizing"]

CHARACTERS = 32_768
"""How much a tokenizer is given at a time; it cannot be stopped, and takes up to 4 us for each."""

_MARGIN = 512
"""Tokens. A word of more than 100 characters is one to WordPiece, and many to others."""

_GROWTH = 4


class Tokenizer(Protocol):
    """A tokenizer of transformers."""

    truncation_side: str

    def __call__(
        self,
        text: str,
        *,
        truncation: bool,
        padding: bool,
        add_special_tokens: bool,
        verbose: bool,
    ) -> Mapping[str, Sequence[int]]:
        """Tokenize one text."""


@attrs.frozen
class Batch:
    """Texts as tokens."""

    features: Mapping[str, object]
    cuts: Mapping[int, int]
    """The place in the batch of every text that is too long, and how many tokens it has."""

    limit: int = attrs.field(kw_only=True)
    """How many tokens of a text the model takes; 0 where there is no limit."""


class Tokenizing:
    """
    A model's way to make tokens of texts; may be used from several threads at once.

    Args:
        preprocess: Makes the features of texts, each cut to what the model takes; the second
            argument is what goes before every text.
        tokenizer: Counts the tokens of one text.
    """

    def __init__(
        self,
        preprocess: Callable[[list[str], str | None], Mapping[str, object]],
        tokenizer: Tokenizer,
    ) -> None:
        self._preprocess_all = preprocess
        self._tokenizer = tokenizer
        # A tokenizer's truncation is part of its state, and counting needs another one.
        self._lock = threading.Lock()

    def read(self, texts: Sequence[str], prompt: str | None, limit: int, context: Context) -> Batch:
        """
        Turn texts into tokens, and see which are too long.

        Of a text by itself only as much is tokenized at once as the model takes; what follows is
        counted span by span. Where a span has no white space to end at, the count can be off by
        the tokens of the word that was cut.

        Args:
            texts: The texts.
            prompt: What goes before every text.
            limit: How many tokens of a text the model takes; 0 where there is no limit.
            context: Says whether to go on; asked between the calls of the tokenizer.

        Raises:
            CancelledError: The context was cancelled.
        """
        if len(texts) == 1:
            features, count = self._read_one(texts[0], prompt, limit, context)
            counts = [count]
        else:
            features = self._preprocess(texts, prompt, context)
            counts = self._counts(features, texts, prompt, limit)
        cuts = {row: count for row, count in enumerate(counts) if limit and count > limit}
        return Batch(features, cuts, limit=limit)

    def _preprocess(
        self, texts: Sequence[str], prompt: str | None, context: Context
    ) -> Mapping[str, object]:
        context.check_cancelled()
        with self._lock:
            return self._preprocess_all(list(texts), prompt or None)

    def _read_one(
        self, text: str, prompt: str | None, limit: int, context: Context
    ) -> tuple[Mapping[str, object], int]:
        """Tokenize the beginning of a text that is sure to fill the model; count the rest."""
        from_the_left = getattr(self._tokenizer, "truncation_side", None) == "right"
        length = CHARACTERS if limit and from_the_left else len(text)
        while True:
            end = end_of_span(text, 0, length)
            features = self._preprocess([text[:end]], prompt, context)
            (count,) = self._counts(features, [text[:end]], prompt, limit)
            # What a cut does to the tokens before it stays within the margin.
            if end == len(text) or count >= limit + _MARGIN:
                break
            length *= _GROWTH
        for span in spans(text, end, CHARACTERS):
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
        with self._lock:
            found = self._tokenizer(
                text, truncation=False, padding=False, add_special_tokens=special, verbose=False
            )
        return len(found["input_ids"])


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
