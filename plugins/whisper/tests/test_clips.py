"""A part of a sound, and a hard bound on work that gets nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.errors import InvalidArgumentError
from cartridge_whisper.clips import Clip, Piece
from cartridge_whisper.segments import Segment
from cartridge_whisper.texts import Text
from cartridge_whisper.windows import WindowText

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_whisper.model import SpeechModel
    from conftest import Transcript

    Sound = NDArray[np.float32]
    Transcribe = Callable[..., Transcript]
    Noise = Callable[..., Sound]


@pytest.mark.parametrize(
    ("start_s", "end_s"),
    [
        pytest.param(0.5, 5.0, id="a17-end-beyond-the-sound"),
        pytest.param(0.0, 1e6, id="a17-neighbour-end-far-beyond"),
        pytest.param(0.99, 1.0, id="a17-neighbour-the-last-frame"),
        pytest.param(0.0, 0.001, id="a17-neighbour-less-than-a-frame"),
        pytest.param(0.0, None, id="a17-neighbour-no-end"),
    ],
)
def test_a_clip_ends_with_the_sound(
    random_model: SpeechModel,
    transcribe: Transcribe,
    speech_like: Noise,
    start_s: float,
    end_s: float | None,
) -> None:
    """What lies beyond does not count, and the work comes to an end."""
    more = {} if end_s is None else {"clip_end_s": end_s}
    found = transcribe(random_model, speech_like(1.0), clip_start_s=start_s, **more)
    times = [time for one in found.segments for time in (one["start_s"], one["end_s"])]
    assert all(start_s <= time <= 1.0 for time in times)


@pytest.mark.parametrize(
    ("start_s", "end_s", "arg"),
    [
        pytest.param(2.0, 3.0, "clip_start_s", id="a17-beyond-the-sound"),
        pytest.param(1.0, 3.0, "clip_start_s", id="a17-neighbour-from-the-end-on"),
        pytest.param(0.5, 0.5, "clip_end_s", id="a17-neighbour-nothing"),
        pytest.param(0.5, 0.2, "clip_end_s", id="a17-neighbour-backwards"),
    ],
)
def test_error_nothing_lies_in_a_clip(
    random_model: SpeechModel,
    transcribe: Transcribe,
    speech_like: Noise,
    start_s: float,
    end_s: float,
    arg: str,
) -> None:
    """It is refused at once, by the argument that is wrong."""
    with pytest.raises(InvalidArgumentError, match=f"^{arg}: must lie ") as caught:
        transcribe(random_model, speech_like(1.0), clip_start_s=start_s, clip_end_s=end_s)
    assert caught.value.arg == arg


def test_a_clip_keeps_the_times_of_the_sound(
    scripted: SpeechModel, transcribe: Transcribe, speech_like: Noise
) -> None:
    """Times are counted from the beginning of the sound."""
    found = transcribe(scripted, speech_like(10.0), language="en", clip_start_s=3.0, clip_end_s=6.0)
    (segment,) = found.segments
    assert (segment["start_s"], segment["end_s"]) == (3.0, 5.0)


@pytest.mark.parametrize(
    ("clip", "frames"),
    [
        pytest.param(Clip(0.0, None), (0, 123), id="all"),
        pytest.param(Clip(0.5, 5.0), (50, 123), id="a17-end-beyond-the-sound"),
        pytest.param(Clip(0.5, 1.0), (50, 100), id="inside"),
    ],
)
def test_a_clip_is_a_range_of_frames(clip: Clip, frames: tuple[int, int]) -> None:
    """None of them lies beyond the end of the sound."""
    assert clip.frames(123) == frames


@pytest.mark.parametrize("frames", [0, -4, 1, 3], ids=lambda frames: f"a17-steps-of-{frames}")
def test_steps_that_lead_nowhere_are_counted(frames: int) -> None:
    """A piece is done after a bounded number of windows, however short the steps are."""
    piece, steps = Piece(0, 6_000), 0
    while not piece.is_done:
        piece.move_on(piece.window(0.0), frames)
        steps += 1
    assert steps <= 20


def test_a_model_that_lost_its_way_comes_to_an_end(
    scripted: SpeechModel,
    transcribe: Transcribe,
    speech_like: Noise,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A model that understands two hundredths of every window is left after a few of them."""
    windows = 0

    def decode(*args: object, **kwargs: object) -> list[WindowText]:
        nonlocal windows
        del args, kwargs
        windows += 1
        text = Text(
            tokens=(), avg_logprob=0.0, no_speech_prob=0.0, temperature=0.0, compression_ratio=1.0
        )
        return [WindowText(text, (Segment(0.0, 0.02, [], " a", 0.0, 0.0),), 2)]

    monkeypatch.setattr(scripted.whisper, "decode", decode)
    transcribe(scripted, speech_like(60.0), language="en")
    assert windows <= 20
    assert "is left out" in caplog.text


def test_short_steps_between_long_ones_lose_nothing() -> None:
    """Only steps in a row count."""
    piece = Piece(0, 60_000)
    for frames in [10, 10, 10, 2_000] * 10:
        assert piece.move_on(piece.window(0.0), frames)
    assert piece.at == 10 * 2_030


def test_the_last_window_may_be_short() -> None:
    """Half a second at the end of a sound is not taken for a step that leads nowhere."""
    piece = Piece(0, 3_000 + 50)
    for frames in (3_000, 50):
        assert piece.move_on(piece.window(0.0), frames)
    assert piece.is_done


def test_a_window_is_30_seconds_at_most() -> None:
    """The model sees no more at once."""
    window = Piece(100, 9_000).window(1.5)
    assert (window.first_frame, window.frames, window.last_speech_s) == (100, 3_000, 1.5)
    with pytest.raises(ValueError, match="frames"):
        attrs.evolve(window, frames=3_001)
