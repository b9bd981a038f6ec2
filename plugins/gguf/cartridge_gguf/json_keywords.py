"""The keywords of a JSON Schema, read one schema at a time; what cannot be enforced is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.jsondata import as_integer, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ASSERTIONS", "TYPES", "Place", "canonical", "read_keywords", "refusal", "type_of"]

TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

ASSERTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties"),
}
"""What the keywords that concern values of one type are."""

_ANNOTATIONS = frozenset(
    ["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"]
) | frozenset(["$schema", "$id", "$comment", "$defs", "definitions", "discriminator"])
"""They say something about values and allow any. ``discriminator`` is OpenAPI's."""

_MAX_DEPTH = 100


@attrs.frozen
class Place:
    """A part of a schema, and where it is."""

    value: object
    document: Place | None
    """The whole schema; None where this is it."""

    pointer: str = attrs.field(kw_only=True)
    arg: str = attrs.field(kw_only=True)

    @classmethod
    def of_document(cls, schema: object, arg: str) -> Place:
        """Take a whole schema, frozen JSON data."""
        return cls(schema, None, pointer="", arg=arg)

    def __getitem__(self, step: str | int) -> Place:
        value = self.value
        if isinstance(value, Mapping):
            inner = value[str(step)]
        elif isinstance(value, tuple) and str(step).isdecimal():
            inner = value[int(step)]
        else:
            raise KeyError(step)
        escaped = str(step).replace("~", "~0").replace("/", "~1")
        return attrs.evolve(
            self,
            value=inner,
            document=self.document or self,
            pointer=f"{self.pointer}/{escaped}",
        )

    def items(self) -> Iterator[Place]:
        """Give the places of an array's items."""
        for index in range(len(self.array())):
            yield self[index]

    def array(self) -> tuple[object, ...]:
        """Give an array that has something in it, or refuse what is none."""
        if not isinstance(self.value, tuple) or not self.value:
            raise refusal(self, "must be an array that is not empty")
        return self.value

    def object(self) -> Mapping[str, object]:
        """Give an object, or refuse what is none."""
        if not isinstance(self.value, Mapping):
            raise refusal(self, "must be an object")
        return self.value

    def text(self) -> str:
        """Give a string, or refuse what is none."""
        if not isinstance(self.value, str):
            raise refusal(self, "must be a string")
        return self.value

    def count(self) -> int:
        """Give an integer that is not negative, or refuse what is none."""
        found = as_integer(self.value)
        if found is None or found < 0:
            raise refusal(self, "must be an integer that is not negative")
        return found

    def number(self) -> Decimal:
        """Give a number as it was written, or refuse what is none."""
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            raise refusal(self, "must be a number")
        return Decimal(repr(self.value))

    def referenced(self) -> Place:
        """Follow a ``$ref`` inside the same schema."""
        text = self.text()
        if text != "#" and not text.startswith("#/"):
            raise refusal(self, "only references inside the schema are followed: '#' and '#/...'")
        place = self.document or self
        for step in unquote(text).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            try:
                place = place[key]
            except (KeyError, IndexError):
                raise refusal(self, "there is nothing at the place that it names") from None
        return place


def refusal(place: Place, what: str) -> InvalidArgumentError:
    """Make the error for one place."""
    arg = f"{place.arg}#{place.pointer}"
    found = f", found {shown(place.value)}" if what.startswith("must") else ""
    msg = f"{arg}: {what}{found}"
    return InvalidArgumentError(msg, arg=arg, value=place.value, rule=what)


def read_keywords(schema: Place) -> Mapping[str, Place]:
    """
    Give a schema's keywords, without those that constrain nothing.

    Raises:
        InvalidArgumentError: It is no schema, or has a keyword that is not enforced.
    """
    if schema.value is True:
        return {}
    if schema.value is False:
        raise refusal(schema, "nothing may stand here, and something must")
    if not isinstance(schema.value, Mapping):
        raise refusal(schema, "must be a schema, an object or a boolean")
    if schema.pointer.count("/") > _MAX_DEPTH:
        raise refusal(schema, f"schemas nest at most {_MAX_DEPTH} deep")
    found = {}
    for key in schema.value:
        if key in _READERS:
            found[key] = schema[key]
            _READERS[key](found[key])
        elif key not in _ANNOTATIONS:
            raise refusal(schema[key], f"{key!r} is not enforced here; {_advice(key)}")
    return found


def _advice(key: str) -> str:
    return _ADVICE.get(key, "leave it out, or say it with other keywords")


_ADVICE = {
    "nullable": 'write "type": [..., "null"]',
    "additionalItems": "write 'prefixItems' and 'items'",
    "schema": "give the schema itself, not what it is wrapped in",
}


def canonical(value: object) -> str:
    """Give what two values have in common exactly if JSON Schema takes them for equal."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, tuple):
        return f"[{','.join(map(canonical, value))}]"
    if isinstance(value, Mapping):
        pairs = sorted(f"{json.dumps(key)}:{canonical(item)}" for key, item in value.items())
        return f"{{{','.join(pairs)}}}"
    return json.dumps(value)


def type_of(value: object) -> str:
    """Give the narrowest type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number" if as_integer(value) is None else "integer"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, tuple) else "object"


def _read_type(place: Place) -> None:
    names = place.value if isinstance(place.value, tuple) else (place.value,)
    if not names or any(name not in TYPES for name in names):
        raise refusal(place, f"must be among {', '.join(TYPES)}, or several of them")


def _read_required(place: Place) -> None:
    value = place.value
    if not isinstance(value, tuple) or not all(isinstance(name, str) for name in value):
        raise refusal(place, "must be an array of strings")


def _read_items(place: Place) -> None:
    if isinstance(place.value, tuple):
        raise refusal(place, "must be a schema; write the schemas of single items as 'prefixItems'")


def _anything(place: Place) -> None:
    pass


_READERS: Final[Mapping[str, Callable[[Place], object]]] = {
    "type": _read_type,
    "enum": Place.array,
    "const": _anything,
    "minLength": Place.count,
    "maxLength": Place.count,
    "pattern": Place.text,
    "format": Place.text,
    "minimum": Place.number,
    "maximum": Place.number,
    "exclusiveMinimum": Place.number,
    "exclusiveMaximum": Place.number,
    "items": _read_items,
    "prefixItems": Place.array,
    "minItems": Place.count,
    "maxItems": Place.count,
    "properties": Place.object,
    "required": _read_required,
    "additionalProperties": _anything,
    "anyOf": Place.array,
    "oneOf": Place.array,
    "allOf": Place.array,
    "$ref": Place.text,
}
