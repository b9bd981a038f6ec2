"""
JSON Schema as descriptors may use it, compiled once to plain functions.

The keywords are type, enum, const, minimum, maximum, exclusiveMinimum, exclusiveMaximum,
minLength, maxLength, pattern, items, minItems, maxItems, properties, required,
additionalProperties, default and description; their meaning is Draft 2020-12's. Only a list is an
array; any mapping with str keys is an object.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.jsondata import at, freeze, refusal, shown, thaw
from cartridge_core.schemarules import KEYWORDS, Check, MismatchError

__all__ = ["Schema", "read_schema"]


@attrs.frozen
class Schema:
    """A compiled schema; equal to another where the two are equal as JSON."""

    document: object = attrs.field(repr=lambda document: repr(thaw(document)))
    """What was compiled, frozen."""

    _check: Check = attrs.field(eq=False, repr=False)

    @staticmethod
    def compile(document: object, where: str) -> Schema:
        """
        Compile a schema.

        Args:
            document: The schema as JSON data, an object or a boolean.
            where: Its place, for errors.

        Raises:
            InvalidArgumentError: It is no schema, uses another keyword at any depth, or declares
                a default that breaks its own rules.
        """
        return read_schema(freeze(document, where), where)

    def check(self, value: object, arg: str) -> object:
        """
        Check a value.

        Args:
            value: A plain value; it is never changed.
            arg: Its name, for errors.

        Returns:
            The value, with the defaults of absent properties filled in and ``1.0`` as 1 where an
            integer is asked for.

        Raises:
            InvalidArgumentError: The value breaks a rule; ``arg`` names the place inside it
                (``request.messages[2].role``).
        """
        try:
            return self._check(value)
        except MismatchError as exc:
            for step in reversed(exc.steps):
                arg = at(arg, step)
            found = "" if exc.missing else f", found {shown(exc.value)}"
            msg = f"{arg}: {exc.rule}{found}"
            raise InvalidArgumentError(msg, arg=arg, value=exc.value, rule=exc.rule) from None


def read_schema(document: object, where: str) -> Schema:
    """Compile a schema that is frozen already, as `Schema.compile` does."""
    return Schema(document, _compile(document, where))


def _compile(document: object, where: str) -> Check:
    if isinstance(document, bool):
        return _anything if document else _nothing
    if not isinstance(document, Mapping):
        raise refusal(where, "a schema must be an object or a boolean", document)
    for key in document:
        if key not in KEYWORDS and key not in _STRUCTURE:
            rule = f"is not among the keywords read here: {', '.join([*KEYWORDS, *_STRUCTURE])}"
            raise refusal(at(where, key), rule)
    check = _all_of([*_rules(document, where), *_structure(document, where)])
    if "default" in document:
        _default(document, check, where)
    return check


_STRUCTURE = ("items", "properties", "additionalProperties", "default", "description")


def _rules(document: Mapping[str, object], where: str) -> list[Check]:
    return [compile_(document, where) for key, compile_ in KEYWORDS.items() if key in document]


def _structure(document: Mapping[str, object], where: str) -> list[Check]:
    if not isinstance(document.get("description", ""), str):
        raise refusal(at(where, "description"), "must be a string", document["description"])
    checks = []
    if "items" in document:
        checks.append(_items(document, where))
    if "properties" in document or "additionalProperties" in document:
        checks.append(_properties(document, where))
    return checks


def _all_of(checks: list[Check]) -> Check:
    def check(value: object) -> object:
        if isinstance(value, float) and not math.isfinite(value):
            rule = "must be a finite number"
            raise MismatchError(rule, value)
        for each in checks:
            value = each(value)
        return value

    return check


def _anything(value: object) -> object:
    return value


def _nothing(value: object) -> object:
    rule = "no value is allowed here"
    raise MismatchError(rule, value)


def _default(document: Mapping[str, object], check: Check, where: str) -> object:
    place = at(where, "default")
    return Schema(document, check).check(thaw(document["default"]), place)


def _items(document: Mapping[str, object], where: str) -> Check:
    item_check = _compile(document["items"], at(where, "items"))

    def check(value: object) -> object:
        if not isinstance(value, list):
            return value
        changed = False
        checked = []
        for index, item in enumerate(value):
            checked.append(_inside(item_check, item, index))
            changed = changed or checked[-1] is not item
        return checked if changed else value

    return check


def _inside(check: Check, value: object, step: object) -> object:
    try:
        return check(value)
    except MismatchError as exc:
        exc.steps.append(step)
        raise


def _properties(document: Mapping[str, object], where: str) -> Check:
    checks, defaults = _declared(document, where)
    others = _others(document, where, checks)

    def check(value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        changed = {}
        for key, item in value.items():
            if not isinstance(key, str):
                rule = "the keys of a mapping must be strings"
                raise MismatchError(rule, key)
            checked = _inside(checks.get(key, others), item, key)
            if checked is not item:
                changed[key] = checked
        for name, default in defaults.items():
            if name not in value:
                changed[name] = thaw(default)
        return {**value, **changed} if changed else value

    return check


def _declared(
    document: Mapping[str, object], where: str
) -> tuple[dict[str, Check], dict[str, object]]:
    place = at(where, "properties")
    properties = document.get("properties", {})
    if not isinstance(properties, Mapping):
        raise refusal(place, "must be an object", properties)
    checks: dict[str, Check] = {}
    defaults: dict[str, object] = {}
    for name, schema in properties.items():
        checks[name] = _compile(schema, at(place, name))
        if isinstance(schema, Mapping) and "default" in schema:
            defaults[name] = _default(schema, checks[name], at(place, name))
    return checks, defaults


def _others(document: Mapping[str, object], where: str, declared: Mapping[str, Check]) -> Check:
    others = document.get("additionalProperties", True)
    if others is not False:
        return _compile(others, at(where, "additionalProperties"))
    rule = f"is no field here; the fields are {', '.join(declared) or 'none'}"

    def check(value: object) -> object:
        raise MismatchError(rule, value)

    return check
