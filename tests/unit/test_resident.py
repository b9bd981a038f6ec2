"""One open cartridge, and the places of its sessions."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from cartridge_core.context import Context
from cartridge_core.errors import BusyError, StateError
from cartridge_core.queueing import FairQueue
from cartridge_core.resident import Loaded, LoadState, Place, Resident

if TYPE_CHECKING:
    from cartridge_core.binding import Binding
    from cartridge_core.offers import Offer

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


def test_error_one_who_comes_in_while_it_is_abandoned(device):
    """He does not begin, and holds nothing."""

    class Last:
        """A queue in which the cartridge is abandoned just when a place is given."""

        def enter(self, context, on_wait):
            resident.abandon("it was unloaded")

        def refuse(self, why):
            pass

        def leave(self):
            pass

    queues = (device, cast("FairQueue", Last()))
    resident = Resident(OFFER, cast("Binding", None), "handle", queues=queues)
    with pytest.raises(StateError, match="it was unloaded"):
        resident.enter(Context())
    assert is_free(device)


def test_error_a_forked_process_begins_no_session(resident, device, monkeypatch):
    """What is open is the parent's."""
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    with pytest.raises(StateError, match="after a fork discover a new one in the child"):
        resident.enter(Context())
    monkeypatch.undo()
    assert is_free(device)


def test_a_place_says_how_it_is():
    """What `Registry.loaded` gives."""
    place = Place("key", OFFER, None)
    assert place.seen() == Loaded("fake-echo", LoadState.LOADING)
    place.state, place.users, place.memory_bytes = LoadState.BUSY, 2, 7
    assert place.seen() == Loaded("fake-echo", LoadState.BUSY, users=2, memory_bytes=7)
    assert not place.is_idle
    place.state = LoadState.READY
    assert place.is_idle
