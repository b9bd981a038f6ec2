"""Calls around a process that dies, stops or lacks something: each has its result, or a name."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from functools import partial

import pytest

from cartridge_core import loading
from cartridge_core.errors import (
    ActivityTimeoutError,
    CancelledError,
    CartridgeDiedError,
    CartridgeError,
)
from cartridge_core.limits import Limits
from cartridge_core.results import Result
from cartridge_core.testing.background import Background

pytestmark = pytest.mark.timeout(120)

ONE, TWO, LIMITED, BRIEF, PIECES = (
    f"cap:{name}" for name in ("one", "two", "limited", "brief", "pieces")
)
BOTH = pytest.mark.parametrize("isolation", ["inline", "process"])
PATIENCE_S = 30.0
LIMITS = Limits(grace_s=0.5)


@pytest.fixture
def scripted(registry_over):
    """Give a registry over the scripted plugin, in processes where nothing else is said."""
    return lambda isolation="process": registry_over(
        "plugin_scripted", isolation=isolation, limits=LIMITS
    )


@pytest.fixture
def pieces(registry_over):
    """Give one over a plugin of streams, of which eight may run at a time."""
    return registry_over("plugin_pieces", isolation="process", limits=LIMITS)


def pid_of(registry, cartridge_id):
    """Give a cartridge's process, None where there is none."""
    found = [one.pid for one in registry.loaded() if one.cartridge_id == cartridge_id]
    return found[0] if found else None


def ended(calling):
    """Give what a call came to; what waits for the queue's time, or a load's, has not ended."""
    calling.join(PATIENCE_S)
    assert not calling.is_alive()
    return calling.error or calling.result


def begun(registry):
    """Give a stream that is at work, and whose caller reads no further."""
    call = registry.stream(PIECES, {"count": 1000})
    while not isinstance(next(call), Result):
        pass
    return call


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_who_waits_for_a_turn_goes_to_the_next_process(pieces, eventually, how):
    """A crash is told to the calls inside it; those in the queue before it do not notice."""
    unread = [begun(pieces) for _ in range(8)]
    waiting = [Background(lambda: pieces.call(PIECES, {"count": 1})) for _ in range(2)]
    eventually(lambda: pieces.stats()["queued"] == 2)
    pid = pid_of(pieces, "pieces-stream")
    os.kill(pid, how)
    assert [ended(one).payload for one in waiting] == [[], []]
    for call in unread:
        with pytest.raises(CartridgeDiedError, match=how.name):
            list(call)
    assert pid_of(pieces, "pieces-stream") != pid
    assert pieces.stats()["workers"] == 2


def test_error_a_session_by_hand_that_waits_hears_of_the_death(pieces, eventually):
    """It is of the cartridge that died: at once, and not after the queue's time."""
    with pieces.open("pieces-stream") as cartridge, contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(cartridge.session())
        waiting = Background(cartridge.session)
        eventually(lambda: cartridge._beginning)
        time.sleep(0.1)
        os.kill(pid_of(pieces, "pieces-stream"), signal.SIGKILL)
        error = ended(waiting)
        assert isinstance(error, CartridgeDiedError)
        assert error.exit_status == -signal.SIGKILL


def test_a_call_right_after_a_timeout_joins_no_process_that_hangs(scripted):
    """It is served by the next one, within the grace that the old one has."""
    registry = scripted()
    registry.call(ONE, "tea")
    pid = pid_of(registry, "scripted-one")
    with pytest.raises(ActivityTimeoutError):
        registry.call(LIMITED, "tea", at="infer", does="hang 60")
    callers = [Background(lambda: registry.call(ONE, "tea").payload) for _ in range(3)]
    assert [ended(one) for one in callers] == ["tea"] * 3
    assert pid_of(registry, "scripted-one") != pid


def test_a_call_right_after_a_timeout_has_what_obeyed(scripted):
    """What stops when it is asked to stays, and is not started anew."""
    registry = scripted()
    registry.call(ONE, "tea")
    pid = pid_of(registry, "scripted-one")
    with pytest.raises(ActivityTimeoutError):
        registry.call(LIMITED, "tea", at="infer", does="work 60")
    assert registry.call(ONE, "tea").payload == "tea"
    assert pid_of(registry, "scripted-one") == pid


@pytest.fixture
def stop():
    """Stop processes as Ctrl-Z does; they hold everything, and answer nothing."""
    stopped: list[int] = []

    def stop(pid):
        stopped.append(pid)
        os.kill(pid, signal.SIGSTOP)

    yield stop
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_error_a_process_that_is_stopped_in_a_call(scripted, stop):
    """The call is ended by its clock, the process replaced; others are answered meanwhile."""
    registry = scripted()
    assert registry.call(ONE, "tea").payload == registry.call(TWO, "tea").payload == "tea"
    hanging = Background(lambda: registry.call(LIMITED, "tea", at="infer", does="work 60"))
    time.sleep(0.2)
    pid = pid_of(registry, "scripted-one")
    stop(pid)
    answered = 0
    while hanging.is_alive():
        assert registry.call(TWO, "tea").payload == "tea"
        answered += 1
    assert isinstance(hanging.error, ActivityTimeoutError)
    assert answered > 10
    assert registry.call(ONE, "coffee").payload == "coffee"
    assert pid_of(registry, "scripted-one") != pid


def test_a_process_that_is_stopped_while_idle_is_replaced(scripted, stop, monkeypatch, eventually):
    """The heartbeat finds it; no call comes to it."""
    monkeypatch.setattr(loading, "_HEARTBEAT_TIMEOUT_S", 0.3)
    registry = scripted()
    registry.call(ONE, "tea")
    pid = pid_of(registry, "scripted-one")
    stop(pid)
    registry._loader.check_processes()
    eventually(lambda: pid_of(registry, "scripted-one") is None)
    assert registry.call(ONE, "tea").payload == "tea"


def test_error_a_process_that_is_stopped_while_it_loads(scripted, stop, eventually, tmp_path):
    """The load's own limit ends it."""
    registry, began = scripted(), tmp_path / "began"
    calling = Background(lambda: registry.call(BRIEF, "tea", load=f"once {began}"))
    eventually(began.exists)
    stop(pid_of(registry, "scripted-brief"))
    error = ended(calling)
    assert isinstance(error, ActivityTimeoutError)
    assert "loading scripted-brief has not ended within its limit of 1 s" in str(error)
    assert registry.call(BRIEF, "tea").payload == "tea"


def loading_for_long(registry, eventually, tmp_path, *, count=1, isolation="process"):
    """Let calls wait for the first one's load, which lasts the first time alone; give them."""
    load = f"once {tmp_path / 'began'}"
    calls = [registry.stream(ONE, "tea", load=load)]
    eventually((tmp_path / "began").exists)
    calls += [registry.stream(ONE, "tea", load=load) for _ in range(count - 1)]
    eventually(lambda: [one.users for one in registry.loaded()] == [count])
    return calls, partial(registry.call, ONE, "coffee", load=load)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGABRT])
def test_error_a_process_that_is_killed_while_it_loads(scripted, eventually, tmp_path, how):
    """All who wait for that load are told how it ended; the next call loads anew."""
    registry = scripted()
    calls, again = loading_for_long(registry, eventually, tmp_path, count=3)
    os.kill(pid_of(registry, "scripted-one"), how)
    for call in calls:
        with pytest.raises(CartridgeDiedError, match=how.name):
            call.result()
    assert again().payload == "coffee"


@BOTH
def test_error_a_load_that_is_cancelled(scripted, eventually, tmp_path, isolation):
    """It stops, nothing of it stays, and the next call loads anew."""
    registry = scripted(isolation)
    (call,), again = loading_for_long(registry, eventually, tmp_path)
    began_s = time.monotonic()
    call.cancel()
    with pytest.raises(CancelledError):
        call.result()
    assert time.monotonic() - began_s < PATIENCE_S
    assert registry.loaded() == ()
    assert again().payload == "coffee"


@BOTH
def test_a_load_that_is_cancelled_by_one_is_done_for_the_others(
    scripted, eventually, tmp_path, isolation
):
    """Whoever waits for it loads anew, and is served."""
    registry = scripted(isolation)
    calls, _ = loading_for_long(registry, eventually, tmp_path, count=3)
    calls[0].cancel()
    with pytest.raises(CancelledError):
        calls[0].result()
    assert [call.result().payload for call in calls[1:]] == ["tea", "tea"]


HANGS = [
    pytest.param("hang 60", id="holds-pythons-lock"),
    pytest.param("sleep 60", id="hears-nothing"),
]


@pytest.mark.parametrize("load", HANGS)
def test_error_a_load_that_is_cancelled_and_does_not_stop(scripted, eventually, load):
    """Its process is killed after the grace, and nobody else is told of that as a failure."""
    registry = scripted()
    calls = [registry.stream(ONE, "tea", load=load) for _ in range(2)]
    eventually(lambda: [one.users for one in registry.loaded()] == [2])
    eventually(lambda: pid_of(registry, "scripted-one"))
    time.sleep(0.3)
    began_s = time.monotonic()
    for call in calls:
        call.cancel()
        with pytest.raises(CancelledError):
            call.result()
    assert LIMITS.grace_s * 0.9 < time.monotonic() - began_s < PATIENCE_S
    assert registry.loaded() == ()
    assert registry.stats()["workers"] == 1


def test_error_a_load_that_takes_too_long_is_told_to_all_who_wait_for_it(scripted):
    """Each has his answer at once, and does not try for as long again."""
    registry = scripted()
    callers = [Background(lambda: registry.call(BRIEF, "tea", load="hang 60")) for _ in range(3)]
    for outcome in [ended(one) for one in callers]:
        assert isinstance(outcome, ActivityTimeoutError)
    assert registry.stats()["workers"] == 1


SHORT = [
    pytest.param("write 8", OSError, "File too large", id="of-file-size"),
    pytest.param("grow 400", MemoryError, None, id="of-memory"),
]


@pytest.mark.parametrize(("does", "kind", "words"), SHORT)
def test_error_a_process_that_is_short_in_a_call(scripted, does, kind, words):
    """What the system refuses is the call's error; the process goes on, and so do others."""
    registry = scripted()
    registry.call(ONE, "tea")
    pid = pid_of(registry, "scripted-one")
    for hook in ("begin", "infer", "end"):
        with pytest.raises(kind, match=words):
            registry.call(ONE, "tea", at=hook, does=does)
        assert registry.call(ONE, "x" * 100_000).payload == "x" * 100_000
    assert pid_of(registry, "scripted-one") == pid


@pytest.mark.parametrize(("does", "kind", "words"), SHORT)
def test_error_a_process_that_is_short_while_it_loads(scripted, does, kind, words):
    """The same; nothing of that load stays."""
    registry = scripted()
    with pytest.raises(kind, match=words):
        registry.call(ONE, "tea", load=does)
    assert [one.state.value for one in registry.loaded()] == []
    assert registry.call(ONE, "tea").payload == "tea"


def test_error_a_process_without_any_memory_left(scripted):
    """Whatever fails in it first, each call has a result or an error with a name, soon."""
    registry = scripted()
    registry.call(ONE, "tea")
    registry.call(ONE, "tea", at="infer", does="starve")
    callers = [Background(lambda: registry.call(ONE, "x" * 100_000)) for _ in range(6)]
    for outcome in [ended(one) for one in callers]:
        assert isinstance(outcome, Result | CartridgeError | MemoryError), outcome
    registry.unload("scripted-one")
    assert registry.call(ONE, "tea").payload == "tea"


def test_error_a_preflight_by_hand_that_hangs(registry_over):
    """In a process it has the limit of a load; inline nobody could end it."""
    registry = registry_over("plugin_scripted", isolation="process")
    for ask in (registry.preflight, registry.open):
        began_s = time.monotonic()
        with pytest.raises(ActivityTimeoutError, match="the preflight of scripted-brief has not"):
            ask("scripted-brief", load="preflight hang 60")
        assert time.monotonic() - began_s < PATIENCE_S
    assert registry.preflight("scripted-brief").ok
