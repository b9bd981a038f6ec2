"""What was opened before a fork is the parent's."""

from __future__ import annotations

import os

import pytest

from cartridge_core.errors import StateError
from cartridge_core.testing.fakes import BatchEcho
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
