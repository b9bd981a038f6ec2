"""Texts among pictures: the same space, and the text cartridge's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cartridge_core.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.records import Record
    from cartridge_torch.image_model import ImageModel

    Vectors = NDArray[np.float32]
    Embed = Callable[..., Record]

TOLERANCE = 1e-5
LONG = "a photo of a red ring " * 10


@pytest.fixture(scope="module")
def embed(clip: ImageModel, embed_texts_with: Embed) -> Embed:
    """Embed texts with the tiny CLIP."""

    def run(value: object, **parameters: object) -> Record:
        return embed_texts_with(clip, value, **parameters)

    return run


def vectors(payload: Record) -> Vectors:
    """Give the vectors, with their type."""
    return cast("Vectors", payload.vectors)


def difference(a: Vectors, b: Vectors) -> float:
    """Give the largest difference of two arrays."""
    return float(abs(a - b).max())


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        pytest.param([], 0, id="a21-nothing"),
        pytest.param("", 1, id="a21-empty"),
        pytest.param(["   "], 1, id="a21-spaces"),
        pytest.param(["\n", "\u200b"], 2, id="a21-newline-and-zero-width-space"),
        pytest.param(["\x00", "", "a red ring"], 3, id="a21-nul-and-empty-among-others"),
    ],
)
def test_blank_texts_are_embedded_like_any_other(embed: Embed, value: object, rows: int) -> None:
    """N texts give float32 of shape (N, dimension), each of unit length."""
    found = vectors(embed(value))
    assert (found.shape, found.dtype.name) == ((rows, 64), "float32")
    assert (found**2).sum(axis=1) == pytest.approx([1.0] * rows, abs=TOLERANCE)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=7),
    batch_size=st.integers(1, 8),
)
def test_a_vector_does_not_depend_on_its_company(
    embed: Embed, texts: list[str], batch_size: int
) -> None:
    """Each row equals that of its text alone, in the order of the texts."""
    together = vectors(embed(texts, batch_size=batch_size))
    for row, text in zip(together, texts, strict=True):
        assert difference(row, vectors(embed(text))[0]) < TOLERANCE


def test_vectors_are_those_of_transformers(embed: Embed, plain_clip: Path) -> None:
    """Texts of every length give what transformers gives, as it gives it."""
    import torch
    from transformers import AutoTokenizer, CLIPModel

    texts = ["a red square", "", LONG, "Ein Foto, ja!", "\u65e5\u672c\u8a9e", "A PHOTO of blue"]
    tokenizer = AutoTokenizer.from_pretrained(plain_clip)
    model = CLIPModel.from_pretrained(plain_clip)
    model.train(mode=False)
    with torch.inference_mode():
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=32, return_tensors="pt")
        expected = model.get_text_features(**tokens).pooler_output.numpy()
    assert difference(vectors(embed(texts, normalize=False)), expected) < TOLERANCE


def test_what_is_cut_off_is_reported(embed: Embed) -> None:
    """A text longer than the model takes is named, with its tokens and the limit."""
    found = embed(["a red ring", LONG, "blue", LONG + "star"])
    assert found.truncated == [
        {"item": 1, "tokens": 62, "limit": 32},
        {"item": 3, "tokens": 63, "limit": 32},
    ]


@pytest.mark.parametrize(
    ("words", "cut"),
    [pytest.param(30, False, id="just-fits"), pytest.param(31, True, id="one-too-many")],
)
def test_the_limit_counts_the_special_tokens(embed: Embed, words: int, cut: bool) -> None:
    """32 tokens are 30 words and two special tokens."""
    assert bool(embed("red " * words).truncated) is cut


def test_error_a_text_that_is_too_long(embed: Embed) -> None:
    """truncation='error' names the text, its tokens and the limit, and no argument of others."""
    with pytest.raises(InvalidArgumentError) as caught:
        embed(["blue", LONG], truncation="error")
    assert str(caught.value) == (
        "text[1]: it has 62 tokens, the model takes 32; shorten it, or truncation='report'"
    )
    assert (caught.value.arg, caught.value.rule) == ("text[1]", "at most 32 tokens")


FITS, TOO_LONG = "a photo of a red ring " * 4, "1" * 40


@pytest.mark.parametrize(
    ("texts", "arg"),
    [
        pytest.param(TOO_LONG, "text[0]", id="alone"),
        pytest.param([FITS, TOO_LONG], "text[1]", id="in-a-later-batch"),
        pytest.param([FITS, TOO_LONG, LONG], "text[1]", id="two-in-two-batches"),
    ],
)
def test_error_a_text_that_is_too_long_is_refused_before_anything_is_embedded(
    clip: ImageModel, embed: Embed, monkeypatch: pytest.MonkeyPatch, texts: object, arg: str
) -> None:
    """Not after the passes of others."""
    monkeypatch.setattr(clip._clip, "forward", lambda *_: pytest.fail("a pass was made"))
    with pytest.raises(InvalidArgumentError) as caught:
        embed(texts, batch_size=1, truncation="error")
    assert caught.value.arg == arg


def test_a_very_long_text_is_embedded_by_its_beginning(embed: Embed) -> None:
    """However long, a text gives the vector of what the model takes of it, and its count."""
    found = embed("red ring " * 20_000)
    assert found.truncated == [{"item": 0, "tokens": 40_002, "limit": 32}]
    assert difference(vectors(found), vectors(embed("red ring " * 30))) < TOLERANCE


@pytest.mark.parametrize(
    ("value", "arg"),
    [
        pytest.param(b"red", "text", id="bytes"),
        pytest.param(["red", None], "text[1]", id="none-in-a-list"),
        pytest.param(["red", "\ud800"], "text[1]", id="half-a-surrogate-pair"),
    ],
)
def test_error_what_is_no_text_is_named(embed: Embed, value: object, arg: str) -> None:
    """An item that is no Unicode text is named by its index."""
    with pytest.raises(InvalidArgumentError) as caught:
        embed(value)
    assert caught.value.arg == arg
