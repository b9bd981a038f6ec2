"""
A wheel's RECORD, and files checked against it.

Source: Python packaging user guide, "Recording installed projects" and "Binary distribution
format".
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import re
from typing import IO, TYPE_CHECKING

import attrs

from cartridge_core.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RECORD", "Recorded", "copy_checked", "read_record"]

RECORD = re.compile(r"[^/]+\.dist-info/RECORD")
"""RECORD's own path in a wheel."""

_CHUNK_BYTES = 1 << 20
_ALGORITHMS = frozenset({"sha256", "sha384", "sha512"})


@attrs.frozen
class Recorded:
    """What RECORD says of one file."""

    path: str
    """Relative to the wheel's root."""

    algorithm: str = attrs.field(kw_only=True)
    digest: bytes = attrs.field(kw_only=True)
    size_bytes: int = attrs.field(kw_only=True)


def read_record(text: str, where: str) -> dict[str, Recorded | None]:
    """
    Read RECORD.

    Args:
        text: The file's text.
        where: Whose it is, for errors.

    Returns:
        What it says, by path; None for a file without a digest, as RECORD itself.

    Raises:
        VerificationError: It is malformed, or names a digest weaker than SHA-256.
    """
    found: dict[str, Recorded | None] = {}
    try:
        rows = list(csv.reader(text.splitlines()))
    except csv.Error as exc:
        msg = f"{where}: RECORD is malformed: {exc}"
        raise VerificationError(msg) from exc
    for row in rows:
        path, digest, size = row if len(row) == 3 else ("", "", "")
        if not path or path in found:
            msg = f"{where}: RECORD has a malformed or repeated row: {','.join(row)!r:.200}"
            raise VerificationError(msg)
        found[path] = _read_entry(path, digest, size, where) if digest else None
    return found


def _read_entry(path: str, digest: str, size: str, where: str) -> Recorded:
    algorithm, _, encoded = digest.partition("=")
    try:
        # RECORD leaves the padding out.
        value = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars="-_", validate=True)
        size_bytes = int(size)
    except (binascii.Error, ValueError):
        value, size_bytes = b"", -1
    if algorithm not in _ALGORITHMS or not value or size_bytes < 0:
        given = f"{digest!r:.200}, {size!r:.50}"
        msg = f"{where}: RECORD gives no SHA-2 digest and size for {path}: {given}"
        raise VerificationError(msg)
    return Recorded(path, algorithm=algorithm, digest=value, size_bytes=size_bytes)


def copy_checked(
    source: IO[bytes],
    target: IO[bytes] | None,
    recorded: Recorded,
    *,
    where: str,
    on_bytes: Callable[[int], None],
) -> None:
    """
    Read a file to its end, and copy it, checking it against RECORD.

    Args:
        source: The file.
        target: Takes the copy; None only checks.
        recorded: What it must be.
        where: Whose file it is, for errors.
        on_bytes: Told how many bytes each step read; may raise to stop.

    Raises:
        VerificationError: It is longer, shorter or other than recorded; no byte past the recorded
            size is copied.
    """
    hasher, left = hashlib.new(recorded.algorithm), recorded.size_bytes
    while chunk := source.read(_CHUNK_BYTES):
        left -= len(chunk)
        if left < 0:
            break
        hasher.update(chunk)
        if target is not None:
            target.write(chunk)
        on_bytes(len(chunk))
    if left != 0 or hasher.digest() != recorded.digest:
        size = f"{recorded.size_bytes - left} bytes" if left >= 0 else "longer"
        found = f"{size}, {recorded.algorithm} {hasher.hexdigest()}" if left >= 0 else size
        msg = (
            f"{where}: {recorded.path} is not the file that RECORD lists "
            f"({recorded.size_bytes} bytes, {recorded.algorithm} {recorded.digest.hex()}): it is "
            f"{found}; it was changed or damaged"
        )
        raise VerificationError(msg)
