"""
Reading GBNF as llama.cpp reads it, within limits under which it can do so without harm.

llama.cpp's parser calls itself for every parenthesis and writes every repetition out; both are
bounded here. Refused although it takes them, because they never do what they look like: a class
that no character fits (it takes ``[]`` for the empty text), a range whose end comes first, a
repetition of more than 2000 times (it takes ``{1,3000}`` for ``{1,}``), one whose end comes first
(it never returns), a rule that stands twice (it takes the last). Tokens (``<think>``, ``<[7]>``)
mean something in one vocabulary only, and a wrong one ends the process; they are refused too.

Source: llama.cpp 0c1e57098, ``src/llama-grammar.cpp``, ``llama_grammar_parser``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from cartridge_gguf.grammar_nodes import (
    ANY,
    Node,
    Reference,
    Repeat,
    Series,
    Text,
    one_of,
)
from cartridge_gguf.grammar_scanner import SPACE, SPACE_AND_LINES, Scanner
from cartridge_gguf.grammar_source import LINE_END

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from cartridge_core.errors import InvalidArgumentError
    from cartridge_gguf.grammar_source import Source

__all__ = ["MAX_ELEMENTS", "MAX_NESTING", "MAX_REPEATS", "MAX_RULES", "Rule", "read_rules"]

MAX_RULES: Final = 5_000
MAX_NESTING: Final = 64
"""How deep groups and repetitions may stand in one another."""

MAX_REPEATS: Final = 2_000
"""llama.cpp's own limit, ``MAX_REPETITION_THRESHOLD``."""

MAX_ELEMENTS: Final = 200_000
"""Characters, references and so on, once every repetition is written out."""

_FORMS = "{m}, {m,} or {m,n}"


@attrs.frozen
class Rule:
    """One rule of a grammar."""

    body: Node
    at: int
    """Where it stands in the text."""


@attrs.frozen
class _Item:
    """What a repetition after it would repeat, with what llama.cpp counts of it."""

    node: Node
    size: int
    """How many elements it has where it stands; none where it is nothing at all."""

    rules: int = attrs.field(default=1, kw_only=True)
    """What llama.cpp multiplies repetitions with."""

    depth: int = attrs.field(default=1, kw_only=True)


def read_rules(source: Source) -> dict[str, Rule]:
    """
    Read a grammar's rules.

    Raises:
        InvalidArgumentError: The text is no GBNF, or beyond a limit.
    """
    return _Reader(source).read()


class _Reader:
    def __init__(self, source: Source) -> None:
        self._scanner = Scanner(source)
        self._names: set[str] = set()
        self._generated = 0
        self._elements = 0

    def read(self) -> dict[str, Rule]:
        scanner = self._scanner
        rules: dict[str, Rule] = {}
        scanner.skip(SPACE_AND_LINES)
        while scanner.next:
            start = scanner.at
            name, body = self._rule()
            if name in rules:
                what = "this rule stands twice; give one of them another name"
                raise scanner.wrong(start, what, "each rule once")
            rules[name] = Rule(body, start)
            if len(rules) > MAX_RULES:
                limit = f"at most {MAX_RULES} rules"
                raise scanner.wrong(start, f"there may be {limit}", limit)
        return rules

    def _rule(self) -> tuple[str, Node]:
        scanner = self._scanner
        scanner.rule = None
        name = scanner.name()
        if name is None:
            what = f"a rule begins with its name, found {scanner.found}"
            raise scanner.wrong(scanner.at, what, "name ::= what it stands for")
        self._names.add(name)
        scanner.rule = name
        scanner.skip(SPACE)
        if not scanner.take("::="):
            names = "names have letters, digits and '-'"
            what = f"'::=' must follow the name, found {scanner.found}; {names}"
            raise scanner.wrong(scanner.at, what, "name ::= what it stands for")
        scanner.skip(SPACE_AND_LINES)
        body = self._alternatives(0).node
        if scanner.next and not scanner.skip(LINE_END):
            raise scanner.wrong(scanner.at, f"unexpected {scanner.found}", "GBNF")
        scanner.skip(SPACE_AND_LINES)
        return name, body

    def _alternatives(self, nesting: int) -> _Item:
        options: list[Node] = []
        depth = 1
        while True:
            items = self._items(nesting)
            self._grow(sum(item.size for item in items) + 1)
            nodes = tuple(item.node for item in items)
            options.append(nodes[0] if len(nodes) == 1 else Series(nodes))
            depth = max([depth, *(item.depth for item in items)])
            if not self._scanner.take("|"):
                return _Item(one_of(options), 1, depth=depth)
            self._scanner.skip(SPACE_AND_LINES)

    def _items(self, nesting: int) -> Sequence[_Item]:
        items: list[_Item] = []
        while (item := self._item(items, nesting)) is not None:
            items.append(item)
            self._scanner.skip(SPACE_AND_LINES if nesting else SPACE)
        return items

    def _item(self, before: list[_Item], nesting: int) -> _Item | None:
        scanner = self._scanner
        start, character = scanner.at, scanner.next
        if character == '"':
            text = scanner.quoted()
            return _Item(Text(text), len(text))
        if character == "[":
            return _Item(*scanner.character_class())
        if character == "(":
            return self._group(nesting)
        if scanner.take("."):
            return _Item(ANY, 1)
        if character in ("*", "+", "?", "{"):
            return self._repeated(before.pop() if before else None, nesting)
        if character in ("<", "!"):
            what = "tokens are not offered, they depend on the model; write their text in quotes"
            raise scanner.wrong(start, what, "no tokens")
        name = scanner.name()
        if name is None:
            return None
        self._names.add(name)
        return _Item(Reference(name, start), 1)

    def _group(self, nesting: int) -> _Item:
        scanner = self._scanner
        start = scanner.at
        if nesting >= MAX_NESTING:
            raise self._too_deep(start)
        scanner.at += 1
        scanner.skip(SPACE_AND_LINES)
        before = self._symbols
        self._generated += 1
        inside = self._alternatives(nesting + 1)
        if not scanner.take(")"):
            what = f"this ( is not closed where {scanner.found} stands"
            raise scanner.wrong(start, what, "closed groups")
        return attrs.evolve(inside, rules=self._symbols - before, depth=inside.depth + 1)

    def _repeated(self, item: _Item | None, nesting: int) -> _Item:
        scanner = self._scanner
        start, sign = scanner.at, scanner.next
        least, most = self._times(SPACE_AND_LINES if nesting else SPACE)
        if item is None or not item.size:
            what = f"there is nothing to repeat before {sign}"
            raise scanner.wrong(start, what, "something to repeat")
        if item.depth >= MAX_NESTING:
            raise self._too_deep(start)
        times = most or least or 1
        if item.rules * times > MAX_REPEATS:
            what = (
                f"{times} times what has {item.rules} groups and repetitions in it; multiplied, "
                f"they are at most {MAX_REPEATS}: repeat it less often, or make it a rule"
            )
            raise scanner.wrong(start, what, f"at most {MAX_REPEATS} repetitions")
        more = 1 if most is None else most - least
        self._generated += more
        self._grow(more * (item.size + 3))
        node = Repeat(item.node, least, most=most, at=start)
        size = item.size * least + (more > 0)
        return _Item(node, size, rules=item.rules * times, depth=item.depth + 1)

    def _times(self, space: re.Pattern[str]) -> tuple[int, int | None]:
        scanner = self._scanner
        start = scanner.at
        for sign, times in _SIGNS.items():
            if scanner.take(sign):
                return times
        scanner.at += 1
        scanner.skip(space)
        least = scanner.number(MAX_REPEATS)
        most = least
        scanner.skip(space)
        if scanner.take(","):
            scanner.skip(space)
            most = scanner.number(MAX_REPEATS)
            scanner.skip(space)
        if least is None or not scanner.take("}"):
            raise scanner.wrong(start, f"a repetition is {_FORMS}", _FORMS)
        if most is not None and most < least:
            raise scanner.wrong(start, "this repetition ends before it begins", "{m,n}, m <= n")
        if max(least, most or 0) > MAX_REPEATS:
            limit = f"at most {MAX_REPEATS} repetitions"
            raise scanner.wrong(start, f"a repetition has {limit}", limit)
        return least, most

    @property
    def _symbols(self) -> int:
        """How many names llama.cpp knows by now, its own included."""
        return len(self._names) + self._generated

    def _grow(self, elements: int) -> None:
        self._elements += elements
        if self._elements > MAX_ELEMENTS:
            limit = f"at most {MAX_ELEMENTS} elements"
            what = f"with all repetitions written out, a grammar has {limit}; repeat less"
            raise self._scanner.wrong(self._scanner.at, what, limit)

    def _too_deep(self, at: int) -> InvalidArgumentError:
        limit = f"at most {MAX_NESTING} deep"
        what = f"groups and repetitions nest {limit}; make some a rule of their own"
        return self._scanner.wrong(at, what, limit)


_SIGNS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
