"""
What schemas ask of one value together: ``$ref``, ``allOf``, ``anyOf`` and ``oneOf`` resolved.

The result is a list of alternatives; in each, several plain schemas must hold at once.
"""

from __future__ import annotations

from functools import reduce
from itertools import combinations, product
from typing import TYPE_CHECKING, Final

import attrs

from cartridge_gguf.json_keywords import ASSERTIONS, canonical, read_keywords, refusal, type_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from cartridge_gguf.json_keywords import Place

__all__ = [
    "EVERY_TYPE",
    "Demands",
    "alternatives",
    "check_exclusive",
    "properties_of",
    "required_names",
]

_ATOMS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset([name]) for name in ("null", "boolean", "integer", "string", "array", "object")
} | {"number": frozenset(["integer", "fraction"])}

EVERY_TYPE: Final = frozenset[str]().union(*_ATOMS.values())
"""JSON's types, with numbers apart that are integers and that are none (``fraction``)."""

_MAX_ALTERNATIVES = 256
_MAX_STEPS = 32
_COMBINING = ("$ref", "allOf", "anyOf", "oneOf")


@attrs.frozen
class Demands:
    """Plain schemas that must all hold, each as its keywords."""

    schemas: tuple[Mapping[str, Place], ...]

    def all(self, keyword: str) -> Sequence[Place]:
        """Give every place where a keyword stands; of equal ones the first."""
        found = [schema[keyword] for schema in self.schemas if keyword in schema]
        return list({canonical(place.value): place for place in reversed(found)}.values())[::-1]

    def one(self, keyword: str) -> Place | None:
        """
        Give the place of a keyword that cannot be combined with itself.

        Raises:
            InvalidArgumentError: It stands at several places, with different values.
        """
        found = self.all(keyword)
        if len(found) > 1:
            what = f"two different {keyword!r} for one value cannot be enforced together"
            raise refusal(found[1], what)
        return found[0] if found else None

    def assertions(self) -> Sequence[Place]:
        """Give every place of a keyword that asks something of values of one type."""
        return [
            place
            for keywords in ASSERTIONS.values()
            for keyword in keywords
            for place in self.all(keyword)
        ]

    def types(self) -> Set[str]:
        """Give the types that are allowed."""
        declared = (_declared(place.value) for place in self.all("type"))
        return reduce(frozenset.intersection, declared, EVERY_TYPE)

    def made_types(self) -> Set[str]:
        """
        Give the types that values are made of.

        Where none is declared, they are those that keywords are about: ``properties`` alone makes
        objects, although it would allow a string.
        """
        if self.all("type"):
            return self.types()
        about = [
            _ATOMS[name]
            for name, keywords in ASSERTIONS.items()
            if any(self.all(keyword) for keyword in keywords)
        ]
        return frozenset[str]().union(*about) if about else EVERY_TYPE

    def values(self) -> Mapping[str, object] | None:
        """Give the only values that are allowed, by what `canonical` says; None for any."""
        lists = [
            place.array() if keyword == "enum" else (place.value,)
            for keyword in ("enum", "const")
            for place in self.all(keyword)
        ]
        if not lists:
            return None
        allowed = [{canonical(value): value for value in values} for values in lists]
        return {
            key: value
            for key, value in allowed[0].items()
            if all(key in others for others in allowed) and _atom(value) in self.types()
        }


def _declared(value: object) -> frozenset[str]:
    names = value if isinstance(value, tuple) else (value,)
    return frozenset[str]().union(*(_ATOMS[str(name)] for name in names))


def _atom(value: object) -> str:
    name = type_of(value)
    return "fraction" if name == "number" else name


def alternatives(schemas: Sequence[Place], steps: int = 0) -> list[Demands]:
    """
    Give the alternatives that schemas have when all of them must hold.

    Args:
        schemas: The schemas.
        steps: How many schemas were followed to come here.

    Raises:
        InvalidArgumentError: A schema has a keyword that is not enforced, refers to itself without
            anything in between, or there are too many alternatives.
    """
    found = [Demands(())]
    for schema in schemas:
        if steps > _MAX_STEPS:
            raise refusal(schema, f"it is combined of schemas more than {_MAX_STEPS} deep")
        keywords = read_keywords(schema)
        plain = {key: place for key, place in keywords.items() if key not in _COMBINING}
        factors = [[Demands((plain,))]]
        if "$ref" in keywords:
            factors.append(alternatives([keywords["$ref"].referenced()], steps + 1))
        if "allOf" in keywords:
            factors.append(alternatives([*keywords["allOf"].items()], steps + 1))
        for keyword in ("anyOf", "oneOf"):
            if keyword in keywords:
                options = [alternatives([each], steps + 1) for each in keywords[keyword].items()]
                if keyword == "oneOf":
                    _check_exclusive(keywords[keyword], options)
                factors.append([demands for option in options for demands in option])
        for factor in factors:
            if len(found) * len(factor) > _MAX_ALTERNATIVES:
                raise refusal(schema, f"it has more than {_MAX_ALTERNATIVES} alternatives")
            found = [Demands(a.schemas + b.schemas) for a, b in product(found, factor)]
    return found


def check_exclusive(one_of: Place) -> None:
    """
    Make sure that no value that is made for one schema of a ``oneOf`` fits another.

    Raises:
        InvalidArgumentError: That is not so, or cannot be told.
    """
    _check_exclusive(one_of, [alternatives([each]) for each in one_of.items()])


def _check_exclusive(one_of: Place, options: Sequence[Sequence[Demands]]) -> None:
    for (first, a), (second, b) in combinations(enumerate(options), 2):
        if not all(_misses(x, y) and _misses(y, x) for x, y in product(a, b)):
            what = (
                f"a value may fit both {first} and {second}, which 'oneOf' forbids; give them "
                "different types, or a required property with a different 'const', or use 'anyOf'"
            )
            raise refusal(one_of, what)


def _misses(made: Demands, other: Demands, depth: int = 0) -> bool:
    """Tell whether surely no value that is made for one fits the other."""
    values, others = made.values(), other.values()
    if values is not None:
        types = {_atom(value) for value in values.values()}
        if others is not None:
            return not values.keys() & others.keys()
    else:
        types = set(made.made_types())
    if others is not None:
        return not types & {_atom(value) for value in others.values()}
    if not types & other.types():
        return True
    return (
        types == {"object"}
        and values is None
        and depth < _MAX_STEPS
        and any(_misses_property(name, made, other, depth) for name in required_names(made))
    )


def _misses_property(name: str, made: Demands, other: Demands, depth: int) -> bool:
    ours, theirs = properties_of(made).get(name), properties_of(other).get(name)
    if not ours or not theirs:
        return False
    pairs = product(alternatives(ours), alternatives(theirs))
    return all(_misses(a, b, depth + 1) for a, b in pairs)


def required_names(demands: Demands) -> Mapping[str, Place]:
    """Give the names that an object must have, with the place that says so."""
    return {
        str(name): place
        for place in demands.all("required")
        for name in (place.value if isinstance(place.value, tuple) else ())
    }


def properties_of(demands: Demands) -> Mapping[str, Sequence[Place]]:
    """Give the schemas of each declared property, in declared order."""
    found: dict[str, list[Place]] = {}
    for place in demands.all("properties"):
        for name in place.object():
            found.setdefault(name, []).append(place[name])
    return found
