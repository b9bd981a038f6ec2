"""
Weights updates: which base one is for, and whether it was shown to be no worse.

A weights update is a folder with a ``manifest.json`` and the files that change. It is nothing to
open: it replaces files of the one base that its manifest pins by digest.

Source: Cartridge ABI 0.1, "Integrity, provenance, and weight-only updates".
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

from cartridge_core.errors import InvalidArgumentError, VerificationError
from cartridge_core.jsondata import at, refusal, shown
from cartridge_core.manifest import Manifest, attest_signed, check_pack
from cartridge_core.pack import Pack
from cartridge_core.signatures import trust_file
from cartridge_core.versions import precedence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cartridge_core.manifest import Attestation
    from cartridge_core.pack import Trust

__all__ = ["check_gate", "read_manifest", "verify_update"]


def read_manifest(folder: Path) -> Manifest:
    """
    Read the manifest in a folder, and verify nothing but its form.

    Raises:
        VerificationError: There is none, or it is malformed.
    """
    file = folder / "manifest.json"
    try:
        if file.exists() and not file.is_file():
            msg = f"pack {folder}: manifest.json is no regular file; fetch the pack again"
            raise VerificationError(msg)
        return Manifest.from_json(file.read_bytes())
    except FileNotFoundError as exc:
        msg = f"{folder} is no pack and no weights update: it has no manifest.json"
        raise VerificationError(msg) from exc
    except OSError as exc:
        msg = f"pack {folder}: manifest.json cannot be read: {exc}"
        raise VerificationError(msg) from exc
    except InvalidArgumentError as exc:
        msg = f"pack {folder}: manifest.json: {exc}"
        raise VerificationError(msg) from exc


def verify_update(
    folder: Path,
    bases: Sequence[Path],
    trust: Trust,
    store: Path | None = None,
    *,
    fresh: bool = False,
) -> Attestation:
    """
    Check a weights update: its files, its signatures, the base it pins, its evaluation.

    Args:
        folder: The update's.
        bases: Folders of what it applies to: the base that it pins, then where that is an update
            itself, the one that that one pins, and so on to a pack. Each is verified too.
        trust: Whether there must be signatures.
        store: Path of the trust store; None is where `trust_file` finds it.
        fresh: Whether every file is hashed, also one that has not changed.

    Raises:
        VerificationError: The update or a base is not what its manifest says; the base is another
            one, or none is given; nothing says that the new weights are no worse, and no waiver
            says why they ship.
    """
    keys = trust_file(store)
    base = _verify_base(folder, bases, trust, keys, fresh=fresh)
    check = partial(_check_update, folder, base)
    return attest_signed(folder, check, trust, keys, fresh=fresh)


def _verify_base(
    folder: Path, bases: Sequence[Path], trust: Trust, store: Path, *, fresh: bool
) -> Manifest:
    """Verify what an update applies to, and give its manifest as it was then."""
    if not bases:
        base = read_manifest(folder).base
        wanted = "" if base is None else f" {base.id} {base.version} ({base.digest})"
        msg = (
            f"weights update {folder}: it is checked against what it updates, and that is nowhere:"
            f"{wanted}; name its folder with --base, or in CARTRIDGE_PACKS"
        )
        raise VerificationError(msg)
    first, *others = bases
    if read_manifest(first).kind == "weights-update":
        return verify_update(first, others, trust, store, fresh=fresh).manifest
    if others:
        msg = f"base {others[0]}: {first} is a pack, and updates nothing"
        raise VerificationError(msg)
    pack = Pack.from_path(first)
    if pack.descriptor is None:
        msg = f"base {first}: it is no pack, as it has no descriptor.json"
        raise VerificationError(msg)
    check = partial(check_pack, pack, pack.descriptor)
    return attest_signed(first, check, trust, store, fresh=fresh).manifest


def _check_update(folder: Path, base: Manifest, manifest: Manifest) -> None:
    pinned = manifest.base
    if manifest.kind != "weights-update" or pinned is None:
        raise refusal(at("$", "kind"), 'must be "weights-update"', manifest.kind)
    where = at("$", "base")
    for name, found, wanted in (
        ("kind", base.kind, pinned.kind),
        ("id", base.id, pinned.id),
        ("version", base.version, pinned.version),
        ("digest", base.digest, pinned.digest),
    ):
        if found != wanted:
            rule = f'is "{wanted}", and that of the base here is "{found}"; take the pinned base'
            raise refusal(at(where, name), rule)
    if manifest.id != base.id:
        raise refusal(at("$", "id"), f'must be "{base.id}", that of its base', manifest.id)
    if precedence(manifest.version) <= precedence(base.version):
        rule = f"must be newer than {base.version}, that of its base"
        raise refusal(at("$", "version"), rule, manifest.version)
    if manifest.descriptor_digest is not None:
        data = (folder / "descriptor.json").read_bytes()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if manifest.descriptor_digest != digest:
            rule = f"must be that of descriptor.json, {digest}"
            raise refusal(at("$", "descriptor_digest"), rule, manifest.descriptor_digest)
    check_gate(manifest)


def check_gate(manifest: Manifest) -> None:
    """
    Check that a weights update was measured, and is no worse or says why it ships.

    New weights are meant to change what comes out, so comparing outputs shows nothing: the task's
    metric on pinned data decides.

    Raises:
        InvalidArgumentError: It was not measured, or is worse without a waiver.
    """
    where = at(at("$", "provenance"), "evaluation")
    evaluation = manifest.evaluation
    if evaluation is None:
        raise refusal(where, "is missing; a weights update says how it was measured")
    if evaluation.is_worse and not (evaluation.waiver or "").strip():
        rule = (
            f"{shown(evaluation.metric)} is {shown(evaluation.value)}, and was "
            f"{shown(evaluation.baseline)} before, which may be worse; a waiver has to say why it "
            "ships"
        )
        raise refusal(at(where, "value"), rule)
