"""Silent cartridges: the host speaks for them, and ends what has been silent for too long."""

from __future__ import annotations

import itertools
import logging
import threading

import attrs
import pytest

from cartridge_core.errors import ActivityTimeoutError, CancelledError, StateError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.limits import Limits
from cartridge_core.progress import Log, Phase, Progress
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing.background import Background
from cartridge_core.testing.descriptors import fake_cap, fake_descriptor
from cartridge_core.testing.fakes import BatchEcho, StreamingEcho
from cartridge_core.testing.registries import registry_of

PATIENCE_S = 30.0
ECHO = "cap:echo"
HEAR = "cap:hear"

# Seconds of silence are those of the test's own clock; keepalive, grace and queue are real ones.
LIMITS = Limits(activity_timeout_s=10.0, keepalive_s=0.02, grace_s=0.05)


@pytest.fixture(autouse=True)
def _rule(clock):
    clock.rule("activity")


def ended(clock, calling, step_s=11.0):
    """Let time go by until a call is over, and give its error."""
    clock.pass_until(lambda: not calling.is_alive(), step_s)
    return outcome(calling)


def outcome(background):
    background.join(PATIENCE_S)
    assert not background.is_alive()
    return background.error or background.result


def is_running(event):
    return isinstance(event, Progress) and event.message == "Running"


def still_at_work(event):
    return isinstance(event, Progress) and event.message.startswith("Still at work")


class Works(BatchEcho):
    """A batch cartridge that does what a test says with its context."""

    plugin_name = "works"
    descriptor = fake_descriptor("works-text", caps=[fake_cap("work")])

    def __init__(self, work):
        super().__init__()
        self.work = work

    @hookimpl
    def cartridge_infer(self, session, value):
        self.saw("infer")
        return Result(ResultKind.FINAL, self.work(session.context))


def test_the_host_speaks_for_a_silent_cartridge(gated):
    """In every silent moment the caller gets the last progress again, and the bar stays."""
    fake = gated()
    fake.close_gate("infer")
    with registry_of(fake, limits=LIMITS) as registry, registry.stream(ECHO, "x") as call:
        told = [next(call)]
        while not is_running(told[-1]):
            told.append(next(call))
        spoken = list(itertools.islice(call, 3))
        fake.open_gates()
        told += [*spoken, *call]
    running = Progress(0.35, "Still at work: Running", phase=Phase.INFER)
    assert spoken == [running] * 3
    fractions = [event.fraction for event in told if isinstance(event, Progress)]
    assert fractions == sorted(fractions)
    assert [event.payload for event in told if isinstance(event, Result)] == ["x"]


def test_the_host_speaks_for_a_load_too(gated):
    """Also before the first token, with the phase that the call is in."""
    fake = gated()
    fake.close_gate("opening")
    with registry_of(fake, limits=LIMITS) as registry, registry.stream(ECHO, "x") as call:
        event = next(event for event in call if still_at_work(event))
        assert event == Progress(0.25, "Still at work: Loading gated-text", phase=Phase.LOAD)
        fake.open_gates()
        assert call.result().payload == "x"


def test_a_caller_who_takes_no_events_gets_none(gated, clock):
    """Where nobody follows there is nobody to speak to, and nothing to wait for."""
    fake = gated()
    fake.close_gate("infer")
    with registry_of(fake, limits=LIMITS) as registry:
        calling = Background(lambda: registry.call(ECHO, "x"))
        clock.settle()
        fake.open_gates()
        assert outcome(calling).payload == "x"


def test_error_what_the_host_says_is_no_sign_of_life(gated, clock):
    """A cartridge for which the host speaks is ended like any."""
    fake = gated()
    fake.close_gate("inferring")
    with registry_of(fake, limits=LIMITS) as registry, registry.stream(ECHO, "x") as call:
        with pytest.raises(ActivityTimeoutError, match="gated-text: there was no sign of life"):
            list(map(lambda _: clock.advance(11), call))  # noqa: C417


def test_error_what_the_host_says_is_none_where_nobody_hears_it_either(gated, clock, eventually):
    """A caller who takes his time over a keepalive does not keep a silent cartridge alive."""
    fake = gated()
    fake.close_gate("inferring")
    with registry_of(fake, limits=LIMITS) as registry, registry.stream(ECHO, "x") as call:
        next(event for event in call if is_running(event))
        eventually(lambda: call._work.exchange._has_offered)
        clock.pass_until(lambda: registry.stats()["timed_out"], step_s=1.0)
        with pytest.raises(ActivityTimeoutError):
            list(call)


HOOKS = ["preflight", "session_begin", "infer", "session_end"]


@pytest.mark.parametrize("hook", HOOKS)
def test_error_a_batch_cartridge_that_hangs_anywhere_is_ended(gated, clock, eventually, hook):
    """Whichever hook does not come back, the caller gets ActivityTimeoutError, and no result."""
    fake = gated()
    fake.close_gate(hook)
    with registry_of(fake, limits=LIMITS) as registry:
        calling = Background(lambda: registry.call(ECHO, "x"))
        eventually(lambda: fake.inside[hook])
        clock.settle()
        assert calling.is_alive()
        assert isinstance(ended(clock, calling), ActivityTimeoutError)
        assert registry.stats()["timed_out"] == 1


@pytest.mark.parametrize("hook", ["push", "pull", "flush", "session_begin"])
def test_error_a_stream_that_hangs_anywhere_is_ended(gated_stream, clock, eventually, hook):
    """So it is with a streaming cartridge, whichever hook it is."""
    fake = gated_stream()
    fake.close_gate(hook)
    with registry_of(fake, limits=LIMITS) as registry:
        calling = Background(lambda: registry.call(HEAR, ["a", "b"]))
        eventually(lambda: fake.inside[hook])
        assert isinstance(ended(clock, calling), ActivityTimeoutError)


def progresses(clock, context):
    for _ in range(5):
        clock.advance(9)
        context.progress(0.1, "on the way")


def logs(clock, context):
    for _ in range(5):
        clock.advance(9)
        context.log("debug", "on the way")


def runs_with_keepalive(clock, context):
    clock.advance(9)
    context.run_with_keepalive(lambda: clock.advance(500), "a library", 600.0)
    clock.advance(9)


def waits_for_a_peer(clock, context):
    clock.advance(9)
    context.peer.call(ECHO, "peer").result()
    clock.advance(9)


SIGNS = [progresses, logs, runs_with_keepalive]


@pytest.mark.parametrize("sign", SIGNS)
def test_a_cartridge_that_shows_life_is_not_ended(clock, sign):
    """Work may take for ever as long as it shows life, or says what cannot."""

    def work(context):
        sign(clock, context)
        clock.settle()
        return "done"

    with registry_of(Works(work), limits=LIMITS) as registry:
        assert registry.call("cap:work", "x").payload == "done"


class Tokens(StreamingEcho):
    """Takes nine seconds for everything."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def saw(self, hook):
        super().saw(hook)
        if hook in HOOKS_OF_A_CALL:
            self.clock.advance(9)
            self.clock.settle()


HOOKS_OF_A_CALL = ["preflight", "open", "session_begin", "push", "pull", "flush", "session_end"]


def test_every_hook_that_returns_is_a_sign_of_life(clock):
    """A stream of slow tokens goes on to its end."""
    with registry_of(Tokens(clock), limits=LIMITS) as registry:
        assert registry.call(ECHO, ["a", "b", "c"]).payload == "abc"


def test_the_clock_stands_still_while_the_callers_iterable_is_waited_for(clock):
    """A person may think as long as he likes about what to say next."""

    def words():
        for word in "ab":
            clock.advance(1000)
            clock.settle()
            yield word

    with registry_of(StreamingEcho(), limits=LIMITS) as registry:
        assert registry.call(ECHO, words()).payload == "ab"


def test_the_clock_stands_still_while_an_event_is_unread(gated, clock, eventually):
    """A caller may take as long as he likes over what he was given."""
    fake = gated()
    fake.close_gate("infer")
    with registry_of(fake, limits=LIMITS) as registry, registry.stream(ECHO, "x") as call:
        next(call)
        eventually(lambda: fake.inside["infer"])
        clock.advance(1000)
        clock.settle()
        fake.open_gates()
        assert call.result().payload == "x"


def test_error_an_unread_event_is_no_excuse_for_a_call_that_was_stopped(gated, clock, eventually):
    """A cartridge that does not obey is let go, though its caller left with events unread."""
    fake = gated()
    fake.close_gate("infer")
    with registry_of(fake, limits=LIMITS) as registry:
        call = registry.stream(ECHO, "x")
        eventually(lambda: fake.inside["infer"])
        call.close()
        clock.pass_until(lambda: [one.state.value for one in registry.loaded()] == ["stuck"])


def test_a_stopped_call_does_not_wait_for_its_caller(eventually):
    """A cartridge that has more to say than its caller reads is free at once after a cancel."""

    def work(context):
        for number in range(100):
            context.log("info", str(number))
            context.check_cancelled()

    fake = Works(work)
    with registry_of(fake) as registry:
        call = registry.stream("cap:work", "x")
        eventually(lambda: "infer" in fake.calls)
        call.cancel()
        eventually(lambda: "session_end" in fake.calls)
        with pytest.raises(CancelledError):
            list(call)


def test_the_clock_stands_still_while_queued(gated, clock):
    """Waiting for one's turn is no silence."""
    fake = gated(max_concurrent_sessions=1)
    with registry_of(fake, limits=LIMITS) as registry, registry.open("gated-text") as cartridge:
        with cartridge.session():
            call = registry.stream(ECHO, "x")
            for event in call:
                if isinstance(event, Log):
                    break
            clock.advance(1000)
            event = next(event for event in call if still_at_work(event))
        assert call.result().payload == "x"
        assert isinstance(event, Progress)
        assert event.message == "Still at work: Waiting for a session of gated-text: 1 in use"


@pytest.mark.parametrize("comes_back", [True, False])
@pytest.mark.parametrize("name", ["reading weights", ""])
def test_error_blocking_work_has_a_limit_of_its_own(clock, eventually, comes_back, name):
    """run_with_keepalive's limit ends the call, whether or not the work comes back."""
    go = threading.Event()

    def work(context):
        def block():
            clock.advance(6)
            if not comes_back:
                go.wait(PATIENCE_S)
            eventually(lambda: context.cancelled)

        context.run_with_keepalive(block, name, 5.0)

    fake = Works(work)
    what = name or "a blocking call"
    with registry_of(fake, limits=LIMITS) as registry:
        with pytest.raises(ActivityTimeoutError, match=f"works-text: {what} has not ended within"):
            registry.call("cap:work", "x")
        go.set()
        eventually(lambda: "session_end" in fake.calls)


def test_a_load_has_the_limit_that_its_descriptor_says(gated, clock, eventually):
    """A silent load may take longer than silence usually may, and not longer than declared."""
    fake = gated(load_timeout_s=50)
    fake.close_gate("opening")
    with registry_of(fake, limits=LIMITS) as registry:
        calling = Background(lambda: registry.call(ECHO, "x"))
        eventually(lambda: fake.inside["opening"])
        clock.advance(49)
        clock.settle()
        assert calling.is_alive()
        error = ended(clock, calling, 2)
        assert isinstance(error, ActivityTimeoutError)
        assert "loading gated-text has not ended within its limit of 50 s" in str(error)


@pytest.mark.parametrize(("declared", "silent_s"), [("2", 3), ("60", 61)], ids=["less", "more"])
def test_a_cap_may_say_its_own_limit(gated, clock, eventually, declared, silent_s):
    """CapDAG's activity_timeout_secs comes before the registry's."""
    fake = gated(metadata={"activity_timeout_secs": declared})
    fake.close_gate("inferring")
    with registry_of(fake, limits=LIMITS) as registry:
        calling = Background(lambda: registry.call(ECHO, "x"))
        eventually(lambda: fake.inside["inferring"])
        clock.advance(silent_s - 2)
        clock.settle()
        assert calling.is_alive()
        assert f"no sign of life for {declared} s" in str(ended(clock, calling, 2))


def test_after_a_timeout_an_obedient_cartridge_is_as_good_as_before(gated, clock, eventually):
    """It was asked to stop and did: it stays loaded, and takes the next call."""
    fake = gated()
    gate = fake.close_gate("inferring")
    with registry_of(fake, limits=LIMITS) as registry:
        calling = Background(lambda: registry.call(ECHO, "x"))
        eventually(lambda: fake.inside["inferring"])
        assert isinstance(ended(clock, calling), ActivityTimeoutError)
        eventually(lambda: [one.state.value for one in registry.loaded()] == ["ready"])
        gate.set()
        assert registry.call(ECHO, "y").payload == "y"
    assert fake.calls.count("open") == 1
    assert fake.calls.count("cancel") == 1


@pytest.mark.parametrize("obeys", [True, False], ids=["obeys", "is-stuck"])
def test_a_call_that_comes_after_a_timeout_joins_nothing_that_does_not_stop(
    gated, clock, eventually, obeys
):
    """It waits, as long as the grace lasts, for what comes of the cartridge."""
    fake = gated()
    gate = fake.close_gate("infer")
    limits = attrs.evolve(LIMITS, grace_s=PATIENCE_S if obeys else 0.3)
    with registry_of(fake, limits=limits) as registry:
        calling = Background(lambda: registry.call(ECHO, "x"))
        eventually(lambda: fake.inside["infer"])
        assert isinstance(ended(clock, calling), ActivityTimeoutError)
        del fake.shut["infer"]
        coming = Background(lambda: registry.call(ECHO, "y"))
        coming.join(0.1)
        assert coming.is_alive()
        assert fake.calls.count("session_begin") == 1
        if obeys:
            gate.set()
            assert outcome(coming).payload == "y"
        else:
            assert "gated-text is stuck" in str(outcome(coming))
            gate.set()


def make_stuck(registry, fake, clock, eventually, hook="infer"):
    """Let a call hang in a hook until its cartridge is stuck."""
    fake.close_gate(hook)
    calling = Background(lambda: registry.call(ECHO, "x"))
    eventually(lambda: fake.inside[hook])
    assert isinstance(ended(clock, calling, 700), ActivityTimeoutError)
    eventually(lambda: "stuck" in [one.state.value for one in registry.loaded()])
    return fake.shut.pop(hook)


@pytest.mark.parametrize("hook", ["open", *HOOKS])
def test_error_a_stuck_cartridge_takes_no_call(gated, clock, eventually, caplog, hook):
    """Inline nothing can stop it: it refuses by name, until it is unloaded by force."""
    fake = gated()
    with registry_of(fake, limits=LIMITS) as registry:
        gate = make_stuck(registry, fake, clock, eventually, hook)
        with pytest.raises(StateError, match=r"gated-text is stuck.*unload\('gated-text', for"):
            registry.call(ECHO, "y")
        with pytest.raises(StateError, match="gated-text is stuck"):
            registry.open("gated-text")
        registry.unload("gated-text", force=True)
        assert registry.loaded() == ()
        assert registry.call(ECHO, "z").payload == "z"
        opens = fake.calls.count("open")
        assert opens == (1 if hook == "preflight" else 2)
        gate.set()
        left = 0 if hook == "preflight" else 1
        eventually(lambda: fake.calls.count("close") == left)
    assert fake.calls.count("close") == fake.calls.count("open")
    assert "gated-text is stuck" in caplog.text


def test_a_stuck_cartridge_that_comes_out_after_all_is_opened_anew(gated, clock, eventually):
    """Nobody has to use force then."""
    fake = gated()
    with registry_of(fake, limits=LIMITS) as registry:
        make_stuck(registry, fake, clock, eventually).set()
        eventually(lambda: registry.loaded() == ())
        assert registry.call(ECHO, "y").payload == "y"
    assert fake.calls.count("open") == fake.calls.count("close") == 2


def test_error_a_stuck_cartridge_that_is_open_by_hand_begins_no_session(gated, clock, eventually):
    """Its sessions are refused by name; opened anew it works."""
    fake = gated()
    with registry_of(fake, limits=LIMITS) as registry:
        with registry.open("gated-text") as cartridge:
            make_stuck(registry, fake, clock, eventually).set()
            with pytest.raises(StateError, match="gated-text is stuck"):
                cartridge.session()
        eventually(lambda: registry.loaded() == ())
        with registry.open("gated-text") as cartridge, cartridge.session() as session:
            assert session.infer("y").payload == "y"


def test_error_those_in_the_queue_of_a_stuck_cartridge_are_told(gated, clock, eventually):
    """They do not wait for what will not come."""
    fake = gated(max_concurrent_sessions=1)
    with registry_of(fake, limits=LIMITS) as registry:
        fake.close_gate("infer")
        calling = Background(lambda: registry.call(ECHO, "x"))
        eventually(lambda: fake.inside["infer"])
        waiting = [Background(lambda: registry.call(ECHO, "y")) for _ in range(3)]
        eventually(lambda: registry.stats()["queued"] == 3)
        assert isinstance(ended(clock, calling), ActivityTimeoutError)
        for one in waiting:
            error = outcome(one)
            assert type(error) is StateError
            assert "gated-text is stuck" in str(error)


def test_error_those_who_wait_for_a_stuck_load_are_told(gated, clock, eventually):
    """The failure of the one load is that of all who wait for it."""
    fake = gated()
    with registry_of(fake, limits=LIMITS) as registry:
        fake.close_gate("open")
        calling = Background(lambda: registry.call(ECHO, "x"))
        eventually(lambda: fake.inside["open"])
        waiting = [Background(lambda: registry.call(ECHO, "y")) for _ in range(3)]
        eventually(lambda: [one.users for one in registry.loaded()] == [4])
        clock.settle()
        assert isinstance(ended(clock, calling, 5), ActivityTimeoutError)
        for one in waiting:
            assert "gated-text is stuck" in str(outcome(one))


def test_a_cancel_hook_that_hangs_saves_nobody(gated, clock, eventually):
    """A cartridge that hangs in its cancel too is let go all the same."""
    fake = gated()
    fake.close_gate("cancel")
    with registry_of(fake, limits=LIMITS) as registry:
        make_stuck(registry, fake, clock, eventually)
        registry.unload("gated-text", force=True)
        assert registry.call(ECHO, "y").payload == "y"


def test_a_cancel_hook_that_fails_saves_nobody(gated, clock, eventually, caplog):
    """What it raises is logged."""
    fake = gated()

    class Fails:
        @hookimpl(wrapper=True)
        def cartridge_cancel(self):
            yield
            msg = "cannot cancel"
            raise RuntimeError(msg)

    with registry_of(fake, wrappers=[Fails()], limits=LIMITS) as registry:
        make_stuck(registry, fake, clock, eventually)
    assert "cancelling gated-text failed" in caplog.text
    assert "cannot cancel" in caplog.text


def test_other_calls_of_a_stuck_cartridge_go_on(gated, clock, eventually):
    """Whoever is inside comes out with his result."""
    fake = gated()
    with registry_of(fake, limits=LIMITS) as registry:
        with registry.open("gated-text") as cartridge, cartridge.session() as session:
            make_stuck(registry, fake, clock, eventually)
            assert session.infer("y").payload == "y"


def test_error_a_cancelled_call_that_goes_on_talking_is_ended(clock, eventually):
    """What says that it is alive and does not stop gets the limit once more, and no longer."""
    over = threading.Event()

    def work(context):
        while not over.wait(0.002):
            context.progress(0.5, "still here")

    fake = Works(work)
    with registry_of(fake, limits=LIMITS) as registry:
        call = registry.stream("cap:work", "x")
        eventually(lambda: "infer" in fake.calls)
        call.cancel()
        clock.pass_until(lambda: registry.stats()["cancelled"], step_s=1.0)
        with pytest.raises(CancelledError, match="works-text was cancelled, and did not stop"):
            list(call)
        eventually(lambda: [one.state.value for one in registry.loaded()] == ["stuck"])
        assert registry.stats()["cancelled"] == 1
        over.set()
        eventually(lambda: registry.loaded() == ())


class Asks(Works):
    """Asks a peer as a test says."""

    plugin_name = "asks"
    descriptor = fake_descriptor("asks-peer", caps=[fake_cap("work")])


def ask(context):
    return context.peer.call(ECHO, "peer").result().payload


def test_a_caller_is_not_ended_while_its_peer_shows_life(clock):
    """Its own silence is that of one who waits."""

    def work(context):
        for _ in range(5):
            clock.advance(9)
            context.progress(0.1)
            clock.settle()
        return "done"

    asks = Asks(lambda context: context.peer.call("cap:slow", "x").result().payload)

    class Slow(Works):
        plugin_name = "slow"
        descriptor = fake_descriptor("slow-text", caps=[fake_cap("slow")])

    with registry_of(asks, Slow(work), limits=LIMITS) as registry:
        assert registry.call("cap:work", "x").payload == "done"


def test_a_caller_is_not_ended_while_its_peer_may_be_silent_longer(gated, clock, eventually):
    """The peer's own limit decides, also where it is longer than the caller's."""
    peer = gated(metadata={"activity_timeout_secs": "1000"})
    peer.close_gate("infer")
    with registry_of(Asks(ask), peer, limits=LIMITS) as registry:
        calling = Background(lambda: registry.call("cap:work", "x"))
        eventually(lambda: peer.inside["infer"])
        clock.crawl(100)
        peer.open_gates()
        assert outcome(calling).payload == "peer"


def test_a_caller_is_not_ended_while_its_peer_is_queued(gated, clock, eventually):
    """What excuses the peer excuses him."""
    peer = gated(max_concurrent_sessions=1)
    with registry_of(Asks(ask), peer, limits=LIMITS) as registry:
        with registry.open("gated-text") as cartridge, cartridge.session():
            calling = Background(lambda: registry.call("cap:work", "x"))
            eventually(lambda: registry.stats()["queued"] == 1)
            clock.crawl(100)
        assert outcome(calling).payload == "peer"


def test_error_a_silent_peer_is_named_and_its_caller_may_go_on(gated, clock, eventually):
    """The peer call ends with ActivityTimeoutError inside the cartridge that made it."""
    peer = gated()
    peer.close_gate("inferring")
    errors = []

    def work(context):
        try:
            return ask(context)
        except ActivityTimeoutError as error:
            errors.append(str(error))
            return "without it"

    with registry_of(Asks(work), peer, limits=LIMITS) as registry:
        calling = Background(lambda: registry.call("cap:work", "x"))
        eventually(lambda: peer.inside["inferring"])
        clock.crawl(15, lambda: not calling.is_alive())
        assert outcome(calling).payload == "without it"
    assert errors[0].startswith("gated-text: there was no sign of life")


def test_error_a_caller_that_reads_nothing_is_not_kept_alive(clock, eventually):
    """A peer that waits for him is no excuse; both are ended."""
    go = threading.Event()
    peer = Works(lambda context: [context.log("info", str(number)) for number in range(100)])

    def work(context):
        call = context.peer.call("cap:work", "x")
        eventually(lambda: "infer" in peer.calls)
        clock.pass_until(lambda: context.cancelled)
        go.wait(PATIENCE_S)
        return call.result()

    class AsksAndWaits(Asks):
        descriptor = fake_descriptor("asks-peer", caps=[fake_cap("ask")])

    with registry_of(AsksAndWaits(work), peer, limits=LIMITS) as registry:
        with pytest.raises(ActivityTimeoutError, match="asks-peer: there was no sign of life"):
            registry.call("cap:ask", "x")
        eventually(lambda: "session_end" in peer.calls)
        go.set()


def test_a_registry_closes_though_a_cartridge_is_stuck(gated, clock, eventually, caplog):
    """Closing does not wait for what does not come."""
    fake = gated()
    with caplog.at_level(logging.WARNING), registry_of(fake, limits=LIMITS) as registry:
        make_stuck(registry, fake, clock, eventually)
    assert "close" not in fake.calls


def test_what_does_not_come_out_while_the_registry_closes_is_let_go(gated, eventually):
    """It would be killed where it has a process; here it is unloaded when it comes out."""
    fake = gated()
    gate = fake.close_gate("infer")
    registry = registry_of(fake, limits=LIMITS)
    call = registry.stream(ECHO, "x")
    eventually(lambda: fake.inside["infer"])
    registry.close()
    assert [one.state.value for one in registry.loaded()] == ["stuck"]
    gate.set()
    with pytest.raises(CancelledError):
        call.result()
    eventually(lambda: registry.loaded() == ())
    assert fake.calls[-1] == "close"


def test_peer_calls_leave_nothing_with_their_caller():
    """A call that makes very many does not grow by what would have to be cancelled."""
    seen = []

    def work(context):
        for _ in range(50):
            context.peer.call(ECHO, "x").result()
        assert not context._on_cancel
        seen.append("gone")

    with registry_of(Asks(work), BatchEcho(), limits=LIMITS) as registry:
        registry.call("cap:work", "x")
    assert seen == ["gone"]
