"""What several tests of calls need: a clock that only they move, and cartridges that wait."""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from cartridge_core.hookspecs import hookimpl
from cartridge_core.reports import Check, PreflightReport
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing.descriptors import fake_cap, fake_descriptor
from cartridge_core.testing.fakes import BatchEcho, FakeHandle, StreamingEcho

PATIENCE_S = 30.0


class Clock:
    """Stands in for `time` in modules of core; it moves only when it is told to."""

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch
        self._now_s = 1000.0
        self.reads = 0

    def monotonic(self):
        self.reads += 1
        return self._now_s

    def rule(self, *modules):
        """Be the clock of modules of core."""
        stand_in = SimpleNamespace(monotonic=self.monotonic, sleep=time.sleep)
        for module in modules:
            self._monkeypatch.setattr(f"cartridge_core.{module}.time", stand_in)

    def advance(self, seconds):
        self._now_s += seconds

    def pass_until(self, condition, step_s=11.0):
        """Let time go by until something is so."""

        def is_so():
            self.advance(step_s)
            return condition()

        eventually(is_so)

    def crawl(self, seconds, is_over=lambda: False):
        """Let time go by so slowly that everything is looked at again and again."""
        for _ in range(seconds // 5):
            self.settle(is_over)
            self.advance(5)
        self.settle(is_over)

    def settle(self, is_over=lambda: False):
        """Wait until it has been looked at a few times more, or there is nothing to look at."""
        seen = self.reads
        eventually(lambda: self.reads >= seen + 6 or is_over())


class _Gates:
    """
    Hooks that wait, each in ``shut`` until its event is set; ``inside`` counts those who are there.

    They come out when they are cancelled, unless the cartridge is ``deaf``.
    """

    def __init__(self):
        super().__init__()
        self.shut: dict[str, threading.Event] = {}
        self._gates: list[threading.Event] = []
        self.deaf = False
        self.inside: Counter[str] = Counter()
        self._counting = threading.Lock()

    def close_gate(self, hook):
        self._gates.append(threading.Event())
        self.shut[hook] = self._gates[-1]
        return self.shut[hook]

    def open_gates(self):
        for gate in self._gates:
            gate.set()

    def wait_at(self, hook, context=None):
        gate = self.shut.get(hook)
        if gate is None:
            return
        with self._counting:
            self.inside[hook] += 1
        try:
            while not gate.wait(0.002):
                if context is not None and not self.deaf:
                    context.check_cancelled()
        finally:
            with self._counting:
                self.inside[hook] -= 1


class Gated(_Gates, BatchEcho):
    """A batch cartridge that echoes; ``opening`` and ``inferring`` wait where they can hear."""

    memory_bytes = 0

    def saw(self, hook):
        super().saw(hook)
        self.wait_at(hook)

    @hookimpl
    def cartridge_preflight(self, cartridge_id, pack, options):
        self.saw("preflight")
        return PreflightReport((Check("fake", ok=True),), memory_bytes=self.memory_bytes)

    @hookimpl
    def cartridge_open(self, cartridge_id, pack, options, context):
        self.saw("open")
        self.wait_at("opening", context)
        return FakeHandle(cartridge_id, options)

    @hookimpl
    def cartridge_infer(self, session, value):
        self.saw("infer")
        self.wait_at("inferring", session.context)
        return Result(ResultKind.FINAL, session.echo(str(value)))

    @hookimpl
    def cartridge_cancel(self, session):
        self.saw("cancel")


class GatedStream(_Gates, StreamingEcho):
    """A streaming cartridge that echoes; ``pulling`` and ``flushing`` wait where they can hear."""

    plugin_name = "gated-stream"
    descriptor = fake_descriptor(
        "gated-stream-text",
        "streaming",
        [fake_cap("hear", gives="media:echo;enc=utf-8", streaming=True)],
        partial="append",
    )

    def saw(self, hook):
        super().saw(hook)
        self.wait_at(hook)

    @hookimpl
    def cartridge_pull(self, session):
        self.wait_at("pulling", session.context)
        return super().cartridge_pull(session)

    @hookimpl
    def cartridge_flush(self, session):
        self.wait_at("flushing", session.context)
        super().cartridge_flush(session)


def eventually(condition):
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"waited {PATIENCE_S:g} s in vain"
        time.sleep(0.002)


@pytest.fixture(name="eventually")
def give_eventually():
    """Give the function that waits until something is so."""
    return eventually


@pytest.fixture
def clock(monkeypatch):
    """Give a clock for modules of core, that stands still."""
    return Clock(monkeypatch)


@pytest.fixture
def made():
    """Keep the cartridges of a test, let them go after it, and see that no thread is left."""
    before = set(threading.enumerate())
    fakes: list[_Gates] = []
    yield fakes
    for fake in fakes:
        fake.open_gates()
    eventually(lambda: set(threading.enumerate()) <= before)


@pytest.fixture
def gated(made):
    """Make batch cartridges that wait where a test says so."""

    def make(name="gated", *, op="echo", memory_bytes=0, metadata=None, **attributes):
        cap = {**fake_cap(op), "metadata": metadata or {}}
        descriptor = fake_descriptor(f"{name}-text", caps=[cap], **attributes)
        body = {"plugin_name": name, "descriptor": descriptor, "memory_bytes": memory_bytes}
        made.append(type("Gated", (Gated,), body)())
        return made[-1]

    return make


@pytest.fixture
def gated_stream(made):
    """Make a streaming one."""

    def make():
        made.append(GatedStream())
        return made[-1]

    return make
