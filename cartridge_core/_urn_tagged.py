"""Tagged URNs, and media URNs, which are tagged URNs with a prefix of their own."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import attrs

from cartridge_core._urn_grammar import fault, find_value, read, write
from cartridge_core._urn_relations import UNKNOWN, UNSET, conforms, meets, score

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

__all__ = ["MediaUrn", "TaggedUrn"]


@attrs.frozen(eq=False, repr=False)
class TaggedUrn:
    """A prefix and tags; made by `parse`."""

    prefix: str
    _tags: dict[str, str]

    # Absent until somebody asks.
    _text: str = attrs.field(init=False)
    _specificity: int = attrs.field(init=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Read a URN.

        Raises:
            UrnError: It is malformed; the message shows where.
        """
        prefix, tags = read(text)
        return cls(prefix, tags)

    def __str__(self) -> str:
        try:
            return self._text
        except AttributeError:
            text = write(self.prefix, self._tags)
            object.__setattr__(self, "_text", text)
            return text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Callable[[str], Self], tuple[str]]:
        return type(self).parse, (str(self),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TaggedUrn) or type(self) is not type(other):
            return NotImplemented
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def specificity(self) -> int:
        """How constrained it is: the sum over its tags; serves only to rank."""
        try:
            return self._specificity
        except AttributeError:
            total = sum(map(score, self._tags.values()))
            object.__setattr__(self, "_specificity", total)
            return total

    @property
    def tags(self) -> Mapping[str, str]:
        """
        The stored values by key, read-only.

        ``*`` is set to anything, ``?`` no constraint, ``!`` unset, ``?=v`` not set to v, ``!=v``
        set but not to v, anything else the exact value.
        """
        return MappingProxyType(self._tags)

    def conforms_to(self, pattern: TaggedUrn) -> bool:
        """
        Say whether all that this describes, the pattern describes too.

        Raises:
            UrnError: The prefixes differ.
        """
        self._check_prefix(pattern)
        return conforms(self._tags, pattern._tags, UNKNOWN)

    def accepts(self, instance: TaggedUrn) -> bool:
        """
        Say whether the instance conforms to this.

        Raises:
            UrnError: The prefixes differ.
        """
        return instance.conforms_to(self)

    def is_equivalent(self, other: TaggedUrn) -> bool:
        """
        Say whether each conforms to the other.

        Raises:
            UrnError: The prefixes differ.
        """
        return self.conforms_to(other) and other.conforms_to(self)

    def is_comparable(self, other: TaggedUrn) -> bool:
        """
        Say whether either conforms to the other.

        Raises:
            UrnError: The prefixes differ.
        """
        return self.conforms_to(other) or other.conforms_to(self)

    def meets(self, other: TaggedUrn) -> bool:
        """
        Say whether both could describe the same thing.

        Raises:
            UrnError: The prefixes differ.
        """
        self._check_prefix(other)
        return meets(self._tags, other._tags, UNKNOWN)

    def satisfies(self, pattern: TaggedUrn) -> bool:
        """
        Say whether something that exists, with just these tags, conforms to the pattern.

        Raises:
            UrnError: The prefixes differ.
        """
        self._check_prefix(pattern)
        return conforms(self._tags, pattern._tags, UNSET)

    def may_satisfy(self, pattern: TaggedUrn) -> bool:
        """
        Say whether something that exists, with just these tags, could conform to the pattern.

        Raises:
            UrnError: The prefixes differ.
        """
        self._check_prefix(pattern)
        return meets(self._tags, pattern._tags, UNSET)

    def _check_prefix(self, other: TaggedUrn) -> None:
        if self.prefix != other.prefix:
            problem = f"expected URNs with one prefix, found {self.prefix!r} and {other.prefix!r}"
            pair = f"{self} | {other}"
            raise fault(pair, None, "PrefixMismatch", problem)


@attrs.frozen(eq=False, repr=False)
class MediaUrn(TaggedUrn):
    """What flows into or out of a cap, ``media:...``; made by `parse`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Read a media URN.

        Raises:
            UrnError: It is malformed, has another prefix, or refines ``media:void``.
        """
        prefix, tags = read(text)
        if prefix != "media":
            raise fault(text, 0, "MediaUrn", f"expected the prefix 'media', found {prefix!r}")
        if "void" in tags and len(tags) > 1:
            other = next(key for key in tags if key != "void")
            problem = f"expected media:void alone, found the tag {other!r} beside it"
            raise fault(text, find_value(text, other), "MediaUrn", problem)
        return cls(prefix, tags)

    def has(self, marker: str) -> bool:
        """Say whether this sets the key, to whatever value."""
        stored = self._tags.get(marker, UNKNOWN)
        return stored not in (UNKNOWN, UNSET) and not stored.startswith("?=")
