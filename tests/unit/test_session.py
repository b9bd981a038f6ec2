"""A session's states, and the guard that holds them."""

from __future__ import annotations

import gc
import threading
from contextlib import ExitStack

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cartridge_core.errors import (
    BackendError,
    CancelledError,
    CartridgeError,
    InvalidArgumentError,
    StateError,
    UnsupportedError,
)
from cartridge_core.hookspecs import hookimpl
from cartridge_core.records import Record
from cartridge_core.results import ResultKind
from cartridge_core.session import SessionState
from cartridge_core.testing import (
    BatchEcho,
    FailingEcho,
    SegmentingEcho,
    SlowCounter,
    StreamingEcho,
    registry_of,
)
from cartridge_core.testing.background import Background

_PATIENCE_S = 30.0


@pytest.fixture
def begin():
    """Begin a session on a fake; it is ended, and all is closed, after the test."""
    with ExitStack() as stack:

        def begin(plugin, **parameters):
            registry = stack.enter_context(registry_of(plugin))
            cartridge = stack.enter_context(registry.open(plugin.descriptor.id))
            return stack.enter_context(cartridge.session(**parameters))

        yield begin


@pytest.fixture
def counting(begin):
    """Give a session whose infer works in another thread, and that thread."""
    plugin = SlowCounter()
    session = begin(plugin)
    worker = Background(lambda: session.infer(10**9))
    assert plugin.working.wait(_PATIENCE_S)
    yield session, worker
    session.cancel()
    worker.join(_PATIENCE_S)


STREAMING_CALLS = {
    "push": lambda session: session.push("a"),
    "pull": lambda session: session.pull(),
    "flush": lambda session: session.flush(),
}


@pytest.mark.parametrize("verb", STREAMING_CALLS)
def test_error_batch_session_has_no_streaming_calls(begin, verb):
    """Push, pull and flush of a batch cartridge are unsupported, and the error says what to use."""
    with pytest.raises(UnsupportedError, match=f"batch and no {verb}; use infer"):
        STREAMING_CALLS[verb](begin(BatchEcho()))


def test_error_streaming_session_has_no_infer(begin):
    """Infer of a streaming cartridge is unsupported, and the error says what to use."""
    with pytest.raises(UnsupportedError, match="use push, flush and pull"):
        begin(StreamingEcho()).infer("a")


def test_error_other_family_after_the_end_is_still_unsupported(begin):
    """What a cartridge does not offer is unsupported in every state."""
    session = begin(BatchEcho())
    session.end()
    with pytest.raises(UnsupportedError):
        session.push("a")


@pytest.mark.parametrize("verb", STREAMING_CALLS)
def test_error_nothing_works_after_the_end(begin, verb):
    """Every call but end and cancel is a StateError after end."""
    session = begin(StreamingEcho())
    session.end()
    with pytest.raises(StateError, match=f"{verb} after end"):
        STREAMING_CALLS[verb](session)


def test_error_infer_after_the_end(begin):
    """Infer is a StateError after end."""
    session = begin(BatchEcho())
    session.end()
    with pytest.raises(StateError, match="infer after end"):
        session.infer("a")


@pytest.mark.parametrize("verb", STREAMING_CALLS)
def test_error_only_end_works_after_cancel(begin, verb):
    """Every call but end is a CancelledError after cancel, however often."""
    session = begin(StreamingEcho())
    session.cancel()
    for _ in range(2):
        with pytest.raises(CancelledError, match="takes only end"):
            STREAMING_CALLS[verb](session)
    session.end()
    assert session.state is SessionState.ENDED


def test_error_infer_after_cancel(begin):
    """Infer is a CancelledError after cancel, and the cartridge sees none of it."""
    plugin = BatchEcho()
    session = begin(plugin)
    session.cancel()
    with pytest.raises(CancelledError):
        session.infer("a")
    assert "infer" not in plugin.calls


def test_error_push_after_flush(begin):
    """Push is a StateError once the session is flushed, and once it is drained."""
    session = begin(StreamingEcho())
    session.flush()
    with pytest.raises(StateError, match="push after flush"):
        session.push("a")
    list(session.drain())
    with pytest.raises(StateError, match="drained"):
        session.push("a")


def test_error_drain_before_flush(begin):
    """Drain before flush would never end, so it is a StateError at once."""
    with pytest.raises(StateError, match="call flush first"):
        begin(StreamingEcho()).drain()


def test_error_drain_of_a_batch_session(begin):
    """Drain of a batch cartridge is unsupported."""
    with pytest.raises(UnsupportedError):
        list(begin(BatchEcho()).drain())


def test_error_value_that_breaks_its_rule_reaches_no_hook(begin):
    """A value is checked before the cartridge sees it, and the session goes on."""
    plugin = BatchEcho()
    session = begin(plugin)
    with pytest.raises(InvalidArgumentError, match="main"):
        session.infer(7)
    assert "infer" not in plugin.calls
    assert session.infer("a").payload.text == "a"


def test_error_chunk_that_breaks_its_rule_reaches_no_hook(begin):
    """A chunk is checked before the cartridge sees it, and the session goes on."""
    plugin = StreamingEcho()
    session = begin(plugin)
    with pytest.raises(InvalidArgumentError, match="main"):
        session.push(7)
    assert "push" not in plugin.calls
    session.push("a")
    assert session.pull().payload == "a"


def test_error_failed_infer_leaves_the_session_open(begin):
    """After a cartridge's own error the session takes the next input."""
    plugin = FailingEcho("infer")
    session = begin(plugin)
    with pytest.raises(BackendError, match="gave up"):
        session.infer("a")
    plugin.hook = ""
    assert session.infer("a").payload.text == "a"


def test_error_failed_begin_leaves_nothing_to_end(begin):
    """A session that never began asks for no end, and warns of none."""
    plugin = FailingEcho("session_begin")
    with pytest.raises(BackendError):
        begin(plugin)
    gc.collect()
    assert "session_end" not in plugin.calls


def test_error_failed_end_is_told_once(begin):
    """What the end hook raises is told; the session is over all the same."""
    plugin = FailingEcho("session_end")
    session = begin(plugin)
    with pytest.raises(BackendError):
        session.end()
    session.end()
    assert plugin.calls.count("session_end") == 1


def test_error_second_thread_is_refused_at_once(counting):
    """While a call is inside, a call from another thread is a StateError, and waits for nothing."""
    session, worker = counting
    with pytest.raises(StateError, match="one thread at a time"):
        session.infer(1)
    assert worker.is_alive()


def test_error_end_is_refused_while_a_call_is_inside(counting):
    """End does not pull a session away under a call that is inside; afterwards it works."""
    session, worker = counting
    with pytest.raises(StateError, match="end of"):
        session.end()
    session.cancel()
    worker.join(_PATIENCE_S)
    session.end()
    assert session.state is SessionState.ENDED


def test_cancel_from_another_thread_stops_infer(counting):
    """The call inside ends with CancelledError when another thread cancels."""
    session, worker = counting
    session.cancel()
    worker.join(_PATIENCE_S)
    assert isinstance(worker.error, CancelledError)
    assert session.state is SessionState.CANCELLED


def test_cancelled_session_says_so_at_once(begin):
    """The state is CANCELLED right after cancel, and the repr says it."""
    session = begin(BatchEcho())
    session.cancel()
    assert session.state is SessionState.CANCELLED
    assert "cancelled" in repr(session)


def test_cancel_reaches_the_cancel_hook_once(begin):
    """The plugin's own cancel hook is called for the first cancel, if it has one."""
    plugin = SlowCounter()
    session = begin(plugin)
    session.cancel()
    with pytest.raises(CancelledError):
        session.infer(1)
    session.cancel()
    assert plugin.calls.count("cancel") == 1


def test_result_of_a_call_that_did_not_notice_its_cancel_is_dropped(begin):
    """A hook that comes out with a result after cancel ends in CancelledError all the same."""

    class Deaf(BatchEcho):
        entered = threading.Event()
        leave = threading.Event()

        def saw(self, hook):
            super().saw(hook)
            if hook == "infer":
                self.entered.set()
                self.leave.wait(_PATIENCE_S)

    plugin = Deaf()
    session = begin(plugin)
    worker = Background(lambda: session.infer("a"))
    assert plugin.entered.wait(_PATIENCE_S)
    session.cancel()
    plugin.leave.set()
    worker.join(_PATIENCE_S)
    assert isinstance(worker.error, CancelledError)


def test_error_that_a_cancelled_backend_gives_up_with_is_a_cancelled_error(begin):
    """What a hook raises because it was stopped is the cause of a CancelledError."""

    class Aborting(SlowCounter):
        @hookimpl
        def cartridge_infer(self, session, value):
            try:
                return super().cartridge_infer(session, value)
            except CancelledError:
                msg = "decode aborted"
                raise BackendError(msg) from None

    plugin = Aborting()
    session = begin(plugin)
    worker = Background(lambda: session.infer(10**9))
    assert plugin.working.wait(_PATIENCE_S)
    session.cancel()
    worker.join(_PATIENCE_S)
    assert isinstance(worker.error, CancelledError)
    assert isinstance(worker.error.__cause__, BackendError)


def test_cancel_after_end_does_nothing(begin):
    """Cancelling a session that has ended reaches no hook and changes no state."""
    plugin = SlowCounter()
    session = begin(plugin)
    session.end()
    session.cancel()
    assert session.state is SessionState.ENDED
    assert "cancel" not in plugin.calls


def test_cancelled_session_harms_no_other(begin):
    """Another session on the same cartridge goes on after one is cancelled."""
    plugin = BatchEcho()
    with registry_of(plugin) as registry, registry.open("batch-echo-text") as cartridge:
        with cartridge.session() as one, cartridge.session() as two:
            one.cancel()
            assert two.infer("a").payload == {"text": "a"}


def test_ending_twice_reaches_the_hook_once(begin):
    """End may be called again; the plugin sees one."""
    plugin = BatchEcho()
    session = begin(plugin)
    session.end()
    session.end()
    assert plugin.calls.count("session_end") == 1


def test_leaving_the_block_ends_the_session(begin):
    """A session is a context manager that ends it, after errors too."""
    session = begin(BatchEcho())
    with pytest.raises(ZeroDivisionError), session:
        _ = 1 / 0
    assert session.state is SessionState.ENDED


def test_flushing_twice_reaches_the_hook_once(begin):
    """Flush may be called again, before and after the drain; the plugin sees one."""
    plugin = StreamingEcho()
    session = begin(plugin)
    session.flush()
    session.flush()
    list(session.drain())
    session.flush()
    assert plugin.calls.count("flush") == 1
    assert session.state is SessionState.DRAINED


def test_pull_before_flush_gives_none_and_stays_open(begin):
    """None before flush means that nothing is due yet."""
    session = begin(StreamingEcho())
    assert session.pull() is None
    assert session.state is SessionState.OPEN
    session.push("a")
    assert session.pull().kind is ResultKind.PARTIAL


def test_pull_after_the_drain_reaches_no_hook(begin):
    """Once drained, pull gives None by itself."""
    plugin = StreamingEcho()
    session = begin(plugin)
    session.flush()
    list(session.drain())
    before = plugin.calls.count("pull")
    assert [session.pull(), session.pull()] == [None, None]
    assert plugin.calls.count("pull") == before


def test_drain_gives_what_is_left(begin):
    """Drain gives every result after flush, then the session is drained."""
    session = begin(StreamingEcho(), upper=True)
    for chunk in ("a", "b"):
        session.push(chunk)
    session.flush()
    assert [(result.kind.name, result.payload) for result in session.drain()] == [
        ("PARTIAL", "A"),
        ("PARTIAL", "B"),
        ("FINAL", "AB"),
    ]
    assert session.state is SessionState.DRAINED


def test_segments_come_with_their_endpoint_and_time(begin):
    """What a cartridge says of segment and time arrives as it is."""
    session = begin(SegmentingEcho())
    session.push(b"hi.")
    endpoint, final = session.pull(), session.pull()
    assert (endpoint.kind, endpoint.payload, endpoint.end_s) == (ResultKind.ENDPOINT, None, 3.0)
    assert (final.kind, final.payload, final.segment) == (ResultKind.FINAL, "hi.", 0)


def test_results_are_records_with_the_cartridge_id(begin):
    """The host turns a dict into a Record and says which cartridge gave it."""
    result = begin(BatchEcho()).infer("a")
    assert isinstance(result.payload, Record)
    assert result.payload.text == "a"
    assert result.cartridge_id == "batch-echo-text"


def test_session_says_where_it_is(begin):
    """The repr names the cartridge and the state; ``cap`` is the one it serves."""
    session = begin(StreamingEcho())
    session.flush()
    assert repr(session) == "<Session on streaming-echo-text: flushed>"
    assert session.cap is StreamingEcho.descriptor.caps[0]


class SessionMachine(RuleBasedStateMachine):
    """
    Any sequence of calls works or raises a CartridgeError, and the state is the documented one.

    The model keeps what a caller can know: the state, and what the fake has still to give.
    """

    plugin_type: type[BatchEcho | StreamingEcho]

    def __init__(self):
        super().__init__()
        self.plugin = self.plugin_type()
        self.registry = registry_of(self.plugin)
        self.cartridge = self.registry.open(self.plugin.descriptor.id)
        self.session = self.cartridge.session()
        self.state = SessionState.OPEN
        self.due = []
        self.heard = ""

    @property
    def streaming(self):
        return self.plugin_type is StreamingEcho

    def expect(self, call, *, streaming):
        """Make a call; give what it gave where the model says that it works, else its error."""
        wrong: type[CartridgeError] | None = None
        if self.streaming is not streaming:
            wrong = UnsupportedError
        elif self.state is SessionState.ENDED:
            wrong = StateError
        elif self.state is SessionState.CANCELLED:
            wrong = CancelledError
        if wrong is None:
            return call()
        with pytest.raises(CartridgeError) as caught:
            call()
        assert type(caught.value) is wrong
        return caught.value

    def works(self, *, streaming):
        over = self.state in {SessionState.CANCELLED, SessionState.ENDED}
        return not over and self.streaming is streaming

    @rule(text=st.sampled_from(["", "a", "ü"]))
    def infer(self, text):
        works = self.works(streaming=False)
        result = self.expect(lambda: self.session.infer(text), streaming=False)
        if works:
            assert (result.kind, result.payload.text) == (ResultKind.FINAL, text)

    @rule(text=st.sampled_from(["", "a", "ü"]))
    def push(self, text):
        if self.works(streaming=True) and self.state is not SessionState.OPEN:
            with pytest.raises(StateError, match="push after flush"):
                self.session.push(text)
            return
        works = self.works(streaming=True)
        self.expect(lambda: self.session.push(text), streaming=True)
        if works:
            self.due.append((ResultKind.PARTIAL, text))
            self.heard += text

    @rule()
    def pull(self):
        works = self.works(streaming=True)
        result = self.expect(self.session.pull, streaming=True)
        if not works:
            return
        if self.due:
            assert (result.kind, result.payload) == self.due.pop(0)
            return
        assert result is None
        if self.state is SessionState.FLUSHED:
            self.state = SessionState.DRAINED

    @rule()
    def flush(self):
        works = self.works(streaming=True)
        self.expect(self.session.flush, streaming=True)
        if works and self.state is SessionState.OPEN:
            self.state = SessionState.FLUSHED
            self.due.append((ResultKind.FINAL, self.heard))

    @precondition(lambda self: self.state in {SessionState.FLUSHED, SessionState.DRAINED})
    @rule()
    def drain(self):
        works = self.works(streaming=True)
        found = self.expect(lambda: list(self.session.drain()), streaming=True)
        if works:
            assert [(result.kind, result.payload) for result in found] == self.due
            self.due = []
            self.state = SessionState.DRAINED

    @rule()
    def cancel(self):
        self.session.cancel()
        if self.state is not SessionState.ENDED:
            self.state = SessionState.CANCELLED

    @rule()
    def end(self):
        self.session.end()
        self.state = SessionState.ENDED

    @invariant()
    def state_is_the_documented_one(self):
        assert self.session.state is self.state

    def teardown(self):
        self.cartridge.close()
        self.registry.close()
        assert self.plugin.calls.count("session_end") == 1
        assert self.plugin.calls.count("close") == 1


@pytest.mark.parametrize("plugin", [BatchEcho, StreamingEcho], ids=["batch", "streaming"])
def test_any_sequence_of_calls_works_or_raises_a_cartridge_error(plugin):
    """Whatever the order, a call does what its state allows or raises the error for it."""

    class Machine(SessionMachine):
        plugin_type = plugin

    profile = settings(max_examples=60, stateful_step_count=25, deadline=None)
    run_state_machine_as_test(Machine, settings=profile)
