r"""
JSON Schema as a grammar: every text of the grammar is JSON that the schema allows.

Draft 2020-12's meaning, and nothing that is only nearly enforced: a keyword that cannot be is
refused, with its place. These are enforced: ``type``, ``enum``, ``const``, ``properties``,
``required``, ``additionalProperties``, ``items``, ``prefixItems``, ``minItems``, ``maxItems``,
``minLength``, ``maxLength``, ``pattern``, ``format`` (``date``, ``time``, ``date-time``, ``uuid``),
``minimum``, ``maximum``, ``exclusiveMinimum``, ``exclusiveMaximum``, ``anyOf``, ``oneOf`` where its
schemas surely exclude one another, ``allOf``, ``$ref`` inside the schema, also to itself, and
``true`` and ``false``. What constrains nothing (``title``, ``description``, ``default`` ...) is
passed over.

Not every value that a schema allows is made:

- An object's properties come in the schema's order. There are no others unless
  ``additionalProperties`` says so, or no ``properties`` are declared.
- A schema with keywords for one type and no ``type`` makes values of that type.
- An array has no items after ``prefixItems`` unless ``items`` says so.
- Numbers are those of `json_numbers`, dates and times those of `json_strings`.
- Strings have no control characters, but for those that are written ``\n`` and the like.

A ``pattern`` may match anywhere in the string, as the standard says: write ``^...$`` for the whole.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from cartridge_core.jsondata import thaw
from cartridge_gguf.grammar_checks import FINITE, NO_LEFT_RECURSION, ROOT, check_rules
from cartridge_gguf.grammar_nodes import (
    EMPTY,
    Choice,
    Node,
    Reference,
    Repeat,
    Series,
    Text,
    one_of,
)
from cartridge_gguf.json_containers import SPACE, array, limits, object_
from cartridge_gguf.json_demands import Demands, alternatives, check_exclusive
from cartridge_gguf.json_keywords import Place, read_keywords, refusal
from cartridge_gguf.json_numbers import (
    MILLIONTHS,
    first_multiple,
    integers,
    last_multiple,
    numbers,
)
from cartridge_gguf.json_strings import CHARACTER, FORMATS, inside_string
from cartridge_gguf.regex import read_regex, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cartridge_core.errors import InvalidArgumentError

__all__ = ["SchemaGrammar", "schema_rules"]

_QUOTE: Final = Text('"')


def schema_rules(schema: Place) -> Mapping[str, Node]:
    """
    Make the rules of a grammar for the values that a schema allows.

    Raises:
        InvalidArgumentError: The schema is malformed, allows nothing, or has a keyword that cannot
            be enforced; the error names the place of the keyword, as a JSON pointer.
    """
    grammar = SchemaGrammar()
    return grammar.completed(grammar.node([schema]), schema)


class SchemaGrammar:
    """
    A grammar that schemas are added to.

    A part that is needed again, or that others repeat, is a rule of its own.
    """

    def __init__(self) -> None:
        self._rules: dict[str, Node] = {}
        self._defined: dict[Node, Reference] = {}
        self._places: dict[str, Place] = {}
        self._known: dict[tuple[str, str], Reference] = {}
        self._open: dict[tuple[tuple[str, str], ...], Reference | None] = {}

    @property
    def space(self) -> Reference:
        """What may stand between the parts of an object or an array."""
        return self._shared("space", SPACE)

    def _shared(self, name: str, node: Node) -> Reference:
        self._rules.setdefault(name, node)
        return Reference(name)

    def define(self, node: Node) -> Reference:
        """Make a node a rule of its own; equal nodes are the same rule."""
        if isinstance(node, Reference):
            return node
        if node not in self._defined:
            self._defined[node] = self._new(node)
        return self._defined[node]

    def _new(self, node: Node) -> Reference:
        reference = Reference(f"r{len(self._rules)}")
        self._rules[reference.name] = node
        return reference

    def node(self, schemas: Sequence[Place]) -> Node:
        """
        Make the values that several schemas allow together; any, where there are none.

        Raises:
            InvalidArgumentError: There are none, or something cannot be enforced.
        """
        if not schemas:
            return self._any_value()
        key = tuple((schema.arg, schema.pointer) for schema in schemas)
        if key in self._open:
            reference = self._open[key] or self._new(EMPTY)
            self._open[key] = reference
            return reference
        self._open[key] = None
        made = self._single(schemas[0]) if len(schemas) == 1 else self._combined(schemas)
        again = self._open.pop(key)
        if again is None:
            return made
        self._places[again.name] = schemas[0]
        self._rules[again.name] = made
        return again

    def completed(self, root: Node, schema: Place) -> Mapping[str, Node]:
        """
        Give all rules, of which none is missing now.

        Args:
            root: What a text is.
            schema: Where it comes from.

        Raises:
            InvalidArgumentError: A schema needs itself, without end or without anything between.
        """

        def refuse(name: str, _at: int | None, what: str, wanted: str) -> InvalidArgumentError:
            if wanted in (FINITE, NO_LEFT_RECURSION):
                what = "it refers to itself, with nothing in between or without end"
            return refusal(self._places.get(name, schema), what)

        check_rules({**self._rules, ROOT: root}, refuse)
        return {ROOT: root, **self._rules}

    def _single(self, schema: Place) -> Node:
        keywords = read_keywords(schema)
        if not keywords:
            return self._any_value()
        if len(keywords) == 1:
            ((keyword, place),) = keywords.items()
            if keyword == "$ref":
                return self._referenced(place.referenced())
            if keyword == "oneOf":
                check_exclusive(place)
            if keyword in ("anyOf", "oneOf"):
                return one_of(self.node([each]) for each in place.items())
        found = self._combined([schema])
        if isinstance(found, Reference):
            self._places.setdefault(found.name, schema)
        return found

    def _referenced(self, schema: Place) -> Node:
        key = (schema.arg, schema.pointer)
        if key not in self._known:
            self._known[key] = self.define(self.node([schema]))
            self._places.setdefault(self._known[key].name, schema)
        return self._known[key]

    def _combined(self, schemas: Sequence[Place]) -> Node:
        options = [self._values(demands) for demands in alternatives(schemas)]
        found = [option for option in options if option is not None]
        if not found:
            raise refusal(schemas[0], "nothing fits it; its keywords contradict one another")
        return one_of(found)

    def _values(self, demands: Demands) -> Node | None:
        allowed = demands.values()
        if allowed is not None:
            for place in demands.assertions():
                raise refusal(place, "it cannot be enforced beside 'enum' or 'const'")
            return _exactly(list(allowed.values()))
        if not any(demands.schemas):
            return self._any_value()
        made: Mapping[str, Callable[[], Node | None]] = {
            "null": lambda: Text("null"),
            "boolean": lambda: _BOOLEAN,
            "fraction": lambda: _number(demands, whole=False),
            "integer": lambda: _number(demands, whole=True),
            "string": lambda: self._string(demands),
            "array": lambda: array(demands, self),
            "object": lambda: object_(demands, self),
        }
        types = demands.made_types()
        wanted = types - {"integer"} if "fraction" in types else types
        options = [make() for name, make in made.items() if name in wanted]
        found = [self.define(option) for option in options if option is not None]
        return one_of(found) if found else None

    def _string(self, demands: Demands) -> Node | None:
        least, most = limits(demands, "minLength", "maxLength")
        pattern, format_ = demands.one("pattern"), demands.one("format")
        if pattern is None and format_ is None:
            if most is not None and least > most:
                return None
            return Series((_QUOTE, self._characters(least, most), _QUOTE))
        besides = [*demands.all("minLength"), *demands.all("maxLength")]
        if pattern is not None:
            besides += demands.all("format")
        for place in besides:
            raise refusal(place, "it cannot be enforced beside 'pattern' or 'format'")
        inside = _of_format(format_) if format_ is not None else EMPTY
        if pattern is not None:
            inside = self._of_pattern(pattern)
        return Series((_QUOTE, inside, _QUOTE))

    def _characters(self, least: int, most: int | None) -> Node:
        return Repeat(self._shared("character", CHARACTER), least, most=most)

    def _of_pattern(self, pattern: Place) -> Node:
        anything = self._characters(0, None)
        options: list[Node] = []
        for branch in read_regex(pattern.text(), f"{pattern.arg}#{pattern.pointer}"):
            try:
                inside = inside_string(branch.node)
            except ValueError:
                what = "it has control characters that no string is made with"
                raise refusal(pattern, what) from None
            before = () if branch.from_start else (anything,)
            after = () if branch.to_end else (anything,)
            options.append(Series((*before, inside, *after)))
        return one_of(options)

    def _any_value(self) -> Node:
        value = Reference("value")
        if value.name not in self._rules:
            self._rules[value.name] = EMPTY
            schema = Place.of_document(
                {"type": ("object", "array", "string", "number", "boolean", "null")}, ""
            )
            self._rules[value.name] = self._combined([schema])
        return value


def _of_format(place: Place) -> Node:
    pattern = FORMATS.get(place.text())
    if pattern is None:
        what = f"this 'format' is not enforced; those that are: {', '.join(FORMATS)}"
        raise refusal(place, what)
    return whole(pattern, "format")


def _exactly(values: Sequence[object]) -> Node | None:
    texts = [json.dumps(thaw(value), ensure_ascii=False, allow_nan=False) for value in values]
    return one_of(map(Text, texts)) if texts else None


def _number(demands: Demands, *, whole: bool) -> Node | None:
    parts = 1 if whole else MILLIONTHS
    low = [
        first_multiple(place.number(), parts, excluded=keyword.startswith("exclusive"))
        for keyword in ("minimum", "exclusiveMinimum")
        for place in demands.all(keyword)
    ]
    high = [
        last_multiple(place.number(), parts, excluded=keyword.startswith("exclusive"))
        for keyword in ("maximum", "exclusiveMaximum")
        for place in demands.all(keyword)
    ]
    make = integers if whole else numbers
    return make(max(low, default=None), min(high, default=None))


_BOOLEAN = Choice((Text("true"), Text("false")))
