"""
Whether a pack is what its manifest says, byte for byte, and signed by someone trusted.

Cheap checks come first: the tree of files, the manifest's form, sizes, signatures; then the
SHA-256 of every file.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import time
from typing import TYPE_CHECKING

import attrs

from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import InvalidArgumentError, VerificationError
from cartridge_core.jsondata import at, read_json, refusal
from cartridge_core.jsonfields import Fields
from cartridge_core.pack import Trust
from cartridge_core.signatures import Signature, TrustStore, signed_message, trust_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from cartridge_core.pack import Pack

__all__ = ["ListedFile", "Manifest", "verify"]

_KEYS = frozenset(
    {"schema_version", "kind", "id", "version", "effective_license", "descriptor_digest"}
    | {"base", "digest_alg", "artifacts", "provenance", "signatures"}
)
_ARTIFACT_KEYS = frozenset(
    {"role", "path", "digest", "size", "license"}
    | {"derived_from", "encryption", "delivery", "component"}
)
_ROLES = ("runtime", "model", "weights", "tokenizer", "calibration", "descriptor", "other")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DIGEST_FORM = '"sha256:" and 64 lower-case hex digits'
_DESCRIPTOR, _MANIFEST = "descriptor.json", "manifest.json"
_SETTLED_NS = 2_000_000_000
"""A file changed later than this ago may change again within one tick of its time stamps."""


@attrs.frozen
class ListedFile:
    """One file that a manifest lists, and what it must be."""

    role: str
    path: str
    """Relative to the pack's root, ``/`` between plain names."""

    digest: str = attrs.field(kw_only=True)
    """``sha256:`` and 64 hex digits."""

    size: int = attrs.field(kw_only=True)
    """Bytes."""

    @classmethod
    def from_json(cls, value: object, where: str) -> ListedFile:
        """
        Read an artifact of a manifest.

        Raises:
            InvalidArgumentError: It breaks the manifest's schema, or its path is not safe.
        """
        fields = Fields(value, where, _ARTIFACT_KEYS)
        fields.text("license")
        fields.optional(fields.text, "component")
        for name in ("derived_from", "encryption", "delivery"):
            fields.mapping(name)
        return cls(
            fields.choice("role", _ROLES),
            _read_path(fields),
            digest=fields.matching("digest", _DIGEST, _DIGEST_FORM),
            size=fields.integer("size", 0),
        )


@attrs.frozen
class Manifest:
    """
    What a pack must hold.

    Source:
        Cartridge ABI 0.1, manifest schema 2.
    """

    id: str
    version: str
    descriptor_digest: str = attrs.field(kw_only=True)
    """``sha256:`` and 64 hex digits, of the descriptor file's bytes as they are."""

    files: tuple[ListedFile, ...] = attrs.field(kw_only=True)
    signatures: tuple[Signature, ...] = attrs.field(kw_only=True)
    message: bytes = attrs.field(kw_only=True, repr=False)
    """What the signatures sign."""

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """
        Read a manifest strictly.

        Raises:
            InvalidArgumentError: It is not strict JSON, breaks the schema, lists a path that is
                not safe or two that differ only in case, or is a weights update.
        """
        fields = Fields(read_json(data, "$"), "$", _KEYS)
        fields.choice("schema_version", ("2",))
        if fields.choice("kind", ("cartridge", "weights-update")) == "weights-update":
            rule = 'must be "cartridge"; weights updates are not supported yet'
            raise refusal(fields.at("kind"), rule, "weights-update")
        fields.choice("digest_alg", ("sha256",))
        fields.optional(fields.text, "effective_license")
        for name in ("base", "provenance"):
            fields.mapping(name)
        return cls(
            fields.text("id"),
            fields.text("version"),
            descriptor_digest=fields.matching("descriptor_digest", _DIGEST, _DIGEST_FORM),
            files=_read_files(fields),
            signatures=tuple(Signature.from_json(*item) for item in fields.items("signatures")),
            message=_message(fields),
        )


def verify(pack: Pack, trust: Trust, store: Path | None = None) -> None:
    """
    Check a pack against its manifest and its signatures.

    Names that start with a dot, and what is below them, are neither checked nor allowed to be
    listed. The digest of a file that has not changed since an earlier call is remembered.

    Args:
        pack: Of any kind; a bare one has nothing to check.
        trust: How much is checked.
        store: Path of the trust store; None is where `trust_file` finds it. A file that does
            not exist is a store without keys.

    Raises:
        VerificationError: A file is missing, changed, not listed, or no regular file; the
            manifest is malformed, is about another descriptor, or has a signature that does not
            match or is by an unknown or unauthorised key; the trust store is malformed or wants a
            newer version; ``trust`` is ``required``, and there is no manifest or no signature.

    Source:
        Cartridge ABI 0.1, "pack_dir" and manifest schema 2.
    """
    if trust == Trust.OFF:
        return
    if pack.descriptor is None:
        _accept_bare(pack, trust)
        return
    try:
        _verify(pack, pack.descriptor, trust, TrustStore.read(trust_file(store)))
    except InvalidArgumentError as exc:
        msg = f"pack {pack.root}: {_MANIFEST}: {exc}"
        raise VerificationError(msg) from exc
    except OSError as exc:
        msg = f"pack {pack.root}: it cannot be read: {exc}"
        raise VerificationError(msg) from exc


def _accept_bare(pack: Pack, trust: Trust) -> None:
    if trust == Trust.REQUIRED:
        msg = (
            f"model {pack.path}: it has no manifest to verify, and trust is {trust.value!r}; pass "
            f"trust={Trust.IF_SIGNED.value!r} for a plain model, or make a signed pack of it"
        )
        raise VerificationError(msg)


def _verify(pack: Pack, descriptor: Descriptor, trust: Trust, store: TrustStore) -> None:
    found = _walk(pack.root)
    manifest = Manifest.from_json((pack.root / _MANIFEST).read_bytes())
    _check_descriptor(pack, manifest, descriptor)
    store.check_version(manifest.id, manifest.version, "$.version")
    _check_files(pack, manifest, found)
    signatures = at("$", "signatures")
    if trust == Trust.REQUIRED and not manifest.signatures:
        rule = f"there must be a signature by a key that you trust: trust is {trust.value!r}"
        raise refusal(signatures, rule)
    store.check(manifest.signatures, manifest.message, manifest.id, signatures)
    for file in manifest.files:
        digest = _sha256(pack.root / file.path, found[file.path])
        if digest != file.digest:
            why = f"its content is {digest}, and {_MANIFEST} says {file.digest}"
            raise _changed(pack, file.path, why)


def _check_descriptor(pack: Pack, manifest: Manifest, descriptor: Descriptor) -> None:
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


def _check_files(pack: Pack, manifest: Manifest, found: Mapping[str, os.stat_result]) -> None:
    for file in manifest.files:
        if file.path not in found:
            raise _changed(pack, file.path, f"{_MANIFEST} lists it, and it is not there")
        size = found[file.path].st_size
        if size != file.size:
            why = f"it has {size} bytes, and {_MANIFEST} says {file.size}"
            raise _changed(pack, file.path, why)
    listed = {file.path for file in manifest.files} | {_DESCRIPTOR, _MANIFEST}
    for path in sorted(found.keys() - listed):
        msg = (
            f"pack {pack.root}: file {path!r} is not listed in {_MANIFEST}; remove it, or make the "
            "manifest anew"
        )
        raise VerificationError(msg)
    for role in (None, *_ROLES):
        files = (file.path for file in manifest.files if role in {None, file.role})
        if pack.files(role) != tuple(pack.root / path for path in files):
            msg = f"pack {pack.root}: {_MANIFEST} has changed since the pack was read; read it anew"
            raise VerificationError(msg)


def _changed(pack: Pack, path: str, why: str) -> VerificationError:
    msg = f"pack {pack.root}: file {path!r}: {why}; fetch the pack again"
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


def _sha256(path: Path, stat: os.stat_result) -> str:
    stamp = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) < _SETTLED_NS:
        return _hashed(path)
    return _remembered(path, stamp)


@functools.lru_cache(maxsize=4096)
def _remembered(path: Path, stamp: tuple[int, ...]) -> str:
    """Hash a file once for each state of it."""
    return _hashed(path)


def _hashed(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _message(fields: Fields) -> bytes:
    try:
        return signed_message(fields.data)
    except RecursionError:
        raise refusal(fields.where, "nests too deep") from None


def _read_path(fields: Fields) -> str:
    path = fields.text("path")
    if "\\" in path or any(not name or name.startswith(".") for name in path.split("/")):
        rule = (
            'must be a path below the pack\'s folder: "/" between names, no "\\", no name that is '
            "empty or starts with a dot"
        )
        raise refusal(fields.at("path"), rule, path)
    if path == _MANIFEST:
        raise refusal(fields.at("path"), "the manifest cannot list itself", path)
    return path


def _read_files(fields: Fields) -> tuple[ListedFile, ...]:
    fields.value("artifacts")
    items = fields.items("artifacts")
    if not items:
        raise refusal(fields.at("artifacts"), "must list at least one file")
    files = tuple(ListedFile.from_json(item, where) for item, where in items)
    _check_spelling(files, fields.at("artifacts"))
    return files


def _check_spelling(files: Iterable[ListedFile], where: str) -> None:
    """Check that no two paths, nor the folders they lie in, are one where case does not count."""
    seen: set[str] = set()
    spelt = {_DESCRIPTOR: _DESCRIPTOR, _MANIFEST: _MANIFEST}
    for index, path in enumerate(file.path for file in files):
        place = at(at(where, index), "path")
        if path in seen:
            raise refusal(place, "stands here twice", path)
        seen.add(path)
        names = path.split("/")
        for part in ("/".join(names[: count + 1]) for count in range(len(names))):
            other = spelt.setdefault(part.casefold(), part)
            if other != part:
                raise refusal(place, f'differs only in case from "{other}"', part)
