"""
URNs: what flows (`MediaUrn`), what is offered or asked for (`CapUrn`), and how they relate.

Values are immutable, compare and hash by their canonical text, and are parsed once.

Source: CapDAG, as the packages tagged-urn 1.138 and capdag 1.524 decide it.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from cartridge_core._urn_grammar import fault, find_value, read, write
from cartridge_core._urn_relations import UNKNOWN, UNSET, conforms, meets, score
from cartridge_core._urn_tagged import MediaUrn, TaggedUrn
from cartridge_core.errors import InvalidArgumentError, UrnError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

__all__ = ["CapUrn", "Effect", "Grade", "MediaUrn", "TaggedUrn"]


class Grade(enum.Enum):
    """
    How a cap answers a request.

    Source: the capdag package, ``MatchGrade``.
    """

    EXACT = "exact"
    """Guaranteed, and each media URN that was asked for is the very one."""

    GUARANTEED = "guaranteed"
    """Whatever the cap takes and gives, it is what was asked for."""

    POSSIBLE = "possible"
    """Neither guaranteed nor excluded; nothing is routed on it."""

    NONE = "none"
    """Excluded."""


class Effect(enum.StrEnum):
    """
    What a cap's output keeps of its input.

    Source: the capdag package, ``CapEffect``.
    """

    DECLARED = "declared"
    """The output is what ``out=`` says, and nothing more is promised."""

    NONE = "none"
    """The output is the input, unchanged in kind."""

    PATCH = "patch"
    """The output is the input with the difference between ``in=`` and ``out=`` applied."""

    ANY = "?"
    """A request that does not care."""


# Few media URNs are shared by many caps. The first ones stay: to make room for the next would take
# as long as to read it.
_MEDIA: Final = {"*": MediaUrn.parse("media:")}
_MOST_MEDIA: Final = 1024
_OPEN: Final = frozenset({UNKNOWN})
_EFFECTS: Final = {effect.value: effect for effect in Effect} | {"*": Effect.ANY}


@attrs.frozen(eq=False, repr=False)
class CapUrn:
    """
    A cap that is offered, or asked for, ``cap:...``; made by `parse`.

    An absent ``in=`` or ``out=`` is ``media:``, an absent ``effect=`` is ``declared``.
    """

    in_: MediaUrn = attrs.field(alias="in_")
    """What it takes."""

    out: MediaUrn
    """What it gives."""

    effect: Effect
    """What the output keeps of the input."""

    _tags: dict[str, str]

    # Absent until somebody asks.
    _text: str = attrs.field(init=False)
    _specificity: int = attrs.field(init=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Read a cap URN.

        Raises:
            UrnError: It is malformed, or no cap can be so: it says nothing at all, or promises
                ``effect=none`` with an input that does not conform to its output.
        """
        prefix, tags = read(text)
        if prefix != "cap":
            raise fault(text, 0, "CapUrn", f"expected the prefix 'cap', found {prefix!r}")
        in_ = _read_media(text, "in", tags.pop("in", "*"))
        out = _read_media(text, "out", tags.pop("out", "*"))
        effect = _read_effect(text, tags.pop("effect")) if "effect" in tags else Effect.DECLARED
        if effect is not Effect.DECLARED or not tags:
            _check_admissible(text, in_, out, effect, tags)
        return cls(in_, out, effect, tags)

    @classmethod
    def of(cls, request: str | Self) -> Self:
        """
        Take a request as callers give it: a text, or a cap URN as it is.

        Raises:
            UrnError: The text is malformed.

            InvalidArgumentError: It is neither.
        """
        if isinstance(request, cls):
            return request
        if isinstance(request, str):
            return cls.parse(request)
        example = "a cap URN such as 'cap:generate-embeddings' is expected"
        msg = f"cap is a {type(request).__name__}, and {example}"
        raise InvalidArgumentError(msg, arg="cap", value=request, rule="str or CapUrn")

    def __str__(self) -> str:
        try:
            return self._text
        except AttributeError:
            text = write("cap", self._all_tags())
            object.__setattr__(self, "_text", text)
            return text

    def __repr__(self) -> str:
        return f"CapUrn({str(self)!r})"

    def __reduce__(self) -> tuple[Callable[[str], Self], tuple[str]]:
        return type(self).parse, (str(self),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CapUrn):
            return NotImplemented
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def specificity(self) -> int:
        """10000 times that of ``out``, plus 100 times that of ``in``, plus that of the tags."""
        try:
            return self._specificity
        except AttributeError:
            total = 10_000 * self.out.specificity + 100 * self.in_.specificity
            total += sum(map(score, self._tags.values()))
            object.__setattr__(self, "_specificity", total)
            return total

    @property
    def tags(self) -> Mapping[str, str]:
        """The stored values by key, without ``in``, ``out`` and ``effect``; read-only."""
        return MappingProxyType(self._tags)

    def is_dispatchable(self, request: CapUrn) -> bool:
        """
        Say whether this cap serves the request; what routing acts on.

        It takes at least what the request sends (a request with an open ``in`` has not said),
        gives at least what the request needs, has the effect asked for, and its tags, which are
        all the tags it has, conform to the request's.
        """
        return (
            conforms(self._tags, request._tags, UNSET)
            and conforms(self.out._tags, request.out._tags, UNKNOWN)
            and (_is_open(request.in_) or conforms(request.in_._tags, self.in_._tags, UNKNOWN))
            and self._has_effect_of(request)
        )

    def may_dispatch(self, request: CapUrn) -> bool:
        """Say whether this cap could serve the request; to explore, never to route."""
        return (
            meets(self._tags, request._tags, UNSET)
            and meets(self.out._tags, request.out._tags, UNKNOWN)
            and (_is_open(request.in_) or meets(request.in_._tags, self.in_._tags, UNKNOWN))
            and self._has_effect_of(request)
        )

    def grade(self, request: CapUrn) -> Grade:
        """Say how well this cap answers the request."""
        if not self.is_dispatchable(request):
            return Grade.POSSIBLE if self.may_dispatch(request) else Grade.NONE
        same_in = _is_open(request.in_) or self.in_.conforms_to(request.in_)
        same_out = request.out.conforms_to(self.out)
        return Grade.EXACT if same_in and same_out else Grade.GUARANTEED

    def accepts(self, cap: CapUrn) -> bool:
        """
        Say whether a cap fits this one, read as a pattern over caps.

        The cap takes no more than this says and gives at least as wide an output (an open
        ``out`` here asks nothing); effect and tags as in `is_dispatchable`.
        """
        return (
            conforms(cap._tags, self._tags, UNSET)
            and conforms(cap.in_._tags, self.in_._tags, UNKNOWN)
            and (_is_open(self.out) or conforms(self.out._tags, cap.out._tags, UNKNOWN))
            and cap._has_effect_of(self)
        )

    def conforms_to(self, pattern: CapUrn) -> bool:
        """Say whether this cap fits the pattern."""
        return pattern.accepts(self)

    def is_equivalent(self, other: CapUrn) -> bool:
        """Say whether the two are the same cap: each stands in for the other."""
        return self._stands_in_for(other) and other._stands_in_for(self)

    def is_comparable(self, other: CapUrn) -> bool:
        """Say whether one of the two stands in for the other."""
        return self._stands_in_for(other) or other._stands_in_for(self)

    def flows_into(self, following: CapUrn) -> bool:
        """Say whether the following cap takes what this one gives."""
        return self.out.conforms_to(following.in_)

    def may_flow_into(self, following: CapUrn) -> bool:
        """Say whether the following cap could take what this one gives."""
        return self.out.meets(following.in_)

    def distance(self, request: CapUrn) -> tuple[int, int]:
        """
        Give the key that ranks dispatchable caps, the smallest first.

        An exact specificity is (0, 0), then refinements of the request by nearness, then
        fallbacks (1, n) by nearness.

        Source: the capdag package, ``rankingKey``.
        """
        difference = self.specificity - request.specificity
        return (0, difference) if difference >= 0 else (1, -difference)

    def _all_tags(self) -> dict[str, str]:
        tags = dict(self._tags)
        if self.in_._tags:
            tags["in"] = str(self.in_)
        if self.out._tags:
            tags["out"] = str(self.out)
        if self.effect is not Effect.DECLARED:
            tags["effect"] = self.effect.value
        return tags

    def _has_effect_of(self, request: CapUrn) -> bool:
        return self.effect is request.effect or request.effect is Effect.ANY

    def _stands_in_for(self, other: CapUrn) -> bool:
        """As `is_dispatchable`, but both are descriptions: nothing is unknown or complete."""
        return (
            conforms(other._tags, self._tags, UNKNOWN)
            and conforms(other.in_._tags, self.in_._tags, UNKNOWN)
            and conforms(self.out._tags, other.out._tags, UNKNOWN)
            and (self.effect is other.effect or self.effect is Effect.ANY)
        )


def _is_open(side: MediaUrn) -> bool:
    """Say whether a side constrains nothing, so that a question leaves it out."""
    return not side._tags or _OPEN.issuperset(side._tags.values())


def _read_media(text: str, key: str, stored: str) -> MediaUrn:
    known = _MEDIA.get(stored)
    if known is not None:
        return known
    try:
        media = MediaUrn.parse(stored)
    except UrnError as exc:
        position = find_value(text, key, exc.position or 0)
        problem = f"{key}= is no media URN: {str(exc).partition(chr(10))[0]}"
        raise fault(text, position, exc.kind, problem) from None
    if len(_MEDIA) < _MOST_MEDIA:
        _MEDIA[stored] = media
    return media


def _read_effect(text: str, stored: str) -> Effect:
    effect = _EFFECTS.get(stored)
    if effect is None:
        problem = f"expected effect declared, none, patch or '?', found {stored!r}"
        raise fault(text, find_value(text, "effect"), "CapUrn", problem)
    return effect


def _check_admissible(
    text: str, in_: MediaUrn, out: MediaUrn, effect: Effect, tags: Mapping[str, str]
) -> None:
    """Refuse what no cap can be; ``effect=patch`` always can: the edit gives ``out`` itself."""
    if effect is Effect.NONE and not in_.conforms_to(out):
        problem = f"expected an input that conforms to the output under effect=none, found {in_}"
        raise fault(text, find_value(text, "effect"), "CapUrn", problem)
    if effect is Effect.DECLARED and not (tags or in_._tags or out._tags):
        problem = "expected a cap that says something; the identity is 'cap:effect=none'"
        raise fault(text, None, "CapUrn", problem)
