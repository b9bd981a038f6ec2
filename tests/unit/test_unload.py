"""What stays loaded, what is unloaded and when, as a user of a registry sees it."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from cartridge_core.errors import BusyError, CancelledError, LoadError, NoRouteError, StateError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.limits import Limits
from cartridge_core.pack import Pack
from cartridge_core.progress import Log, Progress
from cartridge_core.testing.background import Background
from cartridge_core.testing.descriptors import fake_cap, fake_descriptor
from cartridge_core.testing.fakes import BatchEcho, FailingEcho
from cartridge_core.testing.registries import registry_of

PATIENCE_S = 30.0
ECHO = "cap:echo"


def outcome(background):
    background.join(PATIENCE_S)
    assert not background.is_alive()
    return background.error or background.result


def states(registry):
    return [(one.cartridge_id, one.state.value, one.users) for one in registry.loaded()]


def test_what_is_loaded_says_its_state(gated, eventually):
    """Loading, busy, ready, and gone."""
    fake = gated()
    fake.close_gate("opening")
    fake.close_gate("inferring")
    with registry_of(fake) as registry:
        assert registry.loaded() == ()
        calling = Background(lambda: registry.call(ECHO, "x"))
        eventually(lambda: fake.inside["opening"])
        assert states(registry) == [("gated-text", "loading", 1)]
        fake.shut["opening"].set()
        eventually(lambda: fake.inside["inferring"])
        assert states(registry) == [("gated-text", "busy", 1)]
        fake.open_gates()
        assert outcome(calling).payload == "x"
        assert states(registry) == [("gated-text", "ready", 0)]
        registry.unload("gated-text")
        assert registry.loaded() == ()
    assert fake.calls.count("close") == 1


def test_what_is_loaded_says_what_it_needs(gated):
    """Its memory is what the preflight says; inline it has no process of its own."""
    fake = gated(memory_bytes=700)
    with registry_of(fake) as registry:
        registry.call(ECHO, "x")
        (loaded,) = registry.loaded()
    assert (loaded.memory_bytes, loaded.pid, loaded.pack) == (700, None, None)


class Reads(BatchEcho):
    """Takes a model."""

    plugin_name = "reads"
    descriptor = fake_descriptor(
        "reads-text",
        caps=[
            fake_cap(
                "echo",
                {
                    "name": "model_spec",
                    "media_urn": "media:enc=utf-8;model-spec",
                    "required": False,
                    "sources": [{"cli_flag": "--model-spec"}],
                    "metadata": {"pack": True},
                },
            )
        ],
    )


def test_what_is_loaded_names_its_model(tmp_path):
    """One model is told from another by its pack."""
    with registry_of(Reads()) as registry:
        for name in "ab":
            (tmp_path / name).write_text(name)
            registry.call(ECHO, "x", model_spec=tmp_path / name)
        packs = [one.pack for one in registry.loaded()]
    assert [pack.path.name for pack in packs if isinstance(pack, Pack)] == ["a", "b"]


def test_what_failed_to_load_is_told(clock):
    """While the next attempt has to wait, `loaded` says so."""
    clock.rule("failures")
    with registry_of(FailingEcho("open", LoadError("no weights"))) as registry:
        for _ in range(3):
            with pytest.raises(LoadError, match="no weights"):
                registry.call(ECHO, "x")
        assert states(registry) == [("failing-echo-text", "failed", 0)]
        assert registry.stats()["failed_loads"] == 2
        clock.advance(1.5)
        assert registry.loaded() == ()


def test_an_unloaded_cartridge_is_opened_anew(gated):
    """Unloading is not the end of it."""
    fake = gated()
    with registry_of(fake) as registry:
        for _ in range(3):
            assert registry.call(ECHO, "x").payload == "x"
            registry.unload("gated-text")
    assert fake.calls.count("open") == fake.calls.count("close") == 3


def test_unloading_one_leaves_the_others(gated):
    """An id names one cartridge; None is all of them."""
    fakes = [gated(name, op=name) for name in ("one", "two", "three")]
    with registry_of(*fakes) as registry:
        for fake in fakes:
            registry.call(f"cap:{fake.plugin_name}", "x")
        registry.unload("two-text")
        assert [name for name, _, _ in states(registry)] == ["one-text", "three-text"]
        registry.unload()
        assert registry.loaded() == ()


def test_unloading_what_is_not_loaded_is_harmless(gated):
    """Nothing happens."""
    with registry_of(gated()) as registry:
        registry.unload("gated-text")
        registry.unload(force=True)


def test_error_unloading_what_does_not_exist(gated):
    """A misspelt id is named, and nothing is unloaded."""
    with registry_of(gated()) as registry:
        registry.call(ECHO, "x")
        with pytest.raises(NoRouteError, match="'gated'"):
            registry.unload("gated")
        assert states(registry) == [("gated-text", "ready", 0)]


def by_call(registry):
    return Background(lambda: registry.call(ECHO, "x"))


def by_stream(registry):
    return Background(lambda: registry.stream(ECHO, "x").result())


def by_hand(registry):
    def run():
        with registry.open("gated-text") as cartridge, cartridge.session() as session:
            return session.infer("x")

    return Background(run)


USES = [by_call, by_stream, by_hand]
STAGES = ["opening", "inferring"]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("use", USES)
def test_error_what_is_in_use_is_not_unloaded(gated, eventually, use, stage):
    """Without force it is a BusyError, and the work goes on to its end."""
    fake = gated()
    fake.close_gate(stage)
    with registry_of(fake) as registry:
        using = use(registry)
        eventually(lambda: fake.inside[stage])
        with pytest.raises(BusyError, match=r"in use: gated-text \(.*force=True"):
            registry.unload("gated-text")
        fake.open_gates()
        assert outcome(using).payload == "x"


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("use", USES)
def test_by_force_what_is_in_use_is_cancelled_and_unloaded(gated, eventually, use, stage):
    """Whoever uses it gets CancelledError; it is gone when unload returns, and comes anew."""
    fake = gated()
    gate = fake.close_gate(stage)
    with registry_of(fake) as registry:
        using = use(registry)
        eventually(lambda: fake.inside[stage])
        registry.unload("gated-text", force=True)
        assert registry.loaded() == ()
        assert isinstance(outcome(using), CancelledError)
        opened = fake.calls.count("close")
        assert opened == (1 if stage == "inferring" else 0)
        gate.set()
        assert registry.call(ECHO, "y").payload == "y"
    assert fake.calls.count("open") == 2


@pytest.mark.parametrize("use", USES)
def test_by_force_what_does_not_stop_is_left_behind(gated, eventually, caplog, use):
    """After the grace the next call opens anew; the old one is unloaded when it comes out."""
    fake = gated()
    gate = fake.close_gate("infer")
    with registry_of(fake, limits=Limits(grace_s=0.05)) as registry:
        using = use(registry)
        eventually(lambda: fake.inside["infer"])
        del fake.shut["infer"]
        registry.unload(force=True)
        assert registry.loaded() == ()
        assert registry.call(ECHO, "y").payload == "y"
        assert fake.calls.count("close") == 0
        gate.set()
        assert isinstance(outcome(using), CancelledError)
        eventually(lambda: fake.calls.count("close") == 1)
        assert states(registry) == [("gated-text", "ready", 0)]
    assert "gated-text did not stop within 0.05 s" in caplog.text
    assert fake.calls.count("close") == 2


@pytest.mark.parametrize("use", USES)
def test_by_force_a_load_that_does_not_stop_is_left_behind(gated, eventually, use):
    """What it has loaded after all is unloaded, also where it was opened by hand."""
    fake = gated()
    gate = fake.close_gate("open")
    with registry_of(fake, limits=Limits(grace_s=0.05)) as registry:
        using = use(registry)
        eventually(lambda: fake.inside["open"])
        del fake.shut["open"]
        registry.unload(force=True)
        assert registry.loaded() == ()
        assert registry.call(ECHO, "y").payload == "y"
        gate.set()
        assert isinstance(outcome(using), CancelledError)
        eventually(lambda: fake.calls.count("close") == 1)
    assert fake.calls.count("open") == fake.calls.count("close") == 2


def test_by_force_those_in_the_queue_are_cancelled_too(gated, eventually):
    """Everyone who has a lease is told, whether or not he has his turn."""
    fake = gated(max_concurrent_sessions=1)
    fake.close_gate("inferring")
    with registry_of(fake) as registry:
        using = [by_call(registry) for _ in range(4)]
        eventually(lambda: registry.stats()["queued"] == 3)
        registry.unload(force=True)
        assert all(isinstance(outcome(one), CancelledError) for one in using)
        assert registry.loaded() == ()
    assert fake.calls.count("open") == fake.calls.count("close") == 1


def test_error_a_cartridge_taken_away_begins_no_session(gated):
    """Who has it open by hand hears that it is closed; closing it again is harmless."""
    fake = gated()
    with registry_of(fake) as registry:
        with registry.open("gated-text") as cartridge:
            registry.unload(force=True)
            with pytest.raises(StateError, match="gated-text is closed: open it again"):
                cartridge.session()
        assert fake.calls.count("close") == 1


def test_a_cartridge_taken_away_in_a_session_is_closed_when_that_is_out(gated, eventually):
    """Its user gets CancelledError, and does not have to close it himself."""
    fake = gated()
    gate = fake.close_gate("infer")
    with registry_of(fake, limits=Limits(grace_s=0.05)) as registry:
        cartridge = registry.open("gated-text")
        session = cartridge.session()
        inferring = Background(lambda: session.infer("x"))
        eventually(lambda: fake.inside["infer"])
        registry.unload(force=True)
        gate.set()
        assert isinstance(outcome(inferring), CancelledError)
        assert "close" not in fake.calls
        session.end()
        assert fake.calls[-2:] == ["session_end", "close"]


def test_a_session_that_begins_while_its_cartridge_is_closed(gated, eventually):
    """Closing cancels it where it waits; nothing begins on what is closed."""
    fake = gated(max_concurrent_sessions=1)
    with registry_of(fake) as registry:
        other = registry.open("gated-text")
        cartridge = registry.open("gated-text")
        with other.session():
            beginning = Background(cartridge.session)
            threading.Event().wait(0.05)
            with pytest.raises(StateError, match="gated-text begins a session"):
                cartridge.close()
            assert isinstance(outcome(beginning), CancelledError)
            cartridge.close()
        other.close()
        assert registry.loaded() == ()
    assert fake.calls.count("session_begin") == 1


IDLE = Limits(idle_timeout_s=1.0, keepalive_s=0.02)


def one_call(registry, fake):
    return [by_call(registry)]


def calls_at_once(registry, fake):
    return [by_call(registry) for _ in range(3)]


def a_stream_that_is_not_read(registry, fake):
    call = registry.stream(ECHO, "x")
    return [Background(lambda: (fake.shut["inferring"].wait(PATIENCE_S), call.result())[1])]


def a_session_by_hand(registry, fake):
    # A call, so that it is kept, and a user of the same open cartridge.
    return [by_call(registry), by_hand(registry)]


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(one_call, id="a11-busy-without-output"),
        pytest.param(calls_at_once, id="a11-three-calls-at-once"),
        pytest.param(a_stream_that_is_not_read, id="a11-a-stream-nobody-reads"),
        pytest.param(a_session_by_hand, id="a11-also-open-by-hand"),
    ],
)
def test_what_is_busy_is_not_idle(gated, clock, eventually, use):
    """However long it thinks, it stays; the idle clock starts when the last use ends."""
    clock.rule("residency")
    fake = gated()
    fake.close_gate("inferring")
    with registry_of(fake, limits=IDLE) as registry:
        using = use(registry, fake)
        eventually(lambda: fake.inside["inferring"] == len(using))
        clock.advance(3)
        threading.Event().wait(0.1)
        assert states(registry) == [("gated-text", "busy", len(using))]
        fake.open_gates()
        assert [outcome(one).payload for one in using] == ["x"] * len(using)
        assert states(registry) == [("gated-text", "ready", 0)]
        clock.advance(0.9)
        clock.settle()
        assert states(registry) == [("gated-text", "ready", 0)]
        clock.advance(0.2)
        eventually(lambda: registry.loaded() == ())
    assert fake.calls.count("close") == 1


@pytest.mark.parametrize("turns", [1, 3], ids=["a11-used-once-more", "a11-used-again-and-again"])
def test_every_use_starts_the_idle_clock_anew(gated, clock, eventually, turns):
    """What is used now and then stays loaded."""
    clock.rule("residency")
    fake = gated()
    with registry_of(fake, limits=IDLE) as registry:
        registry.call(ECHO, "x")
        for _ in range(turns):
            clock.advance(0.9)
            registry.call(ECHO, "x")
            clock.settle()
        clock.advance(0.9)
        clock.settle()
        assert states(registry) == [("gated-text", "ready", 0)]
        clock.advance(0.2)
        eventually(lambda: registry.loaded() == ())
    assert fake.calls.count("open") == fake.calls.count("close") == 1


def test_a_busy_cartridge_is_spoken_for(gated, clock, eventually):
    """Meanwhile the caller gets keepalives."""
    clock.rule("residency")
    fake = gated()
    fake.close_gate("inferring")
    with registry_of(fake, limits=IDLE) as registry, registry.stream(ECHO, "x") as call:
        eventually(lambda: fake.inside["inferring"])
        clock.advance(3)
        spoken = 0
        while spoken < 3:
            event = next(call)
            spoken += isinstance(event, Progress) and event.message.startswith("Still at work")
        fake.open_gates()
        assert call.result().payload == "x"
    assert fake.calls.count("open") == 1


def test_what_is_open_by_hand_alone_is_never_idle(gated, clock):
    """Whoever opened it closes it."""
    clock.rule("residency")
    fake = gated()
    with registry_of(fake, limits=IDLE) as registry, registry.open("gated-text") as cartridge:
        clock.advance(1000)
        threading.Event().wait(0.05)
        with cartridge.session() as session:
            assert session.infer("x").payload == "x"
    assert fake.calls.count("open") == 1


def budget(total, **more):
    return Limits(memory_budget_bytes=total, **more)


def test_the_longest_idle_goes_first(gated):
    """For a load that needs room, what nobody has used for longest is unloaded, and no more."""
    fakes = {name: gated(name, op=name, memory_bytes=4) for name in "abcd"}
    with registry_of(*fakes.values(), limits=budget(12)) as registry:
        for name in "abcab":
            registry.call(f"cap:{name}", "x")
        registry.call("cap:d", "x")
        assert [name for name, _, _ in states(registry)] == ["a-text", "b-text", "d-text"]
        assert registry.stats()["evictions"] == 1
    assert fakes["c"].calls.count("close") == 1


def test_as_many_go_as_are_in_the_way(gated):
    """A large one takes the room of several; what needs none stays."""
    small = [gated(name, op=name, memory_bytes=4) for name in "abc"]
    none, large = gated("none", op="none"), gated("large", op="large", memory_bytes=9)
    with registry_of(*small, none, large, limits=budget(12)) as registry:
        for name in ("none", "a", "b", "c", "large"):
            registry.call(f"cap:{name}", "x")
        assert [name for name, _, _ in states(registry)] == ["none-text", "large-text"]
        assert registry.stats()["evictions"] == 3


def test_what_fits_unloads_nothing(gated):
    """A budget that is used up to the last byte is no budget exceeded."""
    fakes = [gated(name, op=name, memory_bytes=4) for name in "abc"]
    with registry_of(*fakes, limits=budget(12)) as registry:
        for name in "abc":
            registry.call(f"cap:{name}", "x")
        assert len(registry.loaded()) == 3
        assert registry.stats()["evictions"] == 0


def test_error_more_than_the_whole_budget(gated):
    """It can never be loaded: a LoadError at once, that says both numbers, and no unload."""
    small, large = gated("small", op="small", memory_bytes=4), gated(op="large", memory_bytes=13)
    with registry_of(small, large, limits=budget(12)) as registry:
        registry.call("cap:small", "x")
        with pytest.raises(LoadError, match="gated-text needs 13 bytes, and memory_budget"):
            registry.call("cap:large", "x")
        assert [name for name, _, _ in states(registry)] == ["small-text"]
    assert "open" not in large.calls


def test_what_is_used_all_the_time_makes_room_in_the_end(gated):
    """Callers that follow one another without a pause do not keep another load out for ever."""
    popular, other = (gated(name, op=name, memory_bytes=8) for name in ("popular", "other"))
    over = threading.Event()

    class Slow:
        @hookimpl(wrapper=True)
        def cartridge_infer(self):
            # So that it is never idle, however the threads are switched.
            threading.Event().wait(0.02)
            return (yield)

    def call_again_and_again():
        while not over.is_set():
            assert registry.call("cap:popular", "x").payload == "x"

    limits = budget(12, queue_timeout_s=10.0)
    with registry_of(popular, other, wrappers=[Slow()], limits=limits) as registry:
        threads = [threading.Thread(target=call_again_and_again) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            assert registry.call("cap:other", "y").payload == "y"
        finally:
            over.set()
            for thread in threads:
                thread.join(PATIENCE_S)
        assert registry.call("cap:popular", "x").payload == "x"


def test_what_is_open_by_hand_too_takes_users_while_another_waits_for_room(gated, eventually):
    """It may be open for ever: callers are not kept out for a room that does not come."""
    used, large = (gated(name, op=name, memory_bytes=8) for name in ("used", "large"))
    limits = budget(12, queue_timeout_s=PATIENCE_S)
    with registry_of(used, large, limits=limits) as registry:
        registry.call("cap:used", "x")
        with registry.open("used-text"):
            waiting = Background(lambda: registry.call("cap:large", "y"))
            eventually(lambda: ("large-text", "loading", 1) in states(registry))
            threading.Event().wait(2.2)
            assert registry.call("cap:used", "x").payload == "x"
        assert outcome(waiting).payload == "y"
    assert used.calls.count("open") == 1


def test_who_waits_for_room_in_vain_keeps_nobody_out(gated):
    """Where a load gives up, what it waited for takes users again."""
    used, large = (
        gated("used", op="used", memory_bytes=9),
        gated("large", op="large", memory_bytes=8),
    )
    limits = budget(12, queue_timeout_s=2.5)
    with registry_of(used, large, limits=limits) as registry:
        registry.call("cap:used", "x")
        with registry.open("used-text"), pytest.raises(BusyError):
            registry.call("cap:large", "x")
        assert registry.call("cap:used", "x").payload == "x"
    assert used.calls.count("open") == 1


def test_error_what_is_in_use_has_the_memory(gated):
    """After the queue's time it is a BusyError that names who uses it; nothing was unloaded."""
    used, idle = gated("used", op="used", memory_bytes=9), gated("idle", op="idle", memory_bytes=2)
    large = gated("large", op="large", memory_bytes=8)
    with registry_of(used, idle, large, limits=budget(12, queue_timeout_s=0.1)) as registry:
        registry.call("cap:idle", "x")
        with registry.open("used-text"):
            with pytest.raises(
                BusyError,
                match=r"large-text needs 8 bytes of the 12 that .*idle-text, used-text use them",
            ):
                registry.call("cap:large", "x")
            assert [name for name, _, _ in states(registry)] == ["idle-text", "used-text"]
        assert registry.call("cap:large", "x").payload == "x"
    assert "open" in large.calls


def test_memory_is_waited_for(gated, clock, eventually):
    """The caller is told why, is not timed out, and goes on once there is room."""
    clock.rule("activity")
    used, large = gated("used", op="used", memory_bytes=9), gated("large", op="large")
    large.memory_bytes = 8
    limits = budget(12, activity_timeout_s=10.0, keepalive_s=0.02)
    with registry_of(used, large, limits=limits) as registry:
        with registry.open("used-text"):
            call = registry.stream("cap:large", "x")
            log = next(event for event in call if isinstance(event, Log))
            assert log.message.startswith("Waiting: large-text needs 8 bytes of the 12")
            clock.crawl(50)
        assert call.result().payload == "x"


def test_the_wait_for_memory_is_cancelled(gated):
    """It ends with the caller's cancellation, and leaves nothing behind."""
    used, large = gated("used", op="used", memory_bytes=9), gated("large", op="large")
    large.memory_bytes = 8
    with registry_of(used, large, limits=budget(12)) as registry, registry.open("used-text"):
        call = registry.stream("cap:large", "x")
        next(event for event in call if isinstance(event, Log))
        call.cancel()
        with pytest.raises(CancelledError):
            list(call)
        assert [name for name, _, _ in states(registry)] == ["used-text"]


def test_a_failed_load_gives_its_memory_back(gated):
    """What could not be opened needs none."""
    failing, other = FailingEcho("open"), gated(op="other", memory_bytes=12)
    with registry_of(failing, other, limits=budget(12)) as registry:
        with pytest.raises(Exception, match="gave up"):
            registry.call(ECHO, "x")
        assert registry.call("cap:other", "x").payload == "x"


def test_loads_at_once_keep_the_budget(gated):
    """Many callers of many models never have more open than is allowed."""
    fakes = [gated(name, op=name, memory_bytes=4) for name in "abcdef"]
    with registry_of(*fakes, limits=budget(9)) as registry:

        def ask(start):
            for turn in range(6):
                name = "abcdef"[(start + turn) % 6]
                assert registry.call(f"cap:{name}", "x").payload == "x"
                assert sum(one.memory_bytes for one in registry.loaded()) <= 9

        askers = [Background(partial(ask, start)) for start in range(6)]
        assert [outcome(asker) for asker in askers] == [None] * 6
    for fake in fakes:
        assert fake.calls.count("open") == fake.calls.count("close")


def test_closing_the_registry_unloads_everything(gated):
    """What calls keep, what is open by hand, and sessions: everything is ended and closed."""
    kept, by_hand = gated("kept", op="kept"), gated("hand", op="hand")
    registry = registry_of(kept, by_hand)
    registry.call("cap:kept", "x")
    cartridge = registry.open("hand-text")
    cartridge.session()
    registry.close()
    assert registry.loaded() == ()
    assert kept.calls[-1] == "close"
    assert by_hand.calls[-2:] == ["session_end", "close"]


def test_everything_is_counted(gated):
    """Calls by how they ended, loads and unloads."""
    fake, failing = gated(), FailingEcho("infer")
    with registry_of(fake, failing) as registry:
        for _ in range(3):
            registry.call(ECHO, "x", cartridge_id="gated-text")
        with pytest.raises(Exception, match="gave up"):
            registry.call(ECHO, "x", cartridge_id="failing-echo-text")
        fake.close_gate("inferring")
        with registry.stream(ECHO, "x", cartridge_id="gated-text") as call:
            call.cancel()
            with pytest.raises(CancelledError):
                list(call)
        registry.unload()
        counts = {name: count for name, count in registry.stats().items() if count}
    assert counts == {
        "calls": 5,
        "results": 3,
        "failed": 1,
        "cancelled": 1,
        "loads": 2,
        "unloads": 2,
    }
