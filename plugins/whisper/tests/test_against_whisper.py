"""What we compute is what whisper computes, on models of random weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_whisper.model import SpeechModel
    from conftest import Detected, Transcript

    Sound = NDArray[np.float32]
    Open = Callable[..., SpeechModel]
    Detect = Callable[..., Detected]
    Transcribe = Callable[..., Transcript]
    Noise = Callable[..., Sound]


pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
"""Whisper hands a tensor to numpy, which it must not."""


@pytest.fixture(scope="module")
def models_of_both(
    random_file: Path,
    english_file: Path,
    random_model: SpeechModel,
    open_model: Open,
) -> dict[str, tuple[object, SpeechModel]]:
    """Both libraries' models."""
    import torch
    import whisper

    torch.set_num_threads(1)
    return {
        "multilingual": (whisper.load_model(str(random_file), device="cpu"), random_model),
        "english": (whisper.load_model(str(english_file), device="cpu"), open_model(english_file)),
    }


def whispers(model: object, sound: Sound, **options: object) -> dict[str, object]:
    """Transcribe with whisper, drawing from seed 0."""
    import torch
    import whisper

    torch.manual_seed(0)
    found = whisper.transcribe(model, sound, fp16=False, **options)
    return cast("dict[str, object]", found)


def segments(document: dict[str, object], duration_s: float) -> list[tuple[object, ...]]:
    """Give whisper's segments that say something; times end with the sound."""
    return [
        (min(one["start"], duration_s), min(one["end"], duration_s), one["text"])
        for one in cast("list[dict[str, float]]", document["segments"])
        if one["text"]
    ]


@pytest.mark.parametrize("which", ["multilingual", "english"])
@pytest.mark.parametrize(
    ("seconds", "options"),
    [
        pytest.param(4.0, {"temperature": 0.0}, id="greedy"),
        pytest.param(4.0, {"temperature": 0.0, "beam_size": 3}, id="beam"),
        pytest.param(4.0, {"temperature": 0.7}, id="sampled"),
        pytest.param(4.0, {"temperature": [0.0, 0.4, 0.8]}, id="ladder"),
        pytest.param(4.0, {"temperature": 0.0, "initial_prompt": "Names: Ada."}, id="prompt"),
        pytest.param(40.0, {"temperature": 0.0, "no_speech_threshold": 0.0}, id="windows"),
        pytest.param(
            40.0, {"temperature": 0.0, "condition_on_previous_text": False}, id="unconditioned"
        ),
        pytest.param(4.0, {"temperature": 0.0, "logprob_threshold": -5.0}, id="threshold"),
    ],
)
def test_texts_and_times_are_whispers(
    models_of_both: dict[str, tuple[object, SpeechModel]],
    transcribe: Transcribe,
    speech_like: Noise,
    which: str,
    seconds: float,
    options: dict[str, object],
) -> None:
    """With the same arguments, what is drawn at random included."""
    theirs, ours = models_of_both[which]
    language = {"language": "de"} if which == "multilingual" else {}
    sound = speech_like(seconds, 3)
    ladder = options["temperature"]
    steps = {"temperature": tuple(ladder) if isinstance(ladder, list) else ladder}
    expected = whispers(theirs, sound, **{**options, **steps}, **language)
    found = transcribe(ours, sound, **options, **language)
    assert found.text == expected["text"]
    kept = [(one["start_s"], one["end_s"], one["text"]) for one in found.segments]
    assert kept == segments(expected, seconds)


def test_languages_are_whispers(
    models_of_both: dict[str, tuple[object, SpeechModel]], detect: Detect, speech_like: Noise
) -> None:
    """The chance of each language is the same, and the best one is what a transcript says."""
    import whisper

    theirs, ours = models_of_both["multilingual"]
    sound = speech_like(4.0)
    mel = whisper.log_mel_spectrogram(sound, padding=480_000)
    _, expected = whisper.detect_language(theirs, whisper.pad_or_trim(mel, 3_000))
    found = detect(ours, sound)
    assert found.probabilities == pytest.approx(expected, abs=1e-6)
    assert found.language == max(expected, key=lambda code: expected[code])


def test_an_undeclared_language_is_detected(
    models_of_both: dict[str, tuple[object, SpeechModel]],
    transcribe: Transcribe,
    detect: Detect,
    speech_like: Noise,
) -> None:
    """A transcript is made in the language that is heard."""
    theirs, ours = models_of_both["multilingual"]
    sound = speech_like(4.0)
    found = transcribe(ours, sound, temperature=0.0)
    assert found.language == detect(ours, sound).language
    assert found.text == whispers(theirs, sound, temperature=0.0)["text"]


@pytest.mark.parametrize("seconds", [0.02, 1.0, 29.999, 30.0, 61.7])
def test_spectrograms_are_whispers(speech_like: Noise, seconds: float) -> None:
    """The part that windows are cut from is the same; bit for bit from a second on."""
    import torch
    import whisper

    from cartridge_whisper._mel import log_mel

    sound = speech_like(seconds)
    expected = whisper.log_mel_spectrogram(sound, padding=480_000)
    frames = len(sound) // 160
    found = log_mel(sound, 80, 0, lambda: None)
    exact = 0.0 if seconds >= 1 else 1e-6
    assert torch.allclose(found[:, :frames], expected[:, :frames], rtol=exact, atol=exact)
    whole = log_mel(sound, 80, 3_000, lambda: None)
    assert torch.equal(whole[:, :3_000], expected[:, :3_000])


def test_a_long_spectrogram_is_made_of_parts(
    speech_like: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory is bounded, and nothing is lost between two parts."""
    import torch

    from cartridge_whisper import _mel

    sound = speech_like(20.0)
    whole = _mel.log_mel(sound, 80, 0, lambda: None)
    monkeypatch.setattr(_mel, "_STEP", 77)
    assert torch.allclose(_mel.log_mel(sound, 80, 0, lambda: None), whole, atol=1e-6)


@pytest.mark.usefixtures("random_model")  # which has the vocabulary read without a warning
def test_what_may_come_next_is_whispers() -> None:
    """Of any scores, after any tokens that may have been said, the same ones are left."""
    import torch
    from whisper.decoding import DecodingOptions, DecodingTask
    from whisper.model import ModelDimensions, Whisper

    from cartridge_whisper._rules import Rules

    model = Whisper(ModelDimensions(80, 1_500, 8, 2, 1, 51_865, 64, 8, 2, 1))
    task = DecodingTask(model, DecodingOptions(language="de", fp16=False))
    start, zero = list(task.initial_tokens), task.tokenizer.timestamp_begin
    rules = Rules.of(task.tokenizer, torch.device("cpu"))
    random = torch.Generator().manual_seed(0)
    beginnings = [
        [],
        [zero],
        [zero, 400],
        [zero, 400, zero + 30],
        [zero, 400, zero + 30, zero + 30],
        [zero, 400, zero + 30, zero + 40, 500, 600],
        [zero + 50, 400, 401, zero + 60],
    ]
    for said in beginnings:
        for spread in (1.0, 8.0):
            scores = spread * torch.randn(51_865, generator=random)
            scores[task.tokenizer.no_timestamps] = 50.0
            expected = scores.clone()[None]
            for one in task.logit_filters:
                one.apply(expected, torch.tensor([start + said]))
            rules.apply(scores, said)
            assert torch.equal(scores, expected[0]), said
