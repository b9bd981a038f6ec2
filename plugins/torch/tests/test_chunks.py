"""Chunks of words: offsets, overlap, and what the record says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from cartridge_core.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.records import Record

    Embed = Callable[..., Record]


def test_a_row_for_each_chunk(embed: Embed) -> None:
    """`chunks` says of every row which text it is from, and where; rows are the chunks' own."""
    texts = ["the cat is red", "", "hello \U0001f408 world"]
    found = embed(texts, chunk_size=3)
    assert found.chunks == [
        {"item": 0, "chunk_index": 0, "text": "the cat is", "start_offset": 0, "end_offset": 10},
        {"item": 0, "chunk_index": 1, "text": "red", "start_offset": 11, "end_offset": 14},
        {"item": 1, "chunk_index": 0, "text": "", "start_offset": 0, "end_offset": 0},
        {"item": 2, "chunk_index": 0, "text": texts[2], "start_offset": 0, "end_offset": 13},
    ]
    rows = cast("NDArray[np.float32]", found.vectors)
    alone = cast("NDArray[np.float32]", embed(["the cat is", "red", "", texts[2]]).vectors)
    assert rows.shape == (4, 32)
    assert abs(rows - alone).max() < 1e-5


def test_without_chunk_size_there_are_no_chunks(embed: Embed) -> None:
    """The record has no `chunks` where texts are whole; an overlap alone does nothing."""
    assert "chunks" not in embed("the cat", chunk_overlap=3)


def test_a_chunk_that_is_too_long_is_named(embed: Embed) -> None:
    """`truncated` names the text and the chunk in it."""
    found = embed(["dog", "cat " * 70 + "dog"], chunk_size=70)
    assert found.truncated == [{"item": 1, "chunk": 0, "tokens": 72, "limit": 64}]


def test_error_a_chunk_that_is_too_long(embed: Embed) -> None:
    """The refusal names the text and the chunk in it."""
    with pytest.raises(InvalidArgumentError, match=r"text\[1\], chunk 0: it has 72 tokens"):
        embed(["dog", "cat " * 70], chunk_size=70, truncation="error")


@pytest.mark.parametrize("overlap", [3, 4])
def test_error_an_overlap_that_leaves_nothing(embed: Embed, overlap: int) -> None:
    """chunk_overlap must be less than chunk_size."""
    with pytest.raises(InvalidArgumentError, match=rf"chunk_overlap: {overlap} must be less") as e:
        embed("the cat", chunk_size=3, chunk_overlap=overlap)
    assert e.value.arg == "chunk_overlap"
