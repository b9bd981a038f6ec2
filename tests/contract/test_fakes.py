"""The contract over the fakes: those that keep it pass, and each that breaks it fails by name."""

from __future__ import annotations

import importlib
import json
import re
import sys
import threading
import time
from types import ModuleType
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.errors import LoadError, StateError
from cartridge_core.hookspecs import BatchPlugin, StreamingPlugin, hookimpl
from cartridge_core.reports import PreflightReport
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing import (
    BatchContract,
    BatchEcho,
    CancellableBatchContract,
    FailingEcho,
    SegmentingEcho,
    SlowCounter,
    StreamingContract,
    StreamingEcho,
    fake_arg,
    fake_cap,
    fake_descriptor,
    registry_of,
)

if TYPE_CHECKING:
    from cartridge_core.testing.fakes import FakeHandle, FakeSession

pytest_plugins = ["pytester", "cartridge_core.testing.fixtures"]

_BATCH: BatchPlugin[FakeHandle, FakeSession] = BatchEcho()
_STREAMING: StreamingPlugin[FakeHandle, FakeSession] = StreamingEcho()

ECHO = "cap:echo;in=*;out=*"

# Some of the plugins below import numpy, which cannot be imported twice in one process; pytester
# drops what is first imported under it.
importlib.import_module("numpy")


class TestBatchEcho(BatchContract):
    plugin = BatchEcho()
    cartridge_id = "batch-echo-text"


class TestSlowCounter(CancellableBatchContract):
    plugin = SlowCounter()
    cartridge_id = "slow-counter-batch"

    def slow_value(self, cap):
        return 1_000_000


class TestStreamingEcho(StreamingContract):
    plugin = StreamingEcho()
    cartridge_id = "streaming-echo-text"


class TestSegmentingEcho(StreamingContract):
    plugin = SegmentingEcho()
    cartridge_id = "segmenting-echo-bytes"

    def value(self, cap):
        return b"hello."

    def other_value(self, cap):
        return b"good-bye."


class HearingContract(StreamingContract):
    """The contract with the values of `SegmentingEcho`."""

    patience_s = 0.2

    def value(self, cap):
        return b"hello."

    def chunks(self, cap, value):
        return [value]


class SlowContract(CancellableBatchContract):
    """The contract with a value that takes a while."""

    def slow_value(self, cap):
        return 500


# Plugins that each break one rule.


class Misspelling(BatchEcho):
    @hookimpl
    def cartridge_pull_all(self, session):
        return None


class Incomplete(BatchEcho):
    cartridge_infer = None  # type: ignore[assignment]


class Renamed(BatchEcho):
    plugin_name = "other"


class Unsure(BatchEcho):
    """Has a default that breaks its own rule, which no descriptor that was read can have."""

    cap = BatchEcho.descriptor.caps[0]
    args = tuple(attrs.evolve(arg, default=7) if arg.has_default else arg for arg in cap.args)
    descriptor = attrs.evolve(BatchEcho.descriptor, caps=(attrs.evolve(cap, args=args),))


class Unstable(BatchEcho):
    """Tells another descriptor each time."""

    def __init__(self):
        super().__init__()
        self.told = 0

    @hookimpl
    def cartridge_descriptors(self):
        self.told += 1
        return (fake_descriptor("batch-echo-text", family=f"f{self.told}"),)


class Demanding(BatchEcho):
    descriptor = fake_descriptor(
        "batch-echo-text", caps=[fake_cap("echo", fake_arg("voice", "string"))]
    )

    @hookimpl
    def cartridge_infer(self, session, value):
        return Result(ResultKind.FINAL, session.parameters["voice"])


class Exotic(BatchEcho):
    @hookimpl
    def cartridge_infer(self, session, value):
        return Result(ResultKind.FINAL, {"texts": [("a", "tuple")]})


class Printing(BatchEcho):
    @hookimpl
    def cartridge_infer(self, session, value):
        print("loading weights")  # noqa: T201 -- what it does wrong
        return super().cartridge_infer(session, value)


class Complaining(BatchEcho):
    @hookimpl
    def cartridge_open(self, cartridge_id, pack, options, context):
        print("no GPU", file=sys.stderr)  # noqa: T201 -- what it does wrong
        return super().cartridge_open(cartridge_id, pack, options, context)


class Remembering(BatchEcho):
    def __init__(self):
        super().__init__()
        self.heard = []

    @hookimpl
    def cartridge_infer(self, session, value):
        self.heard.append(value)
        return Result(ResultKind.FINAL, {"text": " ".join(self.heard)})


class Sharing(StreamingEcho):
    """Keeps the chunks of all its open sessions together."""

    def __init__(self):
        super().__init__()
        self.chunks = []

    @hookimpl
    def cartridge_session_begin(self, handle, cap, parameters, context):
        session = super().cartridge_session_begin(handle, cap, parameters, context)
        session.chunks = self.chunks
        return session


class Borrowing(SegmentingEcho):
    """Reads the caller's buffer when pulled."""

    @hookimpl
    def cartridge_push(self, session, chunk):
        session.chunks.append(memoryview(chunk))

    def step(self, session, chunk):
        session.done.append(chunk.tobytes().decode())
        return Result(ResultKind.PARTIAL, segment=session.segment)


class Samples:
    """A buffer with what numpy's arrays have in common with others."""

    def __init__(self, *items):
        self.items = list(items)

    def tolist(self):
        return self.items

    def copy(self):
        return Samples(*self.items)

    def fill(self, value):
        self.items = [value] * len(self.items)


class PassingOn(BatchEcho):
    """Gives the caller's own buffer back."""

    descriptor = fake_descriptor(
        "batch-echo-samples", caps=[fake_cap("echo", takes="media:audio", gives="media:audio;echo")]
    )

    @hookimpl
    def cartridge_infer(self, session, value):
        return Result(ResultKind.FINAL, value)


class SamplesContract(BatchContract):
    """The contract with a buffer as its value."""

    def value(self, cap):
        return Samples(1.0, 2.0)


class Homebound(BatchEcho):
    """Works only on the thread that opened it."""

    @hookimpl
    def cartridge_infer(self, session, value):
        return Result(ResultKind.FINAL, {"thread": threading.get_ident()})


class Deaf(SlowCounter):
    """Counts on when it is cancelled."""

    @hookimpl
    def cartridge_infer(self, session, value):
        time.sleep(value / 1000)
        return Result(ResultKind.FINAL, value)


class Hesitant(BatchEcho):
    @hookimpl
    def cartridge_infer(self, session, value):
        return Result(ResultKind.PARTIAL, value)


class Miscounting(StreamingEcho):
    def commit(self, session):
        return attrs.evolve(super().commit(session), segment=7)


class Undeclared(StreamingEcho):
    descriptor = fake_descriptor("streaming-echo-text", "streaming")


class EndlessPoint(SegmentingEcho):
    """Says where a segment ends, and never gives it."""

    def commit(self, session):
        return Result(ResultKind.PARTIAL, segment=session.segment)


class TimelessPoint(SegmentingEcho):
    def step(self, session, chunk):
        result = super().step(session, chunk)
        return attrs.evolve(result, end_s=None)


class TalkingPoint(SegmentingEcho):
    def step(self, session, chunk):
        result = super().step(session, chunk)
        return attrs.evolve(result, payload="hello")


class Waiting(SegmentingEcho):
    """Waits for input in pull."""

    @hookimpl
    def cartridge_pull(self, session):
        while not session.chunks and not session.flushed:
            session.context.check_cancelled()
            time.sleep(0.001)
        return super().cartridge_pull(session)


class Eager(StreamingEcho):
    """Has results before it has input."""

    @hookimpl
    def cartridge_pull(self, session):
        return super().cartridge_pull(session) or (
            None if session.flushed else Result(ResultKind.PARTIAL, "...")
        )


class Assuming(StreamingEcho):
    """Takes it for granted that something was pushed."""

    def commit(self, session):
        session.done[0]
        return super().commit(session)


class Stubborn(SlowCounter):
    """Fails when it is cancelled."""

    @hookimpl
    def cartridge_cancel(self, session):
        raise KeyError(session.cap)


@pytest.fixture
def author(pytester, monkeypatch):
    """Give the folder of a plugin's author; no pytest plugin of ours is loaded there."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return pytester


BROKEN = [
    pytest.param(BatchContract, Misspelling(), "hooks_follow", "cartridge_pull_all", id="misspelt"),
    pytest.param(BatchContract, Incomplete(), "hooks_follow", "cartridge_infer", id="incomplete"),
    pytest.param(BatchContract, Unstable(), "hook_gives_the_files", "differ", id="unstable"),
    pytest.param(BatchContract, Renamed(), "id_starts_with", "must start with other-", id="id"),
    pytest.param(BatchContract, Unsure(), "defaults_pass", "upper", id="default"),
    pytest.param(BatchContract, Demanding(), "required_arguments", "voice", id="demanding"),
    pytest.param(BatchContract, Exotic(), "plain", r"texts\[0\] is a tuple", id="exotic"),
    pytest.param(BatchContract, Printing(), "printed", "loading weights", id="stdout"),
    pytest.param(BatchContract, Complaining(), "printed", "no GPU", id="stderr"),
    pytest.param(BatchContract, Remembering(), "share_state", "after", id="remembering"),
    pytest.param(StreamingContract, Sharing(), "share_state", "two sessions", id="sharing"),
    pytest.param(HearingContract, Borrowing(), "borrowed", "overwritten", id="borrowing"),
    pytest.param(SamplesContract, PassingOn(), "borrowed", "copy what must", id="passing-on"),
    pytest.param(BatchContract, Homebound(), "through_the_registry", "thread", id="homebound"),
    pytest.param(SlowContract, Deaf(), "stops_the_work", "check_cancelled", id="deaf"),
    pytest.param(SlowContract, Stubborn(), "from_another_thread", "KeyError", id="stubborn"),
    pytest.param(
        BatchContract, FailingEcho("close"), "twice_is_harmless", "gave up", id="failing-close"
    ),
    pytest.param(
        BatchContract, FailingEcho("session_end"), "twice_is_harmless", "gave up", id="failing-end"
    ),
    pytest.param(
        BatchContract, FailingEcho("preflight"), "preflight", "gave up", id="failing-preflight"
    ),
    pytest.param(BatchContract, Hesitant(), "one_final", "PARTIAL", id="hesitant"),
    pytest.param(StreamingContract, Miscounting(), "segments", "segment 7", id="miscounting"),
    pytest.param(StreamingContract, Undeclared(), "segments", "attributes.partial", id="partial"),
    pytest.param(HearingContract, EndlessPoint(), "segments", "no FINAL after", id="endless"),
    pytest.param(HearingContract, TimelessPoint(), "segments", "end_s is None", id="timeless"),
    pytest.param(HearingContract, TalkingPoint(), "segments", "has a payload", id="talking"),
    pytest.param(HearingContract, Waiting(), "before_anything_is_due", "waits", id="waiting"),
    pytest.param(StreamingContract, Eager(), "before_anything_is_due", r"\.\.\.", id="eager"),
    pytest.param(StreamingContract, Assuming(), "without_input", "IndexError", id="assuming"),
]


@pytest.mark.parametrize(("contract", "plugin", "fact", "words"), BROKEN)
def test_error_broken_rule_fails_its_fact(author, monkeypatch, contract, plugin, fact, words):
    """A plugin that breaks a rule fails the fact about it, with a message that says what."""
    cartridge_id = plugin.descriptor.id
    subject = ModuleType("subject")
    attributes = {"plugin": plugin, "cartridge_id": cartridge_id}
    vars(subject)["TestSubject"] = type("TestSubject", (contract,), attributes)
    monkeypatch.setitem(sys.modules, "subject", subject)
    author.makepyfile("from subject import TestSubject")
    assert_fails(author, fact, words)


IMPORTABLE = """
from pathlib import Path
from cartridge_core.hookspecs import hookimpl
from cartridge_core.testing import BatchEcho

class Plugin(BatchEcho):
    @hookimpl
    def cartridge_descriptors(self):
        {describe}
        return super().cartridge_descriptors()

    @hookimpl
    def cartridge_preflight(self, cartridge_id, pack, options):
        {preflight}
        return super().cartridge_preflight(cartridge_id, pack, options)
"""

LOADING = [
    pytest.param("import numpy", "pass", "imports_no_backend", "numpy", id="describe-imports"),
    pytest.param(
        "Path('cache.json').write_text('{}')", "pass", "writes_no_file", "cache.json", id="cwd"
    ),
    pytest.param(
        "(Path.home() / '.fake').mkdir(exist_ok=True)", "pass", "writes_no_file", "fake", id="home"
    ),
    pytest.param("pass", "import numpy", "preflight_loads", "numpy", id="preflight-imports"),
    pytest.param(
        "pass", "Path('f').write_text('')", "preflight_loads", "CWD/f", id="preflight-writes"
    ),
    pytest.param("pass", "import colorama_none", "preflight_loads", "colorama_none", id="missing"),
]


@pytest.mark.parametrize(("describe", "preflight", "fact", "words"), LOADING)
def test_error_plugin_that_loads_too_early_fails(author, describe, preflight, fact, words):
    """Importing the backend or writing a file before open fails, and the message says what."""
    source = IMPORTABLE.format(describe=describe, preflight=preflight)
    author.makepyfile(early_plugin=source)
    author.makepyfile(
        """
        from cartridge_core.testing import BatchContract
        from early_plugin import Plugin

        class TestEarly(BatchContract):
            plugin = Plugin()
            cartridge_id = "batch-echo-text"
        """
    )
    author.syspathinsert()
    assert_fails(author, fact, words)


MODULE = """
from pathlib import Path
from cartridge_core.hookspecs import hookimpl
from cartridge_core.descriptor import read_descriptors
from cartridge_core.testing import BatchEcho

echo = BatchEcho()

@hookimpl
def cartridge_descriptors():
    return read_descriptors(Path(__file__).parent / "descriptors"){subset}

cartridge_preflight = echo.cartridge_preflight
cartridge_open = echo.cartridge_open
cartridge_close = echo.cartridge_close
cartridge_session_begin = echo.cartridge_session_begin
cartridge_session_end = echo.cartridge_session_end
cartridge_infer = echo.cartridge_infer
"""

MODULE_TEST = """
from cartridge_core.testing import BatchContract
from cartridge_echo import plugin

class TestEcho(BatchContract):
    plugin = plugin
    cartridge_id = "echo-text"
"""


def make_plugin_package(author, subset=""):
    """Write a package ``cartridge_echo`` as a plugin's author would, with its tests."""
    package = author.mkpydir("cartridge_echo")
    (package / "descriptors").mkdir()
    document = {**BatchEcho.descriptor.to_json(), "id": "echo-text"}
    (package / "descriptors" / "echo-text.json").write_text(json.dumps(document))
    (package / "plugin.py").write_text(MODULE.format(subset=subset))
    author.makepyfile(MODULE_TEST)
    author.syspathinsert()


def test_module_with_descriptor_files_passes_with_two_attributes(author):
    """A test class of two attributes is all that a plugin of the usual shape needs."""
    make_plugin_package(author)
    passed, skipped, failed = run(author)
    assert not failed, [report.longreprtext for report in failed]
    assert len(passed) > 15
    assert not skipped


def test_error_hook_that_leaves_a_descriptor_out_fails(author):
    """A hook that does not give what the files hold is named."""
    make_plugin_package(author, subset="[:0]")
    assert_fails(author, "hook_gives_the_files", "differ for echo-text")


def test_error_value_that_cannot_be_guessed_is_asked_for(author):
    """A main argument whose declaration says too little makes the author say a value."""
    author.makepyfile(
        """
        from cartridge_core.testing import SegmentingEcho, StreamingContract

        class TestHearing(StreamingContract):
            plugin = SegmentingEcho()
            cartridge_id = "segmenting-echo-bytes"
        """
    )
    assert_fails(author, "required_arguments", r"override value\(self, cap\)")


def assert_fails(author, fact, words):
    """Run the one fact of a contract, and see it fail with these words."""
    _, _, failed = run(author, "-k", fact)
    texts = "\n".join(report.longreprtext for report in failed)
    assert failed, f"no failure of {fact}"
    assert all(fact in report.location[2] for report in failed)
    assert re.search(words, texts), texts


def run(author, *arguments):
    """Run an author's tests; give the reports of those that passed, skipped and failed."""
    return author.inline_run("-p", "no:cacheprovider", *arguments).listoutcomes()


# The kit's other parts.


def test_registries_of_the_fixture_are_closed_after_the_test(author):
    """What the ``registry`` fixture makes is closed when its test is over."""
    author.makepyfile(
        """
        import pytest
        from cartridge_core.errors import LoadError, StateError
        from cartridge_core.testing import BatchEcho

        pytest_plugins = ["cartridge_core.testing.fixtures"]
        made = []

        def test_use(registry):
            made.append(registry(BatchEcho()))
            assert made[0].call("cap:echo;in=*;out=*", "hi").payload.text == "hi"

        def test_afterwards():
            with pytest.raises(StateError, match="closed"):
                made[0].open("batch-echo-text")
        """
    )
    passed, _, failed = run(author)
    assert not failed
    assert len(passed) == 2


def test_fakes_work_side_by_side(registry):
    """A registry of several fakes routes by mode, and each sees its own hooks alone."""
    batch, streaming = BatchEcho(), StreamingEcho()
    both = registry(batch, streaming)
    assert both.call(ECHO, "hi", upper=True, prefix="> ").payload.text == "> HI"
    assert both.call(ECHO, ["a", "b"], mode="streaming").payload == "ab"
    assert batch.calls[-5:] == ["preflight", "open", "session_begin", "infer", "session_end"]
    assert "push" not in batch.calls
    assert "infer" not in streaming.calls


def test_pack_is_opened_by_the_plugin_of_its_base(registry, tmp_path):
    """A pack folder given to ``registry_of`` is opened by the fake whose cartridge it narrows."""
    caps = [fake_cap("echo", fake_arg("upper", "boolean", default=False))]
    document = fake_descriptor("my-pack", caps=caps, base="batch-echo-text").to_json()
    (tmp_path / "descriptor.json").write_text(json.dumps(document))
    (tmp_path / "manifest.json").write_text('{"artifacts": []}')
    with (
        registry(BatchEcho(), packs=[tmp_path]).open("my-pack", trust="off") as cartridge,
        cartridge.session() as session,
    ):
        assert session.infer("hi").payload.text == "hi"


def test_failing_fake_raises_in_the_hook_it_is_told(registry):
    """`FailingEcho` raises in one hook what it is given, and works up to there."""
    plugin = FailingEcho("session_begin", StateError("no room"))
    with (
        registry(plugin).open("failing-echo-text") as cartridge,
        pytest.raises(StateError, match="no room"),
    ):
        cartridge.session()
    assert plugin.calls[-2:] == ["session_begin", "close"]


def test_error_plugin_that_is_not_installed_is_named():
    """The name of a plugin that is not there is a LoadError."""
    with pytest.raises(LoadError, match="no usable plugin no-such-plugin"):
        registry_of("no-such-plugin")


def test_error_plugin_without_descriptors_is_named():
    """An object without a descriptors hook is no plugin."""
    with pytest.raises(LoadError, match="no descriptors"):
        registry_of(object())


def test_error_folder_that_is_no_pack_is_named(tmp_path):
    """A folder without a descriptor is no pack."""
    with pytest.raises(LoadError, match=r"no descriptor\.json"):
        registry_of(BatchEcho(), packs=[tmp_path])


def test_closing_is_up_to_the_caller_of_registry_of():
    """`registry_of` gives a registry that is a context manager of its own."""
    with registry_of(BatchEcho()) as registry:
        assert isinstance(registry.preflight("batch-echo-text"), PreflightReport)
    with pytest.raises(StateError, match="closed"):
        registry.open("batch-echo-text")
