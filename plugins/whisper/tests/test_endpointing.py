"""Where utterances begin and end, by the chance of speech in each step."""

from __future__ import annotations

from itertools import groupby

import pytest

from cartridge_whisper.endpointing import Endpointer, Moment

LONG_PAUSE = 16


def moments(chances: str, pause_steps: int = LONG_PAUSE) -> str:
    """Follow speech ``#``, doubt ``?`` and silence ``.``; give the first letter of each moment."""
    ends = Endpointer(pause_steps)
    levels = {"#": 0.9, "?": 0.4, ".": 0.1}
    found = [ends.hear(levels[chance]).name for chance in chances]
    return "".join(name[0] if name != "SPEECH" else "#" for name in found)


def short(chances: str, pause_steps: int = LONG_PAUSE) -> str:
    """Give the moments, each once."""
    return "".join(key for key, _ in groupby(moments(chances, pause_steps)))


@pytest.mark.parametrize(
    ("chances", "found"),
    [
        pytest.param("." * 9, "S", id="silence"),
        pytest.param("." * 3 + "#" * 20, "SM#", id="speech-begins"),
        pytest.param("#" * 20 + "." * 30, "M#PHPES", id="and-ends"),
        pytest.param("#" * 20 + "." * 10 + "#" * 5, "M#PHP#", id="a-pause-is-a-part-of-it"),
        pytest.param("#" * 20 + "." * 3 + "#" * 5, "M#P#", id="a-short-one-is-no-hush"),
        pytest.param("#" * 7 + "." * 30, "MS", id="a-quarter-of-a-second-is-none"),
        pytest.param("##.." * 3 + "##" + "." * 30, "M#PHPES", id="pieces-add-up"),
        pytest.param("###" + "." * 20 + "#####" + "." * 20, "MSMS", id="but-not-for-ever"),
        pytest.param("?" * 20, "S", id="doubt-is-no-beginning"),
        pytest.param("#" * 20 + "?" * 20 + "#" * 5, "M#", id="nor-an-end"),
        pytest.param(("#" * 20 + "." * 20) * 2, "M#PHPESM#PHPES", id="one-follows-another"),
    ],
)
def test_moments(chances: str, found: str) -> None:
    """What each step is, one after the other."""
    assert short(chances) == found


def test_the_pause_decides() -> None:
    """The end is said at its last step."""
    for steps in (1, 3, 4, 5, 20):
        assert moments("#" * 10 + "." * 30, steps).index("E") == 10 + steps - 1


def test_the_end_of_the_speech_is_known() -> None:
    """Where the last step of speech ended, in samples."""
    ends = Endpointer(LONG_PAUSE)
    for chance in [0.1] * 5 + [0.9] * 10 + [0.1] * 15:
        ends.hear(chance)
        assert ends.is_speaking == (ends.speech_end >= 13 * 512)
    assert ends.speech_end == 15 * 512
    assert ends.hear(0.1) is Moment.END
    assert not ends.is_speaking
    assert ends.speech_end == 15 * 512
