"""What a grammar is made of, and how it is written in llama.cpp's GBNF."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

__all__ = [
    "ANY",
    "EMPTY",
    "LAST",
    "Characters",
    "Choice",
    "Node",
    "Reference",
    "Repeat",
    "Series",
    "Text",
    "depth_of",
    "is_nullable",
    "one_of",
    "optional",
    "walk",
    "write",
]

Node: TypeAlias = "Text | Characters | Reference | Series | Choice | Repeat"

LAST: Final = 0x10FFFF
"""The last code point of Unicode."""

_NEVER = ((0, 0), (0xD800, 0xDFFF))


@attrs.frozen
class Text:
    """Exactly this text; it may be empty."""

    text: str


@attrs.frozen
class Characters:
    """
    One character of a set.

    NUL and halves of surrogate pairs are in no set: llama.cpp ends a text at NUL, and no Unicode
    text has the halves.
    """

    ranges: tuple[tuple[int, int], ...]
    """First and last code point of each range, in order; no two touch."""

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> Characters:
        """Make the set of all characters in these ranges."""
        return cls(_without(_merged(ranges), _NEVER))

    @classmethod
    def among(cls, characters: str) -> Characters:
        """Make the set of the characters of a text."""
        return cls.of((ord(character), ord(character)) for character in characters)

    def inverted(self) -> Characters:
        """Give all other characters."""
        return Characters(_without(ANY.ranges, self.ranges))

    def minus(self, others: Characters) -> Characters:
        """Give those that are not among others."""
        return Characters(_without(self.ranges, others.ranges))

    def both(self, others: Characters) -> Characters:
        """Give those that are in both sets."""
        return self.minus(others.inverted())

    def __contains__(self, character: str) -> bool:
        code = ord(character)
        return any(first <= code <= last for first, last in self.ranges)


@attrs.frozen
class Reference:
    """What another rule says."""

    name: str
    at: int = attrs.field(default=0, eq=False, repr=False)
    """Where it stands in the grammar's text."""


@attrs.frozen
class Series:
    """One after the other; none is the empty text."""

    items: tuple[Node, ...]


@attrs.frozen
class Choice:
    """One of several."""

    options: tuple[Node, ...]


@attrs.frozen
class Repeat:
    """The same several times."""

    item: Node
    least: int
    most: int | None = attrs.field(kw_only=True)
    """None: without end."""

    at: int = attrs.field(default=0, eq=False, repr=False, kw_only=True)
    """Where it stands in the grammar's text."""


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def _without(
    ranges: tuple[tuple[int, int], ...], others: tuple[tuple[int, int], ...]
) -> tuple[tuple[int, int], ...]:
    left: list[tuple[int, int]] = []
    for start, last in ranges:
        first = start
        for out, until in others:
            if until < first or out > last:
                continue
            if out > first:
                left.append((first, out - 1))
            first = until + 1
        if first <= last:
            left.append((first, last))
    return tuple(left)


ANY: Final = Characters.of([(0, LAST)])
EMPTY: Final = Series(())


def optional(item: Node) -> Node:
    """Make a node that may be left out."""
    return Repeat(item, 0, most=1)


def one_of(options: Iterable[Node]) -> Node:
    """Make a choice; of a single option, that option itself."""
    found = tuple(options)
    return found[0] if len(found) == 1 else Choice(found)


def walk(node: Node) -> Iterator[Node]:
    """Give a node and everything inside it; other rules are not followed."""
    yield node
    if isinstance(node, Series):
        for item in node.items:
            yield from walk(item)
    elif isinstance(node, Choice):
        for option in node.options:
            yield from walk(option)
    elif isinstance(node, Repeat):
        yield from walk(node.item)


def depth_of(node: Node) -> int:
    """Count how deep nodes stand in one another; other rules are not followed."""
    if isinstance(node, Series):
        return 1 + max(map(depth_of, node.items), default=0)
    if isinstance(node, Choice):
        return 1 + max(map(depth_of, node.options), default=0)
    if isinstance(node, Repeat):
        return 1 + depth_of(node.item)
    return 1


def is_nullable(node: Node, nullable_rules: Container[str] = ()) -> bool:
    """Tell whether the empty text fits, given the rules that it fits."""
    if isinstance(node, Text):
        return not node.text
    if isinstance(node, Reference):
        return node.name in nullable_rules
    if isinstance(node, Series):
        return all(is_nullable(item, nullable_rules) for item in node.items)
    if isinstance(node, Choice):
        return any(is_nullable(option, nullable_rules) for option in node.options)
    if isinstance(node, Repeat):
        return node.least == 0 or is_nullable(node.item, nullable_rules)
    return False


def write(rules: Mapping[str, Node]) -> str:
    """Write rules as GBNF, one a line."""
    return "".join(f"{name} ::= {_options(body)}\n" for name, body in rules.items())


def _options(node: Node) -> str:
    if isinstance(node, Choice):
        return " | ".join(_series(option) for option in node.options)
    return _series(node)


def _series(node: Node) -> str:
    if isinstance(node, Series):
        return " ".join(_item(item) for item in node.items) or '""'
    return _item(node)


def _item(node: Node) -> str:
    if isinstance(node, Text):
        return f'"{"".join(_SAFE_IN_TEXT.get(char) or _escaped(char) for char in node.text)}"'
    if isinstance(node, Characters):
        return f"[{''.join(_range(first, last) for first, last in node.ranges)}]"
    if isinstance(node, Reference):
        return node.name
    if isinstance(node, Repeat):
        return f"{_item(node.item)}{_times(node)}"
    return f"({_options(node)})"


def _range(first: int, last: int) -> str:
    start = _in_class(first)
    return start if first == last else f"{start}-{_in_class(last)}"


def _in_class(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else _escaped(character)


def _times(node: Repeat) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    most = "" if node.most is None else node.most
    exact = f"{{{node.least}}}" if node.least == node.most else f"{{{node.least},{most}}}"
    return short.get((node.least, node.most), exact)


def _escaped(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


_SAFE_IN_TEXT = {chr(code): chr(code) for code in range(0x20, 0x7F)} | {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
