"""Signatures of a manifest, and the trust store that says whose count."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cartridge_core.digests import Digests
from cartridge_core.errors import VerificationError
from cartridge_core.manifest import verify
from cartridge_core.pack import Pack, Trust
from cartridge_core.signatures import TrustStore, signed_message, trust_file

if TYPE_CHECKING:
    from pathlib import Path

DESCRIPTOR = {
    "spec_version": "0.3",
    "id": "tts-tiny",
    "version": "1.2.0",
    "family": "tiny",
    "modality": "audio",
    "task": "tts",
    "io": {"mode": "batch", "input": {"dtype": "utf8"}, "output": {"dtype": "float32"}},
    "target": {"hardware": "any", "abi": "any"},
    "performance": {"measured_on": "unmeasured"},
    "execution_mode": "native",
    "license": "MIT",
}
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
BASE64_OF_64 = base64.b64encode(bytes(64)).decode()


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def raw(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def canonical(manifest: dict[str, object]) -> bytes:
    """Give what is signed, spelt out as the manifest's schema has it, not by our own code."""
    unsigned = {name: value for name, value in manifest.items() if name != "signatures"}
    text = json.dumps(unsigned, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest().encode()


def signature(data: bytes, **changes: object) -> dict[str, object]:
    entry: dict[str, object] = {"keyid": "pub", "alg": "ed25519", "signer": "A publisher"}
    entry |= {"signature": base64.b64encode(data).decode(), "signed_at": "2026-09-14T00:00:00Z"}
    return {**entry, **changes}


class Signed:
    """A pack and a trust store on disk, and what may be done to both."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "pack"
        self.store = folder / "trust.json"
        self.root.mkdir()
        (self.root / "a.bin").write_bytes(b"weights")
        descriptor = json.dumps(DESCRIPTOR).encode()
        (self.root / "descriptor.json").write_bytes(descriptor)
        artifact = {"role": "model", "path": "a.bin", "size": 7, "license": "MIT"}
        self.manifest: dict[str, object] = {
            "schema_version": "2",
            "kind": "cartridge",
            "id": "tts-tiny",
            "version": "1.2.0",
            "descriptor_digest": digest_of(descriptor),
            "digest_alg": "sha256",
            "artifacts": [{**artifact, "digest": digest_of(b"weights")}],
            "provenance": {
                "producer": "Zoë \U0001f600",
                "built_at": "2026",
                "training": {"dp_epsilon": 1e16},
            },
        }
        self.sign(signature(PRIVATE.sign(canonical(self.manifest))))
        self.trust(self.key())

    def key(self, **changes: object) -> dict[str, object]:
        entry = {"keyid": "pub", "public_key": raw(PRIVATE), "roles": ["publisher"], "ids": ["*"]}
        return {**entry, **changes}

    def sign(self, *signatures: dict[str, object]) -> None:
        self.manifest["signatures"] = list(signatures)
        self.write()

    def set_version(self, version: str) -> None:
        descriptor = json.dumps({**DESCRIPTOR, "version": version}).encode()
        (self.root / "descriptor.json").write_bytes(descriptor)
        self.manifest |= {"version": version, "descriptor_digest": digest_of(descriptor)}
        self.sign(signature(PRIVATE.sign(canonical(self.manifest))))

    def write(self) -> None:
        (self.root / "manifest.json").write_text(json.dumps(self.manifest, indent=1))

    def trust(self, *keys: dict[str, object], **fields: object) -> None:
        document = {"schema_version": "1", "keys": list(keys), **fields}
        self.store.write_text(json.dumps(document))

    def verify(self, trust: Trust = Trust.IF_SIGNED) -> None:
        verify(Pack.from_path(self.root), trust, self.store)


@pytest.fixture
def signed(tmp_path: Path) -> Signed:
    """A pack signed by a key that the trust store knows."""
    return Signed(tmp_path)


def test_error_field_changed_after_signing(signed: Signed) -> None:
    """Every field counts, also one that no check reads."""
    signed.manifest["effective_license"] = "MIT"
    signed.write()
    words = r'signatures\[0\]\.signature: does not match: .* after "pub" signed it'
    with pytest.raises(VerificationError, match=words):
        signed.verify()


def test_error_signature_is_checked_before_any_hash(
    signed: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signature costs less than reading gigabytes."""
    monkeypatch.setattr(Digests, "_hashed", lambda *_: pytest.fail("a file was hashed"))
    signed.sign(signature(bytes(64)))
    with pytest.raises(VerificationError, match="does not match"):
        signed.verify()


def test_error_signed_by_another_key_of_the_same_name(signed: Signed) -> None:
    """The keyid is a name only; the trust store has the key."""
    signed.sign(signature(OTHER.sign(canonical(signed.manifest))))
    with pytest.raises(VerificationError, match="does not match"):
        signed.verify()


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(lambda text: bytes.fromhex(text.decode()), id="raw-digest"),
        pytest.param(lambda text: b"sha256:" + text, id="prefixed-digest"),
        pytest.param(lambda text: text + b"\n", id="line-end"),
    ],
)
def test_error_signature_over_something_else(signed: Signed, message) -> None:
    """What is signed is the 64 hex digits as ASCII and nothing else."""
    signed.sign(signature(PRIVATE.sign(message(canonical(signed.manifest)))))
    with pytest.raises(VerificationError, match="does not match"):
        signed.verify()


@pytest.mark.parametrize("bad_first", [True, False], ids=["bad-first", "bad-last"])
def test_error_one_of_two_signatures_is_bad(signed: Signed, bad_first: bool) -> None:
    """Every signature must match; a good one does not excuse a bad one."""
    signed.trust(signed.key(), signed.key(keyid="other", public_key=raw(OTHER)))
    good = signature(PRIVATE.sign(canonical(signed.manifest)))
    bad = signature(PRIVATE.sign(canonical(signed.manifest)), keyid="other")
    signed.sign(*([bad, good] if bad_first else [good, bad]))
    words = rf'signatures\[{int(not bad_first)}\]\.signature: does not match.*"other"'
    with pytest.raises(VerificationError, match=words):
        signed.verify(Trust.REQUIRED)


def test_error_unknown_key(signed: Signed) -> None:
    """A signature by a key that the store does not have fails, whatever the trust asked for."""
    signed.trust(signed.key(keyid="someone-else"))
    words = rf'keyid: "pub" is no key of the trust store {signed.store}; add it there if you'
    with pytest.raises(VerificationError, match=words):
        signed.verify()


def test_error_unknown_key_beside_a_known_one(signed: Signed) -> None:
    """One known signer does not make an unknown one known."""
    known = signature(PRIVATE.sign(canonical(signed.manifest)))
    signed.sign(known, {**known, "keyid": "unknown"})
    with pytest.raises(VerificationError, match=r'signatures\[1\]\.keyid: "unknown" is no key'):
        signed.verify(Trust.REQUIRED)


def test_error_no_trust_store(signed: Signed) -> None:
    """Without a store no key is known; the error says that the file is not there."""
    signed.store.unlink()
    with pytest.raises(VerificationError, match=r"trust\.json, which does not exist"):
        signed.verify()


def test_error_key_that_may_not_sign_this_cartridge(signed: Signed) -> None:
    """A key signs the ids that it is trusted for."""
    signed.trust(signed.key(ids=["asr-*", "tts-tin"]))
    words = r'keyid: "pub" may sign asr-\*, tts-tin, says .*, and this is tts-tiny'
    with pytest.raises(VerificationError, match=words):
        signed.verify()


def test_error_key_of_another_role(signed: Signed) -> None:
    """A key for weight updates signs no cartridge."""
    signed.trust(signed.key(roles=["aggregator"]))
    words = r'"pub" has the role aggregator in .*, and a cartridge is signed by a publisher'
    with pytest.raises(VerificationError, match=words):
        signed.verify()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alg": "rsa"}, r'alg: must be "ed25519", found "rsa"'),
        ({"alg": None}, r'alg: must be "ed25519", found null'),
        ({"keyid": ""}, "keyid: must be a string that is not empty"),
        ({"signer": 1}, "signer: must be a string"),
        ({"signed_at": 1}, "signed_at: must be a string"),
        ({"signature": "AAAA"}, "signature: must be the base64 of 64 bytes"),
        ({"signature": "*" * 88}, "signature: must be the base64 of 64 bytes"),
        ({"signature": f"{BASE64_OF_64[:4]}\n{BASE64_OF_64[4:]}"}, "signature: must be the base64"),
        ({"signature": "é"}, "signature: must be the base64 of 64 bytes"),
        ({"public_key": "x"}, "public_key: is no key here"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_error_malformed_signature(signed: Signed, changes, words: str) -> None:
    """Every field of a signature has a rule, and the error names both."""
    signed.sign(signature(bytes(64), **changes))
    with pytest.raises(VerificationError, match=rf"manifest\.json: \$\.signatures\[0\]\.{words}"):
        signed.verify()


def test_error_cryptography_is_missing(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signed pack without the package to check it fails, and the error says what to type."""
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(VerificationError, match=r'`pip install "cartridge-core\[sign\]"`'):
        signed.verify()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", r"\$: is not JSON"),
        ('{"schema_version": "1", "keys": [], "keys": []}', r"\$\.keys: this key stands twice"),
        ('{"schema_version": "1"}', r"\$\.keys: is missing"),
        ('{"schema_version": "2", "keys": []}', r'\$\.schema_version: must be "1"'),
        ('{"schema_version": "1", "keys": {}}', r"\$\.keys: must be an array"),
        ('{"schema_version": "1", "keys": [], "key": 1}', r"\$\.key: is no key here"),
    ],
    ids=["no-json", "key-twice", "no-keys", "other-schema", "no-array", "unknown-key"],
)
def test_error_malformed_trust_store(signed: Signed, text: str, words: str) -> None:
    """A trust store is read strictly; the error names the file."""
    signed.store.write_text(text)
    with pytest.raises(VerificationError, match=rf"^trust store {signed.store}: {words}"):
        signed.verify()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"keyid": 1}, "keyid: must be a string"),
        ({"public_key": base64.b64encode(bytes(31)).decode()}, "public_key: .*base64 of 32 bytes"),
        ({"public_key": "-----BEGIN"}, "public_key: must be the base64 of 32 bytes"),
        ({"roles": []}, "roles: must be there and not be empty"),
        ({"roles": ["king"]}, 'roles: must be of publisher and aggregator, found "king"'),
        ({"ids": []}, "ids: must be there and not be empty"),
        ({"ids": "*"}, "ids: must be an array"),
        ({"expires": "x"}, "expires: is no key here"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_error_malformed_key(signed: Signed, changes, words: str) -> None:
    """Every field of a key has a rule, and the error names both."""
    signed.trust(signed.key(**changes))
    with pytest.raises(VerificationError, match=rf"trust\.json: \$\.keys\[0\]\.{words}"):
        signed.verify()


def test_error_two_keys_of_one_name(signed: Signed) -> None:
    """A keyid means one key."""
    signed.trust(signed.key(), signed.key(public_key=raw(OTHER)))
    with pytest.raises(VerificationError, match=r"keys\[1\]\.keyid: stands here twice"):
        signed.verify()


def test_error_trust_store_that_cannot_be_read(signed: Signed) -> None:
    """A folder in the store's place is an error, not a store without keys."""
    signed.store.unlink()
    signed.store.mkdir()
    with pytest.raises(VerificationError, match=rf"^trust store {signed.store}: .*directory"):
        signed.verify()


@pytest.mark.parametrize("floor", ["1.2.1", "1.10.0", "2.0.0"])
def test_error_version_below_the_minimum(signed: Signed, floor: str) -> None:
    """An old version stays signed, and is refused once the store wants a newer one."""
    signed.trust(signed.key(), min_versions={"tts-tiny": floor})
    words = rf'\$\.version: must be at least {floor}, the minimum in the trust store .*"1\.2\.0"'
    with pytest.raises(VerificationError, match=words):
        signed.verify()


def test_error_prerelease_of_the_minimum(signed: Signed) -> None:
    """A prerelease comes before its release."""
    signed.set_version("1.2.0-rc.1")
    signed.verify()
    signed.trust(signed.key(), min_versions={"tts-tiny": "1.2.0"})
    with pytest.raises(VerificationError, match=r"must be at least 1\.2\.0"):
        signed.verify()


def test_build_is_no_part_of_a_version_s_order(signed: Signed) -> None:
    """What follows a plus makes a version neither newer nor older, whatever it looks like."""
    signed.set_version("1.2.0+a-b")
    signed.trust(signed.key(), min_versions={"tts-tiny": "1.2.0"})
    signed.verify()
    signed.trust(signed.key(), min_versions={"tts-tiny": "1.2.1"})
    with pytest.raises(VerificationError, match=r"must be at least 1\.2\.1"):
        signed.verify()


def test_error_malformed_minimum(signed: Signed) -> None:
    """A minimum is a plain version."""
    signed.trust(min_versions={"tts-tiny": "1.2"})
    with pytest.raises(VerificationError, match=r"\$\.min_versions\.tts-tiny: must be a plain"):
        signed.verify()


@pytest.mark.parametrize("trust", [Trust.IF_SIGNED, Trust.REQUIRED])
def test_signed_pack_passes(signed: Signed, trust: Trust) -> None:
    """A pack whose every signature is by a known key passes."""
    signed.verify(trust)


def test_two_good_signatures_pass(signed: Signed) -> None:
    """Several people may sign one manifest."""
    signed.trust(signed.key(), signed.key(keyid="other", public_key=raw(OTHER)))
    message = canonical(signed.manifest)
    signed.sign(signature(PRIVATE.sign(message)), signature(OTHER.sign(message), keyid="other"))
    signed.verify(Trust.REQUIRED)


def test_signer_and_time_are_not_signed(signed: Signed) -> None:
    """The list of signatures is no part of the message: what stands in it proves nothing."""
    message = canonical(signed.manifest)
    signed.sign(signature(PRIVATE.sign(message), signer="Somebody", signed_at="never"))
    signed.verify(Trust.REQUIRED)


@pytest.mark.parametrize("ids", [["tts-tiny"], ["tts-*"], ["asr-x", "*"]])
def test_key_trusted_for_the_cartridge(signed: Signed, ids: list[str]) -> None:
    """A key's ids are ids or patterns; one that fits is enough."""
    signed.trust(signed.key(ids=ids, roles=["aggregator", "publisher"]))
    signed.verify(Trust.REQUIRED)


@pytest.mark.parametrize("floor", ["1.2.0", "1.1.9", "0.99.99"])
def test_version_at_or_above_the_minimum(signed: Signed, floor: str) -> None:
    """A minimum is the oldest version that passes; other ids are their own."""
    signed.trust(signed.key(), min_versions={"tts-tiny": floor, "other": "9.0.0"})
    signed.verify()


def test_message_is_python_s_canonical_json() -> None:
    """Floats and non-ASCII are as ``json.dumps`` has them; signatures are left out."""
    manifest = {"b": [1e16, 3.0, "é\u007f"], "a": {"z": None, "c": True}, "signatures": [1]}
    text = rb'{"a":{"c":true,"z":null},"b":[1e+16,3.0,"\u00e9\u007f"]}'
    assert signed_message(manifest) == hashlib.sha256(text).hexdigest().encode()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_openssl_signs_what_is_verified(signed: Signed, tmp_path: Path) -> None:
    """A publisher needs nothing but Python's json and ``openssl pkeyutl -rawin``."""
    pem, message = tmp_path / "key.pem", tmp_path / "message"
    pem.write_bytes(
        PRIVATE.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    message.write_bytes(canonical(signed.manifest))
    command = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", str(pem), "-in", str(message)]
    signed.sign(signature(subprocess.run(command, check=True, capture_output=True).stdout))
    signed.verify(Trust.REQUIRED)
    signed.manifest["effective_license"] = "MIT"
    signed.write()
    with pytest.raises(VerificationError, match="does not match"):
        signed.verify()


def test_trust_store_of_the_environment(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    """``CARTRIDGE_TRUST`` names the store where the caller does not."""
    monkeypatch.setenv("CARTRIDGE_TRUST", str(signed.store))
    verify(Pack.from_path(signed.root), Trust.REQUIRED)


def test_trust_file_is_found_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument, ``CARTRIDGE_TRUST``, ``XDG_CONFIG_HOME`` where absolute, ``~/.config``."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", "/config")
    monkeypatch.setenv("CARTRIDGE_TRUST", "~/mine.json")
    assert trust_file(tmp_path / "given.json") == tmp_path / "given.json"
    assert trust_file() == tmp_path / "mine.json"
    monkeypatch.setenv("CARTRIDGE_TRUST", "")
    assert trust_file().as_posix() == "/config/cartridge/trust.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert trust_file() == tmp_path / ".config" / "cartridge" / "trust.json"


def test_error_a_store_that_the_environment_names_must_exist(tmp_path, monkeypatch):
    """A path in CARTRIDGE_TRUST that leads nowhere is a mistake, and not a store without keys."""
    missing = tmp_path / "trust.json"
    monkeypatch.setenv("CARTRIDGE_TRUST", str(missing))
    with pytest.raises(VerificationError, match="which CARTRIDGE_TRUST names, does not exist"):
        TrustStore.read(trust_file())
    monkeypatch.delenv("CARTRIDGE_TRUST")
    assert TrustStore.read(missing).keys == {}
