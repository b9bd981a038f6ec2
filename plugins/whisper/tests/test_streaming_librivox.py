"""Real speech and the real tiny.en, heard while it comes."""

from __future__ import annotations

import itertools
import warnings
from typing import TYPE_CHECKING, cast

import pytest

from cartridge_core.results import Result, ResultKind
from cartridge_core.testing import registry_of
from cartridge_whisper import plugin
from cartridge_whisper.listening import WhisperRecogniser
from cartridge_whisper.options import Decoding
from cartridge_whisper.stream import Stream
from cartridge_whisper.streams import VoiceFollower
from cartridge_whisper.voice import weights_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.cartridge import Cartridge
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.session import Session
    from cartridge_whisper.model import SpeechModel
    from cartridge_whisper.stream import News
    from conftest import Utterance

    Sound = NDArray[np.float32]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def tiny_en_stream(tiny_en_folder: Path) -> Iterator[Cartridge]:
    """The cartridge, open on tiny.en."""
    name = "whisper-streaming-transcription"
    with registry_of(plugin) as registry, registry.open(name, tiny_en_folder) as cartridge:
        yield cartridge


def join(utterances: Sequence[Utterance], pause_s: float) -> tuple[Sound, list[float]]:
    """Put pauses between them; give the sound, and where each of them ends in it."""
    import numpy as np

    pause = np.zeros(round(pause_s * 16_000), np.float32)
    parts = [part for one in utterances for part in (one.sound, pause)][:-1]
    lengths = [len(part) / 16_000 for part in parts]
    return np.concatenate(parts), list(itertools.accumulate(lengths))[::2]


def hear(
    cartridge: Cartridge, sound: Sound, sizes: Iterable[int], **parameters: object
) -> list[Result]:
    """Feed a sound in pieces of these sizes, by turns, and pull after each."""
    found: list[Result] = []
    at, turns = 0, itertools.cycle(sizes)
    begin: Callable[..., Session] = cartridge.session
    with begin(**parameters) as session:
        while at < len(sound):
            size = next(turns)
            session.push(sound[at : at + size])
            found += iter(session.pull, None)
            at += size
        session.flush()
        return [*found, *session.drain()]


def finals(found: Sequence[Result]) -> list[Mapping[str, object]]:
    """Give the records of the FINALs."""
    return [
        cast("Mapping[str, object]", one.payload) for one in found if one.kind is ResultKind.FINAL
    ]


def error_rate(utterances: Sequence[Utterance], found: Sequence[Result]) -> float:
    """Give the word error rate, after whisper's normaliser for English on both sides."""
    import jiwer
    from whisper.normalizers import EnglishTextNormalizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves a file to be closed
        normal = EnglishTextNormalizer()
    said = " ".join(one.transcript for one in utterances)
    heard = " ".join(str(record["text"]) for record in finals(found))
    return float(jiwer.wer(normal(said), normal(heard)))


def test_five_utterances_in_one_stream(
    tiny_en_stream: Cartridge, utterances: Sequence[Utterance]
) -> None:
    """Each is found, ends where it ends, and is understood about as well as alone."""
    sound, ends_s = join(utterances, 1.0)
    found = hear(tiny_en_stream, sound, [1_600])
    assert error_rate(utterances, found) <= 0.08
    endpoints = [one.end_s for one in found if one.kind is ResultKind.ENDPOINT]
    assert endpoints == pytest.approx(ends_s, abs=0.5)
    records = finals(found)
    assert [record["language"] for record in records] == ["en"] * 5
    edges = [0.0, *(record["end_s"] for record in records)]
    assert [record["start_s"] for record in records] == edges[:-1]
    assert edges[-1] == len(sound) / 16_000
    partials = [one for one in found if one.kind is ResultKind.PARTIAL]
    assert partials
    for one in partials:
        stands = cast("Mapping[str, str]", one.payload)["committed_text"]
        assert str(records[one.segment]["text"]).startswith(stands)


def test_speech_without_pauses_is_longer_than_a_window(
    tiny_en_stream: Cartridge, utterances: Sequence[Utterance]
) -> None:
    """Of 35 s nothing is lost where the sound is let go of."""
    more = [*utterances, *utterances[:2]]
    sound, _ = join(more, 0.0)
    found = hear(tiny_en_stream, sound, [16_000], step_s=5.0, pause_s=2.0)
    assert error_rate(more, found) <= 0.08
    assert sum(one.kind is ResultKind.ENDPOINT for one in found) == 1


def test_chunks_make_no_difference(
    tiny_en: SpeechModel, descriptor: Descriptor, utterances: Sequence[Utterance]
) -> None:
    """Cut anywhere or whole, what is said is the same, where the model is fast enough."""
    defaults = {arg.name: arg.default for arg in descriptor.caps[0].session_args if arg.has_default}
    recogniser = WhisperRecogniser(tiny_en.whisper, Decoding.read(defaults), 8.0, 0)
    sound, _ = join(utterances[1:3], 0.7)

    def hear_in(size: int) -> list[News]:
        from cartridge_whisper._silero import Detector

        file = weights_file()
        assert file is not None
        stream = Stream(
            VoiceFollower(Detector.load(file)),
            recogniser,
            pause_s=0.5,
            step_s=2.5,
            prompt=[],
            conditions=True,
            clock=lambda: 0.0,
        )
        found: list[News] = []
        for at in range(0, len(sound), size):
            stream.add(sound[at : at + size])
            found += iter(lambda: stream.next(lambda: None), None)
        stream.end()
        return [*found, *iter(lambda: stream.next(lambda: None), None)]

    whole = hear_in(len(sound))
    assert [one.kind.name for one in whole].count("FINAL") == 2
    assert hear_in(3_333) == whole
