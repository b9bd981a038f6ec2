"""
Whether a pack is what its manifest says, byte for byte, and signed by someone trusted.

Cheap checks come first: the tree of files, the manifest's form, sizes, signatures; then the
SHA-256 of every file.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from typing import TYPE_CHECKING

import attrs

from cartridge_core._manifest_blocks import ROLES, ListedFile
from cartridge_core._manifest_reading import Manifest
from cartridge_core.descriptor import Descriptor
from cartridge_core.digests import Digests
from cartridge_core.errors import InvalidArgumentError, VerificationError
from cartridge_core.floors import raise_floor
from cartridge_core.jsondata import at, refusal
from cartridge_core.pack import Trust
from cartridge_core.signatures import TrustStore, trust_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cartridge_core.pack import Pack

__all__ = [
    "Attestation",
    "ListedFile",
    "Manifest",
    "attest",
    "attest_signed",
    "check_pack",
    "verify",
]

_log = logging.getLogger("cartridge.packs")

_DESCRIPTOR, _MANIFEST = "descriptor.json", "manifest.json"


@attrs.frozen(kw_only=True)
class Attestation:
    """That a folder is what its manifest says, and what it took to know."""

    manifest: Manifest

    keyids: tuple[str, ...]
    """The keys that signed it; empty where nobody did."""

    hashed_bytes: int
    """Bytes of the files that were read and hashed for this."""

    remembered_bytes: int
    """Bytes of the files that had not changed since they were hashed."""

    seconds: float

    def __str__(self) -> str:
        signed = f"signed by {', '.join(self.keyids)}" if self.keyids else "not signed"
        hashed, remembered = self.hashed_bytes / 1e6, self.remembered_bytes / 1e6
        return (
            f"{self.manifest.id} {self.manifest.version}, {signed}: {hashed:.1f} MB hashed, "
            f"{remembered:.1f} MB remembered, {self.seconds:.3f} s"
        )


def verify(
    pack: Pack,
    trust: Trust,
    store: Path | None = None,
    *,
    fresh: bool = False,
    check_cancelled: Callable[[], None] | None = None,
) -> Attestation | None:
    """
    Check a pack against its manifest and its signatures.

    Names that start with a dot, and what is below them, are neither checked nor allowed to be
    listed. The digest of a file that has not changed since an earlier call is remembered, also
    by other processes. That a signed pack passed is remembered too: an older one is refused then.

    Args:
        pack: Of any kind; a bare one has nothing to check.
        trust: How much is checked.
        store: Path of the trust store; None is where `trust_file` finds it. A file that does
            not exist is a store without keys.
        fresh: Whether every file is hashed, also one that has not changed.
        check_cancelled: Called again and again while files are hashed; what it raises ends that.

    Returns:
        What was found; None where nothing had to be checked.

    Raises:
        VerificationError: A file is missing, changed, not listed, or no regular file; the
            manifest is malformed, is about another descriptor or a weights update, or has a
            signature that does not match or is by an unknown or unauthorised key; the trust store
            is malformed or wants a newer version, or a newer one was accepted before; ``trust`` is
            ``required``, and there is no manifest or no signature.

    Source:
        Cartridge ABI 0.1, "pack_dir" and manifest schema 2.
    """
    if trust == Trust.OFF:
        return None
    descriptor = pack.descriptor
    if descriptor is None:
        _accept_bare(pack, trust)
        return None
    return attest_signed(
        pack.root,
        lambda manifest: check_pack(pack, descriptor, manifest),
        trust,
        trust_file(store),
        fresh=fresh,
        check_cancelled=check_cancelled,
    )


def attest_signed(
    root: Path,
    check: Callable[[Manifest], None],
    trust: Trust,
    store: Path,
    *,
    fresh: bool,
    check_cancelled: Callable[[], None] | None = None,
) -> Attestation:
    """
    Check a folder against its manifest, and that against the trust store.

    Args:
        root: The folder.
        check: As for `attest`.
        trust: Whether there must be a signature.
        store: Path of the trust store.
        fresh: As for `attest`.
        check_cancelled: As for `attest`.

    Raises:
        VerificationError: As `verify`.
    """
    keys = TrustStore.read(store)

    def check_signatures(manifest: Manifest) -> None:
        keys.check_version(manifest.id, manifest.version, "$.version", kind=manifest.kind)
        where = at("$", "signatures")
        if trust == Trust.REQUIRED and not manifest.signatures:
            rule = f"there must be a signature by a key that you trust: trust is {trust.value!r}"
            raise refusal(where, rule)
        keys.check(manifest.signatures, manifest.message, manifest.id, where, kind=manifest.kind)

    attestation = attest(
        root, check, check_signatures, fresh=fresh, check_cancelled=check_cancelled
    )
    manifest = attestation.manifest
    if attestation.keyids:
        raise_floor(store, manifest.kind, manifest.id, manifest.version)
    return attestation


def attest(
    root: Path,
    check: Callable[[Manifest], None],
    check_signatures: Callable[[Manifest], None] | None,
    *,
    fresh: bool = False,
    check_cancelled: Callable[[], None] | None = None,
) -> Attestation:
    """
    Check a folder against its manifest.

    Args:
        root: The folder.
        check: Raises InvalidArgumentError or VerificationError for a manifest that is about
            something else.
        check_signatures: The same for who signed it; None does not look.
        fresh: Whether every file is hashed, also one that has not changed.
        check_cancelled: Called again and again while files are hashed; what it raises ends that.

    Raises:
        VerificationError: It is not what its manifest says.
    """
    begin_s = time.monotonic()
    try:
        found = _walk(root)
        manifest = Manifest.from_json((root / _MANIFEST).read_bytes())
        check(manifest)
        _check_files(root, manifest, found)
        if check_signatures is not None:
            check_signatures(manifest)
        digests = Digests(root, manifest.digest, fresh, check_cancelled)
        _check_digests(digests, manifest, found)
    except InvalidArgumentError as exc:
        msg = f"pack {root}: {_MANIFEST}: {exc}"
        raise VerificationError(msg) from exc
    except OSError as exc:
        msg = f"pack {root}: it cannot be read: {exc}"
        raise VerificationError(msg) from exc
    signed = manifest.signatures if check_signatures is not None else ()
    attestation = Attestation(
        manifest=manifest,
        keyids=tuple(signature.keyid for signature in signed),
        hashed_bytes=digests.hashed_bytes,
        remembered_bytes=digests.remembered_bytes,
        seconds=time.monotonic() - begin_s,
    )
    _log.info("verified %s", attestation)
    return attestation


def _accept_bare(pack: Pack, trust: Trust) -> None:
    if trust == Trust.REQUIRED:
        msg = (
            f"model {pack.path}: it has no manifest to verify, and trust is {trust.value!r}; pass "
            f"trust={Trust.IF_SIGNED.value!r} for a plain model, or make a signed pack of it"
        )
        raise VerificationError(msg)


def check_pack(pack: Pack, descriptor: Descriptor, manifest: Manifest) -> None:
    """
    Check that a manifest is that of a pack as it was read.

    Args:
        pack: The pack.
        descriptor: Its descriptor.
        manifest: The manifest in its folder.

    Raises:
        InvalidArgumentError: It is a weights update, or about another descriptor.

        VerificationError: The pack has changed since it was read.
    """
    if manifest.kind != "cartridge":
        rule = 'must be "cartridge"; a weights update is nothing to open, see `cartridge pack`'
        raise refusal(at("$", "kind"), rule, manifest.kind)
    data = (pack.root / _DESCRIPTOR).read_bytes()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if manifest.descriptor_digest != digest:
        rule = f"must be that of {_DESCRIPTOR}, {digest}"
        raise refusal(at("$", "descriptor_digest"), rule, manifest.descriptor_digest)
    for name, found, wanted in (
        ("id", manifest.id, descriptor.id),
        ("version", manifest.version, descriptor.version),
    ):
        if found != wanted:
            raise refusal(at("$", name), f'must be "{wanted}", as in {_DESCRIPTOR}', found)
    if Descriptor.from_json(data, where=_DESCRIPTOR) != descriptor:
        msg = f"pack {pack.root}: {_DESCRIPTOR} has changed since the pack was read; read it anew"
        raise VerificationError(msg)
    for role in (None, *ROLES):
        files = (file.path for file in manifest.files if role in {None, file.role})
        if pack.files(role) != tuple(pack.root / path for path in files):
            msg = f"pack {pack.root}: {_MANIFEST} has changed since the pack was read; read it anew"
            raise VerificationError(msg)


def _check_files(root: Path, manifest: Manifest, found: Mapping[str, os.stat_result]) -> None:
    """Check that what is listed is there in its size, and nothing else is there."""
    for file in manifest.files:
        if file.path not in found:
            raise _changed(root, file.path, f"{_MANIFEST} lists it, and it is not there")
        size = found[file.path].st_size
        if size != file.size:
            why = f"it has {size} bytes, and {_MANIFEST} says {file.size}"
            raise _changed(root, file.path, why)
    listed = {file.path for file in manifest.files} | {_MANIFEST}
    if manifest.descriptor_digest is not None:
        listed.add(_DESCRIPTOR)
    for path in sorted(found.keys() - listed):
        msg = (
            f"pack {root}: file {path!r} is not listed in {_MANIFEST}; remove it, or make the "
            "manifest anew"
        )
        raise VerificationError(msg)


def _check_digests(
    digests: Digests, manifest: Manifest, found: Mapping[str, os.stat_result]
) -> None:
    try:
        for file in manifest.files:
            digest = digests.of(file.path, found[file.path])
            if digest != file.digest:
                why = f"its content is {digest}, and {_MANIFEST} says {file.digest}"
                raise _changed(digests.root, file.path, why)
    finally:
        digests.keep()


def _changed(root: Path, path: str, why: str) -> VerificationError:
    msg = f"pack {root}: file {path!r}: {why}; fetch the pack again"
    return VerificationError(msg)


def _walk(root: Path) -> dict[str, os.stat_result]:
    """
    Find every file of a pack, by its path in the pack; dot-entries are left out.

    Raises:
        VerificationError: There is something that is neither a folder nor a regular file.
    """
    found: dict[str, os.stat_result] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                path = f"{folder}{entry.name}"
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{path}/")
                elif entry.is_file(follow_symlinks=False):
                    found[path] = entry.stat(follow_symlinks=False)
                else:
                    raise _irregular(root, path, entry)
    return found


def _irregular(root: Path, path: str, entry: os.DirEntry[str]) -> VerificationError:
    what = "is a symbolic link" if entry.is_symlink() else "is no regular file"
    msg = f"pack {root}: {path!r} {what}; a pack holds folders and regular files only"
    return VerificationError(msg)
