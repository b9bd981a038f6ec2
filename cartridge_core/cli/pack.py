"""The verbs ``pack new``, ``sign``, ``verify`` and ``inspect``."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cartridge_core.cli.fetching import fetch_model
from cartridge_core.cli.options import needs_verb, prints_result
from cartridge_core.cli.tables import table
from cartridge_core.errors import CartridgeError, InvalidArgumentError, NoRouteError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.cli.terminal import Terminal
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.manifest import Attestation, Manifest
    from cartridge_core.registry import Registry

__all__ = ["pack"]

_FOLDER = click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")


@click.group(invoke_without_command=True)
@click.pass_context
def pack(context: click.Context) -> None:
    """Make packs, sign them, and see what one is."""
    needs_verb(context)


@pack.command
@click.argument("model")
@click.argument("target", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--base", metavar="ID", help="The cartridge that opens it.")
@click.option("--id", "pack_id", metavar="ID", help="The pack's own id.")
@click.option("--version", help="A semantic version.  [default: 1.0.0]")
@click.option("--license", "license_", metavar="SPDX", help="The model's licence.")
@click.option(
    "--golden",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Golden vectors; outputs that are missing are recorded now.",
)
@prints_result
@click.pass_obj
def new(
    terminal: Terminal,
    model: str,
    target: Path,
    *,
    base: str | None,
    pack_id: str | None,
    version: str | None,
    license_: str | None,
    golden: Path | None,
) -> None:
    """Make the pack DIR of MODEL, a path or a model spec.

    The pack narrows the cartridge --base to this one model; --id and --license are its own. A
    folder that has a descriptor.json, that of a library for one, is packed as it says, without any
    of them. It is not signed yet.
    """
    from cartridge_core import packmaking  # noqa: PLC0415 -- few verbs need it

    if base is None and Path(model, "descriptor.json").is_file():
        if any(given is not None for given in (pack_id, version, license_, golden)):
            msg = f"{model}/descriptor.json says what the pack is; leave the options out"
            raise click.UsageError(msg)
        manifest = packmaking.make_own_pack(Path(model), target)
    elif base is None or pack_id is None or license_ is None:
        msg = "--base, --id and --license are needed for a model, which has no descriptor.json"
        raise click.UsageError(msg)
    else:
        terminal.capture()
        with terminal.registry() as registry:
            narrowed = _base(registry, base)
            path, source = fetch_model(registry, model)
            vectors = None if golden is None else _golden(registry, base, path, golden)
        facts = packmaking.PackFacts(
            id=pack_id, version=version or "1.0.0", license=license_, source=source
        )
        manifest = packmaking.make_pack(path, target, narrowed, facts, vectors)
    document = {"pack": target, "id": manifest.id, "digest": manifest.digest}
    text = f"{target}: {manifest.id} {manifest.version}, {len(manifest.files)} files, not signed"
    terminal.give(document, text)


@pack.command
@_FOLDER
@click.option(
    "--key",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An Ed25519 private key in PEM.",
)
@click.option("--keyid", required=True, metavar="NAME", help="What trust stores call the key.")
@click.option("--signer", default="publisher", show_default=True, help="Who signs, for people.")
@prints_result
@click.pass_obj
def sign(terminal: Terminal, folder: Path, *, key: Path, keyid: str, signer: str) -> None:
    """Sign the manifest of the pack DIR, once what it states is checked."""
    from cartridge_core.signing import sign_manifest  # noqa: PLC0415 -- few verbs need it

    signed = sign_manifest(folder, key, keyid=keyid, signer=signer)
    document = {"keyid": keyid, "public_key": signed.public_key, "digest": signed.manifest.digest}
    text = table(
        [
            ("signed", f"{signed.manifest.id} {signed.manifest.version} as {keyid}"),
            ("digest", signed.manifest.digest),
            ("public key", signed.public_key),
        ]
    )
    terminal.give(document, text)


@pack.command
@_FOLDER
@click.option(
    "--trust",
    type=click.Choice(["required", "if-signed"]),
    default="if-signed",
    show_default=True,
    help="Whether there must be a signature.",
)
@click.option(
    "--base",
    "bases",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="What a weights update applies to, where no pack of CARTRIDGE_PACKS is it; repeatable.",
)
@click.option("--fresh", is_flag=True, help="Hash every file, also one that has not changed.")
@prints_result
@click.pass_obj
def verify(
    terminal: Terminal, folder: Path, *, trust: str, bases: tuple[Path, ...], fresh: bool
) -> None:
    """Check that the pack DIR is what its manifest says, and by whom.

    A pack that passes with a signature is remembered: an older version of it is refused from then
    on.
    """
    attestation = _verify(folder, trust, bases, fresh=fresh)
    manifest = attestation.manifest
    document = {
        "id": manifest.id,
        "version": manifest.version,
        "kind": manifest.kind,
        "digest": manifest.digest,
        "signed_by": attestation.keyids,
        "hashed_bytes": attestation.hashed_bytes,
        "remembered_bytes": attestation.remembered_bytes,
        "seconds": attestation.seconds,
    }
    terminal.give(document, f"verified {attestation}\n{manifest.digest}")


def _verify(folder: Path, trust: str, bases: tuple[Path, ...], *, fresh: bool) -> Attestation:
    from cartridge_core import manifest  # noqa: PLC0415 -- few verbs need it
    from cartridge_core.licences import check_licences  # noqa: PLC0415 -- few verbs need it
    from cartridge_core.pack import Pack, Trust  # noqa: PLC0415 -- few verbs need it
    from cartridge_core.updates import (  # noqa: PLC0415 -- few verbs need it
        read_manifest,
        verify_update,
    )

    found = read_manifest(folder)
    descriptor: Descriptor | None = None
    attestation: Attestation | None
    if found.kind == "weights-update":
        known = bases or _installed(found)
        attestation = verify_update(folder, known, Trust(trust), fresh=fresh)
    else:
        if bases:
            msg = f"--base is given, and {folder} is a pack, which updates nothing"
            raise click.UsageError(msg)
        one = Pack.from_path(folder)
        descriptor = one.descriptor
        attestation = manifest.verify(one, Trust(trust), fresh=fresh)
    assert attestation is not None  # noqa: S101 -- a pack with a manifest is no bare one
    check_licences(folder, attestation.manifest, descriptor)
    return attestation


def _installed(update: Manifest) -> tuple[Path, ...]:
    """Find the pack that an update pins among those of ``CARTRIDGE_PACKS``; none: nothing."""
    from cartridge_core._descriptor_files import RefusedError  # noqa: PLC0415 -- few verbs need it
    from cartridge_core._pack_folders import find_packs  # noqa: PLC0415 -- few verbs need it
    from cartridge_core.updates import read_manifest  # noqa: PLC0415 -- few verbs need it

    wanted = None if update.base is None else update.base.digest
    for listed in os.environ.get("CARTRIDGE_PACKS", "").split(os.pathsep):
        # A folder that is no pack, or a broken one, is for `cartridge doctor` to say.
        with contextlib.suppress(RefusedError, CartridgeError, OSError):
            for folder in find_packs(Path(listed)) if listed else ():
                with contextlib.suppress(CartridgeError):
                    if read_manifest(folder).digest == wanted:
                        return (folder,)
    return ()


@pack.command
@_FOLDER
@prints_result
@click.pass_obj
def inspect(terminal: Terminal, folder: Path) -> None:
    """Show what the manifest of the pack DIR states; nothing is verified."""
    from cartridge_core.updates import read_manifest  # noqa: PLC0415 -- few verbs need it

    manifest = read_manifest(folder)
    terminal.give(_facts(manifest), _shown(manifest))


def _facts(manifest: Manifest) -> dict[str, object]:
    return {
        "id": manifest.id,
        "version": manifest.version,
        "kind": manifest.kind,
        "effective_license": manifest.effective_license,
        "digest": manifest.digest,
        "base": manifest.base,
        "evaluation": manifest.evaluation,
        "files": manifest.files,
        "signatures": [
            {"keyid": one.keyid, "signer": one.signer, "signed_at": one.signed_at}
            for one in manifest.signatures
        ],
    }


def _shown(manifest: Manifest) -> str:
    base, evaluation = manifest.base, manifest.evaluation
    facts = [
        ("id", manifest.id),
        ("version", manifest.version),
        ("kind", manifest.kind),
        ("license", manifest.effective_license or "not stated"),
        ("digest", manifest.digest),
    ]
    if base is not None:
        facts.append(("base", f"{base.kind} {base.id} {base.version} {base.digest}"))
    if evaluation is not None:
        change = f"{evaluation.baseline:g} -> {evaluation.value:g}"
        facts.append(("evaluation", f"{evaluation.metric} {change}"))
        if evaluation.waiver is not None:
            facts.append(("waiver", evaluation.waiver))
    facts += [
        ("signature", f"{one.keyid}: {one.signer}, {one.signed_at}") for one in manifest.signatures
    ] or [("signature", "none")]
    files = [("ROLE", "BYTES", "LICENSE", "PATH")]
    files += [(file.role, str(file.size), file.license, file.path) for file in manifest.files]
    return f"{table(facts)}\n\n{table(files)}"


def _base(registry: Registry, cartridge_id: str) -> Descriptor:
    for offer in registry.offers:
        if offer.id == cartridge_id and offer.pack is None:
            return offer.descriptor
    ids = ", ".join(offer.id for offer in registry.offers if offer.pack is None) or "none"
    msg = f"no installed plugin offers the cartridge {cartridge_id!r}; they offer {ids}"
    raise NoRouteError(msg)


def _golden(registry: Registry, base: str, model: Path, file: Path) -> Mapping[str, bytes]:
    """Give the golden vectors with their outputs, and the files they name, by name."""
    from cartridge_core.golden import read_vectors  # noqa: PLC0415 -- few verbs need it
    from cartridge_core.verification import record  # noqa: PLC0415 -- few verbs need it

    try:
        data = file.read_bytes()
        beside = {one.name: one for one in file.parent.iterdir() if one != file and one.is_file()}
    except OSError as exc:
        msg = f"--golden {file} cannot be read: {exc.strerror or exc}"
        raise click.UsageError(msg) from exc
    try:
        used = {one.name: one for vector in read_vectors(data, beside) for one in vector.files}
        recorded = record(registry, base, model, data, beside)
    except InvalidArgumentError as exc:
        msg = f"--golden {file}: {exc}"
        raise InvalidArgumentError(msg, arg="golden", value=str(file)) from exc
    return {**{name: one.read_bytes() for name, one in used.items()}, "golden.json": recorded}
