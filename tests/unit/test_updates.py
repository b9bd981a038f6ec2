"""Weights updates: the pinned base, who may sign one, and the gate they have to pass."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import partial
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cartridge_core.__main__ import main
from cartridge_core.errors import LoadError, VerificationError
from cartridge_core.manifest import verify
from cartridge_core.pack import Pack, Trust
from cartridge_core.signatures import signed_message
from cartridge_core.testing.descriptors import fake_descriptor
from cartridge_core.testing.fakes import BatchEcho
from cartridge_core.testing.registries import registry_of
from cartridge_core.updates import read_manifest, verify_update

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PUBLISHER = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
AGGREGATOR = Ed25519PrivateKey.from_private_bytes(bytes(32))
GOOD = {"dataset_digest": f"sha256:{'7' * 64}", "metric": "wer", "value": 0.14, "baseline": 0.15}


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def write(
    folder: Path, manifest: Mapping[str, object], signers: Mapping[str, Ed25519PrivateKey]
) -> None:
    """Write a manifest with the signatures of some."""
    entries = [
        {
            "keyid": keyid,
            "alg": "ed25519",
            "signer": keyid,
            "signature": base64.b64encode(key.sign(signed_message(manifest))).decode(),
            "signed_at": "2026-09-14T00:00:00Z",
        }
        for keyid, key in signers.items()
    ]
    (folder / "manifest.json").write_text(json.dumps({**manifest, "signatures": entries}))


class Fleet:
    """A signed base, an update of it, and a trust store with two roles."""

    def __init__(self, folder: Path) -> None:
        self.base, self.update, self.store = (
            folder / name for name in ("base", "update", "t.json")
        )
        for root in (self.base, self.update):
            root.mkdir()
            (root / "w.bin").write_bytes(root.name.encode())
        data = json.dumps(fake_descriptor("asr-tiny").to_json()).encode()
        (self.base / "descriptor.json").write_bytes(data)
        manifest = self.manifest(self.base, "0.1.0", kind="cartridge")
        write(self.base, {**manifest, "descriptor_digest": digest_of(data)}, {"pub": PUBLISHER})
        self.rewrite()
        keys = [
            self.key("pub", PUBLISHER, "publisher"),
            self.key("agg", AGGREGATOR, "aggregator"),
        ]
        self.store.write_text(json.dumps({"schema_version": "1", "keys": keys}))

    def key(self, keyid: str, key: Ed25519PrivateKey, role: str) -> dict[str, object]:
        public = base64.b64encode(key.public_key().public_bytes_raw()).decode()
        return {"keyid": keyid, "public_key": public, "roles": [role], "ids": ["asr-*"]}

    def manifest(self, root: Path, version: str, **fields: object) -> dict[str, object]:
        data = (root / "w.bin").read_bytes()
        artifact = {"role": "weights", "path": "w.bin", "digest": digest_of(data)}
        return {
            "schema_version": "2",
            "id": "asr-tiny",
            "version": version,
            "digest_alg": "sha256",
            "artifacts": [{**artifact, "size": len(data), "license": "MIT"}],
            **fields,
        }

    def pin(self, root: Path, **changes: object) -> dict[str, object]:
        found = read_manifest(root)
        pin = {"kind": found.kind, "id": found.id, "version": found.version, "digest": found.digest}
        return {**pin, **changes}

    def rewrite(
        self,
        *,
        evaluation: object = GOOD,
        pin: object = None,
        version: str = "0.2.0",
        signers: Mapping[str, Ed25519PrivateKey] | None = None,
        **fields: object,
    ) -> None:
        provenance = {} if evaluation is None else {"evaluation": evaluation}
        manifest = self.manifest(
            self.update,
            version,
            kind="weights-update",
            base=pin or self.pin(self.base),
            provenance=provenance,
        )
        write(self.update, {**manifest, **fields}, signers or {"agg": AGGREGATOR})

    def verify(self, *bases: Path) -> None:
        verify_update(self.update, bases or [self.base], Trust.REQUIRED, self.store)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """An update that is right."""
    monkeypatch.setenv("CARTRIDGE_CACHE", str(tmp_path / "cache"))
    return Fleet(tmp_path)


@pytest.mark.parametrize("who", ["pub", "agg"])
def test_publisher_and_aggregator_may_sign_an_update(fleet: Fleet, who: str) -> None:
    """A base is the publisher's, an update may be the aggregator's."""
    fleet.rewrite(signers={who: PUBLISHER if who == "pub" else AGGREGATOR})
    fleet.verify()


def test_error_aggregator_signs_a_cartridge(fleet: Fleet) -> None:
    """Who may train may not replace what runs."""
    manifest = json.loads((fleet.base / "manifest.json").read_text())
    manifest.pop("signatures")
    write(fleet.base, manifest, {"agg": AGGREGATOR})
    with pytest.raises(
        VerificationError, match=r"role aggregator .* a cartridge is signed by a pub"
    ):
        fleet.verify()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"digest": f"sha256:{'0' * 64}"}, r"\$\.base\.digest: is \"sha256:0+\", and that of the"),
        ({"version": "0.1.1"}, r"\$\.base\.version: is \"0\.1\.1\", and that of the base here is"),
        ({"id": "asr-other"}, r"\$\.base\.id: is \"asr-other\""),
        ({"kind": "weights-update"}, r"\$\.base\.kind: is \"weights-update\""),
        ({"digest": "7777"}, r"\$\.base\.digest: must be \"sha256:\""),
        ({"tag": "latest"}, r"\$\.base\.tag: is no key here"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_error_another_base_than_the_pinned_one(
    fleet: Fleet, changes: Mapping[str, object], words: str
) -> None:
    """An update applies to one base, and that is told by its digest."""
    fleet.rewrite(pin=fleet.pin(fleet.base, **changes))
    with pytest.raises(VerificationError, match=words):
        fleet.verify()


def test_error_base_that_changed_under_its_manifest(fleet: Fleet) -> None:
    """The base is verified too: a pin is worth what is behind it."""
    (fleet.base / "w.bin").write_bytes(b"evil")
    with pytest.raises(VerificationError, match=r"base: file 'w\.bin'"):
        fleet.verify()


def test_error_update_without_its_base(fleet: Fleet) -> None:
    """Nothing is said of an update alone; the error names what to fetch."""
    with pytest.raises(VerificationError, match=r"nowhere: asr-tiny 0\.1\.0 \(sha256:.*--base"):
        verify_update(fleet.update, [], Trust.REQUIRED, fleet.store)


def test_an_update_of_an_update_is_followed_to_the_pack(fleet: Fleet, tmp_path: Path) -> None:
    """Each pins the one before it."""
    first = fleet.update
    fleet.update = tmp_path / "second"
    fleet.update.mkdir()
    (fleet.update / "w.bin").write_bytes(b"second")
    fleet.rewrite(pin=fleet.pin(first), version="0.3.0")
    with pytest.raises(VerificationError, match="it is checked against what it updates"):
        fleet.verify(first)
    with pytest.raises(VerificationError, match="is a pack, and updates nothing"):
        fleet.verify(first, fleet.base, fleet.base)
    fleet.verify(first, fleet.base)


@pytest.mark.parametrize("version", ["0.1.0", "0.0.9", "0.1.0-rc.1"])
def test_error_update_that_is_not_newer(fleet: Fleet, version: str) -> None:
    """An update has a newer version than its base."""
    fleet.rewrite(version=version)
    with pytest.raises(VerificationError, match=r"\$\.version: must be newer than 0\.1\.0"):
        fleet.verify()


def test_error_update_of_another_id(fleet: Fleet) -> None:
    """An update has its base's id."""
    fleet.rewrite(id="asr-other")
    with pytest.raises(VerificationError, match=r'\$\.id: must be "asr-tiny", that of its base'):
        fleet.verify()


GATES = [
    pytest.param(None, r"evaluation: is missing", id="unmeasured"),
    pytest.param({"value": 0.16}, r"\"wer\" is 0\.16, and was 0\.15 before", id="worse"),
    pytest.param({"metric": "f1", "value": 0.14}, "may be worse; a waiver has to", id="lower-f1"),
    pytest.param({"metric": "zeal", "value": 0.2}, "may be worse", id="unknown-metric-up"),
    pytest.param({"metric": "zeal", "value": 0.1}, "may be worse", id="unknown-metric-down"),
    pytest.param({"value": 0.16, "waiver": ""}, "waiver: must be a string", id="empty-waiver"),
    pytest.param({"value": 0.16, "waiver": " \n"}, "a waiver has to say why", id="blank-waiver"),
    pytest.param({"value": "0.1"}, "value: must be a number", id="text"),
    pytest.param({"value": True}, "value: must be a number", id="bool"),
    pytest.param({"value": 10**400}, "may be worse", id="huge"),
    pytest.param({"dataset_digest": "x"}, "dataset_digest: must be", id="data-unpinned"),
    pytest.param({"wer": 0.1}, "wer: is no key here", id="other-key"),
]


@pytest.mark.parametrize(("changes", "words"), GATES)
def test_error_update_that_does_not_pass_the_gate(
    fleet: Fleet, changes: Mapping[str, object] | None, words: str
) -> None:
    """An update is measured on pinned data, and is no worse or says why it ships."""
    fleet.rewrite(evaluation=None if changes is None else {**GOOD, **changes})
    with pytest.raises(VerificationError, match=words):
        fleet.verify()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"value": 0.15}, id="equal"),
        pytest.param({"metric": "WER"}, id="upper-case"),
        pytest.param({"metric": "accuracy", "value": 0.9}, id="higher-accuracy"),
        pytest.param({"value": 0.2, "waiver": "a licence forces it"}, id="waived"),
        pytest.param({"metric": "zeal", "value": 0.15}, id="unknown-metric-equal"),
    ],
)
def test_update_that_passes_the_gate(fleet: Fleet, changes: Mapping[str, object]) -> None:
    """No worse, or with a reason."""
    fleet.rewrite(evaluation={**GOOD, **changes})
    fleet.verify()


@pytest.mark.parametrize("name", ["descriptor.json", "extra.bin"])
def test_error_unlisted_file_of_an_update(fleet: Fleet, name: str) -> None:
    """An update without a descriptor's digest has no descriptor."""
    (fleet.update / name).write_text("{}")
    with pytest.raises(VerificationError, match=f"file '{name}' is not listed"):
        fleet.verify()


def test_an_update_may_bring_a_descriptor(fleet: Fleet) -> None:
    """Where it has new figures; then the digest counts."""
    (fleet.update / "descriptor.json").write_text("{}")
    fleet.rewrite(descriptor_digest=digest_of(b"{}"))
    fleet.verify()
    fleet.rewrite(descriptor_digest=digest_of(b"{ }"))
    with pytest.raises(VerificationError, match=r"\$\.descriptor_digest: must be that of"):
        fleet.verify()


def test_error_update_is_nothing_to_open(fleet: Fleet) -> None:
    """Its files alone are no model."""
    with pytest.raises(LoadError, match="is a weights update, which cannot be opened"):
        Pack.from_path(fleet.update)


def test_error_update_with_a_descriptor_is_nothing_to_open_either(fleet: Fleet) -> None:
    """A descriptor makes no cartridge of it."""
    data = (fleet.base / "descriptor.json").read_bytes()
    (fleet.update / "descriptor.json").write_bytes(data)
    fleet.rewrite(descriptor_digest=digest_of(data), signers={"pub": PUBLISHER})
    with pytest.raises(VerificationError, match=r'\$\.kind: must be "cartridge"; a weights update'):
        verify(Pack.from_path(fleet.update), Trust.IF_SIGNED, fleet.store)


def test_error_older_update_after_a_newer_one(fleet: Fleet) -> None:
    """The floor is one for bases and updates."""
    fleet.rewrite(version="0.3.0")
    fleet.verify()
    fleet.rewrite(version="0.2.0")
    with pytest.raises(VerificationError, match=r"must be at least 0\.3\.0, which was accepted"):
        fleet.verify()


def test_command_line(fleet: Fleet, monkeypatch, capfd) -> None:
    """``pack verify --base`` checks an update, ``pack inspect`` shows its gate."""
    monkeypatch.setenv("CARTRIDGE_TRUST", str(fleet.store))
    run = partial(main, make_registry=partial(registry_of, BatchEcho()))
    assert run(["pack", "verify", str(fleet.update)]) == 14
    assert run(["pack", "verify", str(fleet.base), "--base", str(fleet.base)]) == 2
    capfd.readouterr()
    assert run(["pack", "verify", str(fleet.update), "--base", str(fleet.base)]) == 0
    assert "signed by agg" in capfd.readouterr().out
    assert run(["pack", "inspect", str(fleet.update)]) == 0
    shown = capfd.readouterr().out
    assert "wer 0.15 -> 0.14" in shown
    monkeypatch.setenv("CARTRIDGE_PACKS", f"/nowhere:{fleet.base.parent}")
    assert run(["pack", "verify", str(fleet.update)]) == 0
    assert "cartridge asr-tiny 0.1.0 sha256:" in shown
