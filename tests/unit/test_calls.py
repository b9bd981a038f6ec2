"""Calls: three phases on a host thread, told as events, stopped from anywhere."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cartridge_core.calls import Call
from cartridge_core.errors import (
    BackendError,
    CancelledError,
    InvalidArgumentError,
    LoadError,
    NoRouteError,
    PreflightError,
    StateError,
)
from cartridge_core.hookspecs import hookimpl
from cartridge_core.pack import Pack
from cartridge_core.progress import Log, Phase, Progress
from cartridge_core.reports import Check, PreflightReport
from cartridge_core.results import Result, ResultKind
from cartridge_core.tasks import stream_text, stream_transcribe
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor
from cartridge_core.testing.fakes import (
    BatchEcho,
    FailingEcho,
    SegmentingEcho,
    SlowCounter,
    StreamingEcho,
)
from cartridge_core.testing.registries import registry_of

ECHO = "cap:echo"
COUNT = "cap:count"
SPEC_ARG = {
    "name": "model_spec",
    "media_urn": "media:enc=utf-8;model-spec",
    "required": False,
    "sources": [{"cli_flag": "--model-spec"}],
    "metadata": {"pack": True},
}


class Reader(BatchEcho):
    """Echoes what is in its model file, and says how it gets on."""

    plugin_name = "reader"
    descriptor = fake_descriptor("reader-text", caps=[fake_cap("read", SPEC_ARG)])

    @hookimpl
    def cartridge_open(self, cartridge_id, pack, options, context):
        """Report half the load, and keep the file's text."""
        self.saw("open")
        context.progress(0.5, "half way")
        context.log("info", "reading")
        return pack.path.read_text()

    @hookimpl
    def cartridge_session_begin(self, handle, cap, parameters, context):
        """Keep the text and the context."""
        self.saw("session_begin")
        return (handle, context)

    @hookimpl
    def cartridge_infer(self, session, value):
        """Report in a hundred steps."""
        text, context = session
        for step in range(100):
            context.progress(step / 100, "reading aloud")
        return Result(ResultKind.FINAL, text + value)


class Downloads(BatchEcho):
    """Serves download-model with a file of its own."""

    plugin_name = "downloads"
    descriptor = fake_descriptor(
        "downloads-models",
        caps=[
            {
                **fake_cap(
                    "download-model",
                    takes="media:enc=utf-8;model-spec",
                    gives="media:download-result;enc=utf-8;file-path;record",
                ),
            }
        ],
    )

    def __init__(self, path):
        super().__init__()
        self.path = path

    @hookimpl
    def cartridge_infer(self, session, value):
        """Report half the way, and give the path."""
        self.saw(f"infer {value}")
        session.context.progress(0.5, "half of it")
        session.context.log("info", "from a mirror")
        return Result(ResultKind.FINAL, {"path": str(self.path)})


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.txt"
    path.write_text("model says ")
    return path


def fractions(events, phase):
    return [e.fraction for e in events if isinstance(e, Progress) and e.phase is phase]


def test_a_batch_call_gives_its_final_with_the_cartridges_id():
    """`call` gives the one FINAL, dicts as records, and who gave it."""
    with registry_of(BatchEcho()) as registry:
        result = registry.call(ECHO, "hi", upper=True)
    assert result.payload == {"text": "HI"}
    assert result.cartridge_id == "batch-echo-text"


def test_the_phases_come_in_order_and_end_at_one(model):
    """Progress goes through download, load and infer within their spans, then 1.0."""
    with registry_of(Reader()) as registry:
        events = list(registry.stream("cap:read", "x", model_spec=str(model)))
    told = [event.fraction for event in events if isinstance(event, Progress)]
    assert told == sorted(told)
    assert fractions(events, Phase.DOWNLOAD) == [0.0, 0.25]
    assert fractions(events, Phase.LOAD) == pytest.approx([0.25, 0.3, 0.35])
    assert fractions(events, Phase.INFER)[0] == pytest.approx(0.35)
    assert fractions(events, Phase.INFER)[-1] == pytest.approx(0.95)
    assert events[-1] == Progress(1.0)


def test_a_hundred_reports_of_an_inference_become_about_twenty(model):
    """Inside the infer phase every 5 % is told."""
    with registry_of(Reader()) as registry:
        events = list(registry.stream("cap:read", "x", model_spec=str(model)))
    assert 19 <= len(fractions(events, Phase.INFER)) <= 23


def test_a_model_spec_is_resolved_by_a_peer_call(model):
    """What is no path goes to the download-model cap; its progress and log are forwarded."""
    downloads = Downloads(model)
    with registry_of(Reader(), downloads) as registry:
        events = list(registry.stream("cap:read", "x", model_spec="hf:owner/repo"))
    assert "infer hf:owner/repo" in downloads.calls
    assert fractions(events, Phase.DOWNLOAD)[0] == 0.0
    assert any(0 < fraction < 0.25 for fraction in fractions(events, Phase.DOWNLOAD))
    assert Log("info", "from a mirror", cartridge_id="reader-text") in events
    assert [e.payload for e in events if isinstance(e, Result)] == ["model says x"]


def test_a_model_spec_is_resolved_once(model):
    """The second call of a registry knows where the model is."""
    downloads = Downloads(model)
    with registry_of(Reader(), downloads) as registry:
        for _ in range(3):
            registry.call("cap:read", "x", model_spec="hf:owner/repo")
    assert downloads.calls.count("infer hf:owner/repo") == 1


def test_a_model_that_was_removed_is_fetched_again(model, tmp_path):
    """A resolved path whose file is gone is not trusted."""
    downloads = Downloads(model)
    with registry_of(Reader(), downloads) as registry:
        registry.call("cap:read", "x", model_spec="hf:owner/repo")
        downloads.path = model.rename(tmp_path / "moved.txt")
        registry.call("cap:read", "x", model_spec="hf:owner/repo")
    assert downloads.calls.count("infer hf:owner/repo") == 2


def test_error_a_model_spec_that_nothing_fetches_names_the_plugin_to_install():
    """Without a download-model cap the error says what to install."""
    with registry_of(Reader()) as registry, pytest.raises(NoRouteError, match="cartridge-models"):
        registry.call("cap:read", "x", model_spec="hf:owner/repo")


def test_error_a_path_that_is_not_there_is_named(tmp_path):
    """A missing model file is a LoadError with its path."""
    with registry_of(Reader()) as registry, pytest.raises(LoadError, match=r"nothing\.txt"):
        registry.call("cap:read", "x", model_spec=tmp_path / "nothing.txt")


def test_an_opened_cartridge_is_kept_for_the_next_call():
    """Two calls open once; the registry's end closes."""
    echo = BatchEcho()
    with registry_of(echo) as registry:
        registry.call(ECHO, "a")
        registry.call(ECHO, "b")
        assert echo.calls.count("open") == 1
        assert "close" not in echo.calls
    assert echo.calls.count("close") == 1


def test_other_open_arguments_open_another():
    """The open arguments are part of what is kept."""
    echo = BatchEcho()
    with registry_of(echo) as registry:
        registry.call(ECHO, "a", prefix="x")
        registry.call(ECHO, "a", prefix="y")
        registry.call(ECHO, "a", prefix="x")
    assert echo.calls.count("open") == 2


def test_a_changed_model_file_is_opened_anew(model):
    """A model file that changed since is another model."""
    reader = Reader()
    with registry_of(reader) as registry:
        registry.call("cap:read", "x", model_spec=model)
        model.write_text("other model says ")
        result = registry.call("cap:read", "x", model_spec=model)
    assert result.payload == "other model says x"
    assert reader.calls.count("open") == 2


@pytest.mark.parametrize("spelling", ["./model.txt", Path("model.txt")], ids=["text", "path"])
def test_a_relative_path_means_the_working_folder_it_is_called_in(tmp_path, monkeypatch, spelling):
    """The same relative path in another working folder is another model."""
    answers = []
    with registry_of(Reader()) as registry:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "model.txt").write_text(f"{name} says ")
            monkeypatch.chdir(tmp_path / name)
            answers.append(registry.call("cap:read", "x", model_spec=spelling).payload)
    assert answers == ["one says x", "two says x"]


def test_a_pack_made_before_its_file_changed_is_opened_as_it_is_now(model):
    """A `Pack` that a caller kept does not hide what happened to its file."""
    reader = Reader()
    pack = Pack.from_path(model)
    with registry_of(reader) as registry:
        for text in ("one says ", "another says "):
            model.write_text(text)
            with (
                registry.open("reader-text", pack) as cartridge,
                cartridge.session() as session,
            ):
                assert session.infer("x").payload == f"{text}x"


def test_a_fetched_model_that_changed_is_opened_anew(model):
    """What a model spec was resolved to is looked at again by every call."""
    reader = Reader()
    with registry_of(reader, Downloads(model)) as registry:
        for text in ("one says ", "another says "):
            model.write_text(text)
            result = registry.call("cap:read", "x", model_spec="hf:owner/repo")
            assert result.payload == f"{text}x"
    assert reader.calls.count("open") == 2


def test_preflight_comes_before_the_first_open_only():
    """A cartridge is preflighted before it is opened, and not again while it is open."""
    echo = BatchEcho()
    with registry_of(echo) as registry:
        registry.call(ECHO, "a")
        registry.call(ECHO, "b")
    assert [c for c in echo.calls if c in {"preflight", "open"}] == ["preflight", "open"]


def test_error_a_failed_preflight_opens_nothing_and_carries_the_report():
    """An unmet requirement is a PreflightError with every check, before any load."""

    class Needy(BatchEcho):
        @hookimpl
        def cartridge_preflight(self, cartridge_id, pack, options):
            check = Check("npu", ok=False, required="an NPU", found="none", fix="buy one")
            return PreflightReport((check,))

    needy = Needy()
    with registry_of(needy) as registry:
        with pytest.raises(
            PreflightError, match=r"npu: needs an NPU; found none; buy one"
        ) as caught:
            registry.call(ECHO, "a")
        assert caught.value.report is not None
        assert not caught.value.report.ok
    assert "open" not in needy.calls


@pytest.mark.parametrize("hook", ["open", "session_begin", "infer", "session_end", "preflight"])
def test_error_an_exception_crosses_unchanged(hook):
    """What a hook raises reaches the caller as the very same object."""
    error = BackendError("the device is gone")
    with registry_of(FailingEcho(hook, error)) as registry:
        with pytest.raises(BackendError) as caught:
            registry.call(ECHO, "a")
        assert caught.value is error


@pytest.mark.parametrize(
    "error", [KeyError("x"), ZeroDivisionError(), MemoryError(), RecursionError("deep")]
)
def test_error_other_exceptions_cross_unchanged_too(error):
    """An exception that is none of ours is not renamed."""
    with registry_of(FailingEcho("infer", error)) as registry:
        with pytest.raises(type(error)) as caught:
            registry.call(ECHO, "a")
        assert caught.value is error


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(), GeneratorExit()])
def test_error_what_would_end_the_program_or_the_loop_is_named(error):
    """An exception that would end the caller's loop or program silently becomes BackendError."""
    with registry_of(FailingEcho("infer", error)) as registry:
        with pytest.raises(BackendError, match=f"raised {type(error).__name__}") as caught:
            registry.call(ECHO, "a")
        assert caught.value.__cause__ is error


def test_a_call_after_a_failed_one_works():
    """A failed inference leaves the cartridge usable."""
    failing = FailingEcho("infer")
    with registry_of(failing) as registry:
        with pytest.raises(BackendError):
            registry.call(ECHO, "a")
        failing.hook = "none"
        assert registry.call(ECHO, "a").payload == {"text": "a"}


def test_error_arguments_are_checked_before_anything_runs():
    """A bad argument is named at once, before a model is fetched or a plugin is called."""
    echo = BatchEcho()
    with registry_of(echo) as registry, pytest.raises(InvalidArgumentError) as caught:
        registry.stream(ECHO, "a", upper="yes")
    assert caught.value.arg == "upper"
    assert "open" not in echo.calls


def test_a_streaming_cartridge_gives_partials_and_one_final():
    """`stream` gives PARTIAL per chunk and the FINAL; `call` gives the FINAL."""
    with registry_of(StreamingEcho()) as registry:
        results = [e for e in registry.stream(ECHO, ["a", "b"]) if isinstance(e, Result)]
        final = registry.call(ECHO, ["a", "b"])
    assert [(r.kind, r.payload) for r in results] == [
        (ResultKind.PARTIAL, "a"),
        (ResultKind.PARTIAL, "b"),
        (ResultKind.FINAL, "ab"),
    ]
    assert final.payload == "ab"


@pytest.mark.parametrize(
    ("chunks", "payload"),
    [
        pytest.param([b"one.", b"two."], ["one.", "two.", ""], id="several-finals-are-a-list"),
        pytest.param([b"one"], "one", id="one-final-as-it-is"),
    ],
)
def test_call_joins_the_finals_of_a_stream(chunks, payload):
    """One FINAL as it is, several as the list of their payloads."""
    with registry_of(SegmentingEcho()) as registry:
        assert registry.call("cap:hear", chunks).payload == payload


@pytest.mark.parametrize(
    "value", ["abc", pytest.param("", id="empty-text")], ids=["text-is-one-chunk", "empty"]
)
def test_a_text_is_one_chunk(value):
    """A str is one piece of input, although Python can iterate it."""
    echo = StreamingEcho()
    with registry_of(echo) as registry:
        registry.call(ECHO, value)
    assert echo.calls.count("push") == 1


@pytest.mark.parametrize(
    "value", [iter(["a"]), (x for x in "ab"), map(str, [1])], ids=["iterator", "generator", "map"]
)
def test_error_an_iterator_where_the_cap_takes_one_piece(value):
    """A cap that does not declare `streaming` says so, and what to pass."""
    with registry_of(BatchEcho()) as registry:
        with pytest.raises(InvalidArgumentError, match="does not declare `streaming`") as caught:
            registry.call(ECHO, value)
    assert caught.value.arg == "main"


@pytest.mark.parametrize("given", [["a", "b"], iter(["a", "b"])], ids=["list", "iterator"])
def test_error_a_batch_cartridge_takes_no_chunks(given):
    """A batch cartridge infers once, whatever its main argument declares; nothing is lost."""

    class Joins(BatchEcho):
        plugin_name = "joins"
        descriptor = fake_descriptor("joins-text", caps=[fake_cap("echo", streaming=True)])

    with registry_of(Joins()) as registry:
        assert registry.call(ECHO, "ab").payload == {"text": "ab"}
        with pytest.raises(InvalidArgumentError) as caught:
            registry.call(ECHO, given)
    assert caught.value.arg == "main"


def test_an_iterable_is_pulled_in_the_callers_thread():
    """A generator given as input runs in the thread that takes the events."""
    threads = set()

    def chunks():
        for text in "abc":
            threads.add(threading.current_thread())
            yield text

    with registry_of(StreamingEcho()) as registry:
        assert registry.call(ECHO, chunks()).payload == "abc"
    assert threads == {threading.current_thread()}


def test_error_what_the_callers_iterable_raises_reaches_him_and_cancels():
    """An exception of the caller's own generator ends the call."""

    def chunks():
        yield "a"
        msg = "microphone unplugged"
        raise OSError(msg)

    echo = StreamingEcho()
    with registry_of(echo) as registry:
        with pytest.raises(OSError, match="microphone unplugged"):
            registry.call(ECHO, chunks())
        assert registry.call(ECHO, "b").payload == "b"


def test_on_progress_runs_in_the_callers_thread():
    """Events of `call` are given in the caller's thread."""
    seen = []
    with registry_of(BatchEcho()) as registry:
        registry.call(ECHO, "a", on_progress=lambda e: seen.append(threading.current_thread()))
    assert set(seen) == {threading.current_thread()}


def test_what_on_progress_raises_ends_the_call():
    """A callback that fails cancels the work and reaches the caller."""

    def fail(event):
        msg = "the bar broke"
        raise RuntimeError(msg)

    with registry_of(BatchEcho()) as registry, pytest.raises(RuntimeError, match="the bar broke"):
        registry.call(ECHO, "a", on_progress=fail)


def test_a_call_that_is_closed_has_its_error_before_it_is_over(monkeypatch):
    """Who waits for its result on another thread would take it for one without results."""
    order = []

    def note(call, name, value):
        order.append(name)
        object.__setattr__(call, name, value)

    with registry_of(SlowCounter()) as registry:
        call = registry.stream(COUNT, 100_000)
        with monkeypatch.context() as patch:
            patch.setattr(Call, "__setattr__", note)
            call.close()
    assert order == ["_error", "_over"]


def by_call(registry, listener):
    registry.call(ECHO, "a", on_progress=listener)


def by_result(registry, listener):
    with registry.stream(ECHO, "a") as call:
        try:
            call.result(listener)
        finally:
            assert call.result().payload == {"text": "a"}


def by_task(registry, listener):
    stream_text(registry, "a", on_progress=listener)


def by_task_of_sound(registry, listener):
    stream_transcribe(registry, [b"a"], on_progress=listener)


@pytest.mark.parametrize("listener", [5, "print", [print], False], ids=str)
@pytest.mark.parametrize("use", [by_call, by_result, by_task, by_task_of_sound])
def test_error_what_cannot_listen_is_refused_at_once(use, listener):
    """By its name, before anything is done with it."""
    fake = BatchEcho()
    with registry_of(fake) as registry:
        with pytest.raises(InvalidArgumentError, match="on_progress is of type") as caught:
            use(registry, listener)
        assert (caught.value.arg, caught.value.value) == ("on_progress", listener)
        assert use is by_result or "infer" not in fake.calls


def wait_until(condition):
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end, "waited 5 s in vain"
        time.sleep(0.005)


def stop_by_cancel(call):
    call.cancel()


def stop_by_close(call):
    call.close()


def stop_by_leaving(call):
    with call:
        pass


@pytest.mark.parametrize("stop", [stop_by_cancel, stop_by_close, stop_by_leaving])
def test_a_call_is_stopped(stop):
    """Cancelling, closing and leaving the block stop the compute, and the cartridge is usable."""
    counter = SlowCounter()
    with registry_of(counter) as registry:
        call = registry.stream(COUNT, 100_000)
        assert counter.working.wait(5)
        stop(call)
        wait_until(lambda: "session_end" in counter.calls)
        counter.working.clear()
        assert registry.call(COUNT, 1).payload == 1


def test_dropping_a_call_stops_it():
    """A call nobody holds any more is cancelled."""
    counter = SlowCounter()
    with registry_of(counter) as registry:
        call = registry.stream(COUNT, 100_000)
        assert counter.working.wait(5)
        del call
        gc.collect()
        wait_until(lambda: "session_end" in counter.calls)


def test_whoever_iterates_a_cancelled_call_gets_cancelled_error():
    """Cancelling from another thread ends the iteration with CancelledError."""
    counter = SlowCounter()
    with registry_of(counter) as registry:
        call = registry.stream(COUNT, 100_000)
        threading.Timer(0.05, call.cancel).start()
        with pytest.raises(CancelledError):
            list(call)
        assert list(call) == []
    assert "cancel" in counter.calls


def test_cancel_during_the_download_ends_the_peer_call(model):
    """A cancelled call cancels the download it waits for."""
    started = threading.Event()

    class Slow(Downloads):
        @hookimpl
        def cartridge_infer(self, session, value):
            started.set()
            while True:
                session.context.check_cancelled()
                time.sleep(0.002)

    slow = Slow(model)
    with registry_of(Reader(), slow) as registry:
        call = registry.stream("cap:read", "x", model_spec="hf:owner/repo")
        assert started.wait(5)
        call.cancel()
        with pytest.raises(CancelledError):
            list(call)
        wait_until(lambda: "session_end" in slow.calls)


def test_cancel_during_open_reaches_the_opening_cartridge(model):
    """The context of an open is cancelled with the call."""
    started = threading.Event()

    class SlowOpen(Reader):
        @hookimpl
        def cartridge_open(self, cartridge_id, pack, options, context):
            started.set()
            while True:
                context.check_cancelled()
                time.sleep(0.002)

    with registry_of(SlowOpen()) as registry:
        call = registry.stream("cap:read", "x", model_spec=model)
        assert started.wait(5)
        call.cancel()
        with pytest.raises(CancelledError):
            list(call)


def test_the_context_of_an_open_is_dead_afterwards(model):
    """What an opening cartridge says after open returned goes nowhere."""
    kept = []

    class Keeper(Reader):
        @hookimpl
        def cartridge_open(self, cartridge_id, pack, options, context):
            kept.append(context)
            return "x"

        @hookimpl
        def cartridge_infer(self, session, value):
            kept[0].progress(0.99, "ghost")
            kept[0].log("info", "ghost")
            return Result(ResultKind.FINAL, "y")

    with registry_of(Keeper()) as registry:
        events = list(registry.stream("cap:read", "x", model_spec=model))
    assert not [e for e in events if "ghost" in getattr(e, "message", "")]


class Asks(BatchEcho):
    """Asks the host for another cap."""

    plugin_name = "asks"
    descriptor = fake_descriptor("asks-peer", caps=[fake_cap("ask")])

    def __init__(self, cap=ECHO):
        super().__init__()
        self.cap = cap

    @hookimpl
    def cartridge_infer(self, session, value):
        """Pass the question on, and give the answer."""
        return session.context.peer.call(self.cap, value, upper=True).result()


def test_a_peer_call_is_routed_like_any():
    """A cartridge gets another cartridge's result from the host."""
    with registry_of(Asks(), BatchEcho()) as registry:
        result = registry.call("cap:ask", "hi")
    assert result.payload == {"text": "HI"}
    assert result.cartridge_id == "asks-peer"


def test_error_a_circle_of_peer_calls_is_refused():
    """A cartridge that is in the chain already is not called again."""

    class Circular(Asks):
        @hookimpl
        def cartridge_infer(self, session, value):
            return session.context.peer.call("cap:ask", value).result()

    circle = "in a circle: asks-peer -> asks-peer"
    with registry_of(Circular()) as registry, pytest.raises(StateError, match=circle):
        registry.call("cap:ask", "hi")


def test_a_session_driven_by_hand_can_call_peers_too():
    """`registry.open` gives a context that answers peer calls."""
    with (
        registry_of(Asks(), BatchEcho()) as registry,
        registry.open("asks-peer") as cartridge,
        cartridge.session() as session,
    ):
        assert session.infer("hi").payload == {"text": "HI"}


def test_many_callers_each_get_their_own_result():
    """Thirty-two threads on one registry each get what they asked for."""
    echo = BatchEcho()
    wrong = []
    with registry_of(echo) as registry:

        def ask(number):
            for turn in range(20):
                text = f"{number}-{turn}"
                if registry.call(ECHO, text).payload != {"text": text}:
                    wrong.append(text)

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert wrong == []
    assert echo.calls.count("open") == 1


def test_no_thread_is_left_after_close():
    """Closing a registry ends its threads."""
    before = set(threading.enumerate())
    with registry_of(BatchEcho()) as registry:
        calls = [registry.stream(ECHO, "x") for _ in range(5)]
        for call in calls:
            list(call)
    wait_until(lambda: set(threading.enumerate()) <= before)


def test_closing_cancels_what_runs():
    """A registry that is closed cancels its calls, and unloads."""
    counter = SlowCounter()
    registry = registry_of(counter)
    call = registry.stream(COUNT, 100_000)
    assert counter.working.wait(5)
    registry.close()
    assert counter.calls[-2:] == ["session_end", "close"]
    with pytest.raises(CancelledError):
        list(call)


def test_error_a_closed_registry_takes_no_call():
    """A call after close is refused by name."""
    registry = registry_of(BatchEcho())
    registry.close()
    registry.close()
    with pytest.raises(StateError, match="the registry is closed"):
        registry.call(ECHO, "x")


def test_a_wrapper_sees_every_hook_of_a_call():
    """A wrapper given to the registry sees start and end of each hook."""
    seen = []

    class Trace:
        @hookimpl(wrapper=True)
        def cartridge_infer(self, session, value):
            seen.append("start")
            try:
                return (yield)
            finally:
                seen.append("end")

    with registry_of(BatchEcho(), wrappers=[Trace()]) as registry:
        registry.call(ECHO, "x")
    assert seen == ["start", "end"]


def test_a_void_cap_takes_no_value():
    """A cap with in=void is called without a value, and refuses one."""

    class Void(BatchEcho):
        plugin_name = "void"
        descriptor = fake_descriptor("void-now", caps=[fake_cap("now", takes="media:void")])

    with registry_of(Void()) as registry:
        assert registry.call("cap:now").payload == {"text": "None"}
        with pytest.raises(InvalidArgumentError, match="takes no input"):
            registry.call("cap:now", "x")


def test_a_cap_whose_model_is_its_main_argument(model):
    """The value is the model spec, and the cartridge is given None."""

    class Sizes(Reader):
        plugin_name = "sizes"
        descriptor = fake_descriptor(
            "sizes-of",
            caps=[
                {
                    **fake_cap(
                        "size", takes="media:enc=utf-8;model-spec", gives="media:integer;numeric"
                    ),
                    "args": [
                        {
                            **SPEC_ARG,
                            "required": True,
                            "sources": [{"stdin": "media:enc=utf-8;model-spec"}],
                        }
                    ],
                }
            ],
        )

        @hookimpl
        def cartridge_infer(self, session, value):
            assert value is None
            return Result(ResultKind.FINAL, len(session[0]))

    with registry_of(Sizes()) as registry:
        assert registry.call("cap:size", str(model)).payload == len("model says ")
        assert registry.call("cap:size", model_spec=str(model)).payload == len("model says ")


def test_a_call_says_where_it_went():
    """A running call knows its route, and its repr says it."""
    with registry_of(BatchEcho()) as registry, registry.stream(ECHO, "x") as call:
        assert call.route.cartridge_id == "batch-echo-text"
        assert repr(call) == "<Call of cap:echo on batch-echo-text: running>"
        list(call)
        assert repr(call).endswith("over>")


def test_a_path_in_an_image_or_audio_port_is_made_absolute(tmp_path, monkeypatch):
    """Text and path objects for image and audio are paths, absolute before the plugin sees them."""
    seen = []

    class Looks(BatchEcho):
        plugin_name = "looks"
        descriptor = fake_descriptor(
            "looks-at", caps=[fake_cap("look", fake_arg("n", "integer"), takes="media:image")]
        )

        @hookimpl
        def cartridge_infer(self, session, value):
            seen.append(value)
            return Result(ResultKind.FINAL, "seen")

    monkeypatch.chdir(tmp_path)
    with registry_of(Looks()) as registry:
        for value in ("a.png", Path("a.png"), b"\x89PNG"):
            registry.call("cap:look", value)
    assert seen == [str(tmp_path / "a.png"), str(tmp_path / "a.png"), b"\x89PNG"]


@pytest.mark.parametrize(
    "url", ["http://host/a.png", "data:image/png;base64,AAAA", "file:///etc/passwd", " HTTPS://x/y"]
)
def test_error_a_url_in_an_image_port_is_no_path(url):
    """Nothing is fetched on a caller's text's behalf, and a URL is not made a path."""

    class Looks(BatchEcho):
        plugin_name = "looks"
        descriptor = fake_descriptor("looks-at", caps=[fake_cap("look", takes="media:image")])

    with (
        registry_of(Looks()) as registry,
        pytest.raises(InvalidArgumentError, match=r"is a URL.*nothing is fetched"),
    ):
        registry.call("cap:look", url)


def test_a_call_gives_its_result_again():
    """Asked a second time, also after iterating, a call gives the same result."""
    with registry_of(BatchEcho()) as registry:
        call = registry.stream(ECHO, "x")
        assert call.result() is call.result()
        call = registry.stream(ECHO, "y")
        list(call)
        assert call.result().payload == {"text": "y"}


def test_error_a_failed_call_raises_again():
    """Asked a second time, a call that failed raises the same error, and no empty result."""
    with registry_of(FailingEcho()) as registry:
        call = registry.stream(ECHO, "x")
        with pytest.raises(BackendError) as first:
            call.result()
        with pytest.raises(BackendError) as second:
            call.result()
        assert first.value is second.value


def test_error_a_closed_call_has_no_result():
    """The result of a call that was closed before its end is a CancelledError."""
    with registry_of(BatchEcho()) as registry:
        call = registry.stream(ECHO, "x")
        call.close()
        with pytest.raises(CancelledError, match="closed before its end"):
            call.result()
        call = registry.stream(ECHO, "x")
        with pytest.raises(CancelledError):
            call.result(on_progress=lambda event: call.close())


def test_error_closing_the_registry_inside_a_call_loses_no_result_silently():
    """A call whose result is lost to a close ends in CancelledError, never in an empty result."""

    class Chatty(BatchEcho):
        @hookimpl
        def cartridge_infer(self, session, value):
            for number in range(10):
                session.context.log("info", str(number))
            return Result(ResultKind.FINAL, "answer")

    for when in range(1, 12):
        registry = registry_of(Chatty())
        seen: list[object] = []

        def close(event, registry=registry, seen=seen, when=when):
            seen.append(event)
            if len(seen) == when:
                time.sleep(0.02)
                registry.close()

        with contextlib.suppress(CancelledError):
            assert registry.call(ECHO, "x", on_progress=close).payload == "answer"
        registry.close()


def test_two_threads_that_iterate_one_call_both_end():
    """Each event goes to one of them, and neither waits for ever."""
    with registry_of(StreamingEcho()) as registry:
        call = registry.stream(ECHO, ["a"] * 50)
        threads = [threading.Thread(target=lambda: list(call)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads)
        call.close()


def test_error_nothing_starts_while_the_registry_closes():
    """A call that comes during close is refused, and close waits once for all that is stuck."""
    stuck = threading.Event()

    class Stuck(BatchEcho):
        @hookimpl
        def cartridge_infer(self, session, value):
            stuck.wait(8)
            return Result(ResultKind.FINAL, value)

    registry = registry_of(Stuck())
    calls = [registry.stream(ECHO, "x") for _ in range(3)]
    closer = threading.Thread(target=registry.close)
    closer.start()
    time.sleep(0.1)
    with pytest.raises(StateError, match="the registry is closed"):
        registry.call(ECHO, "x")
    stuck.set()
    closer.join(7)
    assert not closer.is_alive()
    for call in calls:
        call.close()


def test_cancel_inside_cancel():
    """A signal handler that cancels while a cancel is under way does not wait for itself."""

    class Twice(SlowCounter):
        @hookimpl
        def cartridge_cancel(self, session):
            calls[0].cancel()

    counter = Twice()
    calls = []
    with registry_of(counter) as registry:
        calls.append(registry.stream(COUNT, 100_000))
        assert counter.working.wait(5)
        calls[0].cancel()
        with pytest.raises(CancelledError):
            list(calls[0])


def test_a_call_keeps_its_registry():
    """A registry that nobody else holds lives as long as its call."""
    with pytest.warns(ResourceWarning, match="never closed"):
        result = only_a_call()
    assert result.payload == {"text": "x"}


def only_a_call():
    result = registry_of(BatchEcho()).stream(ECHO, "x").result()
    gc.collect()
    return result


CHILD = """
import contextlib, os, sys, threading, time
from cartridge_core.errors import CancelledError, StateError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.testing import BatchEcho, SlowCounter, registry_of
"""


def run_child(code):
    words = [sys.executable, "-c", CHILD + code]
    done = subprocess.run(words, capture_output=True, check=False, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_error_a_registry_is_refused_after_a_fork():
    """In a forked child the parent's registry says so, and does not wait for its threads."""
    code = """
registry = registry_of(BatchEcho())
registry.call("cap:echo", "parent")
pid = os.fork()
if pid == 0:
    for use in (lambda: registry.call("cap:echo", "x"), lambda: registry.open("batch-echo-text")):
        try:
            use()
        except StateError as error:
            print(error)
    sys.stdout.flush()
    os._exit(0)
os.waitpid(pid, 0)
registry.close()
"""
    status, out, err = run_child(code)
    assert (status, err) == (0, "")
    assert out.count("after a fork discover a new one in the child") == 2


def test_a_forked_child_closes_nothing_of_its_parents():
    """What is open is the parent's: the child's end, with every block it leaves, calls no hook."""
    code = """
class Loud(BatchEcho):
    def saw(self, hook):
        if hook == "close":
            os.write(1, b"close by the parent\\n" if os.getpid() == parent else b"by the child\\n")

parent = os.getpid()
with registry_of(Loud()) as registry:
    registry.call("cap:echo", "x")
    with registry.open("batch-echo-text", prefix="y") as cartridge:
        pid = os.fork()
        if pid == 0:
            try:
                cartridge.session()
            except StateError as error:
                os.write(1, f"{error}\\n".encode())
            sys.exit()
        os.waitpid(pid, 0)
        with cartridge.session() as session:
            session.infer("x")
"""
    status, out, err = run_child(code)
    assert (status, err) == (0, "")
    refused, *closes = out.splitlines()
    assert "after a fork discover a new one in the child" in refused
    assert closes == ["close by the parent"] * 2


def test_the_end_of_the_program_ends_what_runs():
    """A program that ends while a call runs cancels it, waits for it, and ends quietly."""
    code = """
class Loud(SlowCounter):
    @hookimpl
    def cartridge_session_end(self, session):
        os.write(1, b"ended")

counter = Loud()
registry = registry_of(counter)

def ask():
    with contextlib.suppress(CancelledError):  # a traceback would be written while all ends
        registry.call("cap:count", 1_000_000)

threading.Thread(target=ask, daemon=True).start()
counter.working.wait()
"""
    status, out, err = run_child(code)
    assert (status, out) == (0, "ended")
    assert "never closed" not in err
