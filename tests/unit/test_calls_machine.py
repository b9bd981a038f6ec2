"""
Any sequence of calls, cancels, crashes, unloads, failures and timeouts: nothing hangs or is lost.

Of the four cartridges two are in processes, which are none here: they are so fast that ten
thousand steps take less than a minute. What a cartridge does is in the text that it is given, and
takes a bounded time, so that the same sequences can be run with real processes: override
`make_registry`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis import stateful
from hypothesis import strategies as st

from cartridge_core.activation import Plugins
from cartridge_core.errors import (
    ActivityTimeoutError,
    BusyError,
    CancelledError,
    CartridgeDiedError,
    CartridgeError,
    LoadError,
    StateError,
)
from cartridge_core.limits import Limits
from cartridge_core.resident import LoadState
from cartridge_core.testing.background import Background
from cartridge_core.testing.registries import registry_of
from tests.integration.worker_plugins.plugin_moody import make_all
from tests.unit.fake_processes import FakeProcesses

if TYPE_CHECKING:
    from cartridge_core.calls import Call
    from cartridge_core.cartridge import Cartridge
    from cartridge_core.session import Session

PATIENCE_S = 30.0
STEPS = 10_000
IN_PROCESSES = {"one-text": "process", "three-text": "process"}
BUDGET = 10
LIMITS = Limits(
    memory_budget_bytes=BUDGET,
    idle_timeout_s=1000.0,
    activity_timeout_s=100.0,
    keepalive_s=0.02,
    queue_timeout_s=0.05,
    grace_s=0.01,
)

MOODS = st.sampled_from(["well", "slow", "deaf", "chatty", "fail"])
LOADS = st.sampled_from(["", "", "slow", "deaf", "fail"])
CAPS = st.sampled_from(["one", "two", "three", "four"])
WHICH = st.integers(0, 7)


def one_of(things, which):
    """Give one of the last few things, where there is one."""
    return things[-8:][which : which + 1]


class Clock:
    """The clock of silences, idle times and failed loads: it moves by a rule."""

    def __init__(self):
        self.now_s = 1000.0
        self.patch = pytest.MonkeyPatch()
        stand_in = SimpleNamespace(monotonic=lambda: self.now_s)
        for module in ("activity", "failures"):
            self.patch.setattr(f"cartridge_core.{module}.time", stand_in)
        self.patch.setattr("cartridge_core.room._PATIENCE_S", 0.01)

    def close(self):
        self.patch.undo()


def threads():
    return set(threading.enumerate())


def files():
    """Count what this process has open, where the system tells."""
    folder = Path("/proc/self/fd")
    return len(os.listdir(folder)) if folder.exists() else 0


def result(call):
    return call.result().payload


def inferred(session, text):
    return session.infer(text).payload


class Machine(stateful.RuleBasedStateMachine):
    """A registry, and what users do with it."""

    DEATHS = (ActivityTimeoutError, CartridgeDiedError, LoadError)
    REFUSALS = (StateError, CancelledError, *DEATHS)

    steps = 0
    deaths = 0

    def __init__(self):
        super().__init__()
        self.threads = threads()
        self.files = files()
        self.clock = Clock()
        self.made = make_all()
        self.registry = self.make_registry()
        self.number = 0
        self.running: list[tuple[Background, object]] = []
        self.followed: list[Call] = []
        self.unread: list[tuple[Call, str]] = []
        self.by_hand: list[Cartridge] = []
        self.sessions: list[Session] = []

    def make_registry(self):
        self.processes = FakeProcesses(self.made)
        self.clock.patch.setattr(Plugins, "start", self.processes.start)
        return registry_of(*self.made, isolation=IN_PROCESSES, limits=LIMITS)

    def killers(self):
        """Give what ends each process."""
        return [one.die for one in self.processes.alive()]

    def text(self, mood):
        self.number += 1
        return f"{mood}-{self.number}"

    def start(self, name, mood, load):
        """Start a call; give it, and what it has to give."""
        text = self.text(mood)
        call = self.registry.stream(f"cap:{name}", text, load=load)
        return call, text

    def payload(self, cap, text):
        return self.registry.call(cap, text).payload

    def follow(self, work, expected):
        self.running.append((Background(work), expected))

    @stateful.rule(name=CAPS, mood=MOODS, load=LOADS)
    def call_and_follow(self, name, mood, load):
        call, text = self.start(name, mood, load)
        self.follow(partial(result, call), text)
        self.followed.append(call)

    @stateful.rule(name=CAPS, mood=MOODS, load=LOADS)
    def call_and_leave_unread(self, name, mood, load):
        self.unread.append(self.start(name, mood, load))

    @stateful.rule(pieces=st.lists(MOODS, max_size=4), load=LOADS)
    def call_with_pieces(self, pieces, load):
        texts = [self.text(mood) for mood in pieces]
        self.follow(
            lambda: self.registry.call("cap:three", iter(texts), load=load).payload, "".join(texts)
        )

    @stateful.rule(name=CAPS, number=st.integers(2, 5), mood=MOODS)
    def many_calls_at_once(self, name, number, mood):
        for _ in range(number):
            text = self.text(mood)
            self.follow(partial(self.payload, f"cap:{name}", text), text)

    @stateful.rule(which=WHICH)
    def cancel(self, which):
        for call in one_of(self.followed, which):
            call.cancel()

    @stateful.rule(which=WHICH)
    def cancel_from_another_thread(self, which):
        for call in one_of(self.followed, which):
            self.follow(call.cancel, None)

    @stateful.rule(which=WHICH)
    def close(self, which):
        for call in one_of(self.followed, which):
            call.close()

    @stateful.rule(which=WHICH, count=st.integers(1, 12))
    def take_some_and_close(self, which, count):
        def take(call):
            with call:
                for _ in range(count):
                    next(call, None)

        for call, _ in one_of(self.unread, which):
            self.follow(partial(take, call), None)

    @stateful.rule()
    def drop(self):
        self.unread = self.unread[:-1]

    @stateful.rule(which=WHICH)
    def cancel_unread(self, which):
        for call, _ in one_of(self.unread, which):
            call.cancel()

    @stateful.rule()
    def read(self):
        for call, text in self.unread:
            self.follow(partial(result, call), text)
        self.unread = []

    @stateful.rule(name=st.sampled_from([None, "one-text", "two-text"]), force=st.booleans())
    def unload(self, name, force):
        with contextlib.suppress(BusyError):
            self.registry.unload(name, force=force)

    @stateful.rule(name=CAPS, load=st.sampled_from(["", "slow"]))
    def open_by_hand(self, name, load):
        with contextlib.suppress(*self.REFUSALS):
            self.by_hand.append(self.registry.open(f"{name}-text", load=load))

    @stateful.rule(which=WHICH)
    def begin(self, which):
        for cartridge in one_of(self.by_hand, which):
            with contextlib.suppress(*self.REFUSALS):
                self.sessions.append(cartridge.session())

    @stateful.rule(which=WHICH, mood=MOODS)
    def infer_by_hand(self, which, mood):
        text = self.text(mood)
        for session in one_of(self.sessions, which):
            self.follow(partial(inferred, session, text), text)

    @stateful.rule(which=WHICH)
    def cancel_by_hand(self, which):
        for session in one_of(self.sessions, which):
            session.cancel()

    @stateful.rule(which=WHICH)
    def end(self, which):
        for session in one_of(self.sessions, which):
            with contextlib.suppress(*self.REFUSALS):
                session.end()

    @stateful.rule(which=WHICH)
    def close_by_hand(self, which):
        for cartridge in one_of(self.by_hand, which):
            with contextlib.suppress(*self.REFUSALS):
                cartridge.close()

    @stateful.rule(which=WHICH)
    def kill_a_process(self, which):
        for kill in one_of(self.killers(), which):
            kill()

    @stateful.rule(name=CAPS, number=st.integers(1, 5), pause_s=st.floats(0, 0.02))
    def kill_the_process_of_calls(self, name, number, pause_s):
        for _ in range(number):
            self.call_and_follow(name, "slow", "")
        time.sleep(pause_s)
        for kill in self.killers()[-1:]:
            kill()

    @stateful.rule(seconds=st.sampled_from([1.0, 50.0, 101.0]))
    def time_passes(self, seconds):
        self.clock.now_s += seconds

    @stateful.rule()
    def wait_a_moment(self):
        time.sleep(0.002)

    @stateful.invariant()
    def a_step_is_counted(self):
        type(self).steps += 1

    @stateful.invariant()
    def what_is_loaded_is_consistent(self):
        loaded = self.registry.loaded()
        assert sum(one.memory_bytes for one in loaded) <= BUDGET
        for one in loaded:
            assert one.users >= 0
            assert (one.state is LoadState.BUSY) <= (one.users > 0)
            assert (one.state is LoadState.READY) <= (one.users == 0)

    @stateful.invariant()
    def what_is_over_ended_well(self):
        over = [one for one in self.running if not one[0].is_alive()]
        self.running = [one for one in self.running if one[0].is_alive()]
        for work, expected in over:
            self.check(work, expected)

    @staticmethod
    def check(work, expected):
        """A call gives its own result, or one of our errors."""
        if work.error is None:
            assert expected is None or work.result == expected
        else:
            assert isinstance(work.error, CartridgeError), repr(work.error)

    def teardown(self):
        try:
            self.finish()
        finally:
            self.registry.close()
            self.clock.close()
        self.look_at_what_is_left()
        assert self.registry.loaded() == ()
        until(lambda: threads() <= self.threads)
        until(lambda: files() <= self.files)

    def look_at_what_is_left(self):
        """Everything that began has ended, but for what died."""
        type(self).deaths += self.processes.count_of_deaths()
        assert not self.processes.alive()
        for fake in self.made:
            if fake.descriptor.id not in IN_PROCESSES:
                for one, other in [("open", "close"), ("session_begin", "session_end")]:
                    assert fake.calls.count(one) == fake.calls.count(other), (fake, fake.calls)

    def finish(self):
        """Let everything come to its end, and see that nothing is missing."""
        for call, _ in self.unread:
            call.close()
        for work, expected in self.running:
            work.join(PATIENCE_S)
            assert not work.is_alive(), "a call hangs"
            self.check(work, expected)
        for cartridge in self.by_hand:
            with contextlib.suppress(*self.DEATHS):
                cartridge.close()

        def is_counted():
            stats = self.registry.stats()
            ends = ("results", "cancelled", "failed", "timed_out")
            return stats["calls"] == sum(stats[name] for name in ends)

        until(is_counted)
        until(lambda: {one.state for one in self.registry.loaded()} <= {"ready", "failed"})
        for place in self.registry._loader._residency._places.all():
            assert all(queue._inside == 0 for queue in place.resident.queues)
            assert all(queue._free == queue._places for queue in place.resident.queues)
        # A deaf cartridge that was left behind comes out in its own time.
        until(lambda: not self.registry._loader._residency._leases)
        assert all(queue._free == 1 for queue in self.registry._loader._devices.values())


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"waited {PATIENCE_S:g} s in vain"
        time.sleep(0.001)


SETTINGS = hypothesis.settings(
    max_examples=20,
    stateful_step_count=100,
    deadline=None,
    database=None,
    # Threads make no sequence fail in the same way twice: there is nothing to shrink.
    phases=[hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)


@pytest.mark.timeout(300)
def test_ten_thousand_steps():
    """Whatever users and processes do, in whatever order."""
    while Machine.steps < STEPS:
        stateful.run_state_machine_as_test(Machine, settings=SETTINGS)
    assert Machine.deaths > STEPS / 100
