"""What a call leaves behind when it is over: nothing."""

from __future__ import annotations

import gc

import pytest

from cartridge_core.testing.fakes import BatchEcho, StreamingEcho
from cartridge_core.testing.registries import registry_of


def calls(registry):
    registry.call("cap:echo", "x")


def calls_and_listens(registry):
    registry.call("cap:echo", "x", on_progress=lambda _: None)


def streams(registry):
    list(registry.stream("cap:echo", "x"))


USES = [calls, calls_and_listens, streams]


@pytest.mark.parametrize("plugin", [BatchEcho, StreamingEcho])
@pytest.mark.parametrize("use", USES)
def test_a_call_leaves_nothing_for_the_garbage_collector(use, plugin):
    """What a call was made of goes with its last reference: a busy host is not stopped for it."""
    with registry_of(plugin()) as registry:
        use(registry)
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                use(registry)
            assert gc.collect() == 0
        finally:
            gc.enable()


def test_a_call_that_gets_no_thread_is_not_among_those_that_run(monkeypatch):
    """The registry does not look after it, nor wait for it when it closes."""

    def refuse(job):
        msg = "can't start new thread"
        raise RuntimeError(msg)

    with registry_of(BatchEcho()) as registry:
        with monkeypatch.context() as patched:
            patched.setattr(registry._calls._threads, "run", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                registry.call("cap:echo", "x")
        assert not registry._calls._running
        assert registry.call("cap:echo", "x").payload == {"text": "x"}
