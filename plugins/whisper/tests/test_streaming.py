"""A stream of raw samples through the cartridge, on tiny models."""

from __future__ import annotations

import itertools
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, cast

import attrs
import numpy as np  # noqa: TID253 -- arrays are what is heard
import pytest
from vowels import silence, voice

from cartridge_core.errors import CancelledError, InvalidArgumentError
from cartridge_core.results import Result, ResultKind
from cartridge_core.tasks import stream_transcribe, transcribe
from cartridge_core.testing import registry_of
from cartridge_whisper import plugin, preflight
from cartridge_whisper.listening import WhisperRecogniser
from cartridge_whisper.options import Decoding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from cartridge_core.cartridge import Cartridge
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.session import Session
    from cartridge_whisper.model import SpeechModel
    from cartridge_whisper.recogniser import Hypothesis

    Sound = NDArray[np.float32]
    Payload = Mapping[str, object]

STREAMING = "whisper-streaming-transcription"


@pytest.fixture(scope="module")
def scripted_stream(scripted_file: Path) -> Iterator[Cartridge]:
    """Says one sentence of every utterance."""
    with registry_of(plugin) as registry, registry.open(STREAMING, scripted_file) as cartridge:
        yield cartridge


@pytest.fixture(scope="module")
def random_stream(random_file: Path) -> Iterator[Cartridge]:
    """Says something of whatever it is asked."""
    with registry_of(plugin) as registry, registry.open(STREAMING, random_file) as cartridge:
        yield cartridge


def begin(cartridge: Cartridge, **parameters: object) -> Session:
    """Begin a stream; the scripted model says its sentence only where it is shown nothing."""
    session: Callable[..., Session] = cartridge.session
    return session(**{"language": "en", "condition_on_previous_text": False, **parameters})


def hear(cartridge: Cartridge, chunks: Iterable[object], **parameters: object) -> list[Result]:
    """Push chunks and pull after each, then flush and drain."""
    found: list[Result] = []
    with begin(cartridge, **parameters) as session:
        for chunk in chunks:
            session.push(chunk)
            found += iter(session.pull, None)
        session.flush()
        return [*found, *session.drain()]


def payload(result: Result) -> Payload:
    """Give a record."""
    return cast("Payload", result.payload)


def cut(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """Cut bytes into pieces of these sizes, by turns."""
    at, turns = 0, itertools.cycle(sizes)
    while at < len(data):
        size = next(turns)
        yield data[at : at + size]
        at += size


def pcm(samples: Sound, dtype: str = "<i2") -> bytes:
    """Make raw samples."""
    scaled = samples if dtype == "<f4" else samples * np.iinfo(dtype).max
    return scaled.astype(dtype).tobytes()


def test_what_comes_in_which_order(scripted_stream: Cartridge) -> None:
    """PARTIALs, then the ENDPOINT, then the FINAL, utterance by utterance."""
    sound = np.concatenate([voice(2.2), silence(0.8)] * 2)
    found = hear(scripted_stream, [sound[at : at + 1600] for at in range(0, len(sound), 1600)])
    kinds = [(result.segment, result.kind.name) for result in found]
    assert kinds == [
        *((0, kind) for kind in ("PARTIAL", "ENDPOINT", "FINAL")),
        *((1, kind) for kind in ("PARTIAL", "ENDPOINT", "FINAL")),
        (2, "FINAL"),  # the silence at the end
    ]
    ends = [result.end_s for result in found if result.kind is ResultKind.ENDPOINT]
    assert ends == pytest.approx([2.2, 5.2], abs=0.15)


def test_the_record_of_an_utterance(scripted_stream: Cartridge) -> None:
    """It says what was said, where, and in which language."""
    sound = np.concatenate([silence(1.0), voice(2.5), silence(1.0)])
    found = hear(scripted_stream, [sound], language=None, word_timestamps=True)
    final = next(result for result in found if result.kind is ResultKind.FINAL)
    record = payload(final)
    assert record["text"] == record["committed_text"] == " hello world this is a test"
    assert (record["language"], record["segment"], record["has_speech"]) == ("en", 0, True)
    assert (record["start_s"], record["end_s"]) == (final.start_s, final.end_s)
    (segment,) = cast("list[Payload]", record["segments"])
    assert segment["text"] == record["text"]
    words = cast("list[Mapping[str, float]]", record["words"])
    assert "".join(str(word["text"]) for word in words) == record["text"]
    times = [time for word in words for time in (word["start_s"], word["end_s"])]
    assert times == sorted(times)
    assert all(type(time) is float for time in times)
    last = payload(found[-1])
    assert (last["text"], last["has_speech"], last["segments"]) == ("", False, [])
    assert found[-1].end_s == len(sound) / 16_000


@pytest.mark.parametrize(
    ("sizes", "dtype", "name"),
    [
        pytest.param([333, 7, 1, 1, 1001], "<i2", "int16", id="a14-int16"),
        pytest.param([1], "<i2", "int16", id="a14-neighbour-single-bytes"),
        pytest.param([3], "<i2", "int16", id="a14-neighbour-three-bytes"),
        pytest.param([333, 7, 1, 1, 1001], "<f4", "float32", id="a14-neighbour-float32"),
        pytest.param([5, 4097], "<i4", "int32", id="a14-neighbour-int32"),
    ],
)
def test_chunks_may_split_a_sample(
    scripted_stream: Cartridge, sizes: list[int], dtype: str, name: str
) -> None:
    """What is said, and when, does not depend on where the bytes were cut."""
    data = pcm(voice(0.4), dtype)
    whole = hear(scripted_stream, [data], dtype=name)
    assert whole[-1].end_s == 0.4
    assert any(result.kind is ResultKind.ENDPOINT for result in whole)
    # Not pulled after each of thousands of chunks, which takes time.
    with begin(scripted_stream, dtype=name) as session:
        for chunk in cut(data, sizes):
            session.push(chunk)
        session.flush()
        assert list(session.drain()) == whole


@pytest.mark.parametrize("count", [1, 3, 333])
def test_error_a_dangling_byte(scripted_stream: Cartridge, count: int) -> None:
    """The end of the stream inside of a sample is refused; the rest may still come."""
    with scripted_stream.session() as session:
        session.push(bytes(count))
        with pytest.raises(InvalidArgumentError, match=r"audio: ends inside a frame.*push"):
            session.flush()
        session.push(b"\0")
        session.flush()
        assert len(list(session.drain())) == 1


@pytest.mark.parametrize(
    ("chunk", "parameters", "message"),
    [
        pytest.param("a.wav", {}, "audio", id="a-path"),
        pytest.param(np.zeros(9), {}, "dtype", id="an-array-of-doubles"),
        pytest.param(np.zeros((9, 2), np.float32), {}, "shape", id="two-channels-undeclared"),
        pytest.param(np.zeros(9, np.int16), {"dtype": "float32"}, "float32", id="another-dtype"),
        pytest.param(np.full(9, np.nan, np.float32), {}, "audio", id="not-numbers"),
    ],
)
def test_error_chunks_that_are_none(
    scripted_stream: Cartridge, chunk: object, parameters: dict[str, object], message: str
) -> None:
    """They are refused by name, at once, and the stream goes on."""
    with begin(scripted_stream, **parameters) as session:
        with pytest.raises(InvalidArgumentError, match=message):
            session.push(chunk)
        session.flush()
        assert list(session.drain()) == []


def test_other_rates_and_channels(scripted_stream: Cartridge) -> None:
    """What was declared is heard at its rate, as one channel."""
    sound = np.repeat(np.concatenate([voice(1.0), silence(0.5)]), 3)  # 48 kHz
    both = np.stack([sound, sound], axis=1)
    found = hear(scripted_stream, [both], sample_rate_hz=48_000, channels=2)
    (end,) = [result.end_s for result in found if result.kind is ResultKind.ENDPOINT]
    assert end == pytest.approx(1.0, abs=0.1)
    assert found[-1].end_s == pytest.approx(1.5, abs=0.01)


def quiet_sounds() -> dict[str, Sound]:
    """Make sounds in which nobody speaks."""
    white = np.random.default_rng(0).standard_normal(160_000).astype(np.float32)
    times = np.arange(160_000) / 16_000
    walk = np.cumsum(white)
    return {
        "a16-zeros": white * 0,
        "a16-noise-at-60-dbfs": white * np.float32(1e-3),
        "a16-neighbour-noise-at-20-dbfs": white * np.float32(0.1),
        "a16-neighbour-rumble": walk / np.abs(walk).max() * np.float32(0.2),
        "a16-neighbour-hum": (0.1 * np.sin(2 * np.pi * 50 * times)).astype(np.float32),
        "a16-neighbour-whistle": (0.1 * np.sin(2 * np.pi * 3_000 * times)).astype(np.float32),
        "a16-neighbour-a-constant": white * 0 + np.float32(0.4),
        "a16-neighbour-clicks": (np.arange(160_000) % 8_000 < 20).astype(np.float32),
        "a16-neighbour-a-tenth-of-a-second": np.zeros(1_600, np.float32),
    }


@pytest.mark.parametrize("name", quiet_sounds())
def test_silence_and_noise_give_no_text(random_stream: Cartridge, name: str) -> None:
    """A model that would say something of anything is not asked; one FINAL says so."""
    sound = quiet_sounds()[name]
    (final,) = hear(random_stream, [sound[at : at + 16_000] for at in range(0, len(sound), 16_000)])
    assert (final.kind, final.start_s, final.end_s) == (ResultKind.FINAL, 0.0, len(sound) / 16_000)
    record = payload(final)
    assert (record["text"], record["has_speech"], record["words"]) == ("", False, [])


def test_the_random_model_would_speak(random_stream: Cartridge) -> None:
    """It does say something of a voice, or the tests above would say nothing."""
    found = hear(random_stream, [voice(1.0)], temperature=0.0)
    assert any(payload(one)["text"] for one in found if one.kind is ResultKind.FINAL)


def test_cancelling_stops_a_pass(random_stream: Cartridge) -> None:
    """A pull that works comes back at once, and the session takes only its end."""
    with random_stream.session() as session:
        session.push(np.tile(voice(20.0), 30))
        session.flush()
        threading.Timer(0.5, session.cancel).start()
        began = time.monotonic()
        with pytest.raises(CancelledError):
            for _ in session.drain():
                pass
        assert time.monotonic() - began < 10
        with pytest.raises(CancelledError):
            session.pull()


def test_the_tasks_take_streams(scripted_file: Path) -> None:
    """Both functions for transcripts read what the cartridge says."""
    sound = np.concatenate([voice(1.3), silence(0.8)] * 2)
    chunks = [sound[at : at + 8_000] for at in range(0, len(sound), 8_000)]
    write = partial(transcribe, model_spec=scripted_file, condition_on_previous_text=False)
    hear = partial(stream_transcribe, model_spec=scripted_file, condition_on_previous_text=False)
    with registry_of(plugin) as registry:
        found = write(registry, iter(chunks), cartridge_id=STREAMING)
        pieces = list(hear(registry, iter(chunks)))
    assert found.text == "hello world this is a test hello world this is a test"
    assert found.language == "en"
    assert [float(str(segment["start_s"])) > 1.3 for segment in found.segments] == [False, True]
    assert [piece.segment for piece in pieces if piece.is_final] == [0, 1]
    assert {piece.text for piece in pieces} == {"hello world this is a test"}


def test_streams_are_routed_to_it() -> None:
    """The same request as for a whole sound, in the other mode."""
    with registry_of(plugin) as registry:
        assert (
            registry.route("cap:in=media:audio;transcribe", "streaming").cartridge_id == STREAMING
        )


def test_error_no_voice_detector() -> None:
    """Preflight says what to install."""
    descriptor = next(one for one in plugin.cartridge_descriptors() if one.id == STREAMING)
    options = {arg.name: arg.default for arg in descriptor.open_args}
    machine = preflight.Machine.read()
    assert preflight.check(descriptor, None, options, machine).ok
    report = preflight.check(descriptor, None, options, attrs.evolve(machine, vad=False))
    assert not report.ok
    assert "pip install onnxruntime silero-vad" in str(report)


@pytest.mark.parametrize("kept", [0, 1, 3, 99])
@pytest.mark.parametrize("added", [[], [400], [50_364] * 80])
def test_a_draft_changes_nothing(
    random_model: SpeechModel, descriptor: Descriptor, kept: int, added: list[int]
) -> None:
    """Whatever part of it is right, the same is found as without it."""
    defaults = {arg.name: arg.default for arg in descriptor.caps[0].session_args if arg.has_default}
    recogniser = WhisperRecogniser(random_model.whisper, Decoding.read(defaults), 10.0, 0)

    def recognise(draft: list[int]) -> Hypothesis:
        return recogniser.recognise(
            voice(2.0), [], lambda: None, draft=draft, language="en", is_last=False
        )

    alone = recognise([])
    found = recognise([*alone.draft[:kept], *added])
    assert found.words == alone.words
    assert list(found.draft) == list(alone.draft)
    assert len(alone.draft) > 3


def test_two_streams_know_nothing_of_each_other(scripted_stream: Cartridge) -> None:
    """Their utterances, and what the detector remembers, are their own."""
    sounds = [np.concatenate([voice(1.0), silence(0.7)]), np.concatenate([silence(0.8), voice(1)])]
    alone = [hear(scripted_stream, [sound]) for sound in sounds]
    with begin(scripted_stream) as one, begin(scripted_stream) as two:
        found: list[list[Result]] = [[], []]
        for at in range(0, 30_000, 1_600):
            for session, sound, results in zip((one, two), sounds, found, strict=True):
                if at < len(sound):
                    session.push(sound[at : at + 1_600])
                    results.extend(iter(session.pull, None))
        for session, results in zip((one, two), found, strict=True):
            session.flush()
            results.extend(session.drain())
    assert found == alone
