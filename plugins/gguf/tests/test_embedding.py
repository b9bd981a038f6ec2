"""Embedding texts: what goes in and what comes out, pooling, truncation, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.errors import BackendError, InvalidArgumentError, LoadError
from cartridge_core.progress import Phase, Progress
from cartridge_core.testing import registry_of
from cartridge_gguf import plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import gguf
    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.progress import Log
    from cartridge_core.records import Record
    from cartridge_core.registry import Registry
    from cartridge_core.results import Result

    Embed = Callable[..., Record]

CAP = 'cap:generate-embeddings;in="media:enc=utf-8";out="media:embedding-vector;record"'
DIMENSIONS = "cap:embeddings-dimensions"
TOLERANCE = 1e-5
LONG = "cat " * 200


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """A registry of this plugin alone, whose models stay open for all tests."""
    with registry_of(plugin, isolation="inline") as registry:
        yield registry


@pytest.fixture(scope="module")
def embed(registry: Registry, bert: Path) -> Embed:
    """Embed, with the random BERT unless told otherwise."""
    call = cast("Callable[..., Result]", registry.call)

    def run(value: object, model: Path = bert, **arguments: object) -> Record:
        result = call(CAP, value, model_spec=model, **{"threads": 1, **arguments})
        return cast("Record", result.payload)

    return run


def vectors(payload: Record) -> NDArray[np.float32]:
    """Give the vectors, with their type."""
    return cast("NDArray[np.float32]", payload.vectors)


def records(payload: Record, field: str) -> list[Record]:
    """Give a field that is a list of records, with its type."""
    return cast("list[Record]", payload[field])


def difference(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Give the largest difference of two arrays; 0 where they are empty."""
    assert a.shape == b.shape
    return float(abs(a - b).max(initial=0))


# Rows.


def test_three_texts_give_three_float32_vectors(embed: Embed) -> None:
    """N texts give C-contiguous float32 of shape (N, dimension)."""
    found = embed(["the cat", "a dog is red", "it"])
    rows = vectors(found)
    assert (rows.shape, rows.dtype.name, rows.flags.c_contiguous) == ((3, 64), "float32", True)
    assert (found.embedding_dim, found.model_name, found.truncated) == (64, "bert", [])


def test_a_single_text_gives_one_row(embed: Embed) -> None:
    """A str is one text, not a list of characters."""
    assert vectors(embed("hello world")).shape == (1, 64)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({}, id="a10-no-texts"),
        pytest.param({"truncate_dim": 8}, id="a10-no-texts-truncated"),
        pytest.param({"chunk_size": 4}, id="a10-no-texts-chunked"),
        pytest.param({"normalize": False}, id="a10-no-texts-not-normalized"),
    ],
)
def test_no_texts_give_no_rows_of_the_right_width(
    embed: Embed, arguments: dict[str, object]
) -> None:
    """`[]` keeps the number of columns and the type."""
    found = embed([], **arguments)
    width = arguments.get("truncate_dim", 64)
    assert (vectors(found).shape, vectors(found).dtype.name) == ((0, width), "float32")
    assert (found.embedding_dim, found.get("chunks", [])) == (width, [])


COMPANY = [
    pytest.param(["tea", "abc"], id="a10-a-pair"),
    pytest.param(["tea"], id="a10-one"),
    pytest.param(["a", "cat " * 300, "b"], id="a10-a-long-one-between-short-ones"),
    pytest.param(["cat", "dog", "cat", "cat"], id="a10-the-same-text-again"),
    pytest.param([f"{'cat ' * count}dog" for count in range(75)], id="a10-every-length"),
    pytest.param(["hello"] * 40, id="a10-more-than-share-a-decode"),
    pytest.param(["a", "", "dog", "   ", "b"], id="a10-blank-ones-between"),
    pytest.param(
        ["日本語", "e\u0301\u200d", "\U0001f408 cat", "\x00"], id="a10-no-words-of-the-vocabulary"
    ),
    pytest.param(["cat " * 61, "cat " * 62, "cat"], id="a10-on-both-sides-of-what-is-shared"),
]


@pytest.mark.parametrize("texts", COMPANY)
@pytest.mark.parametrize(
    ("fixture", "pooling"),
    [("bert", "mean"), ("bert", "cls"), ("bert", "last"), ("llama", "mean"), ("q8", "last")],
)
def test_a_vector_is_what_its_text_gets_alone(
    embed: Embed, request: pytest.FixtureRequest, texts: list[str], fixture: str, pooling: str
) -> None:
    """Each row equals that of its text alone, in the order of the texts; several models."""
    model: Path = request.getfixturevalue(fixture)
    options = {"model": model, "pooling": pooling, "max_context_length": 128}
    found = embed(texts, **options)
    assert vectors(found).shape == (len(texts), 64)
    for row, text in enumerate(texts):
        alone = embed(text, **options)
        assert difference(vectors(found)[row : row + 1], vectors(alone)) < TOLERANCE
    assert [cut.item for cut in records(found, "truncated")] == [
        row for row, text in enumerate(texts) if len(text) > 1000
    ]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=90), max_size=20))
def test_a_vector_does_not_depend_on_its_company(embed: Embed, texts: list[str]) -> None:
    """So it is with any texts."""
    together = vectors(embed(texts))
    assert len(together) == len(texts)
    for row, text in enumerate(texts):
        assert difference(together[row : row + 1], vectors(embed(text))) < TOLERANCE


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("   ", id="spaces"),
        pytest.param("\n", id="newline"),
        pytest.param("\u200b", id="zero-width-space"),
        pytest.param("\x00", id="nul"),
    ],
)
def test_a_blank_text_is_embedded_like_any_other(embed: Embed, text: str) -> None:
    """The tokens that the model wants around a text give a unit vector."""
    assert float((vectors(embed(text)) ** 2).sum()) == pytest.approx(1.0, abs=TOLERANCE)


def test_error_a_text_of_no_tokens(embed: Embed, byte_pair: Path) -> None:
    """A model that wants none around a text has nothing to say of an empty one; it is named."""
    with pytest.raises(InvalidArgumentError, match=r"^text\[1\]: it comes to no token") as caught:
        embed(["a", "", "b"], byte_pair, pooling="last")
    assert (caught.value.arg, caught.value.value) == ("text[1]", "")


def test_a_text_of_one_token_is_what_it_is_in_company(embed: Embed, byte_pair: Path) -> None:
    """A model that wants no tokens around a text can have one token in all."""
    together = vectors(embed(["a", "hello", "b"], byte_pair, pooling="last"))
    assert difference(together[:1], vectors(embed("a", byte_pair, pooling="last"))) == 0


def test_many_texts_show_signs_of_life(registry: Registry, bert: Path) -> None:
    """Progress comes with every decode, and while texts are tokenised; it never goes back."""
    said = list[Progress]()

    def listen(event: Progress | Log) -> None:
        if isinstance(event, Progress) and event.phase is Phase.INFER:
            said.append(event)

    texts = ["the cat is red"] * 2100
    call: Callable[..., object] = registry.call
    call(CAP, texts, model_spec=bert, threads=1, on_progress=listen)
    fractions = [event.fraction for event in said]
    assert len(fractions) > 10
    assert fractions == sorted(fractions)


# What becomes of a vector.


def test_vectors_have_unit_length(embed: Embed) -> None:
    """After truncate_dim."""
    found = embed(["the cat", "dog"], truncate_dim=5)
    assert (vectors(found).shape, found.embedding_dim) == ((2, 5), 5)
    assert (vectors(found) ** 2).sum(axis=1) == pytest.approx(1.0, abs=TOLERANCE)


def test_normalize_off_gives_the_models_own_lengths(embed: Embed) -> None:
    """They are longer, and point the same way."""
    own, unit = vectors(embed("the cat", normalize=False)), vectors(embed("the cat"))
    length = float((own**2).sum()) ** 0.5
    assert length > 2
    assert difference(own / length, unit) < TOLERANCE


def test_error_more_dimensions_than_the_model_has(embed: Embed) -> None:
    """truncate_dim may not be more than the model's own."""
    with pytest.raises(InvalidArgumentError, match=r"truncate_dim: 65 .* the model's 64") as caught:
        embed("the cat", truncate_dim=65)
    assert (caught.value.arg, caught.value.value) == ("truncate_dim", 65)


def test_a_prompt_goes_before_every_text(embed: Embed) -> None:
    """It is taken as it is; the default one is empty."""
    found = vectors(embed(["the cat", "dog"], prompt="query: "))
    assert difference(found, vectors(embed(["query: the cat", "query: dog"]))) == 0
    assert difference(found, vectors(embed(["the cat", "dog"], prompt=""))) > 0.01


def test_the_text_of_a_control_token_is_text(embed: Embed) -> None:
    """A caller's text cannot end its own sequence: "[SEP]" is spelled in five tokens."""
    assert records(embed("cat [SEP] " * 100), "truncated")[0].tokens == 602


def test_error_numbers_that_are_not_finite(embed: Embed, bert: Path, tmp_path: Path) -> None:
    """Damaged weights give no vector."""
    from cartridge_gguf.header import read_header

    data = bytearray(bert.read_bytes())
    header = read_header(bert)
    tensor = next(item for item in header.tensors if item.name == "blk.1.ffn_down.bias")
    start = header.file_size - header.data_size + tensor.offset
    data[start : start + 4] = b"\x00\x00\xc0\x7f"
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(data)
    with pytest.raises(BackendError, match="row 0 has numbers that are not finite"):
        embed("cat", damaged)


# Pooling.


def test_pooling_is_what_the_file_says(embed: Embed, bert: Path, models: Path) -> None:
    """Unless it is asked for another."""
    import gguf
    from tiny_models import write_bert

    first = write_bert(models / "first.gguf", pooling=gguf.PoolingType.CLS)
    mean, cls = (vectors(embed("the cat", bert, pooling=name)) for name in ("mean", "cls"))
    assert difference(vectors(embed("the cat", bert)), mean) == 0
    assert difference(vectors(embed("the cat", first)), cls) == 0
    assert difference(vectors(embed("the cat", first, pooling="mean")), mean) == 0
    assert difference(mean, cls) > 0.01


def test_sessions_with_other_poolings_do_not_disturb_each_other(embed: Embed) -> None:
    """One open model serves them all."""
    before = [vectors(embed("the cat", pooling=name)) for name in ("mean", "cls", "last")]
    after = [vectors(embed("the cat", pooling=name)) for name in ("last", "cls", "mean")]
    assert [difference(a, b) for a, b in zip(before, reversed(after), strict=True)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "why"), [("NONE", "may be no embedding model"), ("RANK", "ranks documents")]
)
def test_error_a_file_whose_pooling_gives_no_vector(
    embed: Embed, models: Path, kind: str, why: str
) -> None:
    """A text's vector is not guessed at; the refusal lists what may be asked for."""
    import gguf
    from tiny_models import write_bert

    path = write_bert(models / f"{kind.lower()}.gguf", pooling=gguf.PoolingType[kind])
    with pytest.raises(InvalidArgumentError, match=f"^pooling: .*{why}.*mean, cls, last") as caught:
        embed("the cat", path)
    assert caught.value.arg == "pooling"
    assert vectors(embed("the cat", path, pooling="mean")).shape == (1, 64)


def test_error_a_file_that_says_no_pooling(embed: Embed, llama: Path) -> None:
    """A language model's file says none."""
    with pytest.raises(InvalidArgumentError, match=r"^pooling: not given"):
        embed("the cat", llama)


def test_error_a_vector_for_each_token(embed: Embed) -> None:
    """`none` is no pooling that the cap offers."""
    with pytest.raises(InvalidArgumentError, match=r"^pooling: "):
        embed("the cat", pooling="none")


# What is no text.


@pytest.mark.parametrize(
    ("value", "arg"),
    [
        pytest.param(3, "text", id="number"),
        pytest.param(b"cat", "text", id="bytes"),
        pytest.param({"text": "cat"}, "text", id="dict"),
        pytest.param(["cat", None], "text[1]", id="none-in-a-list"),
        pytest.param(["cat", "dog", ["bird"]], "text[2]", id="list-in-a-list"),
        pytest.param([b"cat"], "text[0]", id="bytes-in-a-list"),
        pytest.param("\ud800", "text", id="half-a-surrogate-pair"),
        pytest.param(["cat", "dog\udfff"], "text[1]", id="half-a-surrogate-pair-in-a-list"),
    ],
)
def test_error_what_is_no_text_is_named(embed: Embed, value: object, arg: str) -> None:
    """An item that is no Unicode text is named by its index."""
    with pytest.raises(InvalidArgumentError) as caught:
        embed(value)
    assert caught.value.arg == arg
    assert str(caught.value).startswith(f"{arg}: ")


def test_error_a_prompt_that_is_no_unicode(embed: Embed) -> None:
    """Half of a surrogate pair is refused in a prompt too."""
    with pytest.raises(InvalidArgumentError, match="prompt: U\\+D800 at character 1"):
        embed("cat", prompt="a\ud800")


# Long texts.


def test_what_is_cut_off_is_reported(embed: Embed) -> None:
    """A text longer than the model takes is named, with its tokens and the limit."""
    assert embed(["dog", LONG, "cat", LONG + "dog"]).truncated == [
        {"item": 1, "tokens": 202, "limit": 128},
        {"item": 3, "tokens": 203, "limit": 128},
    ]


def test_a_text_cut_off_keeps_the_token_that_ends_it(embed: Embed) -> None:
    """The vector is that of the words that fit."""
    assert difference(vectors(embed(LONG)), vectors(embed("cat " * 126))) == 0


@pytest.mark.parametrize(
    ("words", "cut"),
    [pytest.param(126, False, id="just-fits"), pytest.param(127, True, id="one-too-many")],
)
def test_the_limit_counts_the_special_tokens(embed: Embed, words: int, cut: bool) -> None:
    """128 tokens are 126 words and two special tokens."""
    assert bool(embed("cat " * words).truncated) is cut


def test_the_prompt_counts_towards_the_limit(embed: Embed) -> None:
    """A prompt takes the room of the text's last words."""
    assert not embed("cat " * 125).truncated
    cut = {"item": 0, "tokens": 129, "limit": 128}
    assert embed("cat " * 125, prompt="query: ").truncated == [cut]


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"batch_size": 16}, 16),
        ({"max_context_length": 20}, 20),
        ({"batch_size": 3, "max_context_length": 20}, 3),
        ({"batch_size": 1_000_000}, 128),
    ],
)
def test_a_text_is_never_more_than_one_decode_takes(
    embed: Embed, options: dict[str, int], limit: int
) -> None:
    """An encoder reads a text at once: llama.cpp would end the process rather than split it."""
    found = embed(["dog", LONG, "cat"], **options)
    assert found.truncated == [{"item": 1, "tokens": 202, "limit": limit}]
    assert vectors(found).shape == (3, 64)


@pytest.mark.parametrize("arg", ["batch_size", "max_context_length"])
def test_error_no_room_for_a_text(embed: Embed, arg: str) -> None:
    """Two tokens are taken already."""
    with pytest.raises(InvalidArgumentError, match=f"^{arg}: 2 must be at least 3") as caught:
        embed("cat", **{arg: 2})
    assert caught.value.arg == arg


def test_error_a_text_that_is_too_long(embed: Embed) -> None:
    """truncation='error' names the text, its tokens, the limit, and what helps."""
    with pytest.raises(
        InvalidArgumentError, match=r"text\[1\]: it has 202 tokens, the model takes 128.*chunk_size"
    ) as caught:
        embed(["dog", LONG], truncation="error")
    assert (caught.value.arg, caught.value.rule) == ("text[1]", "at most 128 tokens")


# Chunks.


def test_a_row_for_each_chunk(embed: Embed) -> None:
    """`chunks` says of every row which text it is from, and where; rows are the chunks' own."""
    texts = ["the cat is red", "", "hello \U0001f408 world"]
    found = embed(texts, chunk_size=3, chunk_overlap=1)
    chunks = records(found, "chunks")
    assert [(c.item, c.chunk_index, c.text, c.start_offset) for c in chunks] == [
        (0, 0, "the cat is", 0),
        (0, 1, "is red", 8),
        (1, 0, "", 0),
        (2, 0, texts[2], 0),
    ]
    alone = vectors(embed(["the cat is", "is red", "", texts[2]]))
    assert difference(vectors(found), alone) < TOLERANCE
    assert "chunks" not in embed("the cat", chunk_overlap=3)


def test_a_chunk_that_is_too_long_is_named(embed: Embed) -> None:
    """By its text and its place in it."""
    texts = ["dog", "cat " * 150 + "dog"]
    cut = {"item": 1, "chunk": 0, "tokens": 152, "limit": 128}
    assert embed(texts, chunk_size=150).truncated == [cut]
    with pytest.raises(InvalidArgumentError, match=r"text\[1\], chunk 0: it has 152 tokens"):
        embed(texts, chunk_size=150, truncation="error")


@pytest.mark.parametrize("overlap", [3, 4])
def test_error_an_overlap_that_leaves_nothing(embed: Embed, overlap: int) -> None:
    """chunk_overlap must be less than chunk_size."""
    with pytest.raises(InvalidArgumentError, match=rf"chunk_overlap: {overlap} must be less"):
        embed("the cat", chunk_size=3, chunk_overlap=overlap)


# The model.


@pytest.mark.parametrize("fixture", ["bert", "llama", "byte_pair"])
def test_dimensions_tells_the_models_own(
    registry: Registry, request: pytest.FixtureRequest, fixture: str
) -> None:
    """It needs no pooling, and gives an integer."""
    path: Path = request.getfixturevalue(fixture)
    assert registry.call(DIMENSIONS, path, threads=1).payload == 64


def test_error_a_model_without_a_vocabulary(embed: Embed, models: Path) -> None:
    """llama.cpp would end the process at its first text."""
    from tiny_models import write_llama
    from tiny_vocabularies import Vocabulary, sentence_pieces

    class Mute(Vocabulary):
        def write(self, writer: gguf.GGUFWriter) -> None:
            writer.add_tokenizer_model("no_vocab")

    pieces = sentence_pieces()
    mute = Mute(pieces.model, pieces.tokens, pieces.types, special=pieces.special)
    path = write_llama(models / "mute.gguf", vocabulary=mute)[0]
    with pytest.raises(LoadError, match="no vocabulary"):
        embed("cat", path)


def test_error_a_kind_of_model_that_is_not_supported(embed: Embed, models: Path) -> None:
    """llama.cpp runs T5's encoder in another way, and would give vectors of something else."""
    import gguf
    import numpy as np
    from tiny_vocabularies import sentence_pieces

    width, vocabulary = 32, sentence_pieces()
    writer = gguf.GGUFWriter(models / "t5.gguf", "t5encoder")
    writer.add_context_length(128)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(width)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_relative_attn_buckets_count(32)
    vocabulary.write(writer)
    shapes = {"token_embd": (len(vocabulary.tokens), width), "enc.output_norm": (width,)}
    shapes |= {f"enc.blk.0.{name}_norm": (width,) for name in ("attn", "ffn")}
    shapes |= {f"enc.blk.0.attn_{name}": (width, width) for name in ("q", "k", "v", "o")}
    shapes |= {f"enc.blk.0.ffn_{name}": (width, width) for name in ("up", "down")}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(LoadError, match=r"t5encoder.*an encoder of its own"):
        embed("cat", models / "t5.gguf", pooling="mean")


def test_nothing_is_printed(embed: Embed, bert: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither by opening a model nor by embedding with it."""
    embed(["cat", "dog"], bert, batch_size=100)
    assert capfd.readouterr() == ("", "")
