"""Texts of a grammar: made at random, and recognised; slow and plain, for tests."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

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
    import random
    from collections.abc import Mapping

__all__ = ["accepts", "derive"]


def accepts(rules: Mapping[str, Node], text: str) -> bool:
    """Tell whether the whole text is one of the grammar's."""
    return len(text) in _Recogniser(rules, text).ends(rules["root"], 0)


class _Recogniser:
    def __init__(self, rules: Mapping[str, Node], text: str) -> None:
        self._rules = rules
        self._text = text
        self._known: dict[tuple[int, int], set[int]] = {}

    def ends(self, node: Node, start: int) -> set[int]:
        """Give every place where a text of the node that starts here may end."""
        key = (id(node), start)
        if key not in self._known:
            self._known[key] = self._ends(node, start)
        return self._known[key]

    def _ends(self, node: Node, start: int) -> set[int]:
        if isinstance(node, Text):
            return {start + len(node.text)} if self._text.startswith(node.text, start) else set()
        if isinstance(node, Characters):
            character = self._text[start : start + 1]
            return {start + 1} if character and character in node else set()
        if isinstance(node, Reference):
            return self.ends(self._rules[node.name], start)
        if isinstance(node, Choice):
            return set().union(*(self.ends(option, start) for option in node.options))
        if isinstance(node, Series):
            places = {start}
            for item in node.items:
                places = self._after(item, places)
            return places
        return self._repeated(node, start)

    def _repeated(self, node: Repeat, start: int) -> set[int]:
        places, times = {start}, 0
        found = {start} if node.least == 0 else set()
        most = math.inf if node.most is None else node.most
        while places and times < most and times <= node.least + len(self._text):
            places, times = self._after(node.item, places), times + 1
            if times >= node.least:
                if places <= found:
                    break
                found |= places
        return found

    def _after(self, node: Node, places: set[int]) -> set[int]:
        return set().union(*(self.ends(node, place) for place in places))


def derive(rules: Mapping[str, Node], chance: random.Random, depth: int = 24) -> str:
    """
    Make one text of a grammar.

    Args:
        rules: The grammar's rules.
        chance: Decides.
        depth: From how many rules deep on the shortest way out is taken.
    """
    return _Deriver(rules, chance, depth).text()


class _Deriver:
    def __init__(self, rules: Mapping[str, Node], chance: random.Random, depth: int) -> None:
        self._rules = rules
        self._chance = chance
        self._depth = depth
        self._heights: dict[str, float] = dict.fromkeys(rules, math.inf)
        while True:
            heights = {name: 1 + self._height(body) for name, body in rules.items()}
            if heights == self._heights:
                break
            self._heights = heights

    def _height(self, node: Node) -> float:
        """Count how many rules deep the shortest way through a node is."""
        if isinstance(node, Reference):
            return self._heights[node.name]
        if isinstance(node, Choice):
            return min(map(self._height, node.options))
        if isinstance(node, Series):
            return max(map(self._height, node.items), default=0)
        if isinstance(node, Repeat):
            return self._height(node.item) if node.least else 0
        return 0

    def text(self) -> str:
        return self._of(self._rules["root"], 0)

    def _of(self, node: Node, depth: int) -> str:
        if isinstance(node, Text):
            return node.text
        if isinstance(node, Characters):
            first, last = self._chance.choice(node.ranges)
            return chr(self._chance.choice([first, last, self._chance.randint(first, last)]))
        if isinstance(node, Reference):
            return self._of(self._rules[node.name], depth + 1)
        if isinstance(node, Series):
            return "".join(self._of(item, depth) for item in node.items)
        if isinstance(node, Choice):
            if depth > self._depth:
                return self._of(min(node.options, key=self._height), depth)
            return self._of(self._chance.choice(node.options), depth)
        return "".join(self._of(node.item, depth) for _ in range(self._times(node, depth)))

    def _times(self, node: Repeat, depth: int) -> int:
        if depth > self._depth:
            return node.least
        most = node.least + 3 if node.most is None else node.most
        some = min(most, node.least + self._chance.choice([0, 0, 1, 1, 2, 3]))
        return self._chance.choice([some, some, some, min(most, node.least + 40)])
