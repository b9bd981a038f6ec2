"""Make a pack: of a model's files for a cartridge, or of a folder with its own descriptor."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core._pack_folders import check_base
from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import InvalidArgumentError, LoadError
from cartridge_core.licences import says_nothing
from cartridge_core.manifest import Manifest
from cartridge_core.signing import write_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["GOLDEN", "PackFacts", "make_own_pack", "make_pack"]

GOLDEN = "artifacts/other/golden/golden.json"
"""Where a pack that is made here has its golden vectors, and what they need beside them."""

_MODEL = "artifacts/model"


@attrs.frozen(kw_only=True)
class PackFacts:
    """What nobody but its maker knows of a pack."""

    id: str
    version: str
    license: str
    """Of the files and of the whole; an SPDX expression."""

    source: str | None = None
    """Where the files come from."""


def make_pack(
    model: Path,
    target: Path,
    base: Descriptor,
    facts: PackFacts,
    golden: Mapping[str, bytes] | None = None,
) -> Manifest:
    """
    Make a pack that narrows a cartridge to one model; it is not signed yet.

    The files are copied. A link in the model's folder is followed, if it leads to a file; names
    that start with a dot are left out.

    Args:
        model: A model file, or a model folder.
        target: The pack's folder, which must not exist.
        base: The descriptor of the cartridge that opens it.
        facts: What else it states.
        golden: Golden vectors and the files they need, by name; ``golden.json`` is the first.

    Raises:
        InvalidArgumentError: The id, the version or the licence is none, the id is the base's, or
            the base takes no model.

        LoadError: There is no model, something in its folder is neither a file nor a folder, or
            the target exists or cannot be written.
    """
    if says_nothing(facts.license):
        msg = f"license is {facts.license!r}, which says nothing; state the model's licence"
        raise InvalidArgumentError(msg, arg="license", value=facts.license)
    if base.pack_arg is None:
        msg = f"{base.id} takes no model, and a pack is one; name a cartridge that does"
        raise InvalidArgumentError(msg, arg="base", value=base.id)
    if facts.id == base.id:
        msg = f"id is {facts.id!r}, that of the cartridge it narrows; an id is one cartridge's"
        raise InvalidArgumentError(msg, arg="id", value=facts.id)
    descriptor = _descriptor(base, facts, golden=golden is not None)
    files: dict[str, Path | bytes] = dict(_files(model))
    if not files:
        msg = f"{model} holds no file; name the model"
        raise LoadError(msg)
    for name, data in sorted((golden or {}).items()):
        files[Path(GOLDEN).with_name(name).as_posix()] = data
    return _make(target, files, descriptor, facts)


def make_own_pack(source: Path, target: Path) -> Manifest:
    """
    Make a pack of a folder that has a descriptor of its own; it is not signed yet.

    The pack narrows no cartridge: its descriptor says all of it, the licence of its files too. The
    files are copied as by `make_pack`.

    Args:
        source: A folder with ``descriptor.json``, and the files in ``artifacts/<role>/``.
        target: The pack's folder, which must not exist.

    Raises:
        InvalidArgumentError: The descriptor is malformed, states no licence, or names a base; or
            a folder in ``artifacts`` is no role.

        LoadError: There is no descriptor or no file, something else lies beside them, or the
            target exists or cannot be written.
    """
    try:
        text = (source / "descriptor.json").read_bytes()
        names = {one.name for one in source.iterdir() if not one.name.startswith(".")}
    except OSError as exc:
        msg = f"{source}: its descriptor.json cannot be read: {exc.strerror or exc}"
        raise LoadError(msg) from exc
    strange = sorted(names - {"artifacts", "descriptor.json", "manifest.json"})
    if strange:
        msg = f"{source} holds {', '.join(strange)}; the files of a pack are in artifacts/<role>/"
        raise LoadError(msg)
    descriptor = Descriptor.from_json(text)
    if says_nothing(descriptor.license):
        msg = f"license is {descriptor.license!r}, which says nothing; state the licence"
        raise InvalidArgumentError(msg, arg="license", value=descriptor.license)
    if descriptor.base is not None:
        msg = f"attributes.base is {descriptor.base!r}; what narrows a cartridge is made from that"
        raise InvalidArgumentError(msg, arg="base", value=descriptor.base)
    artifacts = source / "artifacts"
    files: dict[str, Path | bytes] = (
        dict(_below(artifacts, "artifacts")) if artifacts.is_dir() else {}
    )
    if not files:
        msg = f"{source} has no files in artifacts/<role>/; put them there"
        raise LoadError(msg)
    facts = PackFacts(id=descriptor.id, version=descriptor.version, license=descriptor.license)
    return _make(target, files, text, facts)


def _make(
    target: Path, files: Mapping[str, Path | bytes], descriptor: bytes, facts: PackFacts
) -> Manifest:
    """Make the pack beside its place, and move it there."""
    try:
        if target.exists():
            msg = f"{target} exists; name a folder that does not, or remove it"
            raise LoadError(msg)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
            folder = Path(scratch, "pack")
            manifest = _write(folder, files, descriptor, facts)
            folder.rename(target)
    except OSError as exc:
        msg = f"pack {target} cannot be made: {exc}"
        raise LoadError(msg) from exc
    return manifest


def _write(
    folder: Path, files: Mapping[str, Path | bytes], descriptor: bytes, facts: PackFacts
) -> Manifest:
    """Write the files of a pack by their paths in it; the folder after ``artifacts`` is a role."""
    for path, source in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, bytes):
            (folder / path).write_bytes(source)
        else:
            shutil.copyfile(source, folder / path)
    (folder / "descriptor.json").write_bytes(descriptor)
    listed = [_artifact(folder, path, facts) for path in sorted(files, key=_model_first)]
    document: dict[str, object] = {
        "schema_version": "2",
        "kind": "cartridge",
        "id": facts.id,
        "version": facts.version,
        "effective_license": facts.license,
        "descriptor_digest": _digest(folder / "descriptor.json"),
        "digest_alg": "sha256",
        "artifacts": listed,
        "provenance": {
            "producer": "cartridge-core",
            "built_at": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
        "signatures": [],
    }
    # What is written here must be what others read.
    manifest = Manifest.from_json(json.dumps(document).encode())
    write_manifest(folder / "manifest.json", document)
    return manifest


def _model_first(path: str) -> tuple[bool, str]:
    return (not path.startswith(f"{_MODEL}/"), path)


def _artifact(folder: Path, path: str, facts: PackFacts) -> dict[str, object]:
    file, role = folder / path, path.split("/")[1]
    artifact: dict[str, object] = {
        "role": role,
        "path": path,
        "digest": _digest(file),
        "size": file.stat().st_size,
        "license": facts.license,
    }
    if facts.source is not None and role == "model":
        artifact["derived_from"] = {"source": facts.source}
    return artifact


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def _files(model: Path) -> Iterator[tuple[str, Path]]:
    """Give the model's files by their paths in the pack."""
    if model.is_file():
        yield f"{_MODEL}/{model.name}", model
        return
    if not model.is_dir():
        found = "is neither a file nor a folder" if os.path.lexists(model) else "does not exist"
        msg = f"model {model} {found}; check the path"
        raise LoadError(msg)
    yield from _below(model, _MODEL)


def _below(folder: Path, path: str) -> Iterator[tuple[str, Path]]:
    try:
        children = sorted(folder.iterdir())
    except OSError as exc:
        msg = f"model folder {folder} cannot be read: {exc.strerror or exc}"
        raise LoadError(msg) from exc
    for child in children:
        if child.name.startswith("."):
            continue
        if child.is_file():
            yield f"{path}/{child.name}", child
        elif child.is_dir() and not child.is_symlink():
            yield from _below(child, f"{path}/{child.name}")
        else:
            msg = f"{child} is neither a file nor a folder of its own, and cannot be in a pack"
            raise LoadError(msg)


def _descriptor(base: Descriptor, facts: PackFacts, *, golden: bool) -> bytes:
    """Write the descriptor: the base's, of this model, of which nothing is measured yet."""
    document = base.to_json()
    document |= {"id": facts.id, "version": facts.version, "license": facts.license}
    document["performance"] = {"measured_on": "unmeasured"}
    if "quality" in document:
        document["quality"] = {"unmeasured": True, "harness": "cartridge check"}
    document.pop("model", None)
    document.pop("flavors", None)
    # What the base needs for its default model says nothing of this one; its plugin estimates.
    cast("dict[str, object]", document.get("requirements", {})).pop("memory_mb", None)
    attributes = cast("dict[str, object]", document["attributes"])
    attributes["base"] = base.id
    attributes.pop("plugin", None)
    if golden:
        attributes["golden"] = GOLDEN
    for cap in cast("list[dict[str, object]]", attributes["caps"]):
        for arg in cast("list[dict[str, object]]", cap.get("args", [])):
            metadata = cast("dict[str, object]", arg.get("metadata") or {})
            if metadata.get("pack") is True:
                arg.pop("default_value", None)
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    made = Descriptor.from_json(text.encode(), where="descriptor")
    check_base(made, base)
    return text.encode()
