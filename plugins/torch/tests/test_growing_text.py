"""What is given of a text while it grows is a beginning of what it becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cartridge_core.errors import BackendError
from cartridge_torch.growing_text import GrowingText

if TYPE_CHECKING:
    from transformers import BertTokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "is", "n", "'", "t", "s", "re"]
PIECES = [*WORDS, "ve", "m", ".", ",", "?", "!", "##s", "##gy", "##'", "##.", "##n"]


@pytest.fixture(scope="module", params=[False, True], ids=["as-it-is", "cleaned-up"])
def tokenizer(request: pytest.FixtureRequest) -> BertTokenizer:
    """A WordPiece tokenizer, and one that puts punctuation to the word before."""
    from transformers import BertTokenizer

    vocabulary = {piece: index for index, piece in enumerate(PIECES)}
    return BertTokenizer(vocab=vocabulary, clean_up_tokenization_spaces=request.param)


@example(tokens=[PIECES.index(piece) for piece in ["is", "n", "'", "t", "a", "dog"]])
@example(tokens=[PIECES.index(piece) for piece in ["a", "dog", "'", "s", "##gy", "."]])
@given(tokens=st.lists(st.integers(1, len(PIECES) - 1), max_size=12))
def test_joined_the_pieces_are_the_text(tokenizer: BertTokenizer, tokens: list[int]) -> None:
    """Whatever tokens come, nothing that was given has to be taken back."""
    growing, pieces = GrowingText(), list[str]()
    for count in range(1, len(tokens) + 1):
        pieces.append(growing.feed(decode(tokenizer, tokens[:count])))
    whole = decode(tokenizer, tokens)
    assert "".join([*pieces, growing.finish(whole)]) == whole == growing.given


def decode(tokenizer: BertTokenizer, tokens: list[int]) -> str:
    """Give the text of tokens."""
    return cast("str", tokenizer.decode(tokens, skip_special_tokens=True))


def test_a_word_is_given_when_the_next_begins() -> None:
    """The last word may still grow."""
    growing = GrowingText()
    texts = ["a", "a dog", "a dog gy", "a dog gy runs"]
    assert [growing.feed(text) for text in texts] == ["", "a", " dog", " gy"]
    assert growing.finish("a dog gy runs") == " runs"


def test_error_a_text_that_is_taken_back() -> None:
    """What was given cannot be changed, and is not lost silently."""
    growing = GrowingText()
    growing.feed("a dog runs")
    with pytest.raises(BackendError, match="'a cat' of a text that began with 'a dog'"):
        growing.finish("a cat")
