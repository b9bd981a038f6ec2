"""The vocabulary, equal id by id to llama.cpp's own, and lossless."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.errors import LoadError, UnsupportedError
from cartridge_gguf.header import read_header
from cartridge_gguf.vocabulary import Token, read_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Write = Callable[..., Path]

NATIVE = """
import ctypes, json, sys
import llama_cpp as C

@C.llama_log_callback
def log(level, text, _):
    pass

C.llama_log_set(log, ctypes.c_void_p())
params = C.llama_model_default_params()
params.vocab_only = True
for path in sys.argv[1:]:
    model = C.llama_model_load_from_file(path.encode(), params)
    vocabulary = C.llama_model_get_vocab(model)
    room, tokens = ctypes.create_string_buffer(1000), []
    for token in range(C.llama_vocab_n_tokens(vocabulary)):
        size = C.llama_token_to_piece(vocabulary, token, room, 1000, 0, True)
        name = C.llama_vocab_get_text(vocabulary, token).decode("utf-8", "backslashreplace")
        score = C.llama_vocab_get_score(vocabulary, token)
        kind = C.llama_vocab_get_attr(vocabulary, token)
        tokens.append([room.raw[:size].hex(), name, score, kind])
    print(json.dumps(tokens))
"""
NATIVE_KINDS = {
    "unknown": 1,
    "unused": 2,
    "normal": 4,
    "control": 8,
    "user_defined": 16,
    "byte": 32,
}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file that is a vocabulary alone; tokens may be bytes."""

    def run(
        model: str,
        tokens: Sequence[str | bytes],
        types: Sequence[int] | None = None,
        *,
        name: str = "x",
        pre: str = "default",
        scores: Sequence[float] = (),
    ) -> Path:
        import gguf

        path = tmp_path / f"{name}.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_tokenizer_model(model)
        writer.add_tokenizer_pre(pre)
        writer.add_array("tokenizer.ggml.tokens", list(tokens))
        writer.add_array("tokenizer.ggml.merges", ["a b"])
        if types is not None:
            writer.add_token_types(types)
        if scores:
            writer.add_token_scores(scores)
        writer.add_uint32("llama.context_length", 512)
        writer.add_uint32("llama.embedding_length", 8)
        writer.add_uint32("llama.block_count", 1)
        writer.add_uint32("llama.attention.head_count", 1)
        writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return path

    return run


def read(path: Path) -> list[Token]:
    """Read all tokens."""
    return list(read_tokens(read_header(path)))


def native(*paths: Path) -> list[list[list[object]]]:
    """Have llama.cpp read vocabularies, in a process of its own."""
    command = [sys.executable, "-c", NATIVE, *map(str, paths)]
    run = subprocess.run(command, check=True, capture_output=True, env={"GGML_NO_BACKTRACE": "1"})
    return [json.loads(line) for line in run.stdout.splitlines()]


def as_native(token: Token) -> list[object]:
    """Write a token as `native` does."""
    return [token.raw.hex(), token.piece, token.score or 0.0, NATIVE_KINDS.get(token.kind, 0)]


def test_real_models_are_equal_id_by_id(llama: Path, byte_pair: Path, bert: Path) -> None:
    """Bytes, names, scores and kinds are llama.cpp's: sentence pieces, byte pairs, word pieces."""
    paths = [llama, byte_pair, bert]
    for path, theirs in zip(paths, native(*paths), strict=True):
        ours = read(path)
        assert [token.id for token in ours] == list(range(len(theirs)))
        assert [as_native(token) for token in ours] == theirs, path.name


UNDERSCORE = "\u2581"
ODD = [
    *("<unk>", "<s>", "</s>", f"{UNDERSCORE}a{UNDERSCORE}", UNDERSCORE, "<0x0A>", "<0xff>", ""),
    *(
        "ü",
        "a b",
        "\u0120the",
        "\u0100\u0101\u0143",
        "漢字",
        "[UNK]",
        "<|x|>",
        "\n",
        "\u00ad\u00a0",
    ),
]
ODD_TYPES = [2, 3, 3, 1, 1, 6, 6, 1, 1, 1, 1, 1, 1, 4, 5, 1, 1]


def test_odd_pieces_are_equal_id_by_id(write: Write) -> None:
    """Empty, foreign, user-defined and unused pieces too, in every kind of vocabulary."""
    word_types = [1 if kind == 6 else kind for kind in ODD_TYPES]
    paths = [
        write("llama", ODD, ODD_TYPES, name="a", scores=[-i / 3 for i in range(len(ODD))]),
        write("gpt2", ODD, ODD_TYPES, name="b", pre="gpt-2"),
        write("gpt2", ODD, ODD_TYPES, name="c", pre="sarvam-moe"),
        write("gemma4", ODD, ODD_TYPES, name="d"),
        write("bert", ODD, word_types, name="e"),
        write("t5", ODD, ODD_TYPES, name="f"),
        write("rwkv", ["a", r"\n", r"\xff\x00b", r"\\n", r"\'"], name="g"),
        write("llama", ["<unk>", "<s>", "<end>", "<0x0A>"], name="h"),
    ]
    for path, theirs in zip(paths, native(*paths), strict=True):
        assert [as_native(token) for token in read(path)] == theirs, path.name


def test_a27_single_bytes_are_lossless(llama: Path) -> None:
    """Ids 3 to 258 are the 256 bytes, each once; those that are no character have no text."""
    tokens = read(llama)[3:259]
    assert [token.raw for token in tokens] == [bytes([byte]) for byte in range(256)]
    assert {token.kind for token in tokens} == {"byte"}
    assert [token.text for token in tokens[:128]] == [chr(byte) for byte in range(128)]
    assert {token.text for token in tokens[128:]} == {None}


def test_a27_special_tokens_are_written_out(llama: Path) -> None:
    """Control tokens and the unknown one are marked, and have their names as text."""
    found = {
        token.text: token.kind for token in read(llama) if token.kind in {"control", "unknown"}
    }
    assert found == {
        "<unk>": "unknown",
        "<s>": "control",
        "</s>": "control",
        "<|im_start|>": "control",
        "<|im_end|>": "control",
    }


def test_a27_halves_of_characters_stay_apart(write: Write) -> None:
    """Byte-level pieces that are parts of characters are different bytes, and no text."""
    # In GPT-2's writing, the halves of an umlaut and the beginnings of two emoji.
    tokens = read(write("gpt2", ["\u00c3", "\u00bc", "\u00f0\u0141\u013a", "\u00f0\u0141\u00a6"]))
    assert [token.raw for token in tokens] == [b"\xc3", b"\xbc", b"\xf0\x9f\x98", b"\xf0\x9f\xa6"]
    assert {token.text for token in tokens} == {None}


def test_a27_pieces_that_are_no_utf8_are_lossless(write: Write) -> None:
    """Whatever bytes a file has for a piece, they are the token's, and their name tells them."""
    raw = [b"\xff", b"\xfe", b"\xe2\x96", b"a\x80", b"\xed\xa0\x80"]
    tokens = read(write("llama", raw))
    assert [token.raw for token in tokens] == raw
    assert [token.piece for token in tokens] == [
        r"\xff",
        r"\xfe",
        r"\xe2\x96",
        r"a\x80",
        r"\xed\xa0\x80",
    ]


def test_a27_unused_tokens_add_nothing_and_keep_their_name(write: Write) -> None:
    """No two ids become one: the name of an unused token is in its piece."""
    tokens = read(write("llama", ["a", "<unused0>", "<unused1>"], [1, 5, 5]))
    assert [(token.kind, token.raw, token.piece) for token in tokens[1:]] == [
        ("unused", b"", "<unused0>"),
        ("unused", b"", "<unused1>"),
    ]


def test_scores_are_there_where_the_file_has_them(llama: Path, byte_pair: Path) -> None:
    """Sentence pieces have scores; the others have none, not zeros."""
    assert [token.score for token in read(llama)[:3]] == [0.0] * 3
    assert min(token.score or 0.0 for token in read(llama)) < -1
    assert {token.score for token in read(byte_pair)} == {None}


def test_plain_pieces_of_plamo(write: Write) -> None:
    """Bytes as bytes, everything else as it is."""
    tokens = read(write("plamo2", ["<0x41>", "\u2581a", "<s>"], [6, 1, 3]))
    assert [token.raw for token in tokens] == [b"A", "\u2581a".encode(), b"<s>"]


def test_marked_pieces_of_dna(write: Write) -> None:
    """The mark at the end of a piece is none of its text."""
    tokens = read(write("hybriddna", ["<oov>", "ACGT\ue000"]))
    assert [token.raw for token in tokens] == [b"<oov>", b"ACGT"]


@pytest.mark.parametrize("model", ["none", "sentence-beads", "llama2"])
def test_error_an_unknown_kind_of_vocabulary(write: Write, model: str) -> None:
    """Nothing is guessed; the kind is named."""
    with pytest.raises(UnsupportedError, match=f"its tokenizer, '{model}', is not known"):
        read(write(model, ["a"]))


def test_error_no_vocabulary(projector: Path) -> None:
    """A projector has none."""
    with pytest.raises(UnsupportedError, match="no vocabulary of its own"):
        read(projector)


@pytest.mark.parametrize("what", ["token_type", "scores"])
def test_error_fewer_numbers_than_tokens(write: Write, what: str) -> None:
    """Every token has its type and score, or none has."""
    from array import array

    header = read_header(write("llama", ["a", "b", "c"]))
    for wrong in (array("i", [1, 1]), "text"):
        metadata = {**header.metadata, f"tokenizer.ggml.{what}": wrong}
        with pytest.raises(LoadError, match=f"tokenizer.ggml.{what} are no 3 numbers"):
            list(read_tokens(attrs.evolve(header, metadata=metadata)))
