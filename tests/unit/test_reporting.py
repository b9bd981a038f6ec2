"""The events a call tells: three phases, one bar."""

from __future__ import annotations

import logging

import pytest

from cartridge_core.progress import Log, Phase, Progress
from cartridge_core.reporting import Reporter


@pytest.fixture
def events():
    return []


@pytest.fixture
def reporter(events):
    return Reporter("fake-echo", events.append)


@pytest.mark.parametrize(
    ("phase", "fraction", "told"),
    [
        pytest.param(Phase.DOWNLOAD, 0.0, 0.0, id="download-begins-at-0"),
        pytest.param(Phase.DOWNLOAD, 0.5, 0.125, id="half-a-download"),
        pytest.param(Phase.DOWNLOAD, 1.0, 0.25, id="download-ends-at-0.25"),
        pytest.param(Phase.LOAD, 0.5, 0.3, id="half-a-load"),
        pytest.param(Phase.LOAD, 1.0, 0.35, id="load-ends-at-0.35"),
        pytest.param(Phase.INFER, 1.0, 0.95, id="infer-ends-at-0.95"),
        pytest.param(Phase.INFER, 7.0, 0.95, id="above-1-is-1"),
        pytest.param(Phase.LOAD, -3.0, 0.25, id="below-0-is-0"),
    ],
)
def test_a_phases_fraction_is_mapped_into_its_span(reporter, events, phase, fraction, told):
    """Each phase has its own part of the bar."""
    reporter.tell(phase, fraction)
    assert events[0].fraction == pytest.approx(told)
    assert events[0].phase is phase


def test_progress_never_goes_backwards(reporter, events):
    """A cartridge that reports less than before does not move the bar back."""
    for fraction in (0.5, 0.2, 0.9, 0.1):
        reporter.tell(Phase.DOWNLOAD, fraction)
    reporter.tell(Phase.LOAD, 0.0)
    fractions = [event.fraction for event in events]
    assert fractions == sorted(fractions)


@pytest.mark.parametrize(("phase", "end"), [(Phase.LOAD, 0.35), (Phase.INFER, 0.95)])
def test_load_and_infer_are_told_in_steps_of_five_percent(reporter, events, phase, end):
    """A thousand reports of a load or an inference become about twenty events."""
    for number in range(1001):
        reporter.tell(phase, number / 1000)
    assert 19 <= len(events) <= 22
    assert events[-1].fraction == pytest.approx(end)


def test_a_log_line_carries_who_said_it(reporter, events):
    """A cartridge's line reaches the caller with the cartridge's id."""
    reporter.phase(Phase.LOAD)(Log("warning", "slow disk"))
    assert events == [Log("warning", "slow disk", cartridge_id="fake-echo")]


@pytest.mark.parametrize(
    ("level", "number"),
    [("debug", logging.DEBUG), ("warning", logging.WARNING), ("nonsense", logging.INFO)],
)
def test_a_log_line_is_noted_even_where_no_event_is_wanted(caplog, level, number):
    """Lines go to `logging` under the cartridge's name, whoever listens."""
    quiet = Reporter("fake-echo", None)
    with caplog.at_level(logging.DEBUG, "cartridge"):
        quiet.log(Log(level, "hello"))
    assert caplog.record_tuples == [("cartridge.fake-echo", number, "hello")]


def test_a_quiet_reporter_tells_no_progress():
    """Where nobody takes events none are made."""
    quiet = Reporter("fake-echo", None)
    quiet.tell(Phase.INFER, 0.5)
    quiet.done()


def test_the_end_is_told_as_one(reporter, events):
    """The last event is 1.0 and belongs to no phase."""
    reporter.done()
    assert events == [Progress(1.0)]
