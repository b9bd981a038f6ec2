"""Native cartridges are packs: made, signed, verified, discovered, routed to, and opened."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import native_packs
import numpy as np  # noqa: TID253 -- arrays are what they take
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cartridge_core import Registry
from cartridge_core.__main__ import main
from cartridge_core.errors import (
    AbiMismatchError,
    InvalidArgumentError,
    LoadError,
    NoRouteError,
    StateError,
    UnsupportedError,
    VerificationError,
)
from cartridge_core.records import Record
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing import BatchEcho, fake_cap, fake_descriptor, registry_of
from cartridge_core.testing.background import Background
from cartridge_native import plugin

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import MakePack

FEATURES = "cap:extract-features;in=media:audio;out=media:audio-features"
SPEECH = 'cap:detect-speech;in=media:audio;out="media:speech-segment"'
RATE_HZ = 16_000


class Detector(BatchEcho):
    """A cartridge in Python that offers what the endpointer does, as a batch."""

    plugin_name = "detector"
    descriptor = fake_descriptor(
        "detector-python",
        caps=[
            fake_cap(
                "detect-speech",
                takes="media:audio",
                gives="media:enc=utf-8;record;speech-segment",
            )
        ],
    )


def tone(seconds: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Give a sine of 1 kHz and amplitude 0.5, float32, shape ``(samples,)``."""
    at = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    return (0.5 * np.sin(2 * np.pi * 1000 * at)).astype(np.float32)


def test_features_are_those_of_numpy(log_energies: Path) -> None:
    """The log of the mean square and the changes of sign, for every whole frame of 10 ms."""
    sound = np.random.default_rng(0).uniform(-0.5, 0.5, 1700).astype(np.float32)
    frames = sound[:1600].reshape(10, 160)
    energies = np.log(np.mean(np.square(frames, dtype=np.float64), axis=1))
    crossings = np.sum(np.diff(frames < 0, axis=1), axis=1)
    with registry_of(plugin, packs=[log_energies]) as registry:
        features = registry.call(FEATURES, sound).payload
    assert isinstance(features, np.ndarray)
    assert (features.dtype, features.shape) == (np.float32, (10, 2))
    assert np.allclose(features, np.stack([energies, crossings], axis=1), rtol=1e-5)


def test_a_large_array_is_read_where_it_stands(log_energies: Path) -> None:
    """Above some size it is lent, not copied; what comes of it is the same."""
    sound = np.random.default_rng(1).uniform(-0.5, 0.5, 160 * 200).astype(np.float32)
    with registry_of(plugin, packs=[log_energies], isolation="inline") as registry:
        whole = registry.call(FEATURES, sound).payload
        parts = [registry.call(FEATURES, part).payload for part in np.split(sound, 4)]
    assert np.array_equal(whole, np.concatenate(parts))  # type: ignore[arg-type]


def test_endpointer_says_when_sound_was(endpointer: Path) -> None:
    """PARTIALs while it lasts, then ENDPOINT and FINAL with the same times, segment by segment."""
    silence = np.zeros(RATE_HZ // 2, np.float32)
    sound = np.concatenate([silence, tone(1.2), silence, tone(0.6)])
    pcm = (sound * 32767).astype(np.int16)
    with registry_of(plugin, packs=[endpointer]) as registry:
        call = registry.stream(SPEECH, iter(np.array_split(pcm, 40)))
        results = [event for event in call if isinstance(event, Result)]
    told = [(one.kind.name, one.segment, one.start_s, one.end_s) for one in results]
    assert told == [
        ("PARTIAL", 0, None, None),
        ("PARTIAL", 0, None, None),
        ("ENDPOINT", 0, 0.5, 1.7),
        ("FINAL", 0, 0.5, 1.7),
        ("PARTIAL", 1, None, None),
        ("ENDPOINT", 1, 2.2, 2.8),
        ("FINAL", 1, 2.2, 2.8),
    ]
    final = results[3].payload
    assert isinstance(final, Record)
    assert (final["start_s"], final["end_s"]) == (0.5, 1.7)
    assert final["peak"] == pytest.approx(0.5, abs=1e-3)


def test_an_endpoint_without_words_ends_where_the_input_does(
    make_native_pack: MakePack, tmp_path: Path
) -> None:
    """A library whose ENDPOINT is empty: the host says what it has pushed."""
    pack = make_native_pack("endpointer", tmp_path, "-DSILENT_ENDPOINT")
    pcm = (np.concatenate([tone(0.3), np.zeros(RATE_HZ // 2)]) * 32767).astype(np.int16)
    with (
        registry_of(plugin, packs=[pack], isolation="inline") as registry,
        registry.open("native-endpointer") as cartridge,
        cartridge.session() as session,
    ):
        session.push(pcm)
        ended = session.pull()
    assert ended is not None
    assert (ended.kind, ended.start_s, ended.end_s) == (ResultKind.ENDPOINT, None, 0.8)


@pytest.fixture
def signed(
    log_energies: Path, endpointer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[Path]:
    """Both samples packed and signed by the command line, and a trust store with the key."""
    monkeypatch.setenv("CARTRIDGE_TRUST", str(tmp_path / "trust.json"))
    monkeypatch.setenv("CARTRIDGE_CACHE", str(tmp_path / "cache"))
    key = Ed25519PrivateKey.generate()
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, form, plain)
    (tmp_path / "key.pem").write_bytes(pem)
    public = base64.b64encode(key.public_key().public_bytes_raw()).decode()
    trusted = {"keyid": "me", "public_key": public, "roles": ["publisher"], "ids": ["native-*"]}
    (tmp_path / "trust.json").write_text(json.dumps({"schema_version": "1", "keys": [trusted]}))
    packs = []
    for made in (log_energies, endpointer):
        pack = tmp_path / "packs" / made.parent.name
        assert main(["pack", "new", str(made.parent / "made"), str(pack)]) == 0
        words = ["--key", str(tmp_path / "key.pem"), "--keyid", "me"]
        assert main(["pack", "sign", str(pack), *words]) == 0
        assert main(["pack", "verify", "--trust", "required", str(pack)]) == 0
        packs.append(pack)
    return packs


def test_signed_packs_are_found_and_routed_to(
    signed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Discovery finds the installed plugin and the packs, and verifies them before they run."""
    monkeypatch.setenv("CARTRIDGE_PLUGINS", "native")
    with Registry.discover(packs=[signed[0].parent], trust="required") as registry:
        assert registry.issues == ()
        assert sorted(registry.descriptors) == ["native-endpointer", "native-log-energies"]
        assert {offer.plugin for offer in registry.offers} == {"native"}
        features = registry.call(FEATURES, tone(0.02)).payload
        assert isinstance(features, np.ndarray)
        assert features.shape == (2, 2)
        assert registry.loaded()[0].pid is not None


def test_error_a_changed_library_does_not_run(
    signed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an open nor a preflight, which would run it, gets past the verification."""
    monkeypatch.setenv("CARTRIDGE_PLUGINS", "native")
    library = signed[0] / "artifacts" / "runtime" / "liblog_energies.so"
    data = bytearray(library.read_bytes())
    data[-1] ^= 1
    library.write_bytes(data)
    with Registry.discover(packs=[signed[0]], isolation="inline") as registry:
        with pytest.raises(VerificationError):
            registry.open("native-log-energies")
        with pytest.raises(VerificationError):
            registry.preflight("native-log-energies")


def test_routes_by_cap_and_mode_beside_python(log_energies: Path, endpointer: Path) -> None:
    """A request goes to the cartridge that offers it, in the mode that is asked for."""
    packs = [log_energies, endpointer]
    with registry_of(plugin, Detector(), packs=packs) as registry:
        assert registry.route(FEATURES).cartridge_id == "native-log-energies"
        assert registry.route(SPEECH, "batch").cartridge_id == "detector-python"
        assert registry.route(SPEECH, "streaming").cartridge_id == "native-endpointer"
        with pytest.raises(NoRouteError):
            registry.route(FEATURES, "streaming")


def test_a_pack_without_caps_is_opened_by_id(make_native_pack: MakePack, tmp_path: Path) -> None:
    """As upstream's are: routed to by no request, its ports say what goes in and out."""
    descriptor = native_packs.described("log_energies")
    attributes = descriptor["attributes"]
    assert isinstance(attributes, dict)
    del attributes["caps"], attributes["abi"]
    pack = make_native_pack("log_energies", tmp_path, stated=descriptor)
    with registry_of(plugin, packs=[pack], isolation="inline") as registry:
        with pytest.raises(NoRouteError):
            registry.route(FEATURES)
        with registry.open("native-log-energies") as cartridge, cartridge.session() as session:
            features = session.infer(tone(0.02)).payload
        with (
            registry.open("native-log-energies") as cartridge,
            pytest.raises(UnsupportedError, match="offers no cap"),
        ):
            cartridge.session(FEATURES)
    assert isinstance(features, np.ndarray)
    assert features.shape == (2, 2)


@pytest.mark.parametrize(
    ("stated", "process"),
    [
        pytest.param({}, True, id="silent"),
        pytest.param({"isolation": "inline"}, False, id="inline"),
        pytest.param({"isolation": "process"}, True, id="process"),
    ],
)
def test_a_library_runs_in_a_process_unless_it_says_otherwise(
    stated: dict[str, object], process: bool, make_native_pack: MakePack, tmp_path: Path
) -> None:
    """What the descriptor does not say is `process` for libraries."""
    descriptor = native_packs.described("broken")
    attributes = descriptor["attributes"]
    assert isinstance(attributes, dict)
    attributes.update(stated)
    pack = make_native_pack("broken", tmp_path, stated=descriptor)
    with registry_of(plugin, packs=[pack]) as registry:
        registry.call("cap:echo", "tea")
        assert (registry.loaded()[0].pid is not None) is process


def test_error_a_pack_with_two_libraries(make_native_pack: MakePack, tmp_path: Path) -> None:
    """Which one is the cartridge nobody says."""
    make_native_pack("broken", tmp_path)
    (tmp_path / "made" / "artifacts" / "runtime" / "more.so").write_bytes(b"")
    assert main(["pack", "new", str(tmp_path / "made"), str(tmp_path / "two")]) == 0
    registry = registry_of(plugin, packs=[tmp_path / "two"], isolation="inline")
    with registry, pytest.raises(LoadError, match="2 artifacts have the role runtime"):
        registry.open("native-broken")


def test_error_arguments_that_the_abi_cannot_carry(
    make_native_pack: MakePack, tmp_path: Path
) -> None:
    """A declared argument that would be dropped in silence is refused before the open."""
    descriptor = native_packs.described("broken")
    louder = {
        "name": "louder",
        "media_urn": "media:bool;enc=utf-8;louder",
        "required": False,
        "sources": [{"cli_flag": "--louder"}],
        "default_value": True,
        "metadata": {"schema": {"type": "boolean"}},
    }
    descriptor["attributes"]["caps"][0]["args"].append(louder)  # type: ignore[index]
    pack = make_native_pack("broken", tmp_path, stated=descriptor)
    registry = registry_of(plugin, packs=[pack], isolation="inline")
    with registry, pytest.raises(AbiMismatchError, match=r"declares louder; ABI 0\.1 carries"):
        registry.open("native-broken")


def test_error_a_native_cartridge_needs_a_pack() -> None:
    """The plugin has no cartridge of its own."""
    with pytest.raises(InvalidArgumentError, match="a native cartridge is a pack"):
        plugin.cartridge_preflight("native-any", None, {})
    assert plugin.cartridge_descriptors() == ()


def test_one_session_is_for_one_thread(make_native_pack: MakePack, tmp_path: Path) -> None:
    """The ABI leaves two at once undefined; the host refuses the second by name."""
    pack = make_native_pack("broken", tmp_path, "-DBROKEN=SLOW")
    registry = registry_of(plugin, packs=[pack], isolation="inline")
    with registry, registry.open("native-broken") as cartridge, cartridge.session() as session:
        inside = Background(lambda: session.infer("tea"))
        while not session._inside.locked():
            pass
        with pytest.raises(StateError, match="one thread at a time"):
            session.infer("tea")
        session.cancel()
        inside.join(10.0)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        pytest.param(["--id", "other"], 2, id="id"),
        pytest.param(["--license", "MIT"], 2, id="license"),
        pytest.param(["--version", "2.0.0"], 2, id="version"),
    ],
)
def test_error_pack_new_takes_no_facts_beside_a_descriptor(
    words: list[str], status: int, log_energies: Path, tmp_path: Path
) -> None:
    """What the descriptor says is not said twice."""
    made = log_energies.parent / "made"
    assert main(["pack", "new", str(made), str(tmp_path / "pack"), *words]) == status
    assert not (tmp_path / "pack").exists()
