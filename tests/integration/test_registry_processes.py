"""A registry whose cartridges run in processes: a call is what it is inline."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from cartridge_core.errors import (
    AbiMismatchError,
    ActivityTimeoutError,
    BackendError,
    BusyError,
    CancelledError,
    CartridgeDiedError,
    InvalidArgumentError,
    LoadError,
    NoRouteError,
)
from cartridge_core.hookspecs import hookimpl
from cartridge_core.limits import Limits
from cartridge_core.testing.background import Background
from cartridge_core.wire import MAX_HEADER_BYTES

pytestmark = pytest.mark.timeout(120)

ONE, TWO, LIMITED = "cap:one", "cap:two", "cap:limited"
BOTH = pytest.mark.parametrize("isolation", ["inline", "process"])
LIMITS = Limits(grace_s=0.3)


class Seen:
    """A wrapper that notes the hooks of sessions."""

    def __init__(self):
        self.hooks: list[str] = []

    @hookimpl(wrapper=True)
    def cartridge_session_begin(self, handle, cap, parameters, context):
        self.hooks.append("begin")
        return (yield)

    @hookimpl(wrapper=True)
    def cartridge_infer(self, session, value):
        self.hooks.append("infer")
        return (yield)

    @hookimpl(wrapper=True)
    def cartridge_session_end(self, session):
        self.hooks.append("end")
        return (yield)


@pytest.fixture(scope="module")
def scripted(registry_over):
    """Give a registry over the scripted plugin, one for every way to look at it."""
    known = {}

    def give(isolation, *, watched=False):
        if (isolation, watched) not in known:
            seen = Seen()
            wrappers = [seen] if watched else []
            made = registry_over(
                "plugin_scripted", isolation=isolation, wrappers=wrappers, limits=LIMITS
            )
            known[isolation, watched] = made, seen
        return known[isolation, watched]

    return give


FAILURES = [
    pytest.param("refuse", InvalidArgumentError, id="own"),
    pytest.param("fail", BackendError, id="with-a-cause"),
    pytest.param("value", ValueError, id="built-in"),
    pytest.param("exit", BackendError, id="exit"),
]
HOOKS = ["begin", "infer", "end"]


@pytest.mark.parametrize(("does", "kind"), FAILURES)
@pytest.mark.parametrize("hook", HOOKS)
def test_error_a_call_ends_with_what_its_session_raises(scripted, hook, does, kind):
    """Whichever hook it is: in a process, inline, and where a wrapper looks on, all is the same."""
    ends = []
    for isolation in ("inline", "process"):
        for watched in (False, True):
            registry, seen = scripted(isolation, watched=watched)
            registry.call(ONE, "hooks")
            seen.hooks.clear()
            with pytest.raises(kind) as caught:
                registry.call(ONE, "tea", at=hook, does=does)
            error = caught.value
            told = [str(error), getattr(error, "arg", None)]
            assert does != "fail" or "deep inside" in str(error.__cause__)
            ends.append((told, registry.call(ONE, "hooks").payload[1:]))
            if watched:
                whole = ["begin", "infer", "end"]
                assert seen.hooks == [*(["begin"] if hook == "begin" else whole), *whole]
    assert all(one == ends[0] for one in ends)


@BOTH
def test_a_session_by_hand_takes_several_inputs(scripted, isolation):
    """What goes along with the only input of a call does not do so by hand."""
    registry, _ = scripted(isolation)
    registry.call(ONE, "hooks")
    with registry.open("scripted-one") as cartridge, cartridge.session() as session:
        assert [session.infer(word).payload for word in ("tea", "coffee")] == ["tea", "coffee"]
    hooks = registry.call(ONE, "hooks").payload
    assert hooks == ["end", "begin", "infer", "infer", "end", "begin", "infer"]


def test_error_a_value_that_cannot_cross_leaves_the_cartridge_usable(scripted):
    """Nothing of its session has reached the process then, and nothing is left of it."""
    registry, _ = scripted("process")
    registry.call(ONE, "hooks")
    with pytest.raises(InvalidArgumentError, match="a cartridge's process takes and gives texts"):
        registry.call(ONE, "x" * (MAX_HEADER_BYTES + 1))
    assert registry.call(ONE, "hooks").payload == ["end", "begin", "infer"]


@BOTH
@pytest.mark.parametrize("hook", HOOKS)
def test_error_a_cancel_reaches_each_hook(scripted, isolation, hook):
    """A call that is cancelled comes out of whatever hook it is in, and its session has ended."""
    registry, _ = scripted(isolation)
    registry.call(ONE, "hooks")
    call = registry.stream(ONE, "tea", at=hook, does="work 30")
    working = Background(call.result)
    time.sleep(0.2)
    began_s = time.monotonic()
    call.cancel()
    working.join(10)
    assert time.monotonic() - began_s < 2
    assert isinstance(working.error, CancelledError)
    hooks = registry.call(ONE, "hooks").payload
    assert hooks.count("end") == (1 if hook == "begin" else 2)


@BOTH
def test_a_session_ends_after_its_cancel_hook(scripted, isolation):
    """The two never overlap, though the hook that works comes out while the other goes on."""
    registry, _ = scripted(isolation)
    registry.call(ONE, "hooks")
    call = registry.stream(ONE, "tea", at="infer", does="linger")
    time.sleep(0.2)
    call.cancel()
    with pytest.raises(CancelledError):
        call.result()
    assert registry.call(ONE, "hooks").payload == ["end", "begin", "infer", "end", "begin", "infer"]


@BOTH
@pytest.mark.parametrize("hooks", ["begin infer", "infer end"])
def test_each_hook_that_returns_is_a_sign_of_life(scripted, isolation, hooks):
    """Hooks that are silent for less than the limit each may take longer together."""
    registry, _ = scripted(isolation)
    assert registry.call(ONE, "tea").payload == "tea"
    assert registry.call(LIMITED, "tea", at=hooks, does="sleep 1.3").payload == "tea"


def test_error_a_call_that_hangs_in_c_is_ended_and_its_process_replaced(registry_over, eventually):
    """A native call that holds Python's lock takes nobody else along; the next call is served."""
    registry = registry_over("plugin_scripted", isolation="process", limits=LIMITS)
    assert registry.call(ONE, "tea").payload == registry.call(TWO, "tea").payload == "tea"
    (pid,) = (one.pid for one in registry.loaded() if one.cartridge_id == "scripted-one")
    hanging = Background(lambda: registry.call(LIMITED, "tea", at="infer", does="hang 60"))
    slowest_s, answered = 0.0, 0
    while hanging.is_alive():
        began_s = time.monotonic()
        assert registry.call(TWO, "tea").payload == "tea"
        slowest_s, answered = max(slowest_s, time.monotonic() - began_s), answered + 1
    assert isinstance(hanging.error, ActivityTimeoutError)
    assert slowest_s < 1
    assert answered > 10
    eventually(lambda: pid not in [one.pid for one in registry.loaded()], 5)
    assert registry.call(ONE, "coffee").payload == "coffee"


CLOSED = """
import os, sys
from cartridge_core import Registry
tell = os.dup(1)
for file in {files}:
    os.close(file)
try:
    with Registry.discover(isolation="process") as registry:
        found = registry.call("cap:list-models").payload
    answer = type(found).__name__
except Exception as error:
    answer = repr(error)
os.write(tell, answer.encode())
"""


@pytest.mark.parametrize("files", [(0,), (0, 1), (1, 2), (0, 1, 2)], ids=str)
def test_a_host_without_standard_streams(files, tmp_path):
    """The line to the process takes no number that the process has for its own output."""
    env = {**os.environ, "CARTRIDGE_CACHE": str(tmp_path), "HF_HOME": str(tmp_path)}
    program = CLOSED.format(files=files)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=False, env=env
    )
    assert done.stdout == b"Record"


def test_error_a_load_by_hand_has_its_limit(registry_over):
    """`open` waits no longer than the cartridge allows itself: no call's clock counts it."""
    registry = registry_over("plugin_scripted", isolation="process")
    began_s = time.monotonic()
    with pytest.raises(ActivityTimeoutError, match="scripted-brief has not ended within its limit"):
        registry.open("scripted-brief", load="hang 60")
    assert time.monotonic() - began_s < 20
    registry.open("scripted-two", load="sleep 0.1").close()


def test_error_a_process_that_dies_in_a_load_by_hand_says_so(registry_over):
    """That is no limit."""
    registry = registry_over("plugin_scripted", isolation="process")
    with pytest.raises(CartridgeDiedError, match="exit status 3"):
        registry.open("scripted-one", load="die")


@BOTH
def test_a_fork_ends_nothing_of_its_parents(scripted, isolation):
    """Leaving its blocks in a child calls no hook, and raises nothing; the parent goes on."""
    registry, _ = scripted(isolation)
    hooks = importlib.import_module("plugin_scripted")._hooks
    reader, writer = os.pipe()
    with registry.open("scripted-one") as cartridge, cartridge.session() as session:
        assert session.infer("tea").payload == "tea"
        child = os.fork()
        if child == 0:
            outcome = "failed"
            try:
                before = list(hooks)
                session.end()
                cartridge.close()
                registry.close()
                outcome = f"called {hooks[len(before) :]}"
            except BaseException as exc:  # noqa: BLE001 -- told to the parent
                outcome = repr(exc)
            finally:
                os.write(writer, outcome.encode())
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reader, 1000) == b"called []"
        os.close(reader)
        os.close(writer)
        assert session.infer("coffee").payload == "coffee"


BROKEN = [
    pytest.param("raise RuntimeError('bad')", LoadError, "RuntimeError: bad", id="raises"),
    pytest.param("import sys; sys.exit(4)", LoadError, "SystemExit: 4", id="exits"),
    pytest.param("import nothing_like_it", LoadError, "ModuleNotFoundError", id="missing"),
    pytest.param("class E(Exception): pass\nraise E('own')", LoadError, "E: own", id="own-error"),
    pytest.param("x = 1", AbiMismatchError, "lacks the hooks", id="no-hooks"),
]


@pytest.fixture
def broken(registry_over, tmp_path, monkeypatch):
    """Give registries over a plugin with a body that is no good."""
    name = f"plugin_broken_{tmp_path.name.replace('-', '_')}"
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(body, isolation):
        (tmp_path / f"{name}.py").write_text(body)
        known = importlib.import_module("plugin_scripted").cartridge_descriptors()
        return registry_over(name, known, isolation=isolation)

    return make


@BOTH
@pytest.mark.parametrize(("body", "kind", "words"), BROKEN)
def test_error_a_plugin_that_cannot_be_imported_is_an_issue(broken, isolation, body, kind, words):
    """This call gets the error; later ones find a plugin with a discovery issue, and why."""
    registry = broken(body, isolation)
    with pytest.raises(kind, match=words):
        registry.call(ONE, "tea")
    (issue,) = registry.issues
    assert words in issue.why
    assert not issue.why.startswith(f"plugin {issue.plugin} (")
    with pytest.raises(NoRouteError, match=words):
        registry.call(ONE, "tea")
    with pytest.raises(NoRouteError, match=words):
        registry.open("scripted-two")


def test_error_a_plugin_that_many_want_is_one_issue(broken):
    """Callers at once, of different cartridges, make one issue of it."""
    registry = broken("import time; time.sleep(0.3); raise RuntimeError('bad')", "process")
    callers = [Background(partial(registry.call, cap, "tea")) for cap in (ONE, TWO) * 2]
    for caller in callers:
        caller.join(30)
        assert isinstance(caller.error, LoadError | NoRouteError)
    assert len(registry.issues) == 1


def test_error_a_process_that_does_not_come_up_is_no_issue(broken):
    """The next call may have more luck."""
    registry = broken("import os; os._exit(5)", "process")
    with pytest.raises(LoadError, match="exit status 5"):
        registry.call(ONE, "tea")
    assert registry.issues == ()


@pytest.fixture
def slow_import(broken):
    """Give a registry over a plugin whose import lasts until it is told to end."""
    registry = broken(
        """
        import importlib
        import __main__
        __main__.importing.set()
        __main__.goes_on.wait(30)
        from plugin_scripted import *
        if __main__.fails:
            raise RuntimeError("bad")
        """.replace("\n        ", "\n"),
        "inline",
    )
    with pytest.MonkeyPatch.context() as patch:
        main = importlib.import_module("__main__")
        for name in ("importing", "goes_on"):
            patch.setattr(main, name, threading.Event(), raising=False)
        patch.setattr(main, "fails", False, raising=False)
        yield registry, main
        main.goes_on.set()


def test_callers_wait_for_one_import(slow_import):
    """Whoever wants a plugin that is being imported waits, and is served by that import."""
    registry, main = slow_import
    first = Background(lambda: registry.call(ONE, "tea").payload)
    assert main.importing.wait(10)
    others = [Background(lambda: registry.call(TWO, "tea").payload) for _ in range(3)]
    time.sleep(0.2)
    assert all(one.is_alive() for one in (first, *others))
    main.goes_on.set()
    for one in (first, *others):
        one.join(10)
        assert one.result == "tea", one.error


def test_error_who_waits_for_an_import_can_be_cancelled(slow_import):
    """At once, and alone: who imports goes on."""
    registry, main = slow_import
    first = Background(lambda: registry.call(ONE, "tea").payload)
    assert main.importing.wait(10)
    call = registry.stream(TWO, "tea")
    waiting = Background(call.result)
    time.sleep(0.2)
    began_s = time.monotonic()
    call.cancel()
    waiting.join(10)
    assert time.monotonic() - began_s < 2
    assert isinstance(waiting.error, CancelledError)
    main.goes_on.set()
    first.join(10)
    assert first.result == "tea"
    assert registry.call(TWO, "tea").payload == "tea"


def test_error_who_waits_for_an_import_that_fails_gets_its_error(slow_import):
    """It is imported once."""
    registry, main = slow_import
    main.fails = True
    first = Background(lambda: registry.call(ONE, "tea"))
    assert main.importing.wait(10)
    other = Background(lambda: registry.call(TWO, "tea"))
    time.sleep(0.2)
    main.importing.clear()
    main.goes_on.set()
    for one in (first, other):
        one.join(10)
        assert isinstance(one.error, LoadError)
        assert "RuntimeError: bad" in str(one.error)
    assert not main.importing.is_set()
    assert len(registry.issues) == 1


def test_error_who_waits_for_an_import_waits_no_longer_than_for_a_load(slow_import):
    """An import that never ends is a `BusyError` for who waits for it."""
    registry, main = slow_import
    first = Background(lambda: registry.call(TWO, "tea").payload)
    assert main.importing.wait(10)
    with pytest.raises(BusyError, match="is being imported for another caller"):
        registry.call("cap:brief", "tea")
    main.goes_on.set()
    first.join(10)
