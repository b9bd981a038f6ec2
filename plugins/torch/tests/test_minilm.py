"""A real model: all-MiniLM-L6-v2."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from cartridge_core.registry import Registry
from cartridge_core.tasks import download_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.records import Record
    from cartridge_torch.text_model import TextModel

    EmbedWith = Callable[..., Record]
    Open = Callable[..., TextModel]


pytestmark = pytest.mark.integration

LEE = "pkg:pypi/gensim@4.4.0#gensim/test/test_data"
"""Michael Lee's 50 documents, and how alike people find them; read as files, nothing imported."""

TEXTS = [
    "A man is playing a guitar on the street.",
    "Somebody makes music with a guitar outside.",
    "The central bank raised its interest rate.",
    "",
    "   ",
    "word " * 400,
]


@pytest.fixture(scope="module")
def real(minilm: Path, open_model: Open) -> TextModel:
    """The real model, open."""
    return open_model(minilm)


def test_paraphrases_are_closer_than_others(real: TextModel, embed_with: EmbedWith) -> None:
    """The vectors mean something."""
    found = cast("NDArray[np.float32]", embed_with(real, TEXTS[:3]).vectors)
    near, far = float(found[0] @ found[1]), float(found[0] @ found[2])
    assert near > 0.6
    assert far < 0.2


def test_vectors_are_those_of_sentence_transformers(
    real: TextModel, embed_with: EmbedWith, minilm: Path
) -> None:
    """Each vector has cosine 1 with what SentenceTransformer.encode gives, blank texts too."""
    from sentence_transformers import SentenceTransformer

    direct = SentenceTransformer(str(minilm), device="cpu", local_files_only=True)
    expected = direct.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    found = cast("NDArray[np.float32]", embed_with(real, TEXTS).vectors)
    assert found.shape == (6, 384)
    assert abs((found * expected).sum(axis=1) - 1).max() < 1e-5


def test_what_the_model_cuts_off_is_reported(real: TextModel, embed_with: EmbedWith) -> None:
    """MiniLM takes 256 tokens."""
    assert embed_with(real, TEXTS).truncated == [{"item": 5, "tokens": 402, "limit": 256}]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("The bank raised its interest rate; guitars don't mind. " * 2_000, id="prose"),
        pytest.param(
            "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002" * 5_000, id="no-white-space"
        ),
        pytest.param("a" * 40_000 + " a guitar on the street" * 500, id="a-giant-word-first"),
    ],
)
def test_a_long_text_is_embedded_by_its_beginning(
    real: TextModel, embed_with: EmbedWith, minilm: Path, text: str
) -> None:
    """A text longer than a tokenizer is given at once has its vector, and its count."""
    from sentence_transformers import SentenceTransformer

    direct = SentenceTransformer(str(minilm), device="cpu", local_files_only=True)
    expected = direct.encode([text], normalize_embeddings=True, show_progress_bar=False)
    tokens = len(direct.tokenizer(text, verbose=False)["input_ids"])
    found = embed_with(real, text)
    assert abs(cast("NDArray[np.float32]", found.vectors) - expected).max() < 1e-5
    assert found.truncated == [{"item": 0, "tokens": tokens, "limit": 256}]


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give every value's rank; equal ones share theirs."""
    import numpy as np

    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[places]


def test_likeness_is_what_people_find(real: TextModel, embed_with: EmbedWith) -> None:
    """Over the 1225 pairs of Lee's documents Spearman's correlation is 0.508."""
    import numpy as np

    with Registry.discover() as registry:
        folder = download_model(registry, LEE).path
    documents = (folder / "lee.cor").read_text("latin-1").splitlines()
    people = np.loadtxt(folder / "similarities0-1.txt")
    pairs = np.triu_indices(50, 1)
    vectors = cast("NDArray[np.float32]", embed_with(real, documents).vectors)
    found = (vectors @ vectors.T)[pairs].astype(np.float64)
    spearman = np.corrcoef(ranks(found), ranks(people[pairs]))[0, 1]
    assert found.shape == (1225,)
    assert spearman == pytest.approx(0.508, abs=0.002)
