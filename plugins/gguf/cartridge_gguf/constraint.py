r"""
What a request asks its text to keep to, read and checked before any model sees it.

A request has at most one of three fields:

``grammar``
    A text: GBNF, llama.cpp's dialect; see `grammar_parser` for what of it is refused.

``json_schema``
    A JSON Schema, or its JSON text; see `json_schema` for what is enforced.

``constraint``
    A record that says of what kind it is; ``description`` may stand beside, and is passed over::

        {"type": "json_schema", "schema": {...}}        # or "json_schema" for "schema"
        {"type": "regex", "pattern": "[A-Z]{3}-\d+"}    # the whole text, see `regex`
        {"type": "grammar", "grammar": "root ::= ..."}
        {"type": "tool_call", "tools": [{"name": ..., "parameters": {...}}, ...]}  # see `tools`

    The first also takes OpenAI's wrapping, ``{"name": ..., "schema": {...}, "strict": true}``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import attrs

from cartridge_core.errors import BackendError, InvalidArgumentError
from cartridge_core.jsondata import at, freeze, read_json, refusal
from cartridge_gguf.grammar import Grammar
from cartridge_gguf.grammar_checks import ROOT
from cartridge_gguf.grammar_nodes import write
from cartridge_gguf.json_keywords import Place
from cartridge_gguf.json_schema import schema_rules
from cartridge_gguf.regex import whole
from cartridge_gguf.tools import definitions, read_call, tool_rules

if TYPE_CHECKING:
    from cartridge_gguf.grammar_nodes import Node

__all__ = ["Constraint", "Kind", "read"]

Kind: TypeAlias = Literal["grammar", "json_schema", "regex", "tool_call"]

_FIELDS: Final = ("grammar", "json_schema", "constraint")
_WRAPPING: Final = {"name", "description", "schema", "strict"}


@attrs.frozen
class Constraint:
    """What a text must keep to."""

    kind: Kind
    grammar: str
    """GBNF that llama.cpp takes, and can follow to an end; its first rule is ``root``."""

    tools: Sequence[Mapping[str, object]] = ()
    """What a chat template is shown of the tools of a ``tool_call``."""

    def parse(self, text: str) -> object:
        """
        Read what a model wrote.

        Args:
            text: A whole text; not one that was cut at a limit.

        Returns:
            For ``json_schema`` the JSON value; for ``tool_call`` a dict with ``tool_name`` and
            ``tool_args``; else None.

        Raises:
            BackendError: The text does not keep to the constraint.
        """
        if self.kind in ("grammar", "regex"):
            return None
        try:
            return json.loads(text) if self.kind == "json_schema" else read_call(text)
        except ValueError as exc:
            msg = f"the model's text does not keep to its constraint ({self.kind}): {exc}"
            raise BackendError(msg) from exc


def read(fields: Mapping[str, object]) -> Constraint | None:
    """
    Read the constraint of a request.

    Args:
        fields: The request; of its fields ``grammar``, ``json_schema`` and ``constraint`` count.

    Returns:
        The constraint; None where the request has none of the three.

    Raises:
        InvalidArgumentError: The request has more than one, it is malformed, or it cannot be
            enforced in every part; the error says where.
    """
    given = [name for name in _FIELDS if name in fields]
    if not given:
        return None
    if len(given) > 1:
        rule = f"at most one of {', '.join(_FIELDS)}"
        msg = f"{' and '.join(given)} are given; a request has {rule}"
        raise InvalidArgumentError(msg, arg=given[1], value=fields[given[1]], rule=rule)
    name = given[0]
    try:
        value = freeze(fields[name], name)
        if name == "grammar":
            return _grammar(value, name)
        if name == "json_schema":
            return _json_schema(value, name)
        return _record(value, name)
    except RecursionError:
        raise refusal(name, "nests too deep") from None


def _record(value: object, place: str) -> Constraint:
    if not isinstance(value, Mapping):
        raise refusal(place, "must be an object with a type", value)
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise refusal(at(place, "type"), f"must be one of {', '.join(_KINDS)}", kind)
    keys, make = _KINDS[kind]
    given = [key for key in value if key not in ("type", "description")]
    for key in given:
        if key not in keys:
            rule = f"is no field of a constraint of type {kind!r}; it has {' or '.join(keys)}"
            raise refusal(at(place, key), rule)
    if len(given) != 1:
        raise refusal(place, f"a constraint of type {kind!r} must have {' or '.join(keys)}")
    return make(value[given[0]], at(place, given[0]))


def _grammar(value: object, place: str) -> Constraint:
    return Constraint("grammar", Grammar.parse(_text(value, place), place).text)


def _json_schema(value: object, place: str) -> Constraint:
    schema = read_json(value, place) if isinstance(value, str) else value
    if isinstance(schema, Mapping) and "schema" in schema and schema.keys() <= _WRAPPING:
        place, schema = at(place, "schema"), schema["schema"]
    return _made("json_schema", schema_rules(Place.of_document(schema, place)), place)


def _regex(value: object, place: str) -> Constraint:
    return _made("regex", {ROOT: whole(_text(value, place), place)}, place)


def _tool_call(value: object, place: str) -> Constraint:
    made = _made("tool_call", tool_rules(value, place), place)
    return attrs.evolve(made, tools=definitions(cast("Sequence[object]", value)))


def _made(kind: Kind, rules: Mapping[str, Node], place: str) -> Constraint:
    text = write(rules)
    try:
        return Constraint(kind, Grammar.parse(text, place).text)
    except InvalidArgumentError as exc:
        msg = f"{place}: it is too large or too ambiguous to enforce ({exc.rule})"
        raise InvalidArgumentError(msg, arg=place, rule=exc.rule) from exc


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise refusal(place, "must be a text", value)
    return value


_KINDS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[object, str], Constraint]]]] = {
    "json_schema": (("schema", "json_schema"), _json_schema),
    "regex": (("pattern",), _regex),
    "grammar": (("grammar",), _grammar),
    "tool_call": (("tools",), _tool_call),
}
