"""What stays loaded, who uses it, and when it goes."""

from __future__ import annotations

import random
import sys
import threading
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from cartridge_core.context import Context
from cartridge_core.errors import (
    BackendError,
    BusyError,
    CancelledError,
    CartridgeDiedError,
    LoadError,
    StateError,
)
from cartridge_core.leases import Lease
from cartridge_core.limits import Limits
from cartridge_core.pack import Trust
from cartridge_core.queueing import FairQueue
from cartridge_core.residency import Residency
from cartridge_core.resident import Resident
from cartridge_core.stats import Stats
from cartridge_core.testing.background import Background

if TYPE_CHECKING:
    from collections.abc import Callable

    from cartridge_core.binding import Binding
    from cartridge_core.offers import Offer

PATIENCE_S = 30.0


def offer_of(name="fake-echo", load_timeout_s=600.0):
    descriptor = SimpleNamespace(load_timeout_s=load_timeout_s)
    return cast("Offer", SimpleNamespace(id=name, descriptor=descriptor))


class FakeBinding:
    """Notes what is closed."""

    def __init__(self):
        self.closed = []

    def close(self, handle):
        self.closed.append(handle)
        if handle == "stubborn":
            msg = "will not close"
            raise RuntimeError(msg)


def _run(job):
    Background(job)


class FakeWorker:
    """A process, as a residency sees it."""

    pid = 4711

    def __init__(self):
        self.is_alive = True
        self.told: list[str] = []
        self._on_death: list[Callable[[], None]] = []

    def on_death(self, tell):
        self._on_death.append(tell)

    def death(self):
        return CartridgeDiedError("it was killed")

    def kill(self, why):
        self.told.append(f"killed: {why}")
        self.die()

    def end(self):
        self.told.append("ended")
        self.is_alive = False

    def die(self):
        self.is_alive = False
        for tell in self._on_death:
            tell()


class House:
    """A residency, and what is opened in it."""

    def __init__(self, **limits):
        self.stats = Stats()
        given = {"grace_s": 0.1, "queue_timeout_s": PATIENCE_S, **limits}
        self.residency = Residency(Limits(**given), self.stats, _run, self._load)
        self.makes: dict[Lease, Callable[[], Resident]] = {}
        self.binding = FakeBinding()
        self.loads: list[object] = []

    def lease(
        self, key="key", *, keep=True, load=None, revoke=lambda: None, offer=None, worker=None
    ):
        """Make a lease; ``load`` gives the handle, in a while where that is so."""
        offer = offer or offer_of()

        def make():
            self.loads.append(key)
            lease.runs_in(worker)
            handle = key if load is None else load()
            queues = (FairQueue("a session", 1, PATIENCE_S),)
            return Resident(offer, cast("Binding", self.binding), handle, worker, queues=queues)

        lease = Lease(
            key,
            offer,
            None,
            {},
            Trust.OFF,
            keep=keep,
            revoke=revoke,
            on_release=self.residency.leave,
        )
        self.makes[lease] = make
        return lease

    def _load(self, lease, context):
        del context
        return self.makes[lease]()

    def open(self, key="key", context=None, **given):
        lease = self.lease(key, **given)
        self.residency.open(lease, context or Context())
        return lease

    def opening(self, key="key", context=None, **given):
        return Background(lambda: self.open(key, context, **given))

    def state(self):
        return [(one.state.value, one.users) for one in self.residency.loaded()]


@pytest.fixture
def house():
    return House()


class Slow:
    """A load that lasts until the test says so; it gives a handle, or raises."""

    def __init__(self, outcome="one", context=None):
        self.began = threading.Event()
        self.go = threading.Event()
        self._outcome = outcome
        self._context = context

    def __call__(self):
        self.began.set()
        while not self.go.wait(0.002):
            if self._context is not None:
                self._context.check_cancelled()
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    def has_begun(self):
        assert self.began.wait(PATIENCE_S)


def outcome(background):
    background.join(PATIENCE_S)
    assert not background.is_alive()
    return background.error or background.result


def test_what_a_call_keeps_is_loaded_once(house):
    """It is there for the next call, and nobody has it meanwhile."""
    for _ in range(3):
        lease = house.open()
        assert house.state() == [("busy", 1)]
        lease.release()
        assert house.state() == [("ready", 0)]
    assert house.loads == ["key"]
    assert house.binding.closed == []


def test_what_nobody_keeps_is_unloaded_by_its_last_user(house):
    """Opened by hand, it goes with the last lease."""
    first, second = house.open(keep=False), house.open(keep=False)
    first.release()
    assert house.binding.closed == []
    second.release()
    assert house.binding.closed == ["key"]
    assert house.state() == []


@pytest.mark.parametrize("keeps", [(True, False), (False, True)], ids=["call-first", "hand-first"])
def test_one_call_is_enough_to_keep_it(house, keeps):
    """What a call and a caller by hand share stays after both."""
    leases = [house.open(keep=keep) for keep in keeps]
    for lease in leases:
        lease.release()
    assert house.state() == [("ready", 0)]


def test_releasing_twice_is_harmless(house):
    """A lease that is given back twice counts once."""
    first, second = house.open(keep=False), house.open(keep=False)
    first.release()
    first.release()
    assert house.binding.closed == []
    second.release()
    assert house.binding.closed == ["key"]


def test_error_a_released_lease_has_no_resident(house):
    """It says what to do."""
    lease = house.open()
    lease.release()
    with pytest.raises(StateError, match="fake-echo is closed: open it again"):
        _ = lease.resident


def test_other_keys_are_other_places(house):
    """What was opened with something else is something else."""
    leases = [house.open(key) for key in "ab"]
    assert house.loads == ["a", "b"]
    assert house.state() == [("busy", 1), ("busy", 1)]
    for lease in leases:
        lease.release()


def test_callers_at_once_share_one_load(house, eventually):
    """Sixteen callers that ask while it loads cause one load, and all have it."""
    slow = Slow()
    callers = [house.opening(load=slow) for _ in range(16)]
    eventually(lambda: house.state() == [("loading", 16)])
    slow.go.set()
    leases = [outcome(caller) for caller in callers]
    assert {lease.resident.handle for lease in leases} == {"one"}
    assert house.loads == ["key"]
    assert house.state() == [("busy", 16)]


def test_error_a_failed_load_is_shared_and_the_next_caller_tries_again(house, eventually):
    """Everyone who waits gets the failure of the one load; later callers load anew."""
    slow = Slow(LoadError("no such weights"))
    callers = [house.opening(load=slow) for _ in range(4)]
    eventually(lambda: house.state() == [("loading", 4)])
    slow.go.set()
    assert [str(outcome(caller)) for caller in callers] == ["no such weights"] * 4
    assert house.loads == ["key"]
    assert house.state() == []
    house.open().release()


def test_error_after_the_second_failure_callers_wait_for_a_moment(house, clock):
    """They get the last error without a load, `loaded` says so, and then it is tried again."""
    clock.rule("failures")
    failing = Slow(LoadError("no such weights"))
    failing.go.set()
    for _ in range(2):
        with pytest.raises(LoadError):
            house.open(load=failing)
    with pytest.raises(LoadError, match="no such weights"):
        house.open()
    assert len(house.loads) == 2
    assert house.state() == [("failed", 0)]
    house.open("other").release()
    clock.advance(1.1)
    house.open().release()
    assert house.state() == [("ready", 0), ("ready", 0)]


def test_a_load_that_went_well_is_a_new_beginning(house):
    """After it the first failure holds nobody up again."""
    failing = Slow(LoadError("no such weights"))
    failing.go.set()
    for _ in range(3):
        with pytest.raises(LoadError):
            house.open(load=failing)
        house.open().release()
        house.residency.unload(None, force=False)
    assert len(house.loads) == 6


@pytest.mark.parametrize(
    "error",
    [
        CancelledError("cancelled"),
        BusyError("no memory"),
        StateError("they would wait for each other"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_concerns_one_caller_alone_is_his_alone(house, eventually, error):
    """One who waits loads in his place, and nobody is held up afterwards."""
    slow = Slow(error)
    first = house.opening(load=slow)
    slow.has_begun()
    second = house.opening(load=lambda: "two")
    eventually(lambda: house.state() == [("loading", 2)])
    slow.go.set()
    assert outcome(first) is error
    assert outcome(second).resident.handle == "two"
    for _ in range(3):
        with pytest.raises(type(error)):
            house.open("other", load=slow)
    house.open("other").release()


def test_a_caller_who_waits_can_be_cancelled(house, eventually):
    """Waiting for another's load ends with the waiter's own cancellation; the load goes on."""
    slow, context = Slow(), Context()
    first = house.opening(load=slow)
    slow.has_begun()
    waiter = house.opening(context=context)
    eventually(lambda: house.state() == [("loading", 2)])
    context.cancel()
    assert isinstance(outcome(waiter), CancelledError)
    assert house.state() == [("loading", 1)]
    slow.go.set()
    assert outcome(first).resident.handle == "one"


def test_error_a_load_that_was_cancelled_and_came_good_is_kept_for_the_next(house):
    """The caller gets CancelledError; what was loaded is not thrown away."""
    slow, context = Slow(), Context()
    first = house.opening(load=slow, context=context)
    slow.has_begun()
    context.cancel()
    slow.go.set()
    assert isinstance(outcome(first), CancelledError)
    assert house.state() == [("ready", 0)]
    assert house.open().resident.handle == "one"


def test_error_the_wait_for_anothers_load_has_an_end():
    """Where another's load never ends, callers are not held for ever."""
    house = House(queue_timeout_s=0.05)
    slow = Slow()
    given = {"load": slow, "offer": offer_of(load_timeout_s=0.05)}
    first = house.opening(**given)
    slow.has_begun()
    with pytest.raises(BusyError, match=r"fake-echo is loading for another caller.*force=True"):
        house.open(**given)
    assert house.state() == [("loading", 1)]
    slow.go.set()
    outcome(first).release()


class SlowBinding(FakeBinding):
    """Takes its time to close."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()

    def close(self, handle):
        super().close(handle)
        assert self.go.wait(PATIENCE_S)


@pytest.mark.parametrize("why", ["asked", "forced", "idle"])
def test_who_comes_while_it_is_unloaded_opens_anew(eventually, why):
    """He waits for the unload, so that both are not in memory."""
    house = House(idle_timeout_s=1e-9, grace_s=PATIENCE_S)
    house.binding = SlowBinding()
    house.open().release()
    assert house.residency.is_unload_due()
    unloading = Background(
        house.residency.unload_idle
        if why == "idle"
        else partial(house.residency.unload, "fake-echo", force=why == "forced")
    )
    eventually(lambda: house.state() == [("unloading", 0)])
    opening = house.opening()
    assert house.loads == ["key"]
    house.binding.go.set()
    assert outcome(unloading) is None
    outcome(opening).release()
    assert house.loads == ["key", "key"]


def test_error_the_wait_for_an_unload_has_an_end(eventually):
    """A plugin whose close never comes back holds nobody for ever; by force it is forgotten."""
    house = House(queue_timeout_s=0.05)
    house.binding = SlowBinding()
    house.open().release()
    unloading = Background(lambda: house.residency.unload(None, force=False))
    eventually(lambda: house.state() == [("unloading", 0)])
    with pytest.raises(BusyError, match="fake-echo is unloading for another caller"):
        house.open()
    house.residency.unload(None, force=True)
    assert house.state() == []
    house.open().release()
    house.binding.go.set()
    assert outcome(unloading) is None


def test_closing_unloads_what_is_kept_and_goes_on_after_a_failure(house, caplog):
    """Close unloads everything idle; what fails is logged and the rest is unloaded too."""
    for handle in ("stubborn", "one"):
        house.open(handle).release()
    house.residency.close()
    assert house.binding.closed == ["stubborn", "one"]
    assert house.state() == []
    assert "closing fake-echo failed" in caplog.text


def test_what_is_in_use_at_close_is_unloaded_by_its_last_user(house):
    """A lease outlives close; giving it back unloads."""
    leases = [house.open() for _ in range(2)]
    house.residency.close()
    leases[0].release()
    assert house.binding.closed == []
    leases[1].release()
    assert house.binding.closed == ["key"]


def test_what_loads_at_close_is_unloaded_too(house):
    """A load that ends after close leaves nothing open."""
    slow = Slow()
    first = house.opening(load=slow)
    slow.has_begun()
    house.residency.close()
    slow.go.set()
    outcome(first).release()
    assert house.binding.closed == ["one"]
    assert house.state() == []


def test_error_nothing_is_opened_after_close(house):
    """A closed registry loads nothing."""
    house.residency.close()
    with pytest.raises(StateError, match="the registry is closed"):
        house.open()
    assert house.loads == []


def test_closing_waits_for_an_unload_under_way(house, eventually):
    """What another thread unloads is gone when close returns, where that takes no longer."""
    house = House(grace_s=PATIENCE_S)
    house.binding = SlowBinding()
    house.open().release()
    unloading = Background(lambda: house.residency.unload(None, force=False))
    eventually(lambda: house.binding.closed == ["key"])
    closing = Background(house.residency.close)
    closing.join(0.05)
    assert closing.is_alive()
    house.binding.go.set()
    assert outcome(closing) is None
    assert outcome(unloading) is None


def test_a_cartridge_that_does_not_stop_is_stuck(house):
    """It takes nobody until it is out; then it is unloaded, and the next call opens it anew."""
    lease = house.open()
    house.residency.give_up(lease)
    assert house.state() == [("stuck", 1)]
    with pytest.raises(StateError, match=r"fake-echo is stuck.*unload\('fake-echo', force=True\)"):
        house.open()
    lease.release()
    assert house.binding.closed == ["key"]
    assert house.state() == []
    house.open().release()


def test_a_stuck_cartridge_keeps_those_who_are_inside(house):
    """Other users go on; it is unloaded by the last of them."""
    stuck, other = house.open(), house.open()
    house.residency.give_up(stuck)
    stuck.release()
    assert house.state() == [("stuck", 1)]
    assert other.resident.handle == "key"
    other.release()
    assert house.binding.closed == ["key"]


def test_error_a_stuck_load_shares_its_failure_with_those_who_wait(house, eventually):
    """They hear that it is stuck; what comes of the load after all is unloaded."""
    slow = Slow()
    lease = house.lease(load=slow)
    first = Background(lambda: house.residency.open(lease, Context()))
    slow.has_begun()
    waiters = [house.opening() for _ in range(3)]
    eventually(lambda: house.state() == [("loading", 4)])
    house.residency.give_up(lease)
    for waiter in waiters:
        error = outcome(waiter)
        assert isinstance(error, StateError)
        assert "fake-echo is stuck" in str(error)
    assert house.state() == [("stuck", 1)]
    slow.go.set()
    assert isinstance(outcome(first), StateError)
    assert house.binding.closed == ["one"]
    assert house.state() == []


@pytest.mark.parametrize("keep", [True, False])
def test_giving_up_what_was_given_back_is_harmless(house, keep):
    """A call that came out just in time leaves its cartridge as it is."""
    lease = house.open(keep=keep)
    other = house.open(keep=True)
    lease.release()
    house.residency.give_up(lease)
    assert house.state() == [("busy", 1)]
    other.release()
    assert house.state() == [("ready", 0)]


def test_giving_up_twice_is_harmless(house):
    """Two calls may find it stuck."""
    leases = [house.open() for _ in range(2)]
    for lease in leases:
        house.residency.give_up(lease)
    for lease in leases:
        lease.release()
    assert house.binding.closed == ["key"]


def test_unloading_by_force_ends_every_use(house):
    """Everyone who uses it is told; it goes with the last of them."""
    leases: list[Lease] = []

    def revoke(number):
        leases[number].release()

    leases += [house.open(revoke=partial(revoke, number)) for number in range(3)]
    house.residency.unload("fake-echo", force=True)
    assert house.binding.closed == ["key"]
    assert house.state() == []


def test_unloading_by_force_leaves_behind_what_does_not_stop(house, caplog):
    """After the grace the next call opens anew; what is left is unloaded when it comes out."""
    lease = house.open()
    house.residency.unload(None, force=True)
    assert house.state() == []
    assert "fake-echo did not stop within 0.1 s" in caplog.text
    house.open().release()
    assert house.binding.closed == []
    lease.release()
    assert house.binding.closed == ["key"]
    assert house.state() == [("ready", 0)]


def test_nobody_new_comes_in_while_it_is_unloaded_by_force(eventually):
    """Who asks meanwhile waits, and opens it anew."""
    house = House(grace_s=PATIENCE_S)
    lease = house.open()
    forcing = Background(lambda: house.residency.unload(None, force=True))
    eventually(lambda: house.state() == [("unloading", 1)])
    opening = house.opening()
    assert house.loads == ["key"]
    lease.release()
    assert outcome(forcing) is None
    outcome(opening).release()
    assert house.loads == ["key", "key"]


def test_error_what_is_being_opened_is_cancelled_by_force(house, eventually):
    """Who loads and who waits get CancelledError, by hand too."""
    context = Context()
    slow = Slow(context=context)
    first = house.opening(load=slow, context=context)
    slow.has_begun()
    second = house.opening()
    eventually(lambda: house.state() == [("loading", 2)])
    house.residency.unload(None, force=True)
    assert isinstance(outcome(first), CancelledError)
    assert isinstance(outcome(second), CancelledError)
    assert house.state() == []


def test_error_a_load_that_ends_after_force_is_unloaded(house):
    """One who does not hear that he is cancelled is not left with an open cartridge."""
    slow = Slow()
    first = house.opening(load=slow)
    slow.has_begun()
    house.residency.unload(None, force=True)
    assert house.state() == []
    slow.go.set()
    assert isinstance(outcome(first), CancelledError)
    assert house.binding.closed == ["one"]


def test_force_does_not_wait_for_a_revoke_that_never_returns(house):
    """A plugin's cancel that hangs holds up nobody, and one that fails is logged."""
    never = threading.Event()
    told: list[str] = []

    def fail():
        told.append("failed")
        msg = "will not be cancelled"
        raise BackendError(msg)

    leases = [
        house.open(revoke=lambda: never.wait(PATIENCE_S)),
        house.open(revoke=fail),
        house.open(revoke=lambda: told.append("told")),
    ]
    house.residency.unload(None, force=True)
    assert sorted(told) == ["failed", "told"]
    never.set()
    for lease in leases:
        lease.release()
    assert house.binding.closed == ["key"]


def test_error_unloading_what_is_in_use(house):
    """The rest is unloaded; the error names what is in use, and its state."""
    used = house.open("used")
    house.open("idle").release()
    with pytest.raises(BusyError, match=r"in use: fake-echo \(busy\); unload later, or with force"):
        house.residency.unload(None, force=False)
    assert house.binding.closed == ["idle"]
    used.release()
    house.residency.unload(None, force=False)
    assert house.binding.closed == ["idle", "used"]


def test_unloading_what_is_not_open_is_harmless(house):
    """Nothing happens to the others."""
    house.open().release()
    house.residency.unload("fake-other", force=True)
    assert house.state() == [("ready", 0)]


def test_a_cartridge_in_a_process_is_closed_with_it(house):
    """Its handle is closed, and its process ended."""
    worker = FakeWorker()
    house.open(worker=worker).release()
    assert [one.pid for one in house.residency.loaded()] == [4711]
    assert house.residency.workers() == [worker]
    house.residency.unload(None, force=False)
    assert (house.binding.closed, worker.told) == (["key"], ["ended"])


def test_a_process_that_died_is_forgotten_and_ended(house, eventually):
    """Nothing is asked of it any more, and the next call opens anew."""
    worker = FakeWorker()
    house.open(worker=worker).release()
    worker.die()
    assert house.state() == []
    eventually(lambda: worker.told == ["ended"])
    house.open(worker=FakeWorker()).release()
    assert house.binding.closed == []
    assert house.stats.seen()["worker_deaths"] == 1


def test_a_process_that_died_in_use_is_ended_by_its_last_user(house):
    """The next call opens anew at once."""
    worker = FakeWorker()
    leases = [house.open(worker=worker) for _ in range(2)]
    worker.die()
    house.open(worker=FakeWorker()).release()
    leases[0].release()
    assert worker.told == []
    leases[1].release()
    assert (worker.told, house.binding.closed) == (["ended"], [])
    assert house.state() == [("ready", 0)]


@pytest.mark.parametrize("users", [0, 1, 2])
def test_a_process_that_died_takes_no_user_before_its_death_is_told(house, users, eventually):
    """Who asks right after its callers heard of it gets a new one, and not their error."""
    worker, fresh = FakeWorker(), FakeWorker()
    leases = [house.open(worker=worker) for _ in range(max(1, users))]
    if not users:
        leases.pop().release()
    worker.is_alive = False
    house.open(worker=fresh).release()
    assert (worker.told, house.residency.workers()) == ([], [fresh])
    worker.die()
    for lease in leases:
        lease.release()
    eventually(lambda: worker.told == ["ended"])
    assert (house.binding.closed, house.residency.workers()) == ([], [fresh])
    assert house.stats.seen()["worker_deaths"] == 1


def test_error_who_waits_for_a_turn_in_a_process_hears_that_it_died(house):
    """He does not wait for a place that nobody gives back."""
    worker = FakeWorker()
    inside, outside = (house.open(worker=worker) for _ in range(2))
    inside.resident.enter(Context())
    told = threading.Event()
    waiting = Background(lambda: outside.resident.enter(Context(), lambda _: told.set()))
    assert told.wait(PATIENCE_S)
    worker.die()
    assert isinstance(outcome(waiting), CartridgeDiedError)
    inside.resident.leave()
    for lease in (inside, outside):
        lease.release()
    assert worker.told == ["ended"]


def doubted(house, **given):
    """Open one that is silent for too long, and have somebody else ask for it; give both."""
    lease = house.open(**given)
    for _ in range(2):
        house.residency.doubt(lease)
    coming = house.opening(worker=FakeWorker())
    coming.join(0.2)
    assert coming.is_alive()
    assert house.state() == [("busy", 1)]
    return lease, coming


def test_nobody_joins_what_is_to_stop_until_it_is_out(house):
    """Then it takes users again."""
    lease, coming = doubted(house)
    lease.release()
    outcome(coming).release()
    assert house.loads == ["key"]


def test_who_comes_while_a_process_is_to_stop_has_the_next_one(house):
    """It is killed since it does not."""
    lease, coming = doubted(house, worker=FakeWorker())
    house.residency.give_up(lease)
    outcome(coming).release()
    assert house.loads == ["key", "key"]
    lease.release()
    assert house.state() == [("ready", 0)]


def test_error_who_comes_while_it_is_to_stop_hears_that_it_is_stuck(house):
    """In this process nothing can be killed."""
    lease, coming = doubted(house)
    house.residency.give_up(lease)
    assert "fake-echo is stuck" in str(outcome(coming))
    lease.release()


def test_one_of_two_that_is_out_leaves_the_other_in_doubt(house):
    """Each that has been silent for too long counts by itself."""
    other = house.open()
    house.residency.doubt(other)
    (lease,) = [house.lease()]
    coming = Background(lambda: house.residency.open(lease, Context()))
    coming.join(0.1)
    assert coming.is_alive()
    other.release()
    house.residency.doubt(other)
    assert outcome(coming) is None
    lease.release()
    house.open().release()


@pytest.mark.parametrize("stage", ["loading", "loaded"])
def test_a_process_that_does_not_stop_is_killed(house, stage):
    """It is not stuck: whoever comes next has a new one."""
    worker, slow = FakeWorker(), Slow(BackendError("died"))
    lease = house.lease(worker=worker, load=slow if stage == "loading" else None)
    using = Background(lambda: house.residency.open(lease, Context()))
    if stage == "loading":
        slow.has_begun()
    else:
        assert outcome(using) is None
    house.residency.give_up(lease)
    assert worker.told == ["killed: it did not stop when asked to"]
    slow.go.set()
    using.join(PATIENCE_S)
    lease.release()
    house.open(worker=FakeWorker()).release()
    assert house.state() == [("ready", 0)]


def test_a_process_that_does_not_stop_is_killed_by_force(house):
    """Unloading by force kills it after the grace."""
    worker = FakeWorker()
    lease = house.open(worker=worker)
    house.residency.unload(None, force=True)
    assert worker.told == ["killed: it was unloaded by force"]
    lease.release()
    assert worker.told[1:] == ["ended"]
    assert house.binding.closed == []


def test_a_process_may_die_while_the_registry_closes(house, monkeypatch):
    """There is nobody to unload it any more, and nobody is told of that."""

    def refuse(job):
        msg = "the registry is closed"
        raise StateError(msg)

    worker = FakeWorker()
    house.open(worker=worker).release()
    monkeypatch.setattr(house.residency, "_run", refuse)
    worker.die()
    house.residency.close()
    assert house.state() == []


def test_everything_is_counted(house):
    """Loads, failed loads and unloads."""
    house.open().release()
    house.open(keep=False).release()
    with pytest.raises(LoadError):
        house.open("other", load=lambda: (_ for _ in ()).throw(LoadError("no")))
    house.residency.unload(None, force=False)
    counts = {name: count for name, count in house.stats.seen().items() if count}
    assert counts == {"loads": 1, "failed_loads": 1, "unloads": 1}


@pytest.fixture
def hasty():
    """Switch threads as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("seed", range(3))
def test_under_haste_everything_that_was_opened_is_closed_once(seed):
    """Opens, releases, failures, stuck ones, unloads and force from many threads at once."""
    house = House(grace_s=0.002)
    handles, lock = [0], threading.Lock()

    def load():
        with lock:
            handles[0] += 1
            number = handles[0]
        if number % 5 == 0:
            msg = "no luck"
            raise StateError(msg)
        return number

    def come_and_go(own):
        rng = random.Random(own)  # noqa: S311 -- not for secrets
        for _ in range(60):
            try:
                lease = house.open(rng.choice("ab"), keep=rng.random() < 0.7, load=load)
            except (StateError, CancelledError):
                continue
            if rng.random() < 0.1:
                house.residency.give_up(lease)
            if rng.random() < 0.5:
                threading.Event().wait(rng.random() * 0.001)
            releases = [Background(lease.release)] if rng.random() < 0.2 else []
            lease.release()
            for one in releases:
                assert outcome(one) is None

    def sweep():
        for turn in range(40):
            try:
                house.residency.unload(None, force=turn % 3 == 0)
            except BusyError:
                threading.Event().wait(0.001)

    jobs = [Background(partial(come_and_go, seed * 100 + own)) for own in range(6)]
    jobs.append(Background(sweep))
    assert [outcome(job) for job in jobs] == [None] * len(jobs)
    house.residency.unload(None, force=False)
    assert house.state() == []
    assert house.residency._leases == {}
    loaded = house.stats.seen()["loads"]
    assert len(house.binding.closed) == loaded
    assert len(set(house.binding.closed)) == loaded
