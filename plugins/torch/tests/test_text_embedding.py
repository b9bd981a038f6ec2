"""What goes in and what comes out: order, shapes, truncation, prompts, refusals."""

from __future__ import annotations

import json
import shutil
import threading
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cartridge_core.context import Context
from cartridge_core.errors import InvalidArgumentError
from cartridge_core.results import ResultKind
from cartridge_torch import plugin
from cartridge_torch.tokenizing import Tokenizing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.capdefs import Cap
    from cartridge_core.records import Record
    from cartridge_torch.text_model import TextModel

    Embed = Callable[..., Record]
    EmbedWith = Callable[..., Record]
    Open = Callable[..., TextModel]


TOLERANCE = 1e-5
LONG = "cat " * 100


def vectors(payload: Record) -> NDArray[np.float32]:
    """Give the vectors, with their type."""
    return cast("NDArray[np.float32]", payload.vectors)


def difference(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Give the largest difference of two arrays."""
    return float(abs(a - b).max())


def test_three_texts_give_three_float32_vectors(embed: Embed) -> None:
    """N texts give float32 of shape (N, dimension)."""
    found = vectors(embed(["the cat", "a dog is red", "it"]))
    assert (found.shape, found.dtype.name) == ((3, 32), "float32")


def test_a_single_text_gives_one_row(embed: Embed) -> None:
    """A str is one text, not a list of characters."""
    assert vectors(embed("hello world")).shape == (1, 32)


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param({}, id="a21-as-it-is"),
        pytest.param({"truncate_dim": 8}, id="a21-truncated"),
        pytest.param({"chunk_size": 4}, id="a21-chunked"),
        pytest.param({"normalize": False}, id="a21-not-normalized"),
    ],
)
def test_no_texts_give_no_rows_of_the_right_width(
    embed: Embed, parameters: dict[str, object]
) -> None:
    """`[]` keeps the number of columns and the type (sentence-transformers#2759)."""
    found = embed([], **parameters)
    width = parameters.get("truncate_dim", 32)
    assert (vectors(found).shape, vectors(found).dtype.name) == ((0, width), "float32")
    assert (found.embedding_dim, found.get("chunks", [])) == (width, [])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="a21-empty"),
        pytest.param("   ", id="a21-spaces"),
        pytest.param("\n", id="a21-newline"),
        pytest.param("\u200b", id="a21-zero-width-space"),
        pytest.param("\x00", id="a21-nul"),
        pytest.param("\u65e5\u672c", id="a21-no-word-of-the-vocabulary"),
    ],
)
def test_a_blank_text_is_embedded_like_any_other(embed: Embed, text: str) -> None:
    """A text without a word gives a unit vector, the same one in company."""
    alone, among = vectors(embed([text])), vectors(embed(["the cat is red", text, "dog"]))
    assert float((alone**2).sum()) == pytest.approx(1.0, abs=TOLERANCE)
    assert difference(alone[0], among[1]) < TOLERANCE


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=90), max_size=9),
    batch_size=st.integers(1, 10),
)
def test_a_vector_does_not_depend_on_its_company(
    embed: Embed, texts: list[str], batch_size: int
) -> None:
    """Each row equals that of its text alone, in the order of the texts."""
    together = vectors(embed(texts, batch_size=batch_size))
    assert len(together) == len(texts)
    for row, text in zip(together, texts, strict=True):
        assert difference(row, vectors(embed(text))[0]) < TOLERANCE


def test_a_long_batch_is_cut_without_a_trace(embed: Embed) -> None:
    """A batch of more tokens than one forward pass takes gives what its texts give alone."""
    texts = [f"the cat is red {index} " * 8 for index in range(40)]
    together = vectors(embed(texts, batch_size=40))
    assert difference(together[39], vectors(embed(texts[39]))[0]) < TOLERANCE


def test_sessions_in_many_threads_get_what_they_would_get_alone(embed: Embed) -> None:
    """One model serves many threads at once, with texts that are too long among them."""
    texts = [f"{'the cat ' * (index * 5)} dog" for index in range(12)]
    alone = [vectors(embed(text)) for text in texts]
    found: dict[int, NDArray[np.float32]] = {}

    def work(index: int) -> None:
        for _ in range(5):
            found[index] = vectors(embed([texts[index], LONG], truncate_dim=32))[:1]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(difference(found[index], alone[index]) for index in found) < TOLERANCE
    assert len(found) == len(texts)


def test_normalize_off_gives_the_models_own_lengths(
    open_model: Open, embed_with: EmbedWith, plain: Path
) -> None:
    """Without normalize a model without a Normalize module gives longer vectors."""
    own = vectors(embed_with(open_model(plain), "the cat", normalize=False))
    unit = vectors(embed_with(open_model(plain), "the cat"))
    assert float((own**2).sum()) > 2
    assert difference(own / (own**2).sum() ** 0.5, unit) < TOLERANCE


def test_truncated_vectors_have_unit_length(embed: Embed) -> None:
    """Vectors are normalized after truncate_dim, not before it."""
    found = embed("the cat", truncate_dim=5)
    assert (vectors(found).shape, found.embedding_dim) == ((1, 5), 5)
    assert float((vectors(found) ** 2).sum()) == pytest.approx(1.0, abs=TOLERANCE)


def test_error_more_dimensions_than_the_model_has(embed: Embed) -> None:
    """truncate_dim may not be more than the model's own."""
    with pytest.raises(InvalidArgumentError, match=r"truncate_dim: 33 .* the model's 32") as caught:
        embed("the cat", truncate_dim=33)
    assert (caught.value.arg, caught.value.value) == ("truncate_dim", 33)


def test_the_models_prompt_goes_before_the_text(embed: Embed) -> None:
    """prompt_name looks the model's prompt up; prompt is taken as it is."""
    named = vectors(embed("the cat", prompt_name="query"))
    assert difference(named, vectors(embed("query: the cat"))) < TOLERANCE
    assert difference(named, vectors(embed("the cat", prompt="query: "))) < TOLERANCE
    assert difference(named, vectors(embed("the cat"))) > 0.01


def test_an_empty_prompt_is_no_prompt(embed: Embed) -> None:
    """An empty prompt changes nothing where the model has no default prompt."""
    assert difference(vectors(embed("cat", prompt="")), vectors(embed("cat"))) < TOLERANCE


def test_the_models_default_prompt_is_kept_and_can_be_switched_off(
    tiny: Path, tmp_path: Path, open_model: Open, embed_with: EmbedWith, embed: Embed
) -> None:
    """A model that names a default prompt gets it, unless the caller gives an empty one."""
    folder = shutil.copytree(tiny, tmp_path / "prompted")
    config = json.loads((folder / "config_sentence_transformers.json").read_text())
    config["default_prompt_name"] = "query"
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    prompted = open_model(folder)
    assert (
        difference(vectors(embed_with(prompted, "cat")), vectors(embed("query: cat"))) < TOLERANCE
    )
    assert difference(vectors(embed_with(prompted, "cat", prompt="")), vectors(embed("cat"))) < (
        TOLERANCE
    )


def test_error_a_prompt_that_the_model_does_not_have(embed: Embed) -> None:
    """The refusal lists the prompts that there are."""
    with pytest.raises(InvalidArgumentError, match=r"prompt_name: 'passage' .*document, query"):
        embed("the cat", prompt_name="passage")


def test_error_a_prompt_and_its_name(embed: Embed) -> None:
    """Prompt and prompt_name together are refused."""
    with pytest.raises(InvalidArgumentError, match="prompt_name: 'query' must be absent"):
        embed("the cat", prompt_name="query", prompt="query: ")


@pytest.mark.parametrize(
    ("value", "arg"),
    [
        pytest.param(None, "text", id="none"),
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


def test_what_is_cut_off_is_reported(embed: Embed) -> None:
    """A text longer than the model takes is named, with its tokens and the limit."""
    found = embed(["dog", LONG, "cat", LONG + "dog"])
    assert found.truncated == [
        {"item": 1, "tokens": 102, "limit": 64},
        {"item": 3, "tokens": 103, "limit": 64},
    ]


@pytest.mark.parametrize(
    ("words", "cut"),
    [pytest.param(62, False, id="just-fits"), pytest.param(63, True, id="one-too-many")],
)
def test_the_limit_counts_the_special_tokens(embed: Embed, words: int, cut: bool) -> None:
    """64 tokens are 62 words and two special tokens."""
    assert bool(embed("cat " * words).truncated) is cut


def test_the_prompt_counts_towards_the_limit(embed: Embed) -> None:
    """A prompt takes the room of the text's last words."""
    assert not embed("cat " * 61).truncated
    assert embed("cat " * 61, prompt="query: ").truncated == [
        {"item": 0, "tokens": 65, "limit": 64}
    ]


def test_error_a_text_that_is_too_long(embed: Embed) -> None:
    """truncation='error' names the text, its tokens, the limit, and what helps."""
    with pytest.raises(
        InvalidArgumentError, match=r"text\[1\]: it has 102 tokens, the model takes 64.*chunk_size"
    ) as caught:
        embed(["dog", LONG], truncation="error")
    assert (caught.value.arg, caught.value.rule) == ("text[1]", "at most 64 tokens")


FITS, TOO_LONG = "hello world " * 25, "," * 70


@pytest.mark.parametrize(
    ("texts", "batch_size", "arg"),
    [
        pytest.param(TOO_LONG, 32, "text[0]", id="alone"),
        pytest.param(["dog", TOO_LONG], 32, "text[1]", id="in-one-batch"),
        pytest.param([FITS, "dog", TOO_LONG], 1, "text[2]", id="in-a-later-batch"),
        pytest.param(["dog", TOO_LONG, FITS, LONG], 1, "text[1]", id="two-in-two-batches"),
    ],
)
def test_error_a_text_that_is_too_long_is_refused_before_anything_is_embedded(
    model: TextModel,
    embed: Embed,
    monkeypatch: pytest.MonkeyPatch,
    texts: object,
    batch_size: int,
    arg: str,
) -> None:
    """However many passes the others would take; of several the first is named."""
    monkeypatch.setattr(model._encoder, "forward", lambda *_: pytest.fail("a pass was made"))
    with pytest.raises(InvalidArgumentError) as caught:
        embed(texts, batch_size=batch_size, truncation="error")
    assert caught.value.arg == arg


MANY = [
    pytest.param("the cat is red " * 1_000, id="words"),
    pytest.param("cat, dog; bird.\n\n" * 800, id="punctuation-and-newlines"),
    pytest.param("[SEP] cat [MASK]" * 1_000, id="special-tokens-in-the-text"),
    pytest.param("\u65e5\u672c" * 3_000, id="no-white-space"),
    pytest.param("x," * 5_000, id="no-white-space-but-commas"),
    pytest.param("a" * 9_000 + " cat dog" * 600, id="a-giant-word-first"),
    pytest.param("cat " * 600 + " \n" * 3_000 + "dog", id="much-white-space"),
    pytest.param(" " * 9_000 + "the cat", id="white-space-first"),
    pytest.param("e\u0301 \U0001f469\u200d\U0001f680 " * 900, id="combined-characters"),
]


@pytest.mark.parametrize("text", MANY)
@pytest.mark.parametrize("prompt", ["", "query: "])
def test_the_beginning_of_a_long_text_gives_the_vector_of_the_whole(
    model: TextModel, embed: Embed, monkeypatch: pytest.MonkeyPatch, text: str, prompt: str
) -> None:
    """Where a text is tokenized in spans, vector and count are those of all at once."""
    whole = embed(text, prompt=prompt)
    tokens = len(model._encoder._model.tokenizer(prompt + text, verbose=False)["input_ids"])
    cut = [{"item": 0, "tokens": tokens, "limit": 64}]
    assert whole.truncated == (cut if tokens > 64 else [])
    monkeypatch.setattr("cartridge_torch.tokenizing.CHARACTERS", 250)
    spans = embed(text, prompt=prompt)
    assert difference(vectors(spans), vectors(whole)) < TOLERANCE
    assert spans.truncated == whole.truncated


def test_a_text_that_is_too_long_is_tokenized_once(
    embed: Embed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a tokenizer cuts off it has counted; it is not asked again."""
    monkeypatch.setattr(Tokenizing, "_count", lambda *_, **__: pytest.fail("again"))
    cut = {"tokens": 102, "limit": 64}
    assert embed([LONG, "dog", LONG]).truncated == [{"item": 0, **cut}, {"item": 2, **cut}]


def test_float16_and_bfloat16_give_float32(
    open_model: Open, embed_with: EmbedWith, embed: Embed, tiny: Path
) -> None:
    """The vectors are float32 whatever the model computes in, and nearly the same."""
    expected = vectors(embed("the cat"))
    for dtype in ("float16", "bfloat16"):
        found = vectors(embed_with(open_model(tiny, dtype=dtype), "the cat"))
        assert found.dtype.name == "float32"
        assert 0 < difference(found, expected) < 0.02


def test_the_name_of_the_model_is_its_folders(embed: Embed) -> None:
    """The payload says which model it was."""
    assert embed("cat").model_name == "tiny-st"


def test_dimensions_tells_the_models_own(model: TextModel, caps: tuple[Cap, ...]) -> None:
    """embeddings-dimensions needs no value, and gives an integer."""
    session = plugin.cartridge_session_begin(model, str(caps[1].urn), {}, Context())
    result = plugin.cartridge_infer(session, None)
    assert (result.kind, result.payload) == (ResultKind.FINAL, 32)
