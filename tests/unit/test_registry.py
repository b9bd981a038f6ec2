"""The registry: what it lists, opens and refuses, and what it reads at discovery."""

from __future__ import annotations

import gc
import hashlib
import json

import pytest

from cartridge_core.descriptor import Descriptor
from cartridge_core.discovery import Discovered, PluginSource
from cartridge_core.errors import (
    AbiMismatchError,
    BackendError,
    CancelledError,
    DiscoveryError,
    InvalidArgumentError,
    LoadError,
    NoRouteError,
    NoRouteReason,
    StateError,
    UnsupportedError,
    VerificationError,
)
from cartridge_core.hookspecs import hookimpl
from cartridge_core.offers import Offer
from cartridge_core.registry import Registry
from cartridge_core.reports import DiscoveryIssue
from cartridge_core.results import ResultKind
from cartridge_core.session import SessionState
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor
from cartridge_core.testing.fakes import BatchEcho, FailingEcho, SlowCounter, StreamingEcho
from cartridge_core.testing.registries import discovered_of, registry_of


def broken(load, name="broken"):
    """Give a discovery of one plugin whose module cannot be imported."""
    descriptor = fake_descriptor(f"{name}-text", caps=[fake_cap("broken")])
    source = PluginSource(
        name,
        f"cartridge-{name}",
        version="2.0",
        module=f"cartridge_{name}.plugin",
        descriptors=(descriptor,),
        load=load,
    )
    return Discovered((Offer(descriptor, name),), {name: source}, issues=())


def raises(error):
    def load():
        raise error

    return load


def test_descriptors_are_listed_by_id():
    """The registry gives every descriptor under its cartridge id, and nothing to change."""
    with registry_of(BatchEcho(), StreamingEcho()) as registry:
        assert list(registry.descriptors) == ["batch-echo-text", "streaming-echo-text"]
        with pytest.raises(TypeError):
            registry.descriptors["x"] = None  # type: ignore[index]


def test_route_takes_batch_and_stream_takes_streaming():
    """Where both modes are offered `call` and `route` take batch, `stream` streaming."""
    with registry_of(BatchEcho(), StreamingEcho()) as registry:
        assert registry.route("cap:echo").cartridge_id == "batch-echo-text"
        assert registry.route("cap:echo", "streaming").cartridge_id == "streaming-echo-text"
        assert registry.call("cap:echo", "x").cartridge_id == "batch-echo-text"
        with registry.stream("cap:echo", "x") as call:
            assert call.route.cartridge_id == "streaming-echo-text"


def test_error_a_mode_that_is_none_is_named():
    """A misspelt mode is an invalid argument, not an empty route."""
    with registry_of(BatchEcho()) as registry:
        with pytest.raises(InvalidArgumentError, match="'batch' or 'streaming'"):
            registry.route("cap:echo", "stream")


@pytest.mark.parametrize("spec", [["hf:a/b"], 3, b"hf:a/b", {"repo": "a/b"}])
def test_error_a_model_spec_that_is_no_text_is_named(spec):
    """A model spec of another type is an invalid argument, also one that cannot be hashed."""
    with registry_of(BatchEcho()) as registry:
        with pytest.raises(InvalidArgumentError, match="a model spec or a path is expected"):
            registry.call("cap:echo", "x", model_spec=spec)


@pytest.mark.parametrize("cap", [None, b"cap:echo", 3, ["cap:echo"]], ids=repr)
def test_error_a_cap_that_is_no_text_is_named(cap):
    """A request that is no cap URN at all is an invalid argument."""
    with registry_of(BatchEcho()) as registry:
        with pytest.raises(InvalidArgumentError, match="cap:generate-embeddings") as caught:
            registry.call(cap, "x")
    assert caught.value.arg == "cap"


def test_a_preference_may_be_one_name():
    """A name given alone is not taken letter by letter."""
    plugins = (BatchEcho(), FailingEcho("none"))
    with registry_of(*plugins) as registry:
        assert registry.route("cap:echo", prefer="failing-echo").plugin == "failing-echo"
    with registry_of(*plugins, prefer="failing-echo") as registry:
        assert registry.route("cap:echo").plugin == "failing-echo"


@pytest.mark.parametrize("prefer", [5, [3], [None, "x"]], ids=repr)
def test_error_preferences_that_are_no_names(prefer):
    """Preferences that are no texts are an invalid argument."""
    with registry_of(BatchEcho()) as registry:
        with pytest.raises(InvalidArgumentError, match="prefer is"):
            registry.call("cap:echo", "x", prefer=prefer)


@pytest.mark.parametrize("given", [5, ["x"], None, b"x"], ids=repr)
def test_error_a_cartridge_id_that_is_no_text(given):
    """What is no id is not found, and what is installed is said."""
    with registry_of(BatchEcho()) as registry:
        with pytest.raises(NoRouteError, match="installed: batch-echo-text"):
            registry.open(given)


def test_error_a_request_that_nothing_offers_points_to_the_doctor():
    """Where something cannot be used, even unreadable, an unserved request says where to look."""
    issue = DiscoveryIssue("cartridge-x", "1", what="descriptor x.json", why="no JSON", fix="Fix.")
    with Registry(Discovered((), {}, issues=(issue,))) as registry:
        with pytest.raises(NoRouteError, match="`cartridge doctor` says what"):
            registry.call("cap:anything", "x")


def test_the_registrys_preferences_come_after_the_calls():
    """A call's preference wins over the registry's."""
    plugins = (BatchEcho(), FailingEcho("none"))
    with registry_of(*plugins, prefer=["failing-echo"]) as registry:
        assert registry.route("cap:echo").cartridge_id == "failing-echo-text"
        assert registry.route("cap:echo", prefer=["batch-echo"]).plugin == "batch-echo"


def test_a_route_is_remembered():
    """The same request gives the same route again."""
    with registry_of(BatchEcho()) as registry:
        assert registry.route("cap:echo") is registry.route("cap:echo")


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ModuleNotFoundError("No module named 'no_such_native_lib'"), id="a03-import"),
        pytest.param(SystemExit("bye"), id="a03-system-exit"),
        pytest.param(OSError("libcuda.so.1: cannot open"), id="a03-missing-library"),
        pytest.param(SyntaxError("invalid syntax"), id="a03-syntax"),
        pytest.param(KeyboardInterrupt(), id="a03-keyboard-interrupt-on-a-host-thread"),
    ],
)
def test_error_a_plugin_that_fails_at_import_fails_alone(error):
    """This call gets LoadError; later ones see a plugin with an issue; others are untouched."""
    good = discovered_of(BatchEcho())
    bad = broken(raises(error))
    found = Discovered((*good.offers, *bad.offers), {**good.plugins, **bad.plugins}, issues=())
    with Registry(found) as registry:
        with pytest.raises(LoadError, match=r"cartridge-broken.*importing cartridge_broken.plugin"):
            registry.call("cap:broken", "x")
        with pytest.raises(NoRouteError, match=r"cartridge-broken 2\.0") as caught:
            registry.call("cap:broken", "x")
        assert caught.value.reason is NoRouteReason.DISCOVERY_ISSUE
        assert [issue.distribution for issue in registry.issues] == ["cartridge-broken"]
        assert list(registry.descriptors) == ["batch-echo-text"]
        assert registry.call("cap:echo", "x").payload == {"text": "x"}


def test_error_a_plugin_whose_hook_differs_from_its_files_is_refused():
    """The cartridge_descriptors hook must equal the static files."""

    class Liar(BatchEcho):
        @hookimpl
        def cartridge_descriptors(self):
            return (fake_descriptor("batch-echo-text", caps=[fake_cap("other")]),)

    found = discovered_of(BatchEcho())
    source = found.plugins["batch-echo"]
    liar = PluginSource(
        "batch-echo",
        source.distribution,
        version=None,
        module=source.module,
        descriptors=source.descriptors,
        load=Liar,
    )
    with Registry(Discovered(found.offers, {"batch-echo": liar}, issues=())) as registry:
        with pytest.raises(AbiMismatchError, match="differ for batch-echo-text"):
            registry.call("cap:echo", "x")
        assert len(registry.issues) == 1


def test_error_a_plugin_that_lacks_a_hook_of_its_mode_is_refused():
    """A missing hook is found when the plugin is activated, before anything is opened."""

    class NoInfer(BatchEcho):
        cartridge_infer = None  # type: ignore[assignment]

    with registry_of(NoInfer()) as registry:
        with pytest.raises(AbiMismatchError, match="lacks the hooks cartridge_infer"):
            registry.call("cap:echo", "x")


def test_a_session_by_hand():
    """Open, begin a session, infer, end, close."""
    echo = BatchEcho()
    with registry_of(echo) as registry:
        with registry.open("batch-echo-text", prefix="> ") as cartridge:
            with cartridge.session(upper=True) as session:
                assert session.infer("a").payload == {"text": "> A"}
                assert session.infer("b").payload == {"text": "> B"}
            assert session.state is SessionState.ENDED
        assert echo.calls[-1] == "close"


def test_a_streaming_session_by_hand():
    """Push, pull, flush and drain."""
    with (
        registry_of(StreamingEcho()) as registry,
        registry.open("streaming-echo-text") as cartridge,
        cartridge.session("cap:echo") as session,
    ):
        assert session.pull() is None
        session.push("a")
        session.push("b")
        session.flush()
        kinds = [result.kind for result in session.drain()]
        assert kinds == [ResultKind.PARTIAL, ResultKind.PARTIAL, ResultKind.FINAL]
        assert session.pull() is None


def test_an_opened_cartridge_is_closed_with_its_last_user():
    """Two that are open on the same options share one, and the last to close unloads it."""
    echo = BatchEcho()
    with registry_of(echo) as registry:
        first, second = registry.open("batch-echo-text"), registry.open("batch-echo-text")
        first.close()
        first.close()
        assert "close" not in echo.calls
        second.close()
        assert echo.calls.count("open") == echo.calls.count("close") == 1


def test_closing_a_cartridge_ends_its_sessions():
    """Sessions that were left open are ended before the cartridge is closed."""
    echo = BatchEcho()
    with registry_of(echo) as registry:
        cartridge = registry.open("batch-echo-text")
        session = cartridge.session()
        cartridge.close()
        assert session.state is SessionState.ENDED
        assert echo.calls[-2:] == ["session_end", "close"]
        with pytest.raises(StateError, match="is closed"):
            cartridge.session()


def drop(forgotten):
    forgotten.clear()
    gc.collect()


def test_what_was_forgotten_is_closed_with_the_registry():
    """A registry closes the cartridges and ends the sessions that nobody closed, in that order."""
    echo = BatchEcho()
    with registry_of(echo) as registry:
        registry.open("batch-echo-text").session()
    assert echo.calls[-3:] == ["session_begin", "session_end", "close"]


@pytest.mark.parametrize("hook", ["session_end", "close"])
def test_closing_goes_on_when_a_hook_fails(hook, caplog):
    """One session or cartridge that cannot be ended does not keep the others."""
    failing = FailingEcho(hook)
    with registry_of(failing) as registry:
        cartridge = registry.open("failing-echo-text")
        sessions = [cartridge.session() for _ in range(3)]
        if hook == "session_end":
            with pytest.raises(BackendError):
                cartridge.close()
    assert failing.calls.count("session_end") == 3
    assert failing.calls.count("close") == 1
    assert {session.state for session in sessions} == {SessionState.ENDED}
    assert hook == "session_end" or "closing failing-echo-text failed" in caplog.text


def test_error_a_forgotten_registry_warns():
    """A registry that is dropped open warns."""
    forgotten = [registry_of(BatchEcho())]
    with pytest.warns(ResourceWarning, match="was never closed"):
        drop(forgotten)


def test_error_an_unknown_id_names_what_is_installed():
    """Opening what is not there says what is."""
    with registry_of(BatchEcho()) as registry:
        with pytest.raises(NoRouteError, match="'nope'; installed: batch-echo-text"):
            registry.open("nope")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"prefix": 3}, "prefix", id="wrong-type"),
        pytest.param({"upper": True}, "no open argument 'upper'", id="a-session-argument"),
        pytest.param({"nope": 1}, "its open arguments: prefix", id="unknown"),
    ],
)
def test_error_open_takes_only_declared_open_arguments(options, words):
    """What takes effect at load is declared, and nothing else is taken."""
    with registry_of(BatchEcho()) as registry, pytest.raises(InvalidArgumentError, match=words):
        registry.open("batch-echo-text", **options)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        pytest.param({"upper": "x"}, "upper", id="wrong-type"),
        pytest.param({"prefix": "x"}, "takes effect at open", id="an-open-argument"),
        pytest.param({"uper": True}, "Did you mean upper", id="misspelt"),
        pytest.param({"main": "x"}, "pass it as the value", id="the-main-argument"),
    ],
)
def test_error_a_session_takes_only_declared_session_arguments(parameters, words):
    """What is not declared for a session is refused by name."""
    with registry_of(BatchEcho()) as registry, registry.open("batch-echo-text") as cartridge:
        with pytest.raises(InvalidArgumentError, match=words):
            cartridge.session(**parameters)


def test_a_cartridge_without_caps_is_opened_by_its_id():
    """No request reaches it; its session takes whatever it is given."""
    document = {**BatchEcho.descriptor.to_json(), "attributes": {"abi": "0.1", "hooks": 1}}

    class Capless(BatchEcho):
        descriptor = Descriptor.from_json(document)

    with registry_of(Capless()) as registry, registry.open("batch-echo-text") as cartridge:
        with pytest.raises(NoRouteError):
            registry.route("cap:echo")
        with cartridge.session() as session:
            assert session.infer("tea").payload == {"text": "tea"}
        with pytest.raises(UnsupportedError, match=r"does not offer cap:echo.*; it offers no cap"):
            cartridge.session("cap:echo")


def test_error_a_cap_the_cartridge_does_not_offer():
    """A session of another cap is refused, naming those offered."""
    with registry_of(BatchEcho()) as registry, registry.open("batch-echo-text") as cartridge:
        with pytest.raises(UnsupportedError, match=r"does not offer cap:other; it offers cap:echo"):
            cartridge.session("cap:other")


def test_error_a_cartridge_without_a_model_takes_none(tmp_path):
    """A pack for a cartridge that declares none is refused."""
    with registry_of(BatchEcho()) as registry:
        with pytest.raises(InvalidArgumentError, match="takes no model"):
            registry.open("batch-echo-text", tmp_path)


def test_preflight_is_a_value():
    """Preflight gives a report and opens nothing."""
    echo = BatchEcho()
    with registry_of(echo) as registry:
        report = registry.preflight("batch-echo-text", prefix="x")
    assert report.ok
    assert report.memory_bytes == 0
    assert "open" not in echo.calls


def test_preflight_of_a_missing_backend_says_what_to_type():
    """A backend that is not installed is a failed check, found without the plugin."""

    class Needs(BatchEcho):
        plugin_name = "needs"
        descriptor = fake_descriptor(
            "needs-it", backend={"distribution": "no-such-backend", "min_version": "2.0"}
        )

    needs = Needs()
    with registry_of(needs) as registry:
        report = registry.preflight("needs-it")
    assert not report.ok
    assert 'pip install "no-such-backend>=2.0"' in str(report)
    assert "preflight" not in needs.calls


def test_preflight_of_an_old_backend_names_both_versions():
    """A backend older than declared is a failed check with both versions."""

    class Needs(BatchEcho):
        plugin_name = "needs"
        descriptor = fake_descriptor(
            "needs-it", backend={"distribution": "pluggy", "min_version": "999.1"}
        )

    with registry_of(Needs()) as registry:
        (check,) = registry.preflight("needs-it").failures
    assert check.required == "pluggy>=999.1"
    assert check.found.startswith("pluggy 1.")


def test_a_default_model_spec_is_not_fetched_by_preflight():
    """Preflight looks at no model that is not on disk."""
    spec = {
        **fake_arg("model_spec", "string", default="hf:owner/repo"),
        "media_urn": "media:enc=utf-8;model-spec",
        "metadata": {"pack": True},
    }

    class Models(BatchEcho):
        plugin_name = "models"
        descriptor = fake_descriptor("models-text", caps=[fake_cap("echo", spec)])

    with registry_of(Models()) as registry:
        assert registry.preflight("models-text").ok


def test_error_cancel_after_which_only_end_works():
    """After cancel every call but end is refused."""
    with (
        registry_of(SlowCounter()) as registry,
        registry.open("slow-counter-batch") as cartridge,
        cartridge.session() as session,
    ):
        session.cancel()
        with pytest.raises(CancelledError):
            session.infer(1)
        with pytest.raises(CancelledError):
            session.infer(1)


def make_pack(folder, *, digest=None):
    """Make a full pack of `BatchEcho`'s cartridge, with one artifact."""
    caps = [fake_cap("echo", fake_arg("upper", "boolean", default=False))]
    document = fake_descriptor("my-pack", caps=caps, base="batch-echo-text").to_json()
    text = json.dumps(document).encode()
    model = folder / "artifacts" / "model" / "model.bin"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"weights")
    manifest = {
        "schema_version": "2",
        "kind": "cartridge",
        "id": "my-pack",
        "version": "0.1.0",
        "effective_license": "MIT",
        "descriptor_digest": f"sha256:{hashlib.sha256(text).hexdigest()}",
        "digest_alg": "sha256",
        "artifacts": [
            {
                "role": "model",
                "path": "artifacts/model/model.bin",
                "digest": f"sha256:{digest or hashlib.sha256(b'weights').hexdigest()}",
                "size": 7,
                "license": "MIT",
            }
        ],
    }
    (folder / "descriptor.json").write_bytes(text)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_pack_is_routed_to_and_opened_by_its_base(tmp_path):
    """A pack comes before its base, and the hooks are given the base's id."""
    seen = []

    class Notes(BatchEcho):
        @hookimpl
        def cartridge_open(self, cartridge_id, pack, options, context):
            seen.append((cartridge_id, [path.name for path in pack.files("model")]))
            return super().cartridge_open(cartridge_id, pack, options, context)

    with registry_of(Notes(), packs=[make_pack(tmp_path)]) as registry:
        result = registry.call("cap:echo", "hi")
    assert result.cartridge_id == "my-pack"
    assert seen == [("batch-echo-text", ["model.bin"])]


def test_error_a_pack_whose_bytes_differ_is_not_opened(tmp_path):
    """A digest that does not match fails before anything of the pack is loaded."""
    echo = BatchEcho()
    pack = make_pack(tmp_path, digest="0" * 64)
    with registry_of(echo, packs=[pack]) as registry:
        with pytest.raises(VerificationError, match=r"model\.bin"):
            registry.call("cap:echo", "hi")
        with pytest.raises(VerificationError, match=r"model\.bin"):
            registry.open("my-pack")
        assert "open" not in echo.calls
        assert registry.call("cap:echo", "hi", trust="off").cartridge_id == "my-pack"


def test_error_an_unsigned_pack_where_a_signature_is_required(tmp_path):
    """With trust required, by the registry or by the call, a pack must be signed."""
    found = discovered_of(BatchEcho(), packs=[make_pack(tmp_path)])
    with Registry(found, trust="required") as registry:
        with pytest.raises(VerificationError, match="sign"):
            registry.call("cap:echo", "hi")
    with Registry(found) as registry:
        with pytest.raises(VerificationError, match="sign"):
            registry.open("my-pack", trust="required")


def test_error_a_bare_model_where_a_signature_is_required(tmp_path):
    """A plain file has no manifest to be signed."""
    spec = {
        **fake_arg("model_spec", "string"),
        "media_urn": "media:enc=utf-8;model-spec",
        "metadata": {"pack": True},
    }

    class Reads(BatchEcho):
        plugin_name = "reads"
        descriptor = fake_descriptor("reads-text", caps=[fake_cap("echo", spec)])

    model = tmp_path / "model.bin"
    model.write_bytes(b"weights")
    with registry_of(Reads()) as registry:
        assert registry.call("cap:echo", "hi", model_spec=model).payload == {"text": "hi"}
        with pytest.raises(VerificationError, match="no manifest"):
            registry.call("cap:echo", "hi", model_spec=model, trust="required")


def test_error_a_trust_that_is_none_is_named():
    """A misspelt trust is refused, and does not mean off."""
    with registry_of(BatchEcho()) as registry:
        with pytest.raises(InvalidArgumentError, match="'required', 'if-signed', 'off'"):
            registry.call("cap:echo", "hi", trust="none")


@pytest.fixture
def empty_path(monkeypatch):
    """Leave nothing to discover."""
    monkeypatch.setattr("sys.path", [])
    for name in ("PLUGINS", "PACKS", "PREFER", "STRICT", "OFFLINE"):
        monkeypatch.delenv(f"CARTRIDGE_{name}", raising=False)


@pytest.mark.usefixtures("empty_path")
def test_discover_with_nothing_installed():
    """A registry of nothing says so, and its errors say what to install."""
    with Registry.discover() as registry:
        assert repr(registry) == "<Registry of 0 cartridges, 0 issues>"
        with pytest.raises(NoRouteError, match="pip install cartridge-torch"):
            registry.call("cap:generate-embeddings", "x")


@pytest.mark.usefixtures("empty_path")
def test_error_strict_turns_issues_into_an_error(monkeypatch, tmp_path):
    """CARTRIDGE_STRICT=1 raises what is otherwise listed."""
    missing = tmp_path / "nowhere"
    monkeypatch.setenv("CARTRIDGE_PACKS", str(missing))
    with Registry.discover() as registry:
        assert str(missing) in str(registry.issues[0])
    monkeypatch.setenv("CARTRIDGE_STRICT", "1")
    with pytest.raises(DiscoveryError, match="nowhere") as caught:
        Registry.discover()
    assert len(caught.value.issues) == 1


@pytest.mark.usefixtures("empty_path")
def test_a_plugin_name_that_nothing_has_is_an_issue(monkeypatch):
    """CARTRIDGE_PLUGINS that names nothing is said."""
    monkeypatch.setenv("CARTRIDGE_PLUGINS", "torch, typo")
    with Registry.discover() as registry:
        assert len(registry.issues) == 2
        assert "typo" in "".join(map(str, registry.issues))


def test_offline_is_read_at_discovery_and_told_to_cartridges():
    """A registry that was discovered offline tells every cartridge so."""
    seen = []

    class Asks(BatchEcho):
        @hookimpl
        def cartridge_open(self, cartridge_id, pack, options, context):
            seen.append(context.offline)
            return super().cartridge_open(cartridge_id, pack, options, context)

        @hookimpl
        def cartridge_session_begin(self, handle, cap, parameters, context):
            seen.append(context.offline)
            return super().cartridge_session_begin(handle, cap, parameters, context)

    with Registry(discovered_of(Asks()), offline=True) as registry:
        registry.call("cap:echo", "x")
        with registry.open("batch-echo-text") as cartridge:
            cartridge.session().end()
    assert set(seen) == {True}
