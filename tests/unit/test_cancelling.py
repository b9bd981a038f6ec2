"""Cancelling stops the work, whatever stage it is at, and leaves everything usable."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import signal
import threading
import time

import pytest

from cartridge_core.errors import CancelledError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.limits import Limits
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing.background import Background
from cartridge_core.testing.descriptors import fake_cap, fake_descriptor
from cartridge_core.testing.fakes import BatchEcho, StreamingEcho
from cartridge_core.testing.registries import registry_of

PATIENCE_S = 30.0
ECHO = "cap:echo"
HEAR = "cap:hear"
READ = "cap:read"


def outcome(background):
    background.join(PATIENCE_S)
    assert not background.is_alive()
    return background.error or background.result


class Reads(BatchEcho):
    """Needs a model that has to be fetched."""

    plugin_name = "reads"
    descriptor = fake_descriptor(
        "reads-text",
        caps=[
            fake_cap(
                "read",
                {
                    "name": "model_spec",
                    "media_urn": "media:enc=utf-8;model-spec",
                    "required": False,
                    "sources": [{"cli_flag": "--model-spec"}],
                    "metadata": {"pack": True},
                },
            )
        ],
    )


class Fetches(BatchEcho):
    """Fetches a model, step by step until it is let go."""

    plugin_name = "fetches"
    descriptor = fake_descriptor(
        "fetches-models",
        caps=[
            fake_cap(
                "download-model",
                takes="media:enc=utf-8;model-spec",
                gives="media:download-result;enc=utf-8;file-path;record",
            )
        ],
    )

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.began = threading.Event()
        self.go = threading.Event()

    @hookimpl
    def cartridge_infer(self, session, value):
        self.began.set()
        while not self.go.wait(0.002):
            session.context.progress(0.5, "half of it")
            session.context.check_cancelled()
        return Result(ResultKind.FINAL, {"path": str(self.path)})


class Stage:
    """A call that has come to one stage and stays there, and how to go on."""

    def __init__(self, plugins, start, has_come, let_go, again):
        self.plugins = plugins
        self.start = start
        self.has_come = has_come
        self.let_go = let_go
        self.again = again


def at_download(gated, gated_stream, tmp_path):
    path = tmp_path / "model.txt"
    path.write_text("model")
    fetches = Fetches(path)

    def start(registry):
        return registry.stream(READ, "x", model_spec="hf:owner/repo")

    def again(registry):
        return registry.call(READ, "x", model_spec="hf:owner/repo").payload == {"text": "x"}

    return Stage([Reads(), fetches], start, fetches.began.is_set, fetches.go.set, again)


def at_gate(fake, gate, cap):
    fake.close_gate(gate)
    return Stage(
        [fake],
        lambda registry: registry.stream(cap, "x"),
        lambda: fake.inside[gate],
        fake.open_gates,
        lambda registry: registry.call(cap, "y").payload == "y",
    )


HUGE_BYTES = 2**37


def huge_pack(root):
    """Write a pack of one file that takes minutes to hash, and no room on disk."""
    body = json.loads(json.dumps(Reads.descriptor.to_json()))
    attributes = {**body["attributes"], "base": "reads-text"}
    descriptor = json.dumps({**body, "id": "reads-huge", "attributes": attributes}).encode()
    path = "artifacts/model/a.bin"
    (root / path).parent.mkdir(parents=True)
    (root / path).touch()
    os.truncate(root / path, HUGE_BYTES)
    (root / "descriptor.json").write_bytes(descriptor)
    digest = f"sha256:{'0' * 64}"
    file = {"role": "model", "path": path, "license": "MIT", "digest": digest, "size": HUGE_BYTES}
    manifest = {
        "schema_version": "2",
        "kind": "cartridge",
        "id": "reads-huge",
        "version": body["version"],
        "effective_license": "MIT",
        "descriptor_digest": f"sha256:{hashlib.sha256(descriptor).hexdigest()}",
        "digest_alg": "sha256",
        "artifacts": [file],
        "provenance": {"producer": "hand"},
    }
    (root / "manifest.json").write_text(json.dumps(manifest))
    return root


def at_verifying(gated, gated_stream, tmp_path):
    pack, plain = huge_pack(tmp_path / "pack"), tmp_path / "model.txt"
    plain.write_text("model")

    seen = []

    def start(registry):
        seen.append(registry)
        return registry.stream(READ, "x", model_spec=pack)

    def has_come():
        return [one.state.value for one in seen[0].loaded()] == ["loading"]

    def again(registry):
        return registry.call(READ, "x", model_spec=plain).payload == {"text": "x"}

    return Stage([Reads()], start, has_come, lambda: None, again)


def at_load(gated, gated_stream, tmp_path):
    return at_gate(gated(), "opening", ECHO)


def at_prompt(gated, gated_stream, tmp_path):
    return at_gate(gated(), "inferring", ECHO)


def at_tokens(gated, gated_stream, tmp_path):
    return at_gate(gated_stream(), "pulling", HEAR)


def at_flush(gated, gated_stream, tmp_path):
    return at_gate(gated_stream(), "flushing", HEAR)


def in_the_queue(gated, gated_stream, tmp_path):
    fake = gated(max_concurrent_sessions=1)
    stage = at_gate(fake, "inferring", ECHO)
    others = []

    def start(registry):
        others.append(Background(lambda: registry.call(ECHO, "other")))
        while not fake.inside["inferring"]:
            time.sleep(0.002)
        stage.has_come = lambda: registry.stats()["queued"] == 1
        return registry.stream(ECHO, "x")

    def let_go():
        fake.open_gates()
        assert outcome(others[0]).payload == "other"

    stage.start, stage.let_go = start, let_go
    return stage


def behind_anothers_load(gated, gated_stream, tmp_path):
    fake = gated()
    stage = at_gate(fake, "opening", ECHO)
    others = []

    def start(registry):
        others.append(Background(lambda: registry.call(ECHO, "other")))
        while not fake.inside["opening"]:
            time.sleep(0.002)
        stage.has_come = lambda: [one.users for one in registry.loaded()] == [2]
        return registry.stream(ECHO, "x")

    def let_go():
        fake.open_gates()
        assert outcome(others[0]).payload == "other"

    stage.start, stage.let_go = start, let_go
    return stage


STAGES = [
    at_download,
    at_verifying,
    at_load,
    behind_anothers_load,
    in_the_queue,
    at_prompt,
    at_tokens,
    at_flush,
]


def by_cancel(call):
    call.cancel()


def by_close(call):
    call.close()


def by_leaving(call):
    with call:
        pass


def by_the_loop(call):
    """Leave a loop over the events while the call waits for its next one."""
    threading.Timer(0.02, call.cancel).start()
    with pytest.raises(CancelledError):
        for _ in call:
            pass


@pytest.fixture
def stage(request, gated, gated_stream, tmp_path):
    return request.param(gated, gated_stream, tmp_path)


@pytest.mark.parametrize("stop", [by_cancel, by_close, by_leaving, by_the_loop])
@pytest.mark.parametrize("stage", STAGES, indirect=True, ids=lambda one: one.__name__)
def test_a_call_is_stopped_at_every_stage(stage, eventually, stop):
    """Its caller gets CancelledError, its lease is free, and the next call works."""
    with registry_of(*stage.plugins) as registry:
        call = stage.start(registry)
        eventually(stage.has_come)
        stop(call)
        with pytest.raises(CancelledError):
            call.result()
        eventually(lambda: registry.stats()["cancelled"] >= 1)
        stage.let_go()
        assert stage.again(registry)
        eventually(lambda: {one.state.value for one in registry.loaded()} <= {"ready"})


@pytest.mark.parametrize("stage", STAGES, indirect=True, ids=lambda one: one.__name__)
def test_a_dropped_call_is_stopped_at_every_stage(stage, eventually):
    """A call that nobody holds any more is cancelled."""
    with registry_of(*stage.plugins) as registry:
        call = stage.start(registry)
        eventually(stage.has_come)
        del call
        gc.collect()
        eventually(lambda: registry.stats()["cancelled"] >= 1)
        stage.let_go()
        assert stage.again(registry)


@pytest.mark.parametrize("stage", STAGES, indirect=True, ids=lambda one: one.__name__)
def test_ctrl_c_stops_a_call_at_every_stage(stage, eventually):
    """KeyboardInterrupt in the caller's thread, while he waits, reaches him and ends the work."""
    interrupters: list[threading.Timer] = []

    def interrupt():
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def arm(event):
        if stage.has_come() and not interrupters:
            interrupters.append(threading.Timer(0.02, interrupt))
            interrupters[0].start()

    with registry_of(*stage.plugins, limits=Limits(keepalive_s=0.01)) as registry:
        call = stage.start(registry)
        with pytest.raises(KeyboardInterrupt):
            call.result(on_progress=arm)
        interrupters[0].join(PATIENCE_S)
        eventually(lambda: registry.stats()["cancelled"] >= 1)
        stage.let_go()
        assert stage.again(registry)


@pytest.mark.parametrize("stage", STAGES, indirect=True, ids=lambda one: one.__name__)
def test_closing_the_registry_stops_a_call_at_every_stage(stage, eventually):
    """Everything is unloaded afterwards."""
    registry = registry_of(*stage.plugins)
    call = stage.start(registry)
    eventually(stage.has_come)
    registry.close()
    with pytest.raises(CancelledError):
        call.result()
    assert registry.loaded() == ()
    for plugin in stage.plugins:
        assert plugin.calls.count("session_begin") == plugin.calls.count("session_end")


class Prompt(BatchEcho):
    """
    Evaluates a prompt batch by batch, each a wait, before the first token.

    Args:
        batch_s: How long one batch takes.
        listens: How it hears of a cancel.
    """

    plugin_name = "prompt"
    descriptor = fake_descriptor("prompt-text", caps=[fake_cap("echo")], max_concurrent_sessions=1)

    def __init__(self, listens):
        super().__init__()
        self.listens = listens
        self.batches = 0
        self.stopped = threading.Event()
        self.began = threading.Event()

    @hookimpl
    def cartridge_infer(self, session, value):
        self.stopped.clear()
        for _ in range(int(value)):
            self.batches += 1
            self.began.set()
            if self.listens == "context":
                session.context.check_cancelled()
            elif self.stopped.is_set():
                msg = "aborted"
                raise RuntimeError(msg)
            threading.Event().wait(0.005)
        return Result(ResultKind.FINAL, "token")

    @hookimpl
    def cartridge_cancel(self, session):
        self.saw("cancel")
        self.stopped.set()


class PromptStream(StreamingEcho):
    """The same in a stream: no token comes before the whole prompt is read."""

    plugin_name = "prompt"
    descriptor = fake_descriptor(
        "prompt-text",
        "streaming",
        [fake_cap("echo", gives="media:echo;enc=utf-8")],
        partial="append",
        max_concurrent_sessions=1,
    )

    def __init__(self):
        super().__init__()
        self.batches = 0
        self.began = threading.Event()

    @hookimpl
    def cartridge_pull(self, session):
        for _ in range(int(session.chunks[0]) if session.chunks else 0):
            self.batches += 1
            self.began.set()
            session.context.check_cancelled()
            threading.Event().wait(0.005)
        return super().cartridge_pull(session)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Prompt("context"), id="a12-between-batches"),
        pytest.param(lambda: Prompt("hook"), id="a12-by-the-backends-abort"),
        pytest.param(PromptStream, id="a12-a-stream-before-its-first-token"),
    ],
)
@pytest.mark.parametrize("stop", [by_cancel, by_close], ids=["a12-cancel", "a12-close"])
def test_cancel_does_not_wait_for_the_first_token(make, stop, eventually):
    """The work ends within a batch; the model is idle and usable, and no thread stays behind."""
    before = set(threading.enumerate())
    fake = make()
    with registry_of(fake) as registry:
        call = registry.stream(ECHO, "4000")
        assert fake.began.wait(PATIENCE_S)
        stop(call)
        with pytest.raises(CancelledError):
            call.result()
        eventually(lambda: "session_end" in fake.calls)
        assert fake.batches < 2000
        assert [one.state.value for one in registry.loaded()] == ["ready"]
        assert registry.call(ECHO, "1").payload is not None
    eventually(lambda: set(threading.enumerate()) <= before)


def test_cancelling_a_peers_caller_stops_both(gated, eventually):
    """A call carries its caller's cancellation, at whatever depth."""
    inner = gated()
    inner.close_gate("inferring")
    outer = []

    for depth, (name, peer) in enumerate([("two", "cap:echo"), ("one", "cap:two")]):

        class Asks(BatchEcho):
            plugin_name = name
            descriptor = fake_descriptor(f"{name}-text", caps=[fake_cap(name)])
            cap = peer

            @hookimpl
            def cartridge_infer(self, session, value):
                return session.context.peer.call(self.cap, value).result()

        outer.append(Asks())
        assert len(outer) == depth + 1

    with registry_of(inner, *outer) as registry:
        call = registry.stream("cap:one", "x")
        eventually(lambda: inner.inside["inferring"])
        call.cancel()
        with pytest.raises(CancelledError):
            call.result()
        eventually(lambda: registry.stats()["cancelled"] == 3)
        inner.open_gates()
        assert registry.call("cap:one", "x").payload == "x"


def test_a_peer_call_that_is_left_is_stopped(gated, eventually):
    """A cartridge that looks no further does not leave work behind."""
    inner = gated()
    inner.close_gate("inferring")

    class Leaves(BatchEcho):
        plugin_name = "leaves"
        descriptor = fake_descriptor("leaves-text", caps=[fake_cap("leave")])

        @hookimpl
        def cartridge_infer(self, session, value):
            with session.context.peer.call(ECHO, value):
                eventually(lambda: inner.inside["inferring"])
            return Result(ResultKind.FINAL, "left")

    with registry_of(inner, Leaves()) as registry:
        assert registry.call("cap:leave", "x").payload == "left"
        eventually(lambda: registry.stats()["cancelled"] == 1)
        eventually(lambda: not inner.inside["inferring"])


def test_a_hundred_cancels_at_every_moment(gated):
    """However a cancel falls, the call ends in its result or in CancelledError."""
    fake = gated(max_concurrent_sessions=2)
    with registry_of(fake) as registry:
        ended: list[bool | None] = []
        for number in range(100):
            call = registry.stream(ECHO, f"{number}")
            threading.Timer(number * 0.00005, call.cancel).start()
            try:
                ended.append(call.result().payload == f"{number}")
            except CancelledError:
                ended.append(None)
        assert False not in ended
        registry.unload()
    assert fake.calls.count("session_begin") == fake.calls.count("session_end")
