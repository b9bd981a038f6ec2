"""A plugin's hooks behind its binding: what is refused, what is wrapped, who sees what."""

from __future__ import annotations

import pytest

from cartridge_core.binding import Binding
from cartridge_core.context import Context
from cartridge_core.errors import AbiMismatchError, BackendError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing import BatchEcho, FailingEcho, SlowCounter, StreamingEcho
from cartridge_core.testing.background import Background


def bind(plugin, *wrappers):
    """Bind a fake under its own name."""
    return Binding(plugin.plugin_name, plugin, [plugin.descriptor], wrappers)


def begin(binding):
    """Begin a session on a fake; give the plugin's own session."""
    handle = binding.open("x", None, {}, Context())
    return binding.session_begin(handle, "cap:echo", {}, Context())


class Misspelt(BatchEcho):
    @hookimpl
    def cartridge_inferr(self, session, value):
        return None


class UnknownArgument(BatchEcho):
    @hookimpl
    def cartridge_infer(self, session, value, stream):  # type: ignore[override]
        return None


class NoInfer(BatchEcho):
    cartridge_infer = None  # type: ignore[assignment]


class NoPull(StreamingEcho):
    cartridge_pull = None  # type: ignore[assignment]


class NoClose(BatchEcho):
    cartridge_close = None  # type: ignore[assignment]


class Unmarked(BatchEcho):
    def cartridge_infer(self, session, value):
        return Result(ResultKind.FINAL)


REFUSED = [
    pytest.param(Misspelt(), "cartridge_inferr", id="misspelt"),
    pytest.param(UnknownArgument(), "stream", id="unknown-argument"),
    pytest.param(NoInfer(), "lacks the hooks cartridge_infer", id="batch-without-infer"),
    pytest.param(NoPull(), "lacks the hooks cartridge_pull", id="streaming-without-pull"),
    pytest.param(NoClose(), "lacks the hooks cartridge_close", id="without-close"),
    pytest.param(Unmarked(), "lacks the hooks cartridge_infer", id="without-hookimpl"),
]


@pytest.mark.parametrize(("plugin", "words"), REFUSED)
def test_error_plugin_off_the_contract_is_refused(plugin, words):
    """A hook that is misspelt, missing or takes too much is named, and so is the plugin."""
    with pytest.raises(AbiMismatchError, match=words) as caught:
        bind(plugin)
    assert plugin.plugin_name in str(caught.value)


def test_error_plugin_with_both_modes_needs_both_families():
    """The hooks of every mode that a plugin's descriptors declare are needed."""
    with pytest.raises(AbiMismatchError, match="cartridge_flush, cartridge_pull, cartridge_push"):
        Binding("both", BatchEcho(), [BatchEcho.descriptor, StreamingEcho.descriptor])


def test_cancel_hook_is_optional():
    """A plugin without a cancel hook is bound, and cancelling it does nothing."""
    assert not bind(BatchEcho()).has_cancel
    bind(BatchEcho()).cancel(object())
    assert bind(SlowCounter()).has_cancel


class DescribesTexts(BatchEcho):
    @hookimpl
    def cartridge_descriptors(self):
        return ["batch-echo-text"]


class PreflightsTrue(BatchEcho):
    @hookimpl
    def cartridge_preflight(self, cartridge_id, pack, options):
        return True


class OpensNothing(BatchEcho):
    @hookimpl
    def cartridge_open(self, cartridge_id, pack, options, context):
        return None


class BeginsNothing(BatchEcho):
    @hookimpl
    def cartridge_session_begin(self, handle, cap, parameters, context):
        return None


class InfersText(BatchEcho):
    @hookimpl
    def cartridge_infer(self, session, value):
        return value


class InfersNothing(BatchEcho):
    @hookimpl
    def cartridge_infer(self, session, value):
        return None


class InfersPartial(BatchEcho):
    @hookimpl
    def cartridge_infer(self, session, value):
        return Result(ResultKind.PARTIAL, value)


class PullsText(StreamingEcho):
    @hookimpl
    def cartridge_pull(self, session):
        return "text"


CALLS = {
    "descriptors": lambda binding: binding.descriptors(),
    "preflight": lambda binding: binding.preflight("x", None, {}),
    "open": lambda binding: binding.open("x", None, {}, Context()),
    "close": lambda binding: binding.close("handle"),
    "session_begin": lambda binding: binding.session_begin("handle", "cap:x", {}, Context()),
    "session_end": lambda binding: binding.session_end("session"),
    "infer": lambda binding: binding.infer("session", "a"),
    "pull": lambda binding: binding.pull("session"),
}

WRONG_ANSWERS = [
    pytest.param(DescribesTexts(), "descriptors", "gave list.* a sequence of Descriptor", id="ids"),
    pytest.param(PreflightsTrue(), "preflight", "gave bool.* PreflightReport", id="bool-preflight"),
    pytest.param(OpensNothing(), "open", "gave NoneType.* a handle", id="no-handle"),
    pytest.param(BeginsNothing(), "session_begin", "gave NoneType.* a session", id="no-session"),
    pytest.param(InfersText(), "infer", "gave str.* a FINAL Result", id="bare-payload"),
    pytest.param(InfersNothing(), "infer", "gave NoneType.* a FINAL Result", id="no-result"),
    pytest.param(InfersPartial(), "infer", "gave PARTIAL.* a FINAL Result", id="partial"),
    pytest.param(PullsText(), "pull", "gave str.* a Result or None", id="bare-pull"),
]


@pytest.mark.parametrize(("plugin", "hook", "words"), WRONG_ANSWERS)
def test_error_answer_of_the_wrong_kind_is_a_backend_error(plugin, hook, words):
    """A wrong answer is a BackendError that says the hook, what it gave and what is expected."""
    with pytest.raises(BackendError, match=f"cartridge_{hook} {words}"):
        CALLS[hook](bind(plugin))


ESCAPING = [StopIteration("over"), SystemExit(3), GeneratorExit(), StopAsyncIteration()]


@pytest.mark.parametrize("error", ESCAPING, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("hook", ["open", "close", "session_begin", "session_end", "infer"])
def test_error_that_would_end_the_callers_program_is_wrapped(hook, error):
    """StopIteration, SystemExit and their like become a BackendError, with them as its cause."""
    with pytest.raises(
        BackendError, match=f"cartridge_{hook} raised {type(error).__name__}"
    ) as got:
        CALLS[hook](bind(FailingEcho(hook, error)))
    assert got.value.__cause__ is error


@pytest.mark.parametrize("error", ESCAPING, ids=lambda error: type(error).__name__)
def test_error_that_would_end_the_program_is_wrapped_behind_wrappers(error):
    """It is the same where wrappers stand around the hook."""
    with pytest.raises(BackendError, match=type(error).__name__):
        CALLS["infer"](bind(FailingEcho("infer", error), Recorder()))


@pytest.mark.parametrize(
    "error", [BackendError("no memory"), KeyError("x"), KeyboardInterrupt()], ids=repr
)
def test_other_errors_come_out_as_they_are(error):
    """The plugin's own errors, and Ctrl-C, are not touched."""
    with pytest.raises(type(error)) as caught:
        CALLS["infer"](bind(FailingEcho("infer", error)))
    assert caught.value is error


def test_error_interrupt_that_a_plugin_raises_itself_is_wrapped():
    """A KeyboardInterrupt on a thread where no Ctrl-C arrives is the plugin's own doing."""
    binding = bind(FailingEcho("infer", KeyboardInterrupt()))
    worker = Background(lambda: CALLS["infer"](binding))
    worker.join()
    assert isinstance(worker.error, BackendError)
    assert "raised KeyboardInterrupt" in str(worker.error)


class Recorder:
    """A wrapper that notes when infer starts, what it gives and what it raises."""

    def __init__(self):
        self.seen = []

    @hookimpl(wrapper=True)
    def cartridge_infer(self, session, value):
        self.seen.append(("start", value))
        try:
            result = yield
        except BaseException as exc:
            self.seen.append(("error", exc))
            raise
        self.seen.append(("end", result))
        return result


def test_wrapper_sees_start_and_end():
    """A wrapper sees the arguments of a call, then its result."""
    recorder = Recorder()
    binding = bind(BatchEcho(), recorder)
    result = binding.infer(begin(binding), "a")
    assert recorder.seen == [("start", "a"), ("end", result)]


def test_wrapper_sees_the_error():
    """A wrapper sees what a call raises, and the caller gets it all the same."""
    recorder = Recorder()
    error = BackendError("no memory")
    with pytest.raises(BackendError):
        CALLS["infer"](bind(FailingEcho("infer", error), recorder))
    assert recorder.seen == [("start", "a"), ("error", error)]


def test_plugins_are_bound_apart():
    """A call reaches one plugin alone, also where another one has nothing to give."""
    one, two = StreamingEcho(), StreamingEcho()
    first, second = bind(one), bind(two)
    session = begin(first)
    assert first.pull(session) is None
    assert second.name == first.name
    assert "pull" in one.calls
    assert two.calls == []


def test_a_wrapper_may_serve_several_plugins():
    """The same wrapper sees the calls of every plugin it is given to."""
    recorder = Recorder()
    for plugin in (BatchEcho(), BatchEcho()):
        binding = bind(plugin, recorder)
        binding.infer(begin(binding), "a")
    assert [what for what, _ in recorder.seen] == ["start", "end", "start", "end"]


def test_wrapper_alone_is_no_plugin():
    """A wrapper's hooks do not stand in for those a plugin lacks."""
    with pytest.raises(AbiMismatchError, match="cartridge_infer"):
        bind(NoInfer(), Recorder())


class InItsOwnOrder(BatchEcho):
    @hookimpl
    def cartridge_infer(self, value, session):  # type: ignore[override]
        return Result(ResultKind.FINAL, session.echo(value))


class WithoutTheSession(BatchEcho):
    @hookimpl
    def cartridge_infer(self, value):  # type: ignore[override]
        return Result(ResultKind.FINAL, value)


class WithOneOfItsOwn(BatchEcho):
    @hookimpl
    def cartridge_infer(self, session, value, suffix=""):
        return Result(ResultKind.FINAL, f"{value}{suffix}")


class Wrapper:
    @hookimpl(wrapper=True)
    def cartridge_infer(self, value):
        result = yield
        return Result(result.kind, f"{result.payload} of {value}")


@pytest.mark.parametrize("wrappers", [[], [Wrapper()]], ids=["alone", "wrapped"])
@pytest.mark.parametrize(
    "plugin",
    [InItsOwnOrder(), WithoutTheSession(), WithOneOfItsOwn()],
    ids=["in-its-own-order", "without-one", "with-one-of-its-own"],
)
def test_a_hook_gets_its_arguments_by_name(plugin, wrappers):
    """Their order is the plugin's own, and it need not take all of them."""
    binding = bind(plugin, *wrappers)
    result = binding.infer(begin(binding), "x")
    assert result.payload == ("x of x" if wrappers else "x")
