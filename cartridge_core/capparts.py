"""The parts of a cap definition: what an argument and an output say, and what a value must be."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.jsondata import at, thaw
from cartridge_core.schema import Schema
from cartridge_core.urn import MediaUrn

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Arg", "Output", "Scope", "Source", "SourceKind"]

Scope = Literal["open", "session"]
SourceKind = Literal["stdin", "position", "cli_flag"]


@attrs.frozen
class Source:
    """One way to give an argument on a command line."""

    kind: SourceKind

    value: str | int
    """The media URN of ``stdin``, the ``position`` from 0, or the ``cli_flag`` as typed."""


@attrs.frozen
class Arg:
    """One argument of a cap."""

    name: str

    media_urn: MediaUrn
    """Identifies the argument in its cap."""

    required: bool = attrs.field(kw_only=True)
    sources: tuple[Source, ...] = attrs.field(kw_only=True)

    accepts: MediaUrn | None = attrs.field(default=None, kw_only=True)
    """What a value must conform to, where that is not ``media_urn``."""

    description: str | None = attrs.field(default=None, kw_only=True)
    _default: object = attrs.field(default=None, kw_only=True, hash=False)

    has_default: bool = attrs.field(default=False, kw_only=True)
    """Whether the definition declares a default."""

    is_sequence: bool = attrs.field(default=False, kw_only=True)
    """It takes an item or a list of items."""

    streaming: bool = attrs.field(default=False, kw_only=True)
    """It may be given in chunks, without a promise of how many."""

    pack: bool = attrs.field(default=False, kw_only=True)
    """Its text is a model spec; the host makes it the cartridge's pack."""

    scope: Scope = attrs.field(default="session", kw_only=True)
    """``open`` for what takes effect when the cartridge loads."""

    schema: Schema | None = attrs.field(default=None, kw_only=True, hash=False)
    metadata: Mapping[str, object] = attrs.field(factory=dict, kw_only=True, hash=False)

    stdin: MediaUrn | None = attrs.field(init=False, eq=False, repr=False)
    """What comes through its stdin source; only the main input has one."""

    _rule: Schema | None = attrs.field(init=False, eq=False, repr=False)
    _is_path: bool = attrs.field(init=False, eq=False, repr=False)
    _is_opaque: bool = attrs.field(init=False, eq=False, repr=False)

    @stdin.default
    def _stdin(self) -> MediaUrn | None:
        texts = [str(source.value) for source in self.sources if source.kind == "stdin"]
        return MediaUrn.parse(texts[0]) if texts else None

    @_rule.default
    def _declared_or_implied_rule(self) -> Schema | None:
        return self.schema or _implied(self.stdin or self.accepts or self.media_urn)

    @_is_path.default
    def _carries_a_path(self) -> bool:
        return self.pack or self.media_urn.has("file-path") or self.media_urn.has("model-spec")

    @_is_opaque.default
    def _carries_a_medium(self) -> bool:
        urn = self.stdin or self.accepts or self.media_urn
        return self.schema is None and any(urn.has(marker) for marker in _OPAQUE)

    @property
    def default(self) -> object:
        """The declared default, a copy of its own; None where there is none."""
        return thaw(self._default)

    def check(self, value: object) -> object:
        """
        Check a value that a caller gives.

        The rule is the argument's schema; without one it is what the media URN says: a bool, an
        integer, a number, a mapping for ``record``, a str for ``enc``. An image, audio or video may
        be a path, bytes or an array and is not looked into. Where ``is_sequence`` is set, a list is
        a list of items.

        Returns:
            The value, with declared defaults of a mapping's fields filled in; the path of an
            image, audio or video as absolute text.

        Raises:
            InvalidArgumentError: It breaks the rule; ``arg`` names the place (``text[3]``).
        """
        if not self.is_sequence:
            return self._check(value, self.name)
        if isinstance(value, list):
            return [self._check(item, at(self.name, index)) for index, item in enumerate(value)]
        try:
            return self._check(value, self.name)
        except InvalidArgumentError as exc:
            msg = f"{exc} of type {type(value).__name__}; it takes one item, or a list of them"
            raise InvalidArgumentError(msg, arg=exc.arg, value=value, rule=exc.rule) from None

    def _check(self, value: object, where: str) -> object:
        if self._is_opaque and isinstance(value, str | os.PathLike):
            if isinstance(value, str) and re.match(_URL, value):
                msg = (
                    f"{where} is a URL, {value[:60]!r}, and nothing is fetched here; give a path, "
                    "or the bytes"
                )
                raise InvalidArgumentError(msg, arg=where, value=value, rule="a path or data")
            return os.path.abspath(os.path.expanduser(os.fspath(value)))
        if self._rule is None or (self._is_path and isinstance(value, os.PathLike)):
            return value
        return self._rule.check(value, where)


@attrs.frozen
class Output:
    """One output of a cap."""

    name: str

    media_urn: MediaUrn
    """Identifies the output in its cap."""

    description: str = attrs.field(kw_only=True)

    optional: bool = attrs.field(default=False, kw_only=True)
    """The cap may end without it."""

    is_sequence: bool = attrs.field(default=False, kw_only=True)
    streaming: bool = attrs.field(default=False, kw_only=True)

    carries: Literal["input"] | None = attrs.field(default=None, kw_only=True)
    """``input`` where it carries the main input's type unchanged."""

    metadata: Mapping[str, object] = attrs.field(factory=dict, kw_only=True, hash=False)


_IMPLIED_TYPES = {"bool": "boolean", "integer": "integer", "numeric": "number", "record": "object"}
_OPAQUE = ("image", "audio", "video")
_URL = r"(?i:\s*(?:[a-z][a-z0-9+.-]*://|(?:data|file|https?):))"


@lru_cache(maxsize=1024)
def _implied(urn: MediaUrn) -> Schema | None:
    """Give the rule that a media URN implies for a value; None where it implies none."""
    kind = next((_IMPLIED_TYPES[marker] for marker in _IMPLIED_TYPES if urn.has(marker)), None)
    if kind is None and urn.has("enc") and not any(urn.has(marker) for marker in _OPAQUE):
        kind = "string"
    if kind is None:
        return None
    document = {"type": kind}
    if urn.has("list"):
        return Schema.compile({"type": "array", "items": document}, str(urn))
    return Schema.compile(document, str(urn))
