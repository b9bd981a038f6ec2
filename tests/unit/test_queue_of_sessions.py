"""How many sessions a cartridge has at once, and whose turn it is."""

from __future__ import annotations

import threading
from functools import partial
from typing import ClassVar

import pytest

from cartridge_core.errors import BusyError, CancelledError, InvalidArgumentError, StateError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.limits import Limits
from cartridge_core.progress import Log, Progress
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing.background import Background
from cartridge_core.testing.descriptors import fake_cap, fake_descriptor
from cartridge_core.testing.fakes import BatchEcho, FailingEcho, StreamingEcho
from cartridge_core.testing.registries import registry_of

PATIENCE_S = 30.0
ECHO = "cap:echo"


def outcome(background):
    background.join(PATIENCE_S)
    assert not background.is_alive()
    return background.error or background.result


class Fragile(BatchEcho):
    """A backend that mixes up its texts where two sessions are inside it at once."""

    plugin_name = "fragile"

    def __init__(self):
        super().__init__()
        self.inside = 0
        self.most = 0
        self.text = ""

    @hookimpl
    def cartridge_infer(self, session, value):
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.text = ""
        for letter in str(value):
            self.text += letter
            threading.Event().wait(0.0005)
        self.inside -= 1
        return Result(ResultKind.FINAL, self.text)


class FragileStream(StreamingEcho):
    """A streaming one, whose chunks of all sessions go into one buffer."""

    plugin_name = "fragile"

    def __init__(self):
        super().__init__()
        self.inside = 0
        self.most = 0

    @hookimpl
    def cartridge_session_begin(self, handle, cap, parameters, context):
        self.inside += 1
        self.most = max(self.most, self.inside)
        return super().cartridge_session_begin(handle, cap, parameters, context)

    @hookimpl
    def cartridge_session_end(self, session):
        self.inside -= 1


def fragile(kind, places=1):
    batch = kind is Fragile
    cap = fake_cap("echo", gives="media:echo;enc=utf-8", streaming=not batch)
    descriptor = fake_descriptor(
        "fragile-text",
        "batch" if batch else "streaming",
        [cap],
        max_concurrent_sessions=places,
        partial="append",
    )
    return type("OfPlaces", (kind,), {"descriptor": descriptor})()


def calls(registry, text):
    return registry.call(ECHO, text).payload


def streams(registry, text):
    with registry.stream(ECHO, text) as call:
        return call.result().payload


def pushes_pieces(registry, text):
    return registry.call(ECHO, iter([text[:3], text[3:]])).payload


def drives_by_hand(registry, text):
    with registry.open("fragile-text") as cartridge, cartridge.session() as session:
        return session.infer(text).payload


@pytest.mark.parametrize(
    ("kind", "use"),
    [
        pytest.param(Fragile, calls, id="a02-four-threads-six-calls-each"),
        pytest.param(Fragile, streams, id="a02-streams-of-a-batch-cartridge"),
        pytest.param(FragileStream, streams, id="a02-streams"),
        pytest.param(FragileStream, pushes_pieces, id="a02-input-in-pieces"),
        pytest.param(Fragile, drives_by_hand, id="a02-sessions-by-hand"),
    ],
)
def test_many_callers_of_one_model_get_what_each_would_alone(kind, use):
    """Where a backend takes one session at a time, callers take turns."""
    fake = fragile(kind)
    with registry_of(fake) as registry:

        def ask(own):
            return [use(registry, f"{own}-{turn}-text") for turn in range(6)]

        callers = [Background(partial(ask, own)) for own in range(4)]
        for own, caller in enumerate(callers):
            assert outcome(caller) == [f"{own}-{turn}-text" for turn in range(6)]
    assert fake.most == 1


@pytest.mark.parametrize("places", [2, 3])
def test_as_many_are_inside_as_the_descriptor_says(places):
    """Never more than declared, and as many where so many come."""
    fake = fragile(FragileStream, places)
    with registry_of(fake) as registry:
        with registry.open("fragile-text") as cartridge:
            sessions = [cartridge.session() for _ in range(places)]
            waiting = [Background(lambda: registry.call(ECHO, "x")) for _ in range(5)]
            assert fake.inside == places
            for session in sessions:
                session.end()
        assert [outcome(one).payload for one in waiting] == ["x"] * 5
    assert fake.most == places


def queued(registry, fake, eventually, count):
    """Let calls queue behind one that is inside, one after another; give them."""
    fake.close_gate("inferring")
    first = Background(lambda: registry.call(ECHO, "first"))
    eventually(lambda: fake.inside["inferring"])
    line = []
    for number in range(count):
        line.append(Background(partial(registry.call, ECHO, f"{number}")))
        eventually(lambda: registry.stats()["queued"] == len(line))
    return first, line


def test_the_order_is_that_of_coming(gated, eventually):
    """Whoever waits longest is next."""
    fake = gated(max_concurrent_sessions=1)
    order: list[str] = []

    class Notes:
        @hookimpl(wrapper=True)
        def cartridge_infer(self, value):
            order.append(str(value))
            return (yield)

    with registry_of(fake, wrappers=[Notes()]) as registry:
        first, line = queued(registry, fake, eventually, 5)
        fake.open_gates()
        for one in (first, *line):
            outcome(one)
    assert order == ["first", "0", "1", "2", "3", "4"]


def test_error_no_turn_in_time(gated, eventually):
    """After the queue's time a call is a BusyError, and the one inside goes on."""
    fake = gated(max_concurrent_sessions=1)
    with registry_of(fake, limits=Limits(queue_timeout_s=0.05)) as registry:
        first, line = queued(registry, fake, eventually, 2)
        for one in line:
            error = outcome(one)
            assert isinstance(error, BusyError)
            assert "a session of gated-text: all 1 are in use" in str(error)
        fake.open_gates()
        assert outcome(first).payload == "first"
        assert registry.call(ECHO, "x").payload == "x"


def stop_by_cancel(call):
    call.cancel()


def stop_by_close(call):
    call.close()


def stop_by_leaving(call):
    with call:
        pass


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(stop_by_cancel, id="a02-cancelled-in-the-queue"),
        pytest.param(stop_by_close, id="a02-closed-in-the-queue"),
        pytest.param(stop_by_leaving, id="a02-left-in-the-queue"),
    ],
)
def test_a_call_in_the_queue_is_stopped(gated, eventually, stop):
    """It leaves at once, without having been inside; those behind it move up."""
    fake = gated(max_concurrent_sessions=1)
    with registry_of(fake) as registry:
        first, _ = queued(registry, fake, eventually, 0)
        call = registry.stream(ECHO, "second")
        eventually(lambda: registry.stats()["queued"] == 1)
        third = Background(lambda: registry.call(ECHO, "third"))
        eventually(lambda: registry.stats()["queued"] == 2)
        stop(call)
        with pytest.raises(CancelledError):
            call.result()
        eventually(lambda: registry.stats()["cancelled"] == 1)
        fake.open_gates()
        assert outcome(first).payload == "first"
        assert outcome(third).payload == "third"
    assert fake.calls.count("session_begin") == 2


def test_a_call_in_the_queue_is_told_and_spoken_for(gated, eventually):
    """A log line says what it waits for; in every silent moment the host repeats it."""
    fake = gated(max_concurrent_sessions=1)
    with registry_of(fake, limits=Limits(keepalive_s=0.02)) as registry:
        first, _ = queued(registry, fake, eventually, 0)
        call = registry.stream(ECHO, "second")
        told = [next(call)]
        while len([event for event in told if isinstance(event, Progress)]) < 4:
            told.append(next(call))
        logs = [event for event in told if isinstance(event, Log)]
        why = "Waiting for a session of gated-text: 1 in use"
        assert logs == [Log("info", why, cartridge_id="gated-text")]
        assert isinstance(told[-1], Progress)
        assert told[-1].message == f"Still at work: {why}"
        fake.open_gates()
        assert call.result().payload == "second"
        assert outcome(first).payload == "first"


def test_the_wait_is_in_the_log(gated, eventually, caplog):
    """A host's own log says that calls had to wait."""
    fake = gated(max_concurrent_sessions=1)
    with caplog.at_level("INFO", "cartridge"), registry_of(fake) as registry:
        first, line = queued(registry, fake, eventually, 2)
        fake.open_gates()
        for one in (first, *line):
            outcome(one)
    waits = [record for record in caplog.records if "Waiting for a session" in record.message]
    assert {record.name for record in waits} == {"cartridge.gated-text"}
    assert "1 before this one" in waits[1].message


def test_a_session_by_hand_takes_a_place(gated, eventually):
    """Calls wait for it, and it waits for calls."""
    fake = gated(max_concurrent_sessions=1)
    with registry_of(fake) as registry, registry.open("gated-text") as cartridge:
        with cartridge.session():
            calling = Background(lambda: registry.call(ECHO, "x"))
            eventually(lambda: registry.stats()["queued"] == 1)
        assert outcome(calling).payload == "x"
        first, _ = queued(registry, fake, eventually, 0)
        beginning = Background(cartridge.session)
        beginning.join(0.05)
        assert beginning.is_alive()
        fake.open_gates()
        assert outcome(first).payload == "first"
        outcome(beginning).end()


def test_error_a_session_by_hand_is_refused_in_time(gated):
    """One who has all sessions open himself hears so, and does not wait for ever."""
    fake = gated(max_concurrent_sessions=2)
    limits = Limits(queue_timeout_s=0.05)
    with registry_of(fake, limits=limits) as registry, registry.open("gated-text") as cartridge:
        one, two = cartridge.session(), cartridge.session()
        with pytest.raises(BusyError, match=r"all 2 are in use.*end what uses them"):
            cartridge.session()
        one.end()
        cartridge.session().end()
        two.end()


@pytest.mark.parametrize("hook", ["session_begin", "infer", "session_end"])
def test_a_session_that_fails_gives_its_place_back(hook):
    """Whatever goes wrong, the next caller finds the place free."""
    failing = FailingEcho(hook)
    failing.descriptor = fake_descriptor("failing-echo-text", max_concurrent_sessions=1)
    with registry_of(failing, limits=Limits(queue_timeout_s=0.05)) as registry:
        for _ in range(3):
            with pytest.raises(Exception, match="gave up"):
                registry.call(ECHO, "x")
        with registry.open("failing-echo-text") as cartridge:
            for _ in range(3):
                with pytest.raises(Exception, match="gave up"), cartridge.session() as session:
                    session.infer("x")
        failing.hook = "none"
        assert registry.call(ECHO, "x").payload == {"text": "x"}


def test_a_wrong_argument_takes_no_place(gated):
    """What is refused before it begins has never been in."""
    fake = gated(max_concurrent_sessions=1)
    limits = Limits(queue_timeout_s=0.05)
    with registry_of(fake, limits=limits) as registry, registry.open("gated-text") as cartridge:
        for _ in range(3):
            with pytest.raises(InvalidArgumentError):
                cartridge.session(nonsense=1)
        cartridge.session().end()


def test_ending_twice_gives_one_place_back(gated):
    """A session that is ended again frees nobody else's place."""
    fake = gated(max_concurrent_sessions=1)
    limits = Limits(queue_timeout_s=0.05)
    with registry_of(fake, limits=limits) as registry, registry.open("gated-text") as cartridge:
        session = cartridge.session()
        session.end()
        session.end()
        with cartridge.session(), pytest.raises(BusyError):
            cartridge.session()


def two_on_a_device(gated, **given):
    return [
        gated(name, op=name, device_key="gpu-0", max_concurrent_sessions=4, **given)
        for name in ("one", "two")
    ]


def test_cartridges_of_one_device_take_turns(gated, eventually):
    """However many sessions each takes by itself, one device has one at a time."""
    one, two = two_on_a_device(gated)
    with registry_of(one, two) as registry:
        one.close_gate("inferring")
        first = Background(lambda: registry.call("cap:one", "x"))
        eventually(lambda: one.inside["inferring"])
        call = registry.stream("cap:two", "y")
        log = next(event for event in call if isinstance(event, Log))
        assert log.message == "Waiting for device gpu-0: 1 in use"
        assert "session_begin" not in two.calls
        one.open_gates()
        assert outcome(first).payload == "x"
        assert call.result().payload == "y"


def test_error_a_device_that_does_not_come_free(gated):
    """The error names the device."""
    one, two = two_on_a_device(gated)
    limits = Limits(queue_timeout_s=0.05)
    with registry_of(one, two, limits=limits) as registry:
        with registry.open("one-text") as cartridge, cartridge.session():
            with pytest.raises(BusyError, match="device gpu-0: all 1 are in use"):
                registry.call("cap:two", "x")
        assert registry.call("cap:two", "x").payload == "x"


def test_another_device_is_another_queue(gated):
    """What runs elsewhere is not waited for."""
    one, _ = two_on_a_device(gated)
    other = gated("other", op="other", device_key="gpu-1")
    with registry_of(one, other, limits=Limits(queue_timeout_s=0.05)) as registry:
        with registry.open("one-text") as cartridge, cartridge.session():
            assert registry.call("cap:other", "x").payload == "x"


def test_a_device_is_free_again_after_force(gated, eventually):
    """What was left behind does not hold the device for those who come after."""
    one, two = two_on_a_device(gated)
    gate = one.close_gate("infer")
    limits = Limits(grace_s=0.05, queue_timeout_s=0.1)
    with registry_of(one, two, limits=limits) as registry:
        stuck = Background(lambda: registry.call("cap:one", "x"))
        eventually(lambda: one.inside["infer"])
        del one.shut["infer"]
        registry.unload("one-text", force=True)
        assert registry.call("cap:two", "x").payload == "x"
        assert registry.call("cap:one", "x").payload == "x"
        with registry.open("two-text") as cartridge, cartridge.session():
            gate.set()
            assert isinstance(outcome(stuck), CancelledError)
            with pytest.raises(BusyError, match="gpu-0"):
                registry.call("cap:one", "x")
        assert registry.call("cap:one", "x").payload == "x"


class Opens(BatchEcho):
    """Asks a peer while it opens."""

    peer: ClassVar[str]

    def __init__(self, both):
        super().__init__()
        self.both = both

    @hookimpl
    def cartridge_open(self, cartridge_id, pack, options, context):
        self.saw("open")
        if self.both is not None and self.calls.count("open") == 1:
            self.both.wait(PATIENCE_S)
        context.peer.call(self.peer, "x").result()
        return super().cartridge_open(cartridge_id, pack, options, context)


def circle_of(names, both):
    """Make cartridges that each need the next one while they open."""
    made = []
    for name, peer in zip(names, [*names[1:], names[0]], strict=True):
        body = {
            "plugin_name": name,
            "descriptor": fake_descriptor(f"{name}-text", caps=[fake_cap(name)]),
            "peer": f"cap:{peer}",
        }
        made.append(type("InACircle", (Opens,), body)(both))
    return made


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c")], ids=["two", "three"])
def test_error_loads_that_need_each_other_are_refused_by_name(names):
    """Each opens and asks for the next while that opens: nobody waits for ever."""
    circle = circle_of(names, threading.Barrier(len(names)))
    with registry_of(*circle) as registry:
        callers = [Background(partial(registry.call, f"cap:{name}", "x")) for name in names]
        errors = [outcome(caller) for caller in callers]
        assert all(isinstance(error, StateError) for error in errors)
        assert all(
            "is being opened by a load that waits" in str(e) or "in a circle" in str(e)
            for e in errors
        )
        assert registry.loaded() == ()


def test_error_a_circle_of_loads_in_one_call_is_refused():
    """One after another they are a chain that comes back to its beginning."""
    with registry_of(*circle_of(("a", "b", "c"), None)) as registry:
        with pytest.raises(StateError, match="in a circle: a-text -> b-text -> c-text -> a-text"):
            registry.call("cap:a", "x")
        assert registry.loaded() == ()
