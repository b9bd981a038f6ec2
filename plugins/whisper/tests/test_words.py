"""The times of words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis import strategies as st

from cartridge_whisper.dtw import first_columns
from cartridge_whisper.records import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_whisper.model import SpeechModel
    from conftest import Transcript

    Transcribe = Callable[..., Transcript]


def plain(costs: NDArray[np.float64]) -> list[int]:
    """Find the same way cell by cell, as whisper's loop does."""
    import numpy as np

    rows, columns = costs.shape
    totals = np.full((rows + 1, columns + 1), np.inf, np.float32)
    totals[0, 0] = 0
    ways = np.zeros((rows + 1, columns + 1), int)
    for column in range(1, columns + 1):
        for row in range(1, rows + 1):
            both, down, right = (
                totals[row - 1, column - 1],
                totals[row - 1, column],
                totals[row, column - 1],
            )
            if both < down and both < right:
                best, ways[row, column] = both, 0
            elif down < both and down < right:
                best, ways[row, column] = down, 1
            else:
                best, ways[row, column] = right, 2
            totals[row, column] = costs[row - 1, column - 1] + best
    ways[0, :], ways[:, 0] = 2, 1
    found, row, column = [0] * rows, rows, columns
    while row > 0 and column > 0:
        found[row - 1] = column - 1
        way = ways[row, column]
        row, column = row - (way != 2), column - (way != 1)
    return found


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.integers(1, 12), st.integers(1, 30), st.integers(0, 2**32 - 1), st.booleans())
def test_the_way_is_whispers(rows: int, columns: int, seed: int, has_ties: bool) -> None:
    """The cheapest way is that of the loop over all cells, ties included."""
    import numpy as np

    costs = np.random.default_rng(seed).standard_normal((rows, columns))
    if has_ties:
        costs = np.round(costs)
    assert first_columns(costs) == plain(costs)


def test_numbers_that_are_none_end_the_way_somewhere() -> None:
    """A model that attends to nothing gives NaN; there is a way all the same."""
    import numpy as np

    assert first_columns(np.full((3, 5), np.nan)) == [0, 0, 0]


def test_words_lie_in_their_segments(
    scripted: SpeechModel, transcribe: Transcribe, speech_like: Callable[..., object]
) -> None:
    """Joined, they are the text; they say which segment they are of, and times keep in order."""
    more = {"language": "en", "condition_on_previous_text": False}
    found = transcribe(scripted, speech_like(65.0), word_timestamps=True, **more)
    assert "".join(word["text"] for word in found.words) == found.text
    for index, segment in enumerate(found.segments):
        words = [word["text"] for word in found.words if word["segment"] == index]
        assert "".join(words) == segment["text"]
    for items in (found.words, found.segments):
        times = [time for one in items for time in (one["start_s"], one["end_s"])]
        assert times == sorted(times)
        assert all(type(time) is float and 0 <= time <= 65.0 for time in times)


def test_words_only_where_they_are_asked_for(
    scripted: SpeechModel, transcribe: Transcribe, speech_like: Callable[..., object]
) -> None:
    """They cost time."""
    assert transcribe(scripted, speech_like(3.0), language="en").words == []


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        pytest.param([0.0, 1.0, 1.0, 2.5], [0.0, 1.0, 1.0, 2.5], id="in-order"),
        pytest.param([1.0, 0.5, 2.0], [1.0, 1.0, 2.0], id="back"),
        pytest.param([2.9, 3.2, 3.4], [2.9, 3.0, 3.0], id="beyond-the-end"),
        pytest.param([-0.1, 1], [0.0, 1.0], id="before-the-beginning"),
    ],
)
def test_times_keep_in_order(times: list[float], expected: list[float]) -> None:
    """None lies before the one told before it, or outside of the sound; all are plain floats."""
    clock = Clock(3.0)
    found = [clock.tell(time) for time in times]
    assert found == expected
    assert {type(time) for time in found} == {float}
