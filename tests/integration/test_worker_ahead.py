"""After the flush a process makes results while those before are on their way: a few, in order."""

from __future__ import annotations

import importlib
import time

import pytest

from cartridge_core.binding import Binding
from cartridge_core.context import Context
from cartridge_core.errors import BackendError, CartridgeDiedError
from cartridge_core.session import Session
from cartridge_core.testing.background import Background

pytestmark = pytest.mark.timeout(120)

AHEAD = 8


class House:
    """A worker with the pieces plugin, and both its cartridges open."""

    def __init__(self, worker, descriptors):
        self.worker = worker
        self.descriptors = {one.id: one for one in descriptors}
        self.binding = Binding("pieces", worker.plugin, descriptors)
        self.handles = {
            one: self.binding.open(one, None, {}, Context()) for one in self.descriptors
        }

    def session(self, cartridge_id="pieces-stream", context=None):
        descriptor = self.descriptors[cartridge_id]
        handle, cap = self.handles[cartridge_id], descriptor.caps[0]
        return Session(self.binding, handle, descriptor, cap, {}, context or Context())

    def pieces(self, context=None, **does):
        """Begin a stream of pieces, and flush it."""
        session = self.session(context=context)
        session.push(does)
        session.flush()
        return session

    def asked(self):
        """Give what was asked of the last stream of pieces."""
        with self.session("pieces-asked") as session:
            return session.infer({}).payload


@pytest.fixture
def start(source_of, start_worker):
    """Start a house of its own."""

    def start():
        module = importlib.import_module("plugin_pieces")
        descriptors = module.cartridge_descriptors()
        return House(start_worker(source_of("plugin_pieces", descriptors)), descriptors)

    return start


@pytest.fixture(scope="module")
def house(source_of, start_worker):
    """Give one house for the tests that leave it whole."""
    module = importlib.import_module("plugin_pieces")
    descriptors = module.cartridge_descriptors()
    return House(start_worker(source_of("plugin_pieces", descriptors)), descriptors)


def texts(session):
    return [result.payload for result in session.drain()]


def wanted(count):
    return [f"piece {number}" for number in range(1, count + 1)]


@pytest.mark.parametrize("count", [0, 1, AHEAD - 1, AHEAD, AHEAD + 1, 100])
def test_all_come_in_order_and_then_none(house, count):
    """However many there are, each comes once, and pull stays None afterwards."""
    with house.pieces(count=count) as session:
        assert texts(session) == wanted(count)
        assert session.pull() is None
    assert house.asked()["pulls"] == count + 1


def test_no_more_than_a_few_are_made_ahead(house, eventually):
    """Who takes one finds the next ones made, and not all."""
    with house.pieces(count=1000) as session:
        session.pull()
        eventually(lambda: house.asked()["pulls"] == AHEAD)
        time.sleep(0.1)
        assert house.asked()["pulls"] == AHEAD
        assert texts(session) == wanted(1000)[1:]


def test_before_the_flush_each_is_asked_for(house):
    """A push may still change what comes."""
    with house.session() as session:
        session.push({"count": 5})
        assert session.pull().payload == "piece 1"
        time.sleep(0.1)
        assert house.asked()["pulls"] == 1
        session.push({"count": 2})
        session.flush()
        assert texts(session) == ["piece 2"]


@pytest.mark.parametrize("where", [1, 2, AHEAD, AHEAD + 1])
def test_error_comes_in_its_place(house, where):
    """What is made before a failure arrives before it, and nothing is made after it unasked."""
    session = house.pieces(count=100, fails_at=where)
    for number in range(1, where):
        assert session.pull().payload == f"piece {number}"
    with pytest.raises(BackendError, match=f"piece {where} failed"):
        session.pull()
    assert house.asked()["pulls"] == where
    assert session.pull().payload == f"piece {where + 1}"
    session.end()


def test_what_is_said_comes_with_its_own_result(house):
    """A piece's log line is told when the piece is taken, not when it is made."""
    told: list[str] = []
    context = Context(lambda event: told.append(event.message))
    with house.pieces(context, count=20, talks=True) as session:
        for number in range(1, 21):
            session.pull()
            assert told == wanted(number)


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_a_cancel_ends_what_is_made_ahead(house, taken):
    """After a cancel the process makes at most the one that it is at."""
    session = house.pieces(count=1000, pause_s=0.1)
    for _ in range(taken):
        session.pull()
    working = Background(session.pull)
    time.sleep(0.05)
    session.cancel()
    working.join(10)
    assert not working.is_alive()
    session.end()
    asked = house.asked()
    assert (asked["ended"], asked["cancelled"]) == (1, 1)
    assert asked["pulls"] <= taken + 2
    with house.pieces(count=3) as after:
        assert texts(after) == wanted(3)


def test_an_early_end_waits_for_one_at_most(house):
    """Who leaves a stream does not wait for what he did not want, and the next gets its own."""
    began_s = time.monotonic()
    with house.pieces(count=1000, pause_s=0.3) as session:
        session.pull()
    assert time.monotonic() - began_s < 0.3 * 4
    assert house.asked()["pulls"] <= 3
    for _ in range(3):
        with house.pieces(count=30) as session:
            assert session.pull().payload == "piece 1"
    with house.pieces(count=30) as session:
        assert texts(session) == wanted(30)


@pytest.mark.parametrize("where", [1, 2, AHEAD + 1])
def test_error_a_death_comes_after_what_was_given(start, where):
    """What a process gave before it died is not lost; then its death is told."""
    session = start().pieces(count=100, dies_at=where)
    for number in range(1, where):
        assert session.pull().payload == f"piece {number}"
    with pytest.raises(CartridgeDiedError, match="exit status 3"):
        session.pull()
    session.end()
