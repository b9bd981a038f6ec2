"""
A grammar as llama.cpp keeps it: rules of characters and references only.

Groups are rules of their own there, and a repetition is written out: ``S{1,3}`` is ``S a`` with
``a ::= S b |`` and ``b ::= S |``, ``S+`` is ``S a`` with ``a ::= S a |``.

Source: llama.cpp 0c1e57098, ``src/llama-grammar.cpp``, ``llama_grammar_parser::parse_sequence``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import attrs

from cartridge_gguf.grammar_nodes import (
    Characters,
    Choice,
    Node,
    Reference,
    Repeat,
    Series,
    Text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Elements"]

Part: TypeAlias = "str | Characters | int | None"
"""A character, a set, the number of a rule, or the end of an alternative."""


@attrs.frozen
class Elements:
    """All rules of a grammar, one after the other."""

    names: Mapping[str, int]
    """The number of each rule that has a name."""

    parts: Sequence[Part]
    starts: Sequence[Sequence[int]]
    """Where in the parts each alternative of each rule starts."""

    @classmethod
    def of(cls, rules: Mapping[str, Node]) -> Elements:
        """Write a grammar's rules out."""
        writer = _Writer(rules)
        for name, body in rules.items():
            writer.define(writer.names[name], _options(body))
        return cls(writer.names, writer.parts, writer.starts)


class _Writer:
    def __init__(self, names: Iterable[str]) -> None:
        self.names = {name: number for number, name in enumerate(names)}
        self.parts: list[Part] = []
        self.starts: list[list[int]] = [[] for _ in self.names]

    def define(self, rule: int, options: Iterable[Node]) -> None:
        self._add(rule, [self._written(option) for option in options])

    def _add(self, rule: int, alternatives: Iterable[Iterable[Part]]) -> None:
        for alternative in alternatives:
            self.starts[rule].append(len(self.parts))
            self.parts += alternative
            self.parts.append(None)

    def _new(self) -> int:
        self.starts.append([])
        return len(self.starts) - 1

    def _written(self, node: Node) -> list[Part]:
        """Write what stands for a node in an alternative."""
        if isinstance(node, Series):
            return [part for item in node.items for part in self._item(item)]
        return self._item(node)

    def _item(self, node: Node) -> list[Part]:
        if isinstance(node, Text):
            return list(node.text)
        if isinstance(node, Characters):
            return [node]
        if isinstance(node, Reference):
            return [self.names[node.name]]
        if isinstance(node, Repeat):
            return self._repeated(node)
        group = self._new()
        self.define(group, _options(node))
        return [group]

    def _repeated(self, node: Repeat) -> list[Part]:
        item = self._item(node.item)
        parts = item * node.least
        if node.most is None:
            more = self._new()
            self._add(more, [[*item, more], []])
            return [*parts, more]
        rest: list[Part] = []
        for _ in range(node.most - node.least):
            more = self._new()
            self._add(more, [[*item, *rest], []])
            rest = [more]
        return parts + rest


def _options(node: Node) -> Sequence[Node]:
    return node.options if isinstance(node, Choice) else (node,)
