"""
The newest version of each signed pack that this machine has accepted.

They stand beside the trust store, ``trust.versions.json`` for ``trust.json``, and only ever rise::

    {"schema_version": "1", "cartridge": {"asr-tiny": "1.2.0"}, "weights-update": {}}

So an old version, though rightly signed, cannot come back. A cartridge and its weights updates each
have a floor of their own: an update is newer than the base it needs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
from typing import TYPE_CHECKING

from cartridge_core.errors import InvalidArgumentError, VerificationError
from cartridge_core.jsondata import read_json
from cartridge_core.jsonfields import Fields
from cartridge_core.versions import SEMVER, precedence
from cartridge_core.wholefiles import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["floors_file", "raise_floor", "read_floors"]

_log = logging.getLogger("cartridge.packs")

_SCHEMA = "schema_version"
_KINDS = ("cartridge", "weights-update")


def floors_file(store: Path) -> Path:
    """Say where the versions stand that were accepted under a trust store."""
    return store.with_name(f"{store.stem}.versions.json")


def read_floors(store: Path) -> Mapping[str, Mapping[str, str]]:
    """
    Give the versions that were accepted under a trust store, by kind of manifest and by id.

    Raises:
        VerificationError: The file cannot be read, or is malformed.
    """
    file = floors_file(store)
    try:
        fields = Fields(read_json(file.read_bytes(), "$"), "$", frozenset({_SCHEMA, *_KINDS}))
        fields.choice(_SCHEMA, ("1",))
        return {kind: fields.block(kind, _read_versions) for kind in _KINDS}
    except FileNotFoundError:
        return {kind: {} for kind in _KINDS}
    except (OSError, InvalidArgumentError) as exc:
        msg = f"accepted versions {file}: {exc}; correct the file, or remove it to start anew"
        raise VerificationError(msg) from exc


def _read_versions(value: object, where: str) -> Mapping[str, str]:
    versions = Fields(value, where)
    rule = "a semantic version, as in 1.0.2"
    return {name: versions.matching(name, SEMVER, rule) for name in versions.data}


def raise_floor(store: Path, kind: str, cartridge_id: str, version: str) -> None:
    """
    Remember that a version was accepted; one that is not newer changes nothing.

    Where nothing can be written, that is logged: what was accepted before still counts.

    Args:
        store: The trust store.
        kind: Of the manifest, ``cartridge`` or ``weights-update``.
        cartridge_id: Whose version it is.
        version: Which one.

    Raises:
        VerificationError: What stands there is malformed.
    """
    if not _is_newer(read_floors(store)[kind], cartridge_id, version):
        return
    try:
        with _locked(store.parent):
            # Another process may have accepted something since.
            floors = {each: dict(versions) for each, versions in read_floors(store).items()}
            if _is_newer(floors[kind], cartridge_id, version):
                floors[kind][cartridge_id] = version
                text = json.dumps({_SCHEMA: "1", **floors}, indent=2, sort_keys=True) + "\n"
                # Whoever may read the trust store has to be able to read this.
                write_whole(floors_file(store), text, store.stat().st_mode & 0o777)
    except OSError as exc:
        _log.warning(
            "that %s %s was accepted could not be kept beside the trust store %s: %s",
            cartridge_id,
            version,
            store,
            exc,
        )


def _is_newer(floors: Mapping[str, str], cartridge_id: str, version: str) -> bool:
    floor = floors.get(cartridge_id)
    return floor is None or precedence(floor) < precedence(version)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes out while the file is read and replaced."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
