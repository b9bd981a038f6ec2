"""The projector itself: cancelled in the middle, read as a whole, remembered, freed, and silent."""

from __future__ import annotations

import gc
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cartridge_core.context import Context
from cartridge_core.errors import CancelledError, InvalidArgumentError, StateError
from cartridge_core.progress import Log

if TYPE_CHECKING:
    from collections.abc import Callable

    from cartridge_gguf._projector import Picture
    from conftest import Eyes, Noise, OpenEyes

FOLDERS = ["vision", "turning", "both_ways"]


@pytest.fixture
def eyes(vision: Path, open_eyes: OpenEyes) -> Eyes:
    """A freshly opened random model with its projector."""
    return open_eyes(vision)


@pytest.fixture
def breathless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an encoder show a sign of life each time that it asks whether to go on."""
    from cartridge_gguf import _projector

    monkeypatch.setattr(_projector, "_SIGN_OF_LIFE_S", 0.0)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many tokens each picture has that is encoded from now on."""
    from cartridge_gguf._projector import Projector

    counts: list[int] = []
    decode = Projector.decode

    def count(projector: Projector, picture: Picture, *place: object) -> bool:
        counts.append(len(picture.tokens))
        return decode(projector, picture, *place)  # type: ignore[arg-type]

    monkeypatch.setattr(Projector, "decode", count)
    return counts


def looking(do: Callable[[Context], object]) -> tuple[Context, list[str]]:
    """Make a context that does something each time that an encoder shows a sign of life."""
    seen: list[str] = []

    def report(event: object) -> None:
        if isinstance(event, Log) and event.message == "looking at the picture":
            seen.append(event.message)
            do(context)

    context = Context(report)
    return context, seen


@pytest.mark.usefixtures("breathless")
def test_an_encoder_shows_signs_of_life(eyes: Eyes, noise: Noise) -> None:
    """Several times a picture, so that nobody takes it for stuck."""
    context, seen = looking(lambda _: None)
    eyes.look(noise(1), context)
    assert len(seen) > 3


@pytest.mark.usefixtures("breathless")
def test_an_encoder_can_be_cancelled(eyes: Eyes, noise: Noise) -> None:
    """In the middle: it does not ask again, and the next picture is as if nothing had been."""
    expected = eyes.look(noise(1))
    context, seen = looking(Context.cancel)
    session = eyes.begin(noise(2), context)
    with pytest.raises(CancelledError):
        session.pull()
    assert len(seen) == 1
    assert eyes.look(noise(1)) == expected
    assert eyes.look(noise(2)) != expected


@pytest.mark.usefixtures("breathless")
def test_a_close_ends_an_encoding(vision: Path, open_eyes: OpenEyes, noise: Noise) -> None:
    """It waits for no picture."""
    eyes = open_eyes(vision)
    closed = threading.Thread(target=eyes.describer.close)

    def close(_: Context) -> None:
        closed.start()
        while not eyes.describer._model._gate.is_closed:
            pass
        closed.join(0.05)  # the contexts are told to stop right after

    context, seen = looking(close)
    with pytest.raises(StateError, match="is closed"):
        eyes.begin(noise(1), context).pull()
    closed.join()
    assert len(seen) == 1


@pytest.mark.usefixtures("breathless")
def test_error_what_a_report_raises_is_raised(eyes: Eyes, noise: Noise) -> None:
    """It does not get lost in C, and the model can be used again."""

    def fail(_: Context) -> None:
        msg = "no room for a report"
        raise OSError(msg)

    context, seen = looking(fail)
    with pytest.raises(OSError, match="no room for a report"):
        eyes.begin(noise(1), context).pull()
    assert len(seen) == 1
    assert eyes.look(noise(1))["tokens_generated"] == 24


def test_the_watch_changes_nothing(
    vision: Path, open_eyes: OpenEyes, noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder that never asks says the same."""
    from cartridge_gguf import _projector

    asking = open_eyes(vision).look(noise(1))
    monkeypatch.setattr(_projector, "_STRIDE", 10**9)
    assert open_eyes(vision).look(noise(1)) == asking


@pytest.mark.parametrize("batch_size", [512, 16, 17, 7, 1])
@pytest.mark.parametrize("name", ["vision", "turning"])
def test_what_is_remembered_changes_nothing(
    request: pytest.FixtureRequest, open_eyes: OpenEyes, noise: Noise, name: str, batch_size: int
) -> None:
    """Pictures and prompts that begin as earlier ones give what they give in a fresh model."""
    folder = request.getfixturevalue(name)
    asked = [
        (noise(1), "what is it"),
        (noise(1), "what is this"),
        (noise(1), "what"),
        (noise(2), "what is it"),
        (noise(1, 64, 48), "what is it"),
        (noise(1, 64, 48), "what is it not"),
        (noise(2), "what is it"),
    ]
    eyes = open_eyes(folder, batch_size=batch_size)
    for picture, prompt in asked:
        fresh = open_eyes(folder, batch_size=batch_size)
        expected = fresh.look(picture, prompt=prompt, max_tokens=12)
        fresh.describer.close()
        assert eyes.look(picture, prompt=prompt, max_tokens=12) == expected


def test_a_picture_is_remembered(eyes: Eyes, noise: Noise, encoded: list[int]) -> None:
    """A second question about it does not encode it again; about another one, it does."""
    for prompt in ("what is it", "what is it not", "who is it"):
        eyes.look(noise(1), prompt=prompt)
    assert encoded == [16]
    eyes.look(noise(2))
    eyes.look(noise(1, 30, 20))
    assert encoded == [16, 16, 16]


def test_a_picture_that_is_like_another_in_bytes_alone(eyes: Eyes, noise: Noise) -> None:
    """Width and height are part of what it is."""
    wide, tall = noise(1, 20, 30), noise(1, 20, 30).reshape(30, 20, 3)
    assert wide.tobytes() == tall.tobytes()
    assert eyes.look(wide) != eyes.look(tall)


@pytest.mark.parametrize("sequences", [1, 2])
@pytest.mark.parametrize("name", FOLDERS)
def test_all_kinds_of_projectors(
    request: pytest.FixtureRequest, open_eyes: OpenEyes, noise: Noise, name: str, sequences: int
) -> None:
    """What each says depends on the picture, and is the same each time."""
    eyes = open_eyes(request.getfixturevalue(name), parallel_sequences=sequences)
    first, other, again = (eyes.look(noise(number)) for number in (1, 2, 1))
    assert first == again != other


def test_a_picture_keeps_its_shape_with_m_rope(
    turning: Path, open_eyes: OpenEyes, noise: Noise
) -> None:
    """A larger one takes more tokens, and fewer positions than tokens."""
    eyes = open_eyes(turning)
    small, large = (eyes.look(noise(1, side, side))["prompt_tokens"] for side in (64, 128))
    assert isinstance(small, int)
    assert isinstance(large, int)
    assert large - small == 8 * 8 - 4 * 4


def test_error_a_picture_that_must_be_read_as_a_whole(
    both_ways: Path, open_eyes: OpenEyes, noise: Noise
) -> None:
    """A batch that is smaller is refused; an equal one is enough."""
    with pytest.raises(InvalidArgumentError, match=r"comes to 16 tokens.*at most 15") as caught:
        open_eyes(both_ways, batch_size=15).look(noise(1))
    assert caught.value.arg == "image"
    as_a_whole = open_eyes(both_ways, batch_size=512).look(noise(1))
    assert open_eyes(both_ways, batch_size=16).look(noise(1)) == as_a_whole


def resident_bytes() -> int:
    """Read how much memory this process takes."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux")
def test_memory_is_freed(vision: Path, open_eyes: OpenEyes, noise: Noise) -> None:
    """Opening, looking at large pictures and closing does not add up."""
    picture = noise(1, 1000, 1000)

    def use(times: int) -> int:
        for _ in range(times):
            eyes = open_eyes(vision)
            session = eyes.begin(picture, max_tokens=2)
            session.pull()
            session.end()
            eyes.describer.close()
        return resident_bytes()

    before = use(5)
    assert use(20) - before < 10_000_000  # a picture, or a context, is 3 million bytes or more


def test_parts_of_pictures_are_freed(
    eyes: Eyes, noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the session has ended, wherever, and the next one has begun."""
    from cartridge_gguf._llama import mtmd_cpp

    freed: list[int] = []
    free = mtmd_cpp.mtmd_input_chunk_free

    def note(chunk: int) -> None:
        freed.append(chunk)
        free(chunk)

    monkeypatch.setattr(mtmd_cpp, "mtmd_input_chunk_free", note)
    for number in range(4):
        session = eyes.begin(noise(number))
        session.pull()
        session.end()
    del session
    gc.collect()
    assert len(freed) >= 3


def test_nothing_is_printed(
    vision: Path, open_eyes: OpenEyes, noise: Noise, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither loading nor looking writes to stdout or stderr."""
    eyes = open_eyes(vision)
    eyes.look(noise(1))
    eyes.describer.close()
    assert capfd.readouterr() == ("", "")


def test_the_backend_logs_to_logging(
    vision: Path, open_eyes: OpenEyes, noise: Noise, caplog: pytest.LogCaptureFixture
) -> None:
    """What its vision part says of a load and of a picture."""
    with caplog.at_level(logging.DEBUG, "cartridge.gguf"):
        open_eyes(vision).look(noise(1))
    lines = [r.getMessage() for r in caplog.records if r.name == "cartridge.gguf.mtmd"]
    assert any("has vision encoder" in line for line in lines)
    assert any("image decoded" in line for line in lines)
