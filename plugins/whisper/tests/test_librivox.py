"""Real speech and the real tiny.en, held against whisper and against what was said."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_whisper.model import SpeechModel
    from conftest import SegmentRow, Transcript, Utterance, WordRow

    Sound = NDArray[np.float32]
    Transcribe = Callable[..., Transcript]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    # whisper hands a tensor to numpy, which it must not
    pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def theirs(tiny_en_folder: Path) -> object:
    """Whisper's own model with the same weights."""
    import attrs
    import torch
    import whisper
    from whisper.model import ModelDimensions, Whisper

    from cartridge_core.pack import Pack
    from cartridge_whisper._weights import load_checkpoint
    from cartridge_whisper.files import ModelFiles

    torch.set_num_threads(1)
    files = ModelFiles.read(Pack.from_path(tiny_en_folder))
    checkpoint = load_checkpoint(files, lambda: None)
    model = Whisper(ModelDimensions(**attrs.asdict(checkpoint.dims)))
    model.load_state_dict(checkpoint.tensors)
    model.set_alignment_heads(whisper._ALIGNMENT_HEADS["tiny.en"])
    return model


@pytest.fixture(scope="module")
def joined(utterances: Sequence[Utterance]) -> Sound:
    """All of them, twice: 49 s."""
    import numpy as np

    return np.concatenate([one.sound for one in utterances] * 2)


def check_same(model: object, sound: Sound, found: Transcript, **options: object) -> None:
    """Compare with whisper: texts, and times up to the end of the sound."""
    import torch
    import whisper

    torch.manual_seed(0)
    expected = whisper.transcribe(model, sound, fp16=False, **options)
    assert found.text == expected["text"]
    end_s = len(sound) / 16_000

    def times(one: dict[str, float]) -> tuple[float, float]:
        # Whisper's own go back by a last bit where a window begins.
        return round(min(one["start"], end_s), 9), round(min(one["end"], end_s), 9)

    def placed(one: SegmentRow | WordRow) -> tuple[float, float, str]:
        return round(one["start_s"], 9), round(one["end_s"], 9), one["text"]

    segments = [(*times(one), one["text"]) for one in expected["segments"] if one["text"]]
    assert [placed(one) for one in found.segments] == segments
    words = [word for one in expected["segments"] for word in one.get("words", [])]
    assert [placed(one) for one in found.words] == [(*times(word), word["word"]) for word in words]


def test_each_utterance_is_whispers(
    tiny_en: SpeechModel, theirs: object, transcribe: Transcribe, utterances: Sequence[Utterance]
) -> None:
    """Text and times of each of the five, with the declared defaults."""
    for one in utterances:
        check_same(theirs, one.sound, transcribe(tiny_en, one.sound))


def test_the_joined_ones_are_whispers(
    tiny_en: SpeechModel, theirs: object, transcribe: Transcribe, joined: Sound
) -> None:
    """Text and times of two windows and more, with what the first one says before the second."""
    # One temperature: where the model gets lost, six of them take a minute.
    check_same(theirs, joined, transcribe(tiny_en, joined, temperature=0.0), temperature=0.0)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"word_timestamps": True, "temperature": 0.0}, id="words"),
        pytest.param({"beam_size": 5, "temperature": 0.0}, id="beam"),
    ],
)
def test_words_and_beams_are_whispers(
    tiny_en: SpeechModel,
    theirs: object,
    transcribe: Transcribe,
    utterances: Sequence[Utterance],
    options: dict[str, object],
) -> None:
    """So they are with other ways to decode."""
    sound = utterances[0].sound
    check_same(theirs, sound, transcribe(tiny_en, sound, **options), **options)


def error_rate(said: Sequence[str], found: Sequence[str]) -> float:
    """Give the word error rate, after whisper's normaliser for English on both sides."""
    import jiwer
    from whisper.normalizers import EnglishTextNormalizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves a file to be closed
        normal = EnglishTextNormalizer()
    return float(jiwer.wer([normal(one) for one in said], [normal(one) for one in found]))


def test_the_word_error_rate(
    tiny_en: SpeechModel, transcribe: Transcribe, utterances: Sequence[Utterance]
) -> None:
    """Three words of 71 are wrong, one of them in the transcript."""
    found = [transcribe(tiny_en, one.sound).text for one in utterances]
    assert error_rate([one.transcript for one in utterances], found) <= 0.045


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"vad": True}, id="voice-detection"),
        pytest.param({"vad": True, "batch_windows": 4}, id="voice-detection-and-batches"),
        pytest.param({"batch_windows": 4}, id="batches"),
    ],
)
def test_pauses_between_sentences(
    tiny_en: SpeechModel,
    transcribe: Transcribe,
    utterances: Sequence[Utterance],
    options: dict[str, object],
) -> None:
    """Long pauses do not harm, and no time lies in one of them."""
    import numpy as np

    pause = np.zeros(12 * 16_000, np.float32)
    parts, spans, at = [pause], [], 12.0
    for one in utterances:
        spans.append((at, at + len(one.sound) / 16_000))
        parts += [one.sound, pause]
        at = spans[-1][1] + 12.0
    found = transcribe(tiny_en, np.concatenate(parts), **options)
    said = " ".join(one.transcript for one in utterances)
    assert error_rate([said], [found.text]) <= 0.09
    if options.get("vad"):
        for part in found.segments:
            times = part["start_s"], part["end_s"]
            assert any(start - 1 <= times[0] and times[1] <= end + 1 for start, end in spans)


def test_voice_is_found_where_somebody_speaks(utterances: Sequence[Utterance]) -> None:
    """Silence around a sentence does not count, and noise is no voice."""
    import numpy as np

    from cartridge_whisper.voice import find_speech

    sound = utterances[0].sound
    pause = np.zeros(3 * 16_000, np.float32)
    spans = find_speech(np.concatenate([pause, sound, pause]), lambda: None)
    assert 2.5 < spans[0][0] / 100 < 3.5
    assert 0 < 3 + len(sound) / 16_000 - spans[-1][1] / 100 + 0.5 < 1.5
    noise = np.random.default_rng(0).standard_normal(80_000).astype(np.float32)
    assert find_speech(noise * 0.05, lambda: None) == []
