"""The fields of JSON objects, each taken with its rule."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, cast

from cartridge_core.jsondata import as_integer, at, refusal

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Sequence

    from cartridge_core.errors import InvalidArgumentError

__all__ = ["Fields"]

T = TypeVar("T")
S = TypeVar("S", bound=str)


class Fields:
    """
    The fields of one JSON object, each taken with its rule.

    Args:
        value: A frozen JSON value.
        where: Its place.
        keys: The keys it may have; None where it is open.

    Raises:
        InvalidArgumentError: It is no object, or has another key.
    """

    __slots__ = ("data", "where")

    def __init__(self, value: object, where: str, keys: frozenset[str] | None = None) -> None:
        if not isinstance(value, (MappingProxyType, Mapping)):  # the first takes no time
            raise refusal(where, "must be an object", value)
        if keys is not None:
            for key in value:
                if key not in keys:
                    known = ", ".join(sorted(keys))
                    raise refusal(at(where, key), f"is no key here; the keys are {known}")
        self.data = cast("Mapping[str, object]", value)
        self.where = where

    def at(self, name: str) -> str:
        """Give the place of a field."""
        return at(self.where, name)

    def refusal(self, name: str, rule: str) -> InvalidArgumentError:
        """Make the error for a field that breaks a rule."""
        return refusal(self.at(name), rule, self.data.get(name))

    def optional(self, take: Callable[..., T], name: str, *rule: object) -> T | None:
        """Take a field with one of the methods below; None where it is absent (null is not)."""
        return take(name, *rule) if name in self.data else None

    def value(self, name: str) -> object:
        """Take a field that must be there, whatever it holds."""
        if name not in self.data:
            raise refusal(self.at(name), "is missing")
        return self.data[name]

    def block(self, name: str, read: Callable[[object, str], T]) -> T:
        """Take a field with a function of its value and its place."""
        return read(self.value(name), self.at(name))

    def text(self, name: str) -> str:
        """Take a text that is not empty."""
        value = self.value(name)
        if isinstance(value, str) and value:
            return value
        raise self.refusal(name, "must be a string that is not empty")

    def prose(self, name: str) -> str:
        """Take a text that may be empty."""
        value = self.value(name)
        if isinstance(value, str):
            return value
        raise self.refusal(name, "must be a string")

    def matching(self, name: str, pattern: re.Pattern[str], what: str) -> str:
        """Take a text that is wholly of a pattern; ``what`` names it for a reader."""
        text = self.text(name)
        if pattern.fullmatch(text):
            return text
        raise self.refusal(name, f"must be {what}")

    def choice(self, name: str, choices: Sequence[S]) -> S:
        """Take one of several words."""
        value = self.value(name)
        for choice in choices:
            if choice == value:
                return choice
        raise self.refusal(name, f"must be {' or '.join(json.dumps(word) for word in choices)}")

    def flag(self, name: str) -> bool:
        """Take a boolean; False where it is absent."""
        value = self.data.get(name, False)
        if isinstance(value, bool):
            return value
        raise self.refusal(name, "must be true or false")

    def integer(self, name: str, minimum: int) -> int:
        """Take an integer of at least ``minimum``."""
        value = as_integer(self.value(name))
        if value is not None and value >= minimum:
            return value
        raise self.refusal(name, f"must be an integer of at least {minimum}")

    def number(self, name: str) -> float:
        """Take a number above 0."""
        value = self.value(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            try:
                return float(value)
            except OverflowError:
                pass
        raise self.refusal(name, "must be a number above 0")

    def items(self, name: str) -> tuple[tuple[object, str], ...]:
        """Take an array, each item with its place; empty where it is absent."""
        value = self.data.get(name, ())
        if isinstance(value, tuple):
            where = self.at(name)
            return tuple((item, at(where, index)) for index, item in enumerate(value))
        raise self.refusal(name, "must be an array")

    def texts(self, name: str) -> tuple[str, ...]:
        """Take an array of texts, none of them twice; empty where it is absent."""
        texts: list[str] = []
        for item, where in self.items(name):
            if not isinstance(item, str) or not item:
                raise refusal(where, "must be a string that is not empty", item)
            if item in texts:
                raise refusal(where, "stands here twice", item)
            texts.append(item)
        return tuple(texts)

    def mapping(self, name: str) -> Mapping[str, object]:
        """Take an open object; empty where it is absent."""
        return Fields(self.data.get(name, _EMPTY), self.at(name)).data


_EMPTY: Mapping[str, object] = MappingProxyType({})
