"""The models of the tests are the same every time, and say what they are to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import pytest
from tiny_models import write_bert, write_llama, write_projector
from tiny_vocabularies import byte_pairs, sentence_pieces, word_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tiny_vocabularies import Vocabulary


def tensors(*files: Path) -> dict[str, bytes]:
    """Read every tensor's data."""
    readers = [gguf.GGUFReader(file) for file in files]
    return {tensor.name: tensor.data.tobytes() for file in readers for tensor in file.tensors}


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda path: write_llama(path)[0], id="llama"),
        pytest.param(lambda path: write_llama(path, script=" a dog")[0], id="scripted"),
        pytest.param(lambda path: write_llama(path, vocabulary=byte_pairs())[0], id="byte-pair"),
        pytest.param(write_bert, id="bert"),
        pytest.param(lambda path: write_projector(path, 64), id="projector"),
    ],
)
def test_file_is_the_same_every_time(write: Callable[[Path], Path], tmp_path: Path) -> None:
    first, second = (write(tmp_path / name) for name in ("first.gguf", "second.gguf"))
    assert first.read_bytes() == second.read_bytes()


def test_shards_hold_the_tensors_of_the_whole(llama: Path, shards: Sequence[Path]) -> None:
    assert [path.name for path in shards] == [
        "split-00001-of-00002.gguf",
        "split-00002-of-00002.gguf",
    ]
    assert all(tensors(path) for path in shards)
    assert tensors(*shards) == tensors(llama)


def test_smaller_weights_are_the_same_weights(llama: Path, q8: Path) -> None:
    """In Q8_0 the names are the same, and the matrices are about a quarter of the size."""
    whole, small = tensors(llama), tensors(q8)
    assert whole.keys() == small.keys()
    assert len(small["output.weight"]) < len(whole["output.weight"]) / 3


@pytest.mark.parametrize("text", ["a🦙漢字é", " hello dog", "\n\t\0", '{"x": 1}', "µ ¿"])
def test_any_text_can_be_spelled(text: str) -> None:
    """By bytes where there is no piece."""
    vocabulary = sentence_pieces()
    pieces = [vocabulary.tokens[token] for token in vocabulary.spell(text)]
    data = b"".join(
        bytes([int(piece[3:5], 16)]) if piece.startswith("<0x") else piece.encode()
        for piece in pieces
    )
    assert data.decode().replace("▁", " ") == text


@pytest.mark.parametrize("script", [" dog dog", "aba", " hello world" * 40])
def test_script_with_a_token_twice_is_refused(script: str, tmp_path: Path) -> None:
    """Each token decides the next one, so it cannot have two."""
    with pytest.raises(ValueError, match="a script has fewer than 64 tokens, each once"):
        write_llama(tmp_path / "model.gguf", script=script)


@pytest.mark.parametrize("vocabulary", [sentence_pieces(), byte_pairs(), word_pieces()])
def test_vocabulary_has_each_piece_once_and_a_kind_for_it(vocabulary: Vocabulary) -> None:
    assert len(set(vocabulary.tokens)) == len(vocabulary.tokens) == len(vocabulary.types)
    assert len(vocabulary.scores) in {0, len(vocabulary.tokens)}
