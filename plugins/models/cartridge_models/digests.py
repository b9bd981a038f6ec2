"""What a source states of a file's content, and how to compute the same."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from hashlib import _Hash

__all__ = ["Digest"]

_HEX = {"sha256": re.compile(r"[0-9a-f]{64}"), "git-sha1": re.compile(r"[0-9a-f]{40}")}


@attrs.frozen
class Digest:
    """
    A digest that a source states.

    ``git-sha1`` is what the hub states of files that are not in LFS: git's name of a blob.
    Source: Pro Git, "Git Internals - Git Objects".
    """

    algorithm: str = attrs.field(validator=attrs.validators.in_(_HEX))
    hex: str

    def __attrs_post_init__(self) -> None:
        """Refuse what is no digest: it becomes a file's name."""
        if not _HEX[self.algorithm].fullmatch(self.hex):
            msg = f"{self.hex!r:.80} is no {self.algorithm}"
            raise ValueError(msg)

    def hasher(self, size_bytes: int | None) -> _Hash:
        """
        Begin to compute it.

        Args:
            size_bytes: The file's size, which ``git-sha1`` needs.
        """
        if self.algorithm == "sha256":
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % (size_bytes or 0), usedforsecurity=False)

    def __str__(self) -> str:
        return f"{self.algorithm} {self.hex}"
