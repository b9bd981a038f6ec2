"""What the keywords of a JSON Schema ask of one value, each compiled to a plain function."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import cast

from cartridge_core.jsondata import as_integer, at, refusal, shown

__all__ = ["KEYWORDS", "Check", "Compile", "MismatchError"]

Check = Callable[[object], object]
"""Gives the value back, or raises `MismatchError`."""

Compile = Callable[[Mapping[str, object], str], Check]
"""Takes a frozen schema and its place."""


class MismatchError(Exception):
    """
    A value breaks a rule.

    Attributes:
        rule: What is asked for, in words.
        value: What was found.
        missing: Nothing was found.
        steps: The keys and indexes that lead to it, innermost first; added on the way out.
    """

    def __init__(self, rule: str, value: object = None, *, missing: bool = False) -> None:
        super().__init__(rule)
        self.rule = rule
        self.value = value
        self.missing = missing
        self.steps: list[object] = []


def _type(document: Mapping[str, object], where: str) -> Check:
    declared = document["type"]
    names = declared if isinstance(declared, tuple) else (declared,)
    place = at(where, "type")
    for name in names:
        if not isinstance(name, str) or name not in _TYPES:
            raise refusal(place, f"must be among {', '.join(_TYPES)}", name)
    if not names or len(set(names)) < len(names):
        raise refusal(place, "must name at least one type, and each once", declared)
    return _one_of_types(names)


@lru_cache
def _one_of_types(names: tuple[str, ...]) -> Check:
    tests = [_TYPES[name][1] for name in names]
    rule = f"must be {' or '.join(_TYPES[name][0] for name in names)}"
    is_one = tests[0] if len(tests) == 1 else lambda value: any(test(value) for test in tests)
    whole = "integer" in names and "number" not in names

    def check(value: object) -> object:
        if not is_one(value):
            raise MismatchError(rule, value)
        return int(value) if whole and isinstance(value, float) else value

    return check


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


_TYPES: dict[str, tuple[str, Callable[[object], bool]]] = {
    "null": ("null", lambda value: value is None),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "integer": ("an integer", lambda value: as_integer(value) is not None),
    "number": ("a number", _is_number),
    "string": ("a string", lambda value: isinstance(value, str)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "object": ("a mapping with str keys", _is_object),
}


def _enum(document: Mapping[str, object], where: str) -> Check:
    choices = document["enum"]
    if not isinstance(choices, tuple):
        raise refusal(at(where, "enum"), "must be an array", choices)
    return _one_of(choices, "one of ")


def _const(document: Mapping[str, object], where: str) -> Check:
    del where
    return _one_of((document["const"],), "")


def _one_of(choices: tuple[object, ...], words: str) -> Check:
    def check(value: object) -> object:
        if not any(_is_equal(choice, value) for choice in choices):
            rule = f"must be {words}{', '.join(map(shown, choices))}"
            raise MismatchError(rule, value)
        return value

    return check


def _is_equal(declared: object, value: object) -> bool:
    """Compare as JSON does: true is not 1, but 1.0 is."""
    if isinstance(declared, tuple):
        return (
            isinstance(value, list)
            and len(declared) == len(value)
            and all(map(_is_equal, declared, value))
        )
    if isinstance(declared, Mapping):
        return (
            isinstance(value, Mapping)
            and declared.keys() == value.keys()
            and all(_is_equal(item, value[key]) for key, item in declared.items())
        )
    if isinstance(declared, bool) or isinstance(value, bool) or value is None:
        return declared is value
    return isinstance(value, (str, int, float)) and declared == value


def _bound(keyword: str, words: str, holds: Callable[[float, float], bool]) -> Compile:
    """Make the compiler of a keyword that limits numbers."""

    def compile_(document: Mapping[str, object], where: str) -> Check:
        limit = document[keyword]
        if not isinstance(limit, (int, float)) or isinstance(limit, bool):
            raise refusal(at(where, keyword), "must be a number", limit)

        def check(value: object) -> object:
            if _is_number(value) and not holds(cast("float", value), limit):
                rule = f"must be {words} {shown(limit)}"
                raise MismatchError(rule, value)
            return value

        return check

    return compile_


_Sized = type[str] | type[list[object]]


def _size(keyword: str, kind: _Sized, words: str, holds: Callable[[int, int], bool]) -> Compile:
    """Make the compiler of a keyword that limits the length of a string or a list."""

    def compile_(document: Mapping[str, object], where: str) -> Check:
        limit = as_integer(document[keyword])
        if limit is None or limit < 0:
            raise refusal(at(where, keyword), "must be an integer from 0", document[keyword])
        rule = f"must have {words.format(limit)}"

        def check(value: object) -> object:
            if isinstance(value, kind) and not holds(len(value), limit):
                raise MismatchError(rule, value)
            return value

        return check

    return compile_


def _pattern(document: Mapping[str, object], where: str) -> Check:
    pattern = document["pattern"]
    place = at(where, "pattern")
    if not isinstance(pattern, str):
        raise refusal(place, "must be a string", pattern)
    try:
        search = re.compile(pattern).search
    except re.error as exc:
        raise refusal(place, f"is no regular expression: {exc}", pattern) from exc

    def check(value: object) -> object:
        if isinstance(value, str) and search(value) is None:
            rule = f"must match the pattern {shown(pattern)}"
            raise MismatchError(rule, value)
        return value

    return check


def _required(document: Mapping[str, object], where: str) -> Check:
    names = document["required"]
    place = at(where, "required")
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise refusal(place, "must be an array of strings", names)
    if len(set(names)) < len(names):
        raise refusal(place, "must name each property once", names)

    def check(value: object) -> object:
        if isinstance(value, Mapping):
            for name in names:
                if name not in value:
                    raise _missing(name)
        return value

    return check


def _missing(name: object) -> MismatchError:
    error = MismatchError("is required", None, missing=True)
    error.steps.append(name)
    return error


KEYWORDS: dict[str, Compile] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound("minimum", "at least", operator.ge),
    "maximum": _bound("maximum", "at most", operator.le),
    "exclusiveMinimum": _bound("exclusiveMinimum", "more than", operator.gt),
    "exclusiveMaximum": _bound("exclusiveMaximum", "less than", operator.lt),
    "minLength": _size("minLength", str, "at least {} characters", operator.ge),
    "maxLength": _size("maxLength", str, "at most {} characters", operator.le),
    "pattern": _pattern,
    "minItems": _size("minItems", list, "at least {} items", operator.ge),
    "maxItems": _size("maxItems", list, "at most {} items", operator.le),
    "required": _required,
}
"""In the order in which a value is checked: what it is comes before how large it may be."""
