"""
JSON objects and arrays as grammars.

Between two parts stands nothing, one space, or a line end with at most 20 spaces or tabs after it:
a model cannot write space without end. An object's properties come in the order of the schema,
those that are not required may be left out, and others come after them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from cartridge_gguf.grammar_nodes import (
    Characters,
    Choice,
    Node,
    Reference,
    Repeat,
    Series,
    Text,
    one_of,
    optional,
)
from cartridge_gguf.grammar_parser import MAX_REPEATS
from cartridge_gguf.json_demands import properties_of, required_names
from cartridge_gguf.json_keywords import refusal
from cartridge_gguf.json_strings import PLAIN, encoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cartridge_gguf.json_demands import Demands
    from cartridge_gguf.json_keywords import Place

__all__ = ["SPACE", "Writer", "array", "limits", "member", "object_"]

SPACE: Final = Choice(
    (Text(""), Text(" "), Series((Text("\n"), Repeat(Characters.among(" \t"), 0, most=20))))
)

_OPTIONAL_SPACE = optional(Text(" "))
_COMMA = Text(",")


class Writer(Protocol):
    """What objects and arrays need of the grammar that they become a part of."""

    @property
    def space(self) -> Reference:
        """What may stand between the parts of an object or an array."""
        ...

    def define(self, node: Node) -> Reference:
        """Make a node a rule of its own."""
        ...

    def node(self, schemas: Sequence[Place]) -> Node:
        """Make the values that several schemas allow together; any, where there are none."""
        ...


def limits(demands: Demands, least: str, most: str) -> tuple[int, int | None]:
    """
    Give the least and the most that a pair of keywords asks for; None for any number.

    Raises:
        InvalidArgumentError: A grammar cannot count so far.
    """
    for place in (*demands.all(least), *demands.all(most)):
        if place.count() > MAX_REPEATS:
            raise refusal(place, f"more than {MAX_REPEATS} cannot be counted; leave it out")
    low = max((place.count() for place in demands.all(least)), default=0)
    return low, min((place.count() for place in demands.all(most)), default=None)


def member(name: str, value: Node) -> Node:
    """Make one property of an object, with its name."""
    return Series((encoded(name), Text(":"), _OPTIONAL_SPACE, value))


def object_(demands: Demands, writer: Writer) -> Node | None:
    """
    Make the objects that schemas allow together; None where there are none.

    Raises:
        InvalidArgumentError: What is asked for cannot be enforced.
    """
    required = required_names(demands)
    declared = dict(properties_of(demands))
    others = _others(demands)
    closed = others is not None and others.value is False
    for name, place in required.items():
        if name not in declared:
            if closed:
                raise refusal(place, f"{name!r} is required, and not among the properties")
            declared[name] = [] if others is None else [others]
    forbidden = {
        name for name, places in declared.items() if any(place.value is False for place in places)
    }
    if forbidden & required.keys():
        return None
    fields = [
        (writer.define(member(name, writer.node(places))), name in required)
        for name, places in declared.items()
        if name not in forbidden
    ]
    more = None
    if not closed and (others is not None or not demands.all("properties")):
        value = writer.node([] if others is None else [others])
        more = writer.define(Series((_other_key(declared), Text(":"), _OPTIONAL_SPACE, value)))
    inside = _members(fields, more, writer)
    return _enclosed("{", "}", inside, writer, empty=not required)


def _others(demands: Demands) -> Place | None:
    """Give what other properties must be; None where nothing is said."""
    names = properties_of(demands).keys()
    for schema in demands.schemas:
        place = schema.get("additionalProperties")
        own = schema["properties"].object().keys() if "properties" in schema else set()
        if place is not None and place.value is not True and names - own:
            what = (
                "it cannot be combined with the properties of another schema "
                f"({', '.join(sorted(names - own))}); write them here too"
            )
            raise refusal(place, what)
    found = [place for place in demands.all("additionalProperties") if place.value is not True]
    if len(found) > 1:
        raise refusal(found[1], "two different ones cannot be enforced together")
    return found[0] if found else demands.one("additionalProperties")


def _members(
    fields: Sequence[tuple[Reference, bool]], more: Reference | None, writer: Writer
) -> Node | None:
    """Make what stands between the braces; None where nothing can."""
    rest: Node | None = None
    if more is not None:
        rest = Repeat(writer.define(_after_comma(more, writer)), 0, most=None)
    starts: list[Node] = [] if more is None else [_joined(more, rest)]
    for index in range(len(fields) - 1, -1, -1):
        field, is_required = fields[index]
        start = _joined(field, rest)
        starts = [start] if is_required else [start, *starts]
        if index:
            follows = _after_comma(field, writer)
            rest = writer.define(_joined(follows if is_required else optional(follows), rest))
    return one_of(starts) if starts else None


def _after_comma(node: Node, writer: Writer) -> Node:
    return Series((_COMMA, writer.space, node))


def _joined(first: Node, rest: Node | None) -> Node:
    return first if rest is None else Series((first, rest))


def _enclosed(left: str, right: str, inside: Node | None, writer: Writer, *, empty: bool) -> Node:
    """Put something between braces or brackets; ``empty`` says that it may be left out."""
    rest: tuple[Node, ...] = () if inside is None else (inside, writer.space)
    if empty and rest:
        rest = (optional(Series(rest)),)
    return Series((Text(left), writer.space, *rest, Text(right)))


def _other_key(names: Iterable[str]) -> Node:
    """
    Make any name but some, without escapes, so that none is spelt in two ways.

    Each alternative follows the beginning of a name as far as it goes, and leaves it there.
    """
    ends: dict[str, set[str]] = {"": set()}
    taken = set(names)
    for name in taken:
        for index, character in enumerate(name):
            ends.setdefault(name[:index], set()).add(character)
            ends.setdefault(name[: index + 1], set())
    options: list[Node] = []
    for start, following in ends.items():
        if not all(character in PLAIN for character in start):
            continue
        left = PLAIN.minus(Characters.among("".join(following)))
        options.append(Series((Text(start), left, Repeat(PLAIN, 0, most=None))))
        if start not in taken:
            options.append(Text(start))
    return Series((Text('"'), one_of(options), Text('"')))


def array(demands: Demands, writer: Writer) -> Node | None:
    """
    Make the arrays that schemas allow together; None where there are none.

    Raises:
        InvalidArgumentError: What is asked for cannot be enforced.
    """
    least, most = limits(demands, "minItems", "maxItems")
    _check_together(demands)
    first, items = demands.one("prefixItems"), demands.one("items")
    schemas = [] if first is None else list(first.items())
    if (first is not None and items is None) or (items is not None and items.value is False):
        most = len(schemas) if most is None else min(most, len(schemas))
    if most is not None and least > most:
        return None
    each = [writer.define(writer.node([schema])) for schema in schemas[:most]]
    rest: Node | None = None
    if most is None or most > len(each):
        item = writer.define(writer.node([] if items is None else [items]))
        each = each or [item]
        more = writer.define(_after_comma(item, writer))
        counted = None if most is None else most - len(each)
        rest = Repeat(more, max(least - len(each), 0), most=counted)
    for index in range(len(each) - 1, 0, -1):
        follows = _joined(_after_comma(each[index], writer), rest)
        rest = writer.define(follows if index < least else optional(follows))
    inside = _joined(each[0], rest) if each else None
    return _enclosed("[", "]", inside, writer, empty=not least)


def _check_together(demands: Demands) -> None:
    """Refuse ``items`` beside the ``prefixItems`` of another schema, which it would not concern."""
    if len([schema for schema in demands.schemas if {"items", "prefixItems"} & schema.keys()]) > 1:
        place = demands.one("items") or demands.one("prefixItems")
        if place is not None and demands.one("prefixItems") is not None:
            raise refusal(place, "'items' and 'prefixItems' of two schemas cannot be combined")
