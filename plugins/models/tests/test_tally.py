"""How far several files are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cartridge_models import tally
from cartridge_models.tally import Tally

if TYPE_CHECKING:
    from conftest import RecordingContext


@pytest.fixture(autouse=True)
def _tell_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "_EVERY_S", 0.0)


def test_bytes_never_go_back(context: RecordingContext) -> None:
    """A file that begins again is told as far as it was, until it is further."""
    files = Tally("m", {"a": 4_000_000, "b": 6_000_000}, context)
    for done in (2_000_000, 500_000, 3_000_000):
        files.have("a", done)
    files.finish("b", 6_000_000)
    assert [(event.fraction, event.message) for event in context.progress_events] == [
        (0.2, "downloading m: 0 of 2 files, 2.0 MB of 10.0 MB"),
        (0.2, "downloading m: 0 of 2 files, 2.0 MB of 10.0 MB"),
        (0.3, "downloading m: 0 of 2 files, 3.0 MB of 10.0 MB"),
        (0.9, "downloading m: 1 of 2 files, 9.0 MB of 10.0 MB"),
    ]


def test_size_that_is_learned_does_not_move_the_bar_back(context: RecordingContext) -> None:
    """Until every size is known there is no fraction; one that turns out larger does not cut it."""
    files = Tally("m", {"a": None, "b": 1_000_000}, context)
    files.have("b", 1_000_000, "checking")
    files.learn("a", 1_000_000)
    files.have("a", 500_000)
    files.learn("a", 9_000_000)
    files.have("a", 600_000)
    assert [event.fraction for event in context.progress_events] == [0.0, 0.75, 0.75]
    first = context.progress_events[0].message
    assert first == "downloading m: 0 of 2 files, 1.0 MB; b: checking"


def test_few_of_many_reports_are_told(
    context: RecordingContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes faster than a person reads is left out, the end of a file never."""
    monkeypatch.setattr(tally, "_EVERY_S", 60.0)
    files = Tally("m", {"a": 100}, context)
    for done in range(100):
        files.have("a", done)
    files.finish("a", 100)
    assert [event.fraction for event in context.progress_events] == [0.0, 1.0]
