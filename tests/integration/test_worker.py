"""A plugin in a process does what it does inline: results, errors, reports, cancellation."""

from __future__ import annotations

import importlib
import logging
import math
import os
import re
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np  # noqa: TID253 -- arrays are some of what crosses
import pytest

from cartridge_core import errors
from cartridge_core.binding import Binding
from cartridge_core.context import Context
from cartridge_core.errors import BackendError, CancelledError, InvalidArgumentError, StateError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.pack import Pack
from cartridge_core.progress import Log, Phase, Progress
from cartridge_core.records import Record
from cartridge_core.results import Result, ResultKind
from cartridge_core.session import Session
from cartridge_core.testing.background import Background

pytestmark = pytest.mark.timeout(120)


class House:
    """A plugin that is open, inline or in a process, and what its contexts were told."""

    def __init__(self, module, descriptors, worker, wrappers=()):
        self.worker = worker
        self.descriptors = {one.id: one for one in descriptors}
        self.plugin = module if worker is None else worker.plugin
        self.binding = Binding(module.__name__, self.plugin, descriptors, wrappers)

    def session(self, cartridge_id, options=None, context=None, **parameters):
        descriptor = self.descriptors[cartridge_id]
        context = context or Context()
        handle = self.binding.open(cartridge_id, None, options or {}, Context(parent=context))
        cap = descriptor.caps[0]
        return Session(self.binding, handle, descriptor, cap, parameters, context, is_checked=True)


@pytest.fixture(scope="module", params=["inline", "process"])
def isolation(request):
    return request.param


@pytest.fixture(scope="module")
def houses(isolation, source_of, start_worker):
    """Open a plugin of ``worker_plugins``, in the test's isolation, once for all tests."""
    known = {}

    def open_house(name, wrappers=()):
        module = importlib.import_module(name)
        descriptors = module.cartridge_descriptors()
        if name not in known:
            source = source_of(name, descriptors)
            known[name] = None if isolation == "inline" else start_worker(source)
        return House(module, descriptors, known[name], wrappers)

    return open_house


@pytest.fixture
def fakes(houses):
    return houses("plugin_fakes")


@pytest.fixture
def trouble(houses):
    return houses("plugin_trouble")


@pytest.fixture
def ask(trouble):
    """Have the trouble plugin do one thing."""

    def do(*what, context=None):
        with trouble.session("trouble-batch", context=context) as session:
            return session.infer(list(what)).payload

    return do


def heard():
    """Give a context, and the list of what it is told."""
    told: list[Progress | Log] = []
    return Context(told.append), told


def test_batch_gives_its_result(fakes):
    """Options, parameters and the value arrive, and the result comes back."""
    with fakes.session("batch-echo-text", {"prefix": "say "}, upper=True) as session:
        result = session.infer("tea")
    assert result == Result(
        ResultKind.FINAL, Record({"text": "SAY TEA"}), cartridge_id="batch-echo-text"
    )


def test_streaming_gives_its_results(fakes):
    """Push, pull, flush and drain are the same; after the end pull stays None."""
    with fakes.session("segmenting-echo-bytes") as session:
        for chunk in (b"a", b"b.", b"c"):
            session.push(chunk)
        before = list(iter(session.pull, None))
        session.flush()
        after = list(session.drain())
        assert session.pull() is None
    assert [(one.kind.name, one.payload, one.segment, one.end_s) for one in before + after] == [
        ("PARTIAL", "a", 0, None),
        ("ENDPOINT", None, 0, 3.0),
        ("FINAL", "ab.", 0, None),
        ("PARTIAL", "c", 1, None),
        ("FINAL", "c", 1, None),
    ]


def test_sessions_run_beside_each_other(fakes):
    """While a session is inside a hook, others begin, work and end."""
    with fakes.session("slow-counter-batch") as slow:
        counting = Background(lambda: slow.infer(30_000))
        for number in range(20):
            with fakes.session("batch-echo-text") as session:
                assert session.infer(str(number)).payload.text == str(number)
        assert counting.is_alive()
        slow.cancel()
        counting.join(10)
    assert isinstance(counting.error, CancelledError)


def test_many_sessions_from_many_threads_keep_apart(fakes):
    """Each of many callers at once gets what it would get alone."""

    def work(own):
        for number in range(30):
            with fakes.session("streaming-echo-text") as session:
                session.push(f"{own}-")
                session.push(str(number))
                session.flush()
                assert [one.payload for one in session.drain()][-1] == f"{own}-{number}"

    workers = [Background(partial(work, own)) for own in range(8)]
    for worker in workers:
        worker.join(60)
    assert [worker.error for worker in workers] == [None] * 8


VALUES = [
    pytest.param(None, id="none"),
    pytest.param([True, -1, 2**80, 0.1, math.inf, "é\ud800", ""], id="scalars"),
    pytest.param({"$b": 0, "$t": [1], "$$": {"$p": "x"}}, id="dollars"),
    pytest.param([(1, ("a",)), [], {}], id="tuples"),
    pytest.param(b"\0\xff" * 300, id="bytes"),
    pytest.param(b"x" * 3_000_000, id="large-bytes"),
    pytest.param({"images": [b"a", b"", b"c"], "path": Path("/a b")}, id="bytes-inside"),
    pytest.param("x" * 200_000, id="long-text"),
]


@pytest.mark.parametrize("value", VALUES)
def test_values_cross(ask, value):
    """A plain value comes back as it was given."""
    payload = ask("echo", {"it": value})
    found = payload["it"]
    assert found == (Record(value) if isinstance(value, dict) else value)


def test_a_record_arrives_as_a_mapping(ask):
    """What a caller has from another call can be given on."""
    assert ask("echo", Record({"a": {"b": 1}})) == Record({"a": {"b": 1}})


ARRAYS = [
    pytest.param(np.arange(6, dtype="f4").reshape(2, 3), id="float32"),
    pytest.param(np.arange(12).reshape(3, 4).T[::2], id="strided"),
    pytest.param(np.zeros((0, 3)), id="empty"),
    pytest.param(np.array(5), id="scalar"),
    pytest.param(np.arange(3, dtype=">i2"), id="big-endian"),
    pytest.param(np.array([1 + 2j]), id="complex"),
    pytest.param(np.arange(2_000_000, dtype="f4"), id="large"),
]


@pytest.mark.parametrize("array", ARRAYS)
def test_arrays_cross(ask, array):
    """An array has its dtype, its shape and its numbers on both sides, and can be written to."""
    payload = ask("array", array)
    assert payload.same.dtype == array.dtype
    np.testing.assert_array_equal(payload.same, array)
    np.testing.assert_array_equal(payload.twice, array * 2)
    payload.same.flags.writeable = True


def test_a_result_has_its_times_and_its_segment(trouble):
    """Kind, segment and times come as they were given."""
    with trouble.session("trouble-batch") as session:
        result = session.infer(["echo", 1])
    assert (result.kind, result.segment, result.start_s, result.end_s) == (
        ResultKind.FINAL,
        3,
        0.5,
        2,
    )


def test_preflight_gives_its_report(trouble, tmp_path):
    """A report has every check, and the memory; a pack arrives by its path."""
    (tmp_path / "model.bin").write_bytes(b"x")
    pack = Pack.from_path(tmp_path / "model.bin")
    report = trouble.binding.preflight("trouble-batch", pack, {"at": "x"})
    (check,) = report.checks
    assert (check.ok, check.fix, report.memory_bytes) == (False, "x", 5)
    assert check.found == f"trouble-batch {pack.path} {{'at': 'x'}}"


RAISED = [
    pytest.param("cancelled", errors.CancelledError, "stop", id="cancelled"),
    pytest.param("value", ValueError, r"\('one', 2\)", id="built-in"),
    pytest.param("key", KeyError, "'k'", id="key"),
    pytest.param("file", FileNotFoundError, "No such file: '/x'", id="os"),
    pytest.param("memory", MemoryError, "^", id="memory"),
    pytest.param("exit", BackendError, "cartridge_infer raised SystemExit: 3", id="exit"),
    pytest.param("interrupt", BackendError, "raised KeyboardInterrupt", id="interrupt"),
    pytest.param("stop", BackendError, "raised StopIteration: s", id="stop-iteration"),
]


@pytest.mark.parametrize(("name", "kind", "words"), RAISED)
def test_error_what_a_hook_raises_arrives(trouble, name, kind, words):
    """Core's own errors and built-in ones are themselves, and those that would escape wrapped."""
    handle = trouble.binding.open("trouble-batch", None, {}, Context())
    session = trouble.binding.session_begin(handle, "cap:x", {}, Context())
    thrown = Background(lambda: trouble.binding.infer(session, ["raise", name]))
    thrown.join(30)
    assert type(thrown.error) is kind
    assert re.search(words, str(thrown.error))
    trouble.binding.session_end(session)


def test_error_attributes_arrive(ask):
    """An error keeps its data."""
    with pytest.raises(InvalidArgumentError, match="no") as caught:
        ask("raise", "invalid")
    error = caught.value
    assert (error.arg, error.value, error.rule) == ("a", [1], "r")


def test_error_cause_and_notes_arrive(ask):
    """The library's own words are still told."""
    with pytest.raises(BackendError, match="it failed") as caught:
        ask("raise", "cause")
    assert "deep inside" in str(caught.value.__cause__)
    assert "a note of its own" in caught.value.__notes__


@pytest.mark.parametrize("hook", ["open", "begin", "end", "close"])
def test_error_every_hook_may_fail(trouble, hook):
    """What open, begin, end and close raise reaches who called them."""
    does = {"at": hook, "do": ["raise", "invalid"]}

    def use():
        handle = trouble.binding.open("trouble-batch", None, does, Context())
        session = trouble.binding.session_begin(handle, "cap:x", does, Context())
        trouble.binding.session_end(session)
        trouble.binding.close(handle)

    with pytest.raises((InvalidArgumentError, BackendError), match="no"):
        use()


def test_context_is_told_of_progress_and_logs(ask):
    """What is told in a hook is heard in order, and all of it before the hook returns."""
    context, told = heard()
    assert ask("tell", 5, context=context) == 5
    logs = [event.message for event in told if isinstance(event, Log)]
    steps = [event.message for event in told if isinstance(event, Progress)]
    assert logs == [f"line {number}" for number in range(5)]
    assert steps == [f"step {number}" for number in range(5)]


def test_open_is_told_of_progress(trouble):
    """A load says how far it is; whether the network is forbidden is known there."""
    context, told = heard()
    context.offline = True
    trouble.binding.open("trouble-batch", None, {}, context)
    assert told == [Progress(0.5, "opening trouble-batch"), Log("info", "offline: True")]


@pytest.mark.parametrize("once", [False, True], ids=["many-inputs", "one-input"])
def test_cancel_reaches_the_work(trouble, once):
    """A cancelled context's callbacks run, `cartridge_cancel` is called, and the work stops."""
    context, told = heard()
    context.once = once
    with trouble.session("trouble-batch", context=context) as session:
        working = Background(lambda: session.infer(["wait_for_cancel"]))
        while not told:
            time.sleep(0.005)
        session.cancel()
        working.join(4)  # without the hook it takes 5 s
        assert isinstance(working.error, CancelledError)


@pytest.mark.parametrize("hook", ["open", "begin"])
def test_cancel_reaches_a_load_and_a_begin(trouble, hook):
    """Also before there is a session."""
    context = Context()
    does = {"at": hook, "do": ["work", 30]}

    def use():
        handle = trouble.binding.open("trouble-batch", None, does, context)
        trouble.binding.session_begin(handle, "cap:x", does, context)

    working = Background(use)
    time.sleep(0.2)
    context.cancel()
    working.join(10)
    assert isinstance(working.error, CancelledError)


def test_a_context_cancelled_before_is_cancelled_there(trouble):
    """A hook that begins with a cancelled context finds it so."""
    context = Context()
    context.cancel()
    with pytest.raises(CancelledError):
        trouble.binding.open("trouble-batch", None, {"at": "open", "do": ["work", 5]}, context)


def test_cancel_that_overtakes_what_it_is_for(do, worker):
    """A cancellation that the process hears of before the context it is for is remembered."""
    module = importlib.import_module("plugin_trouble")
    house = House(module, module.cartridge_descriptors(), worker)
    number = next(worker._talk._numbers)
    worker.tell("cancel", number + 2)  # the ping has the next one
    assert worker.ping(10)
    time.sleep(0.2)
    does = {"at": "open", "do": ["work", 5]}
    with pytest.raises(CancelledError):
        house.binding.open("trouble-batch", None, does, Context())


class _Blocks(Context):
    """Notes the blocks that its cartridge was in."""

    def __init__(self):
        super().__init__()
        self.blocks: list[object] = []

    def blocking(self, message, limit_s):
        blocks = self.blocks

        class Block:
            def __enter__(self):
                blocks.append((message, limit_s))

            def __exit__(self, *exc):
                blocks.append("end")

        return Block()


def test_keepalive_is_the_hosts(ask):
    """`run_with_keepalive` gives the host its message and limit while it runs."""
    context = _Blocks()
    assert ask("keepalive", 0.05, context=context) == "slept"
    assert context.blocks == [("sleeping", 7.5), "end"]


class _Peer:
    """A host that answers peer calls with what it is given."""

    def __init__(self, *events, error=None):
        self.events = events
        self.error = error
        self.asked: list[object] = []
        self.closed = threading.Event()

    def call(self, cap, value=None, **args):
        self.asked.append((cap, value, args))
        if self.error is not None and not self.events:
            raise self.error
        return _Response(self)


class _Response:
    def __init__(self, peer):
        self._peer = peer
        self._left = iter(peer.events)

    def __iter__(self):
        return self

    def __next__(self):
        event = next(self._left, None)
        if event is None and self._peer.error is not None:
            raise self._peer.error
        if event is None:
            raise StopIteration
        return event

    def result(self):
        if self._peer.error is not None:
            raise self._peer.error
        return self._peer.events[-1]

    def close(self):
        self._peer.closed.set()


FINAL = Result(ResultKind.FINAL, Record({"path": "/m"}), cartridge_id="other")


def test_peer_call_gives_its_result(ask):
    """Its cap, value and arguments arrive at the host, and its result at the cartridge."""
    peer = _Peer(Progress(0.5), FINAL)
    found = ask("peer", "cap:x", {"a": b"1"}, {"n": 2}, context=Context(peer=peer))
    assert found == [Record({"path": "/m"}), "Record", "other"]
    assert peer.asked == [("cap:x", {"a": b"1"}, {"n": 2})]


def test_peer_call_gives_its_events(ask):
    """Progress and log lines come too, in order."""
    peer = _Peer(Progress(0.5, "half", phase=Phase.LOAD), Log("info", "line"), FINAL)
    found = ask("peer_events", "cap:x", None, context=Context(peer=peer))
    assert found == [
        ["Progress", "half", None],
        ["Log", "line", None],
        ["Result", None, Record({"path": "/m"})],
    ]


@pytest.mark.parametrize("events", [(), (Progress(0.1),)], ids=["at-once", "later"])
def test_error_of_a_peer_call_arrives_typed(ask, events):
    """What the host raises is raised in the cartridge as what it is."""
    peer = _Peer(*events, error=errors.NoRouteError("nobody", reason=errors.NoRouteReason.EXCLUDED))
    assert ask("peer_caught", "cap:x", context=Context(peer=peer)) == ["NoRouteError", "nobody"]


def test_error_no_peer_call_by_hand(ask):
    """Where nobody answers peer calls, the cartridge is told."""
    name, text = ask("peer_caught", "cap:x")
    assert (name, "no peer call to cap:x" in text) == ("StateError", True)


def test_wrappers_see_the_same_calls(houses):
    """A wrapper sees each hook, with its result or its error."""
    seen: list[object] = []

    class Wrapper:
        @hookimpl(wrapper=True)
        def cartridge_session_begin(self, handle, cap, parameters, context):
            seen.append(("begin", cap))
            return (yield)

        @hookimpl(wrapper=True)
        def cartridge_infer(self, session, value):
            try:
                result = yield
            except BaseException as exc:
                seen.append(type(exc).__name__)
                raise
            seen.append(result.payload)
            return result

    house = houses("plugin_trouble", [Wrapper()])
    with house.session("trouble-batch") as session:
        session.infer(["echo", "x"])
        with pytest.raises(ValueError, match="one"):
            session.infer(["raise", "value"])
    assert seen == [("begin", str(session.cap.urn)), "x", "ValueError"]
    assert house.binding.has_cancel


@pytest.mark.parametrize("level", ["DEBUG", "INFO", "ERROR"])
def test_log_records_arrive(ask, caplog, level):
    """What is logged under ``cartridge`` is logged in the host before the hook returns."""
    with caplog.at_level(level, "cartridge"):
        ask("record")
        own = [record for record in caplog.records if record.name == "cartridge.trouble"]
    records = [("DEBUG", "low")] * 300 + [("WARNING", "a record"), ("ERROR", "failed")]
    wanted = [one for one in records if getattr(logging, one[0]) >= getattr(logging, level)]
    assert [(one.levelname, one.getMessage().splitlines()[0]) for one in own] == wanted


def test_log_records_arrive_without_a_call(do, caplog, eventually):
    """What a thread of the plugin's own logs is logged when it is."""
    with caplog.at_level(logging.INFO, "cartridge"):
        do("record_later")
        eventually(lambda: "later" in [one.getMessage() for one in caplog.records])


@pytest.fixture
def worker(source_of, start_worker):
    """Give a worker with the trouble plugin."""
    module = importlib.import_module("plugin_trouble")
    return start_worker(source_of("plugin_trouble", module.cartridge_descriptors()))


@pytest.fixture
def do(worker):
    """Have it do one thing, in a session of its own."""
    module = importlib.import_module("plugin_trouble")
    house = House(module, module.cartridge_descriptors(), worker)

    def do(*what):
        with house.session("trouble-batch") as session:
            return session.infer(list(what)).payload

    return do


def test_a_caller_who_does_not_listen_blocks_nobody_else(do, worker):
    """A context that blocks stops its own session, which waits; nothing that is said is lost."""
    module = importlib.import_module("plugin_trouble")
    house = House(module, module.cartridge_descriptors(), worker)
    listens = threading.Event()
    told: list[Progress | Log] = []

    def hear(event):
        listens.wait(30)
        told.append(event)

    before = do("flooded")
    with house.session("trouble-batch", context=Context(hear)) as deaf:
        flood = Background(lambda: deaf.infer(["flood", 5000]))
        time.sleep(1)
        assert all(do("echo", number) == number for number in range(10))
        assert do("flooded") - before < 5000
        listens.set()
        flood.join(30)
        assert flood.error is None
    assert len(told) == 3 * 5000


def test_error_of_a_plugins_own_class_is_its_base(do):
    """A class the host does not have arrives as its nearest base; the traceback says which."""
    with pytest.raises(errors.LoadError, match="mine") as caught:
        do("raise", "own")
    assert type(caught.value) is errors.LoadError
    (note,) = caught.value.__notes__
    assert note.startswith("Raised in the process of trouble-batch:\nTraceback")
    assert "plugin_trouble.OwnError: mine" in note


@pytest.mark.parametrize(
    ("name", "words"),
    [("foreign", "plugin_trouble.ForeignError: theirs"), ("group", "ExceptionGroup: several")],
)
def test_error_of_a_backends_class_is_named(do, name, words):
    """What cannot be made again is a `BackendError` with its class's name."""
    with pytest.raises(BackendError, match=words):
        do("raise", name)


def test_error_value_that_cannot_cross(do):
    """A value that is not plain is refused by its place, and the session goes on."""
    with pytest.raises(InvalidArgumentError, match="is a set, which is no plain value") as caught:
        do("echo", {"tags": [{1, 2}]})
    assert caught.value.arg == "value[1].tags[0]"
    assert do("echo", 1) == 1


def test_error_result_that_cannot_cross(do):
    """A plugin that gives what is not plain is named, and its process lives on."""
    with pytest.raises(BackendError, match=r"payload\.texts\[1\] is a plugin_trouble\.Uncrossable"):
        do("uncrossable")
    assert do("echo", 1) == 1


def test_surroundings(do, worker, monkeypatch):
    """The process has the host's path, and nothing of its main module, signals or input."""
    seen = do("surroundings")
    assert seen.path == sys.path
    assert seen.main == "cartridge_core.worker.__main__"
    assert seen.argv[1:] == [seen.argv[1], str(os.getpid()), "trouble-batch"]
    assert (seen.sigint, seen.stdin, seen.faults) == (True, "/dev/null", True)
    assert seen.pythonpath == os.environ.get("PYTHONPATH")
    assert (seen.pid, seen.thread, seen.numpy) == (worker.pid, False, False)


def test_output_is_logged_and_harms_nothing(do, caplog, eventually):
    """What is printed is logged, stdout as info and stderr as warnings; the call is not harmed."""
    with caplog.at_level(logging.INFO, "cartridge.trouble-batch"):
        assert do("print", 2000) == 2000
        lines = [(one.levelname, one.getMessage()) for one in caplog.records]
        eventually(lambda: len(caplog.records) >= 6000)
    lines = [
        (one.levelname, one.getMessage())
        for one in caplog.records
        if one.name == "cartridge.trouble-batch"
    ]
    assert lines.count(("INFO", "raw")) == 2000
    assert lines.count(("INFO", "out 7")) == 1
    assert lines.count(("WARNING", "err 7")) == 1


@pytest.mark.parametrize("verb", ["peer_left", "peer_kept"])
def test_a_peer_call_that_is_left_is_closed(worker, eventually, verb):
    """A response that the cartridge drops is closed in the host; one it keeps, with the session."""
    module = importlib.import_module("plugin_trouble")
    house = House(module, module.cartridge_descriptors(), worker)
    peer = _Peer(Progress(0.1), Progress(0.2))
    with house.session("trouble-batch", context=Context(peer=peer)) as session:
        assert session.infer([verb, "cap:x"]).payload == "Progress"
        if verb == "peer_left":
            eventually(peer.closed.is_set)
        assert peer.closed.is_set() is (verb == "peer_left")
    assert peer.closed.is_set()


def test_ping_and_memory(worker, do):
    """A process at work in Python answers; what memory it has can be told."""
    working = Background(lambda: do("work", 0.5))
    assert worker.ping(5)
    working.join(10)
    assert working.result == "worked"
    assert (worker.rss_bytes() or 0) > 10_000_000


def test_thread_that_exits_ends_nothing(do):
    """`sys.exit` in a thread of a plugin's own ends that thread alone."""
    assert do("exit_thread") == "alive"


def test_sessions_of_the_main_thread(do):
    """Hooks can be called from the main thread and from others."""
    assert threading.current_thread() is threading.main_thread()
    assert do("echo", 1) == 1
    other = Background(lambda: do("echo", 2))
    other.join(30)
    assert other.result == 2


def test_error_session_that_has_ended(worker):
    """A hook of a session that is no more is refused by the process, which goes on."""
    module = importlib.import_module("plugin_trouble")
    house = House(module, module.cartridge_descriptors(), worker)
    with pytest.raises(StateError, match="session 999 has ended"):
        house.binding.infer(999, ["echo", 1])
    assert worker.is_alive
