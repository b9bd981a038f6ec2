"""One open cartridge, and the places of its sessions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from cartridge_core.context import Context
from cartridge_core.errors import BusyError, CartridgeDiedError, StateError
from cartridge_core.queueing import FairQueue
from cartridge_core.resident import Loaded, LoadState, Place, Resident
from cartridge_core.testing.background import Background

if TYPE_CHECKING:
    from cartridge_core.binding import Binding
    from cartridge_core.offers import Offer
    from cartridge_core.worker.client import Worker

OFFER = cast("Offer", SimpleNamespace(id="fake-echo"))


@pytest.fixture
def device():
    return FairQueue("device gpu", 1, 0.02)


@pytest.fixture(name="resident")
def make_resident(device):
    own = FairQueue("a session", 3, 0.02)
    return Resident(OFFER, cast("Binding", None), "handle", queues=(device, own))


def is_free(queue):
    try:
        queue.enter(Context())
    except BusyError:
        return False
    queue.leave()
    return True


def test_a_session_takes_a_place_in_every_queue(resident, device):
    """And gives all of them back."""
    resident.enter(Context())
    assert not is_free(device)
    resident.leave()
    assert is_free(device)


def test_error_what_it_has_is_given_back_where_the_next_is_refused(resident, device):
    """Nobody holds a device for a session that does not begin."""
    resident.refuse("it is stuck")
    for _ in range(2):
        with pytest.raises(StateError, match="it is stuck"):
            resident.enter(Context())
    assert is_free(device)


def test_what_was_abandoned_holds_nothing(resident, device):
    """Its sessions' places are free at once, and are not given back twice."""
    resident.enter(Context())
    resident.abandon("it was unloaded")
    resident.abandon("it was unloaded")
    assert is_free(device)
    device.enter(Context())
    resident.leave()
    assert not is_free(device)
    device.leave()
    with pytest.raises(StateError, match="it was unloaded"):
        resident.enter(Context())


def test_error_one_who_waits_while_it_is_abandoned(eventually):
    """He does not begin, and holds nothing."""
    device, own = FairQueue("device gpu", 2, 30.0), FairQueue("a session", 1, 30.0)
    resident = Resident(OFFER, cast("Binding", None), "handle", queues=(device, own))
    resident.enter(Context())
    told: list[str] = []
    waiting = Background(lambda: resident.enter(Context(), told.append))
    eventually(lambda: told)
    resident.abandon("it was unloaded")
    waiting.join(30.0)
    assert isinstance(waiting.error, StateError)
    assert device._free == 2


class AbandonsAtItsTurn(Context):
    """A context of one whose turn has come just when the cartridge is abandoned."""

    def __init__(self, resident):
        super().__init__()
        self._resident = resident

    def check_cancelled(self):
        self._resident.abandon("it was unloaded")


def test_error_one_whose_turn_comes_when_it_is_abandoned(eventually):
    """Nor does he begin who was given a place a moment before; nobody's place is lost."""
    device, own = FairQueue("device gpu", 2, 30.0), FairQueue("a session", 1, 30.0)
    resident = Resident(OFFER, cast("Binding", None), "handle", queues=(device, own))
    resident.enter(Context())
    told: list[str] = []
    waiting = Background(lambda: resident.enter(AbandonsAtItsTurn(resident), told.append))
    eventually(lambda: told)
    resident.leave()
    waiting.join(30.0)
    assert isinstance(waiting.error, StateError)
    assert device._free == 2


class Mortal:
    """A process, as a resident sees it."""

    is_alive = True

    def death(self):
        return CartridgeDiedError("it was killed", exit_status=-9)


@pytest.fixture
def mortal(device):
    """Give one that runs in a process, and that."""
    process, own = Mortal(), FairQueue("a session", 1, 30.0)
    worker, binding = cast("Worker", process), cast("Binding", None)
    return Resident(OFFER, binding, "handle", worker, queues=(device, own)), process


def test_error_a_process_that_has_ended_takes_no_session(mortal, device):
    """The error says how it ended, and nothing is held for it."""
    resident, process = mortal
    process.is_alive = False
    for _ in range(2):
        with pytest.raises(CartridgeDiedError, match="it was killed"):
            resident.enter(Context())
    resident.abandon("it has ended")
    with pytest.raises(CartridgeDiedError, match="it was killed"):
        resident.enter(Context())
    assert is_free(device)


@pytest.mark.parametrize("ends", ["abandon", "leave"])
def test_error_one_who_waits_in_a_process_that_ends(mortal, device, eventually, ends):
    """He hears of that, also where a place came free by it; the device has all its places."""
    device._free = 2
    resident, process = mortal
    resident.enter(Context())
    told: list[str] = []
    waiting = Background(lambda: resident.enter(Context(), told.append))
    eventually(lambda: told)
    process.is_alive = False
    if ends == "leave":
        resident.leave()
    resident.abandon("it has ended")
    waiting.join(30.0)
    assert isinstance(waiting.error, CartridgeDiedError)
    assert device._free == 2


def test_a_place_says_how_it_is():
    """What `Registry.loaded` gives."""
    place = Place("key", OFFER, None)
    assert place.seen() == Loaded("fake-echo", LoadState.LOADING)
    place.state, place.users, place.memory_bytes = LoadState.BUSY, 2, 7
    assert place.seen() == Loaded("fake-echo", LoadState.BUSY, users=2, memory_bytes=7)
    assert not place.is_idle
    place.state = LoadState.READY
    assert place.is_idle
