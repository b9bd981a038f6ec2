"""The events a call tells: three phases, one bar."""

from __future__ import annotations

import logging
import threading
from functools import partial

import pytest

from cartridge_core.progress import Log, Phase, Progress
from cartridge_core.reporting import Reporter
from cartridge_core.testing.background import Background

_PATIENCE_S = 30.0


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
    reporter.begin(phase)
    reporter.tell(fraction)
    assert events[0].fraction == pytest.approx(told)
    assert events[0].phase is phase


def test_progress_never_goes_backwards(reporter, events):
    """A cartridge that reports less than before does not move the bar back."""
    for fraction in (0.5, 0.2, 0.9, 0.1):
        reporter.tell(fraction)
    reporter.begin(Phase.LOAD)
    reporter.tell(0.0)
    fractions = [event.fraction for event in events]
    assert fractions == sorted(fractions)


@pytest.mark.parametrize(("phase", "end"), [(Phase.LOAD, 0.35), (Phase.INFER, 0.95)])
def test_load_and_infer_are_told_in_steps_of_five_percent(reporter, events, phase, end):
    """A thousand reports of a load or an inference become about twenty events."""
    reporter.begin(phase)
    for number in range(1001):
        reporter.tell(number / 1000)
    assert 19 <= len(events) <= 22
    assert events[-1].fraction == pytest.approx(end)


def test_a_log_line_carries_who_said_it(reporter, events):
    """A cartridge's line reaches the caller with the cartridge's id."""
    reporter.report(Log("warning", "slow disk"))
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
    quiet.tell(0.5)
    quiet.done()


class Blocking:
    """Takes events, each only once the test says so."""

    def __init__(self):
        self.events: list[Progress | Log] = []
        self.began = threading.Event()
        self.go = threading.Event()

    def __call__(self, event):
        self.began.set()
        assert self.go.wait(_PATIENCE_S)
        self.events.append(event)


def test_progress_from_two_threads_never_goes_backwards():
    """What is told first is given first, also where the caller takes his time."""
    taker = Blocking()
    reporter = Reporter("fake-echo", taker, Phase.INFER)
    first = Background(lambda: reporter.tell(0.2))
    assert taker.began.wait(_PATIENCE_S)
    rest = [Background(partial(reporter.tell, part / 10)) for part in range(3, 10)]
    threading.Event().wait(0.02)
    taker.go.set()
    for thread in (first, *rest):
        thread.join(_PATIENCE_S)
    fractions = [event.fraction for event in taker.events if isinstance(event, Progress)]
    assert fractions[0] == pytest.approx(Phase.INFER.scale(0.2))
    assert fractions == sorted(fractions)


def test_the_host_does_not_wait_to_speak_for_a_cartridge():
    """While an event is on its way to a slow caller there is nothing to say, and no wait."""
    taker = Blocking()
    reporter = Reporter("fake-echo", taker, Phase.INFER)
    telling = Background(lambda: reporter.tell(0.2))
    assert taker.began.wait(_PATIENCE_S)
    spoken: list[Progress] = []
    speaking = Background(lambda: reporter.keepalive(spoken.append, -1.0))
    speaking.join(_PATIENCE_S)
    assert not speaking.is_alive()
    assert spoken == []
    taker.go.set()
    telling.join(_PATIENCE_S)


def test_the_host_repeats_what_was_told_last(reporter):
    """Before anything was told it says that much alone."""
    spoken: list[Progress] = []
    reporter.keepalive(spoken.append, -1.0)
    reporter.begin(Phase.LOAD)
    reporter.tell(0.5, "half of it")
    reporter.keepalive(spoken.append, -1.0)
    reporter.queued("Waiting for a device")
    reporter.keepalive(spoken.append, -1.0)
    assert [(event.message, event.phase) for event in spoken] == [
        ("Still at work", Phase.DOWNLOAD),
        ("Still at work: half of it", Phase.LOAD),
        ("Still at work: Waiting for a device", Phase.LOAD),
    ]
    assert [event.fraction for event in spoken] == pytest.approx([0.0, 0.3, 0.3])


@pytest.mark.parametrize("tell", ["progress", "log", "queued"])
def test_the_host_is_silent_where_something_was_told(reporter, tell):
    """Only silence of some length is filled, and that is new from its own word on."""
    spoken: list[Progress] = []
    reporter.told_s -= 100
    if tell == "progress":
        reporter.tell(0.5)
    elif tell == "log":
        reporter.log(Log("info", "hello"))
    else:
        reporter.queued("Waiting")
    reporter.keepalive(spoken.append, 50.0)
    assert spoken == []
    reporter.told_s -= 100
    for _ in range(3):
        reporter.keepalive(spoken.append, 50.0)
    assert len(spoken) == 1


def test_a_quiet_reporter_is_not_spoken_for():
    """Where nobody takes events there is nobody to speak to."""
    spoken: list[Progress] = []
    Reporter("fake-echo", None).keepalive(spoken.append, -1.0)
    assert spoken == []


def test_the_end_is_told_as_one(reporter, events):
    """The last event is 1.0 and belongs to no phase."""
    reporter.done()
    assert events == [Progress(1.0)]
