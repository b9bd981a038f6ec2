"""
The manifest of a pack or of a weights update, read strictly.

Source: Cartridge ABI 0.1, manifest schema 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cartridge_core._manifest_blocks import (
    KINDS,
    Base,
    Evaluation,
    ListedFile,
    read_base,
    read_digest,
    read_evaluation,
    read_files,
)
from cartridge_core.jsondata import read_json, refusal
from cartridge_core.jsonfields import Fields
from cartridge_core.signatures import Signature, signed_message
from cartridge_core.versions import SEMVER

if TYPE_CHECKING:
    from cartridge_core.signatures import Kind

__all__ = ["Manifest"]

_KEYS = frozenset(
    {"schema_version", "kind", "id", "version", "effective_license", "descriptor_digest"}
    | {"base", "digest_alg", "artifacts", "provenance", "signatures"}
)


@attrs.frozen
class Manifest:
    """What a pack must hold, or a weights update."""

    id: str
    version: str
    kind: Kind = attrs.field(kw_only=True)

    descriptor_digest: str | None = attrs.field(kw_only=True)
    """``sha256:`` and 64 hex digits, of the descriptor file's bytes as they are."""

    effective_license: str | None = attrs.field(kw_only=True)

    base: Base | None = attrs.field(kw_only=True)
    """What a weights update applies to."""

    evaluation: Evaluation | None = attrs.field(kw_only=True)
    files: tuple[ListedFile, ...] = attrs.field(kw_only=True)
    signatures: tuple[Signature, ...] = attrs.field(kw_only=True)
    message: bytes = attrs.field(kw_only=True, repr=False)
    """What the signatures sign."""

    @property
    def digest(self) -> str:
        """What names this manifest, whoever signed it: ``sha256:`` and 64 hex digits."""
        return f"sha256:{self.message.decode('ascii')}"

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """
        Read a manifest strictly.

        Raises:
            InvalidArgumentError: It is not strict JSON, breaks the schema, or lists a path that is
                not safe or two that are one on some file system.
        """
        fields = Fields(read_json(data, "$"), "$", _KEYS)
        fields.choice("schema_version", ("2",))
        kind = fields.choice("kind", KINDS)
        fields.choice("digest_alg", ("sha256",))
        has_descriptor = kind == "cartridge" or "descriptor_digest" in fields.data
        if kind == "weights-update":
            fields.value("base")
            fields.matching("version", SEMVER, "a semantic version, as in 1.0.2")
        return cls(
            fields.text("id"),
            fields.text("version"),
            kind=kind,
            descriptor_digest=read_digest(fields, "descriptor_digest") if has_descriptor else None,
            effective_license=fields.optional(fields.text, "effective_license"),
            base=fields.optional(fields.block, "base", read_base),
            evaluation=fields.optional(fields.block, "provenance", read_evaluation),
            files=read_files(fields),
            signatures=tuple(Signature.from_json(*item) for item in fields.items("signatures")),
            message=_message(fields),
        )


def _message(fields: Fields) -> bytes:
    try:
        return signed_message(fields.data)
    except RecursionError:
        raise refusal(fields.where, "nests too deep") from None
