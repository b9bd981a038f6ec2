"""What a caller gives as texts, and the pieces that long ones are cut into."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cartridge_core.context import Context
from cartridge_core.errors import CancelledError, InvalidArgumentError
from cartridge_media.chunks import split
from cartridge_media.spans import end_of_span, spans
from cartridge_media.texts import pieces, read_texts


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        pytest.param("cat", ["cat"], id="one"),
        pytest.param("", [""], id="an-empty-one"),
        pytest.param(["cat", "\U0001f408"], ["cat", "\U0001f408"], id="several"),
        pytest.param(("cat", ""), ["cat", ""], id="a-tuple"),
        pytest.param([], [], id="none"),
    ],
)
def test_texts_are_taken_as_they_are(value: object, texts: list[str]) -> None:
    assert read_texts(value) == texts


@pytest.mark.parametrize(
    ("value", "arg"),
    [
        pytest.param(None, "text", id="none"),
        pytest.param(b"cat", "text", id="bytes"),
        pytest.param({"text": "cat"}, "text", id="dict"),
        pytest.param(["cat", None], "text[1]", id="none-in-a-list"),
        pytest.param(["cat", ["dog"]], "text[1]", id="list-in-a-list"),
        pytest.param(["\ud800"], "text[0]", id="half-a-surrogate-pair"),
    ],
)
def test_error_what_is_no_text_is_named(value: object, arg: str) -> None:
    """An item that is no Unicode text is named by its index."""
    with pytest.raises(InvalidArgumentError) as caught:
        read_texts(value)
    assert caught.value.arg == arg
    assert str(caught.value).startswith(f"{arg}: ")


@pytest.mark.parametrize(
    ("text", "size", "overlap", "expected"),
    [
        pytest.param("a b c d", 2, 0, ["a b", "c d"], id="no-overlap"),
        pytest.param("a b c d e", 2, 0, ["a b", "c d", "e"], id="short-last-chunk"),
        pytest.param("a b c d e", 3, 1, ["a b c", "c d e"], id="overlap"),
        pytest.param("a b c d", 3, 2, ["a b c", "b c d"], id="no-chunk-without-a-new-word"),
        pytest.param("a b", 5, 4, ["a b"], id="fewer-words-than-a-chunk"),
        pytest.param(" a\n\tb  c ", 2, 0, ["a\n\tb", "c"], id="white-space-inside-is-kept"),
        pytest.param("", 2, 0, [""], id="empty"),
        pytest.param(" \n ", 2, 1, [" \n "], id="blank"),
    ],
)
def test_chunks_are_words(text: str, size: int, overlap: int, expected: list[str]) -> None:
    """A chunk holds `size` words, and begins with the last `overlap` of the one before it."""
    assert [chunk.text for chunk in split(text, size, overlap)] == expected


@given(st.text(max_size=60), st.integers(1, 5), st.data())
def test_chunks_cover_every_word_and_their_offsets_cut_the_text(
    text: str, size: int, data: st.DataObject
) -> None:
    """Offsets count characters of the text itself, and no word is lost."""
    chunks = split(text, size, data.draw(st.integers(0, size - 1)))
    assert all(text[chunk.start_offset : chunk.end_offset] == chunk.text for chunk in chunks)
    assert all(len(chunk.text.split()) <= size for chunk in chunks)
    covered = {index for c in chunks for index in range(c.start_offset, c.end_offset)}
    assert not "".join(char for i, char in enumerate(text) if i not in covered).strip()


def test_pieces_say_which_text_they_are_of() -> None:
    """Whole texts are pieces too, where the size is 0."""
    found = pieces(["a b c", ""], 2, 0, Context())
    assert [(p.item, p.chunk_index, p.chunk.text) for p in found] == [
        (0, 0, "a b"),
        (0, 1, "c"),
        (1, 0, ""),
    ]
    whole = pieces(["a b c", ""], 0, 0, Context())
    assert [(p.item, p.chunk.text) for p in whole] == [(0, "a b c"), (1, "")]


def test_a_cancel_ends_the_cutting() -> None:
    """Of a long text, between its words."""
    context = Context()
    context.cancel()
    with pytest.raises(CancelledError):
        pieces(["a " * 200_000], 2, 0, context)


@given(st.text(max_size=80), st.integers(1, 20))
def test_spans_are_the_text(text: str, length: int) -> None:
    """Joined, they are it; none is longer, and a word is cut only where there is no way round."""
    found = [*spans(text, 0, length)]
    assert "".join(found) == text
    assert all(0 < len(span) <= length for span in found)
    for span, after in itertools.pairwise(found):
        assert after[0].isspace() or not any(c.isspace() for c in span.lstrip()[1:])


def test_a_span_ends_with_a_word() -> None:
    """White space belongs to the word after it."""
    assert end_of_span("one two three", 0, 9) == len("one two")
    assert end_of_span("one two three", 7, 6) == len("one two three")
