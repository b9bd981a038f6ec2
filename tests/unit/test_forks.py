"""What was opened before a fork is the parent's."""

from __future__ import annotations

import os

import pytest

from cartridge_core.errors import StateError
from cartridge_core.testing.fakes import BatchEcho, SlowCounter
from cartridge_core.testing.registries import registry_of

USES = {
    "call": lambda registry, _: registry.call("cap:echo", "x"),
    "stream": lambda registry, _: registry.stream("cap:echo", "x"),
    "open": lambda registry, _: registry.open("batch-echo-text"),
    "unload": lambda registry, _: registry.unload(),
    "session": lambda _, cartridge: cartridge.session(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_error_a_forked_process_uses_nothing(use, monkeypatch):
    """Whatever it asks for, it is told to discover a registry of its own."""
    pid = os.getpid()
    fake = BatchEcho()
    with registry_of(fake) as registry, registry.open("batch-echo-text") as cartridge:
        before = list(fake.calls)
        monkeypatch.setattr(os, "getpid", lambda: pid + 1)
        with pytest.raises(StateError, match="after a fork discover a new one in the child"):
            use(registry, cartridge)
        monkeypatch.undo()
        assert fake.calls == before


READS = {
    "next": next,
    "result": lambda call: call.result(),
    "iterate": list,
    "block": lambda call: next(call.__enter__()),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.timeout(20)
def test_error_a_forked_process_waits_for_no_call_of_its_parents(read, monkeypatch):
    """The threads that do the work are not in it: it is told so, and ends nothing."""
    pid = os.getpid()
    with registry_of(SlowCounter()) as registry, registry.stream("cap:count", 60_000) as call:
        while "Running" not in str(next(call)):
            pass
        monkeypatch.setattr(os, "getpid", lambda: pid + 1)
        with pytest.raises(StateError, match="after a fork discover a new one in the child"):
            read(call)
        call.close()
        monkeypatch.undo()
        assert registry.stats()["cancelled"] == 0
        assert [one.state.value for one in registry.loaded()] == ["busy"]
        registry.unload(force=True)
