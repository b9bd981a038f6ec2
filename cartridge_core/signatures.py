"""
Who signed a manifest, and whether the trust store on this machine knows them.

The trust store is a JSON file outside every pack::

    {
      "schema_version": "1",
      "keys": [
        {
          "keyid": "publisher-2026",
          "public_key": "<base64 of the 32 raw bytes>",
          "roles": ["publisher"],
          "ids": ["asr-*"]
        }
      ],
      "min_versions": {"asr-tiny": "1.2.0"}
    }
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from cartridge_core._ed25519 import matches
from cartridge_core.errors import InvalidArgumentError, VerificationError
from cartridge_core.floors import floors_file, read_floors
from cartridge_core.jsondata import at, read_json, refusal, shown, thaw
from cartridge_core.jsonfields import Fields
from cartridge_core.versions import precedence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Key", "Kind", "Signature", "TrustStore", "signed_message", "trust_file"]

Kind = Literal["cartridge", "weights-update"]

_ROLES = ("publisher", "aggregator")
_SIGNERS: dict[Kind, tuple[str, ...]] = {
    "cartridge": ("publisher",),
    "weights-update": _ROLES,
}
"""Who signs what; every key of the role ``aggregator`` is one for weight updates alone."""
_STORE_KEYS = frozenset({"schema_version", "keys", "min_versions"})
_KEY_KEYS = frozenset({"keyid", "public_key", "roles", "ids"})
_SIGNATURE_KEYS = frozenset({"keyid", "alg", "signer", "signature", "signed_at"})
_PLAIN_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", re.ASCII)


def signed_message(manifest: Mapping[str, object]) -> bytes:
    """
    Give the bytes that a manifest's signatures sign.

    Args:
        manifest: The whole document; its ``signatures`` are not part of the message.

    Returns:
        64 ASCII characters: the lower-case hex SHA-256 of the manifest as Python's
        ``json.dumps`` writes it with sorted keys and no blanks, all but printable ASCII escaped.

    Source:
        Cartridge ABI 0.1, manifest schema 2, as its reference verifier reads it. This is not
        RFC 8785.
    """
    unsigned = {key: thaw(value) for key, value in manifest.items() if key != "signatures"}
    canonical = json.dumps(unsigned, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest().encode("ascii")


def trust_file(store: Path | None = None) -> Path:
    """
    Say where the trust store is.

    Args:
        store: Its path; None is ``CARTRIDGE_TRUST``, or else ``cartridge/trust.json`` in
            ``$XDG_CONFIG_HOME`` (``~/.config``).
    """
    named = store or os.environ.get("CARTRIDGE_TRUST")
    if named:
        return Path(os.path.expanduser(named))
    config = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(config):
        config = os.path.expanduser("~/.config")
    return Path(config, "cartridge", "trust.json")


@attrs.frozen
class Signature:
    """One signature of a manifest; by Ed25519."""

    keyid: str
    signature: bytes = attrs.field(repr=False)
    """64 bytes."""

    signer: str = attrs.field(kw_only=True)
    """Who signed, for people; nothing vouches for it."""

    signed_at: str = attrs.field(kw_only=True)
    """When, for people; nothing vouches for it."""

    where: str = attrs.field(kw_only=True)
    """Its place in the manifest, for errors."""

    @classmethod
    def from_json(cls, value: object, where: str) -> Signature:
        """
        Read a signature, checking nothing but its form.

        Raises:
            InvalidArgumentError: It breaks the manifest's schema, or is by another algorithm.
        """
        fields = Fields(value, where, _SIGNATURE_KEYS)
        fields.choice("alg", ("ed25519",))
        return cls(
            fields.text("keyid"),
            _raw(fields, "signature", 64),
            signer=fields.text("signer"),
            signed_at=fields.text("signed_at"),
            where=where,
        )


@attrs.frozen
class Key:
    """A public key that the trust store knows, and what it may sign."""

    keyid: str
    public_key: bytes = attrs.field(repr=False)
    """Ed25519; 32 bytes."""

    roles: tuple[str, ...] = attrs.field(kw_only=True)
    """``publisher`` signs cartridges, ``aggregator`` weight updates."""

    ids: tuple[str, ...] = attrs.field(kw_only=True)
    """Cartridge ids, or patterns of them (``asr-*``)."""

    @classmethod
    def from_json(cls, value: object, where: str) -> Key:
        """
        Read a key of a trust store.

        Raises:
            InvalidArgumentError: It has another form.
        """
        fields = Fields(value, where, _KEY_KEYS)
        for name in ("roles", "ids"):
            if not fields.texts(name):
                raise refusal(fields.at(name), "must be there and not be empty")
        for role in fields.texts("roles"):
            if role not in _ROLES:
                raise refusal(fields.at("roles"), f"must be of {' and '.join(_ROLES)}", role)
        return cls(
            fields.text("keyid"),
            _raw(fields, "public_key", 32),
            roles=fields.texts("roles"),
            ids=fields.texts("ids"),
        )


@attrs.frozen
class TrustStore:
    """The keys that this machine's user trusts, and the oldest versions accepted."""

    file: Path
    keys: Mapping[str, Key] = attrs.field(factory=dict)
    """By keyid."""

    min_versions: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)
    """The oldest version that is accepted, by cartridge id."""

    accepted: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict, kw_only=True)
    """The newest version that was accepted before, by kind of manifest and by cartridge id."""

    @classmethod
    def read(cls, file: Path) -> TrustStore:
        """
        Read a trust store; a file that does not exist is a store without keys.

        Raises:
            VerificationError: The file cannot be read, or breaks the form above; or
                ``CARTRIDGE_TRUST`` names it, and it does not exist; or the versions accepted
                under it cannot be read.
        """
        try:
            document = read_json(file.read_bytes(), "$")
            keys, versions = _read_keys(document), _read_versions(document)
            return cls(file, keys, min_versions=versions, accepted=read_floors(file))
        except FileNotFoundError:
            if os.environ.get("CARTRIDGE_TRUST") and file == trust_file():
                msg = (
                    f"trust store {file}, which CARTRIDGE_TRUST names, does not exist; "
                    "correct the variable, or unset it"
                )
                raise VerificationError(msg) from None
            return cls(file, accepted=read_floors(file))
        except (OSError, InvalidArgumentError) as exc:
            msg = f"trust store {file}: {exc}"
            raise VerificationError(msg) from exc

    def check_version(
        self, cartridge_id: str, version: str, where: str, *, kind: Kind = "cartridge"
    ) -> None:
        """
        Check that a cartridge is not older than the store accepts, or has accepted before.

        Args:
            cartridge_id: Whose version it is.
            version: Which one.
            where: The version's place, for errors.
            kind: The manifest's.

        Raises:
            InvalidArgumentError: It is.
        """
        for floors, whose in (
            (self.min_versions, f"the minimum in the trust store {self.file}"),
            (
                self.accepted.get(kind, {}),
                f"which was accepted before, says {floors_file(self.file)}",
            ),
        ):
            floor = floors.get(cartridge_id)
            if floor is not None and precedence(version) < precedence(floor):
                raise refusal(where, f"must be at least {floor}, {whose}", version)

    def check(
        self,
        signatures: Sequence[Signature],
        message: bytes,
        cartridge_id: str,
        where: str,
        *,
        kind: Kind = "cartridge",
    ) -> None:
        """
        Check that every signature is by a key that may sign this manifest, and matches.

        Args:
            signatures: All that the manifest has.
            message: What they sign, as `signed_message` gives it.
            cartridge_id: Whose manifest it is.
            where: The place of the signatures, for errors.
            kind: The manifest's.

        Raises:
            InvalidArgumentError: One is by an unknown or unauthorised key or does not match, or
                the package ``cryptography`` is missing.
        """
        keyids: set[str] = set()
        for signature in signatures:
            if signature.keyid in keyids:
                raise refusal(at(signature.where, "keyid"), "stands here twice", signature.keyid)
            keyids.add(signature.keyid)
        keys = [self._key(signature, cartridge_id, kind) for signature in signatures]
        for signature, key in zip(signatures, keys, strict=True):
            try:
                is_good = matches(key.public_key, signature.signature, message)
            except ImportError as exc:
                rule = (
                    "checking them needs the package cryptography, which cannot be imported "
                    f'({exc}): `pip install "cartridge-core[sign]"`'
                )
                raise refusal(where, rule) from exc
            if not is_good:
                rule = (
                    f"does not match: the manifest was changed after {shown(key.keyid)} signed "
                    "it, or another key signed it; fetch the pack again"
                )
                raise refusal(at(signature.where, "signature"), rule)

    def _key(self, signature: Signature, cartridge_id: str, kind: Kind) -> Key:
        """Give the key of a signature, which must be allowed to sign this manifest."""
        where, name = at(signature.where, "keyid"), shown(signature.keyid)
        key = self.keys.get(signature.keyid)
        if key is None:
            absent = "" if self.file.exists() else ", which does not exist"
            rule = (
                f"{name} is no key of the trust store {self.file}{absent}; add it there if you "
                "trust its owner"
            )
            raise refusal(where, rule)
        if not set(key.roles) & set(_SIGNERS[kind]):
            rule = (
                f"{name} has the role {' and '.join(key.roles)} in the trust store {self.file}, "
                f"and a {kind} is signed by a {' or '.join(_SIGNERS[kind])}"
            )
            raise refusal(where, rule)
        if not any(fnmatch.fnmatchcase(cartridge_id, pattern) for pattern in key.ids):
            rule = (
                f"{name} may sign {', '.join(key.ids)}, says the trust store {self.file}, and "
                f"this is {cartridge_id}"
            )
            raise refusal(where, rule)
        return key


def _read_keys(document: object) -> Mapping[str, Key]:
    fields = Fields(document, "$", _STORE_KEYS)
    fields.choice("schema_version", ("1",))
    fields.value("keys")
    keys: dict[str, Key] = {}
    for item, where in fields.items("keys"):
        key = Key.from_json(item, where)
        if key.keyid in keys:
            raise refusal(at(where, "keyid"), "stands here twice", key.keyid)
        keys[key.keyid] = key
    return keys


def _read_versions(document: object) -> Mapping[str, str]:
    fields = Fields(document, "$", _STORE_KEYS)
    versions = Fields(fields.mapping("min_versions"), fields.at("min_versions"))
    rule = "a plain version, as in 1.2.0"
    return {name: versions.matching(name, _PLAIN_VERSION, rule) for name in versions.data}


def _raw(fields: Fields, name: str, length: int) -> bytes:
    """Take a field that is the base64 of so many bytes."""
    text = fields.text(name)
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    # Of several spellings that decode to the same, one is right.
    if len(raw) != length or base64.b64encode(raw).decode("ascii") != text:
        raise fields.refusal(name, f"must be the base64 of {length} bytes")
    return raw
