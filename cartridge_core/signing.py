"""
Sign the manifest of a pack, or of a weights update.

Source: Cartridge ABI 0.1, manifest schema 2, as its reference signer writes it.
"""

from __future__ import annotations

import base64
import datetime
import json
from functools import partial
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core._ed25519 import read_private_key
from cartridge_core.errors import LoadError
from cartridge_core.jsondata import read_json, thaw
from cartridge_core.licences import check_licences
from cartridge_core.manifest import Manifest, attest, check_pack
from cartridge_core.pack import Pack
from cartridge_core.updates import check_gate, read_manifest
from cartridge_core.wholefiles import write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from cartridge_core.descriptor import Descriptor

__all__ = ["Signed", "sign_manifest", "write_manifest"]


@attrs.frozen(kw_only=True)
class Signed:
    """A signature that was added to a manifest."""

    manifest: Manifest
    keyid: str
    public_key: str
    """Base64 of the 32 raw bytes, as the trust store has it."""


def sign_manifest(folder: Path, key: Path, *, keyid: str, signer: str) -> Signed:
    """
    Sign a manifest, after a look at what it states.

    A signature under the same keyid is replaced; others stay.

    Args:
        folder: The pack's folder, or a weights update's.
        key: An Ed25519 private key in PEM.
        keyid: What the trust stores call the key.
        signer: Who signs, for people.

    Raises:
        VerificationError: The folder is not what the manifest says, a licence says nothing, or a
            weights update was not shown to be no worse.

        LoadError: The key cannot be read, there is no pack, or its manifest cannot be written.
    """
    private = read_private_key(key)
    descriptor = _check(folder)
    manifest = read_manifest(folder)
    check_licences(folder, manifest, descriptor)
    file = folder / "manifest.json"
    document = cast("dict[str, object]", thaw(read_json(file.read_bytes(), "$")))
    others = cast("list[dict[str, object]]", document.get("signatures", []))
    signed_at = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    signature = {
        "keyid": keyid,
        "alg": "ed25519",
        "signer": signer,
        "signature": base64.b64encode(private.sign(manifest.message)).decode("ascii"),
        "signed_at": signed_at,
    }
    kept = [other for other in others if other["keyid"] != keyid]
    document["signatures"] = [*kept, signature]
    try:
        write_manifest(file, document)
    except OSError as exc:
        msg = f"pack {folder}: manifest.json cannot be written: {exc}"
        raise LoadError(msg) from exc
    public = base64.b64encode(private.public_key().public_bytes_raw()).decode("ascii")
    return Signed(manifest=manifest, keyid=keyid, public_key=public)


def _check(folder: Path) -> Descriptor | None:
    """Check what is signed; give the descriptor, where there is one."""
    if read_manifest(folder).kind == "weights-update":
        attest(folder, check_gate, None)
        return None
    pack = Pack.from_path(folder)
    if pack.descriptor is not None:
        attest(folder, partial(check_pack, pack, pack.descriptor), None)
    return pack.descriptor


def write_manifest(file: Path, document: dict[str, object]) -> None:
    """Write a manifest whole, or not at all."""
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o644
    write_whole(file, json.dumps(document, indent=2) + "\n", mode)
