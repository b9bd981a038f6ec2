"""
What a grammar's rules must be to one another, so that llama.cpp can follow them.

llama.cpp finds some left recursion itself, and misses it behind what is empty only together
(``a ::= b a "x" | "y"`` with ``b ::= "c"* "d"*``): then it fills the memory. Its search for it goes
into a rule again for every way there, so that thirty rules can take it years. How a text may begin
is one stack for each way, all made before the first token.

Source: llama.cpp 0c1e57098, ``src/llama-grammar.cpp``, ``llama_grammar_detect_left_recursion`` and
``llama_grammar_advance_stack``.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from cartridge_gguf.grammar_nodes import (
    Choice,
    Node,
    Reference,
    Repeat,
    Series,
    is_nullable,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set

    from cartridge_core.errors import InvalidArgumentError

    Refuse = Callable[[str, int | None, str, str], InvalidArgumentError]

__all__ = ["FINITE", "MAX_CHAIN", "MAX_WAYS", "NO_LEFT_RECURSION", "ROOT", "check_rules"]

ROOT: Final = "root"
FINITE: Final = "rules that can end"
NO_LEFT_RECURSION: Final = "no left recursion"

MAX_CHAIN: Final = 1_000
"""How many rules may begin with one another."""

MAX_WAYS: Final = 10_000
"""In how many ways a text may go on at one place."""


def check_rules(rules: Mapping[str, Node], refuse: Refuse) -> None:
    """
    Check rules that have been read.

    Args:
        rules: Their bodies by name.
        refuse: Makes the error, from a rule's name, a place in it, what is wrong and what is asked.

    Raises:
        InvalidArgumentError: There is no root rule, or a rule is missing, begins with itself, never
            ends, or lets a text go on in too many ways.
    """
    _check_names(rules, refuse)
    nullable = _least(rules, is_nullable)
    finite = _least(rules, _is_finite)
    for name, body in rules.items():
        _check_repeats(name, body, nullable, refuse)
        if name not in finite:
            what = f"{name!r} never ends: each of its ways needs {name!r} again"
            raise refuse(name, None, what, FINITE)
    order = _in_order(rules, nullable, refuse)
    _check_ways(rules, order, nullable, refuse)


def _check_names(rules: Mapping[str, Node], refuse: Refuse) -> None:
    if ROOT not in rules:
        found = ", ".join(list(rules)[:5])
        what = f"there is no rule {ROOT!r}, with which a text begins; the rules are {found}"
        raise refuse(next(iter(rules)), None, what, f"a rule {ROOT!r}")
    for name, body in rules.items():
        for node in walk(body):
            if isinstance(node, Reference) and node.name not in rules:
                raise refuse(name, node.at, f"there is no rule {node.name!r}", "rules that exist")


def _least(rules: Mapping[str, Node], holds: Callable[[Node, Container[str]], bool]) -> Set[str]:
    """Give the smallest set of rules of which something holds, given that it holds of the set."""
    users: dict[str, set[str]] = defaultdict(set)
    for name, body in rules.items():
        for node in walk(body):
            if isinstance(node, Reference):
                users[node.name].add(name)
    found: set[str] = set()
    waiting = dict.fromkeys(rules)
    while waiting:
        name = waiting.popitem()[0]
        if holds(rules[name], found):
            found.add(name)
            waiting.update(dict.fromkeys(users[name] - found))
    return found


def _is_finite(node: Node, finite_rules: Container[str]) -> bool:
    if isinstance(node, Reference):
        return node.name in finite_rules
    if isinstance(node, Series):
        return all(_is_finite(item, finite_rules) for item in node.items)
    if isinstance(node, Choice):
        return any(_is_finite(option, finite_rules) for option in node.options)
    if isinstance(node, Repeat):
        return node.least == 0 or _is_finite(node.item, finite_rules)
    return True


def _check_repeats(name: str, body: Node, nullable: Set[str], refuse: Refuse) -> None:
    for node in walk(body):
        if isinstance(node, Repeat) and node.most is None and is_nullable(node.item, nullable):
            what = "what is repeated here without end may be empty; let it have a character"
            raise refuse(name, node.at, what, "no endless repetition of nothing")


def _beginnings(node: Node, nullable: Set[str]) -> Iterator[Reference]:
    """Give the references that a text of a node may begin with."""
    if isinstance(node, Reference):
        yield node
    elif isinstance(node, Repeat):
        yield from _beginnings(node.item, nullable)
    elif isinstance(node, Choice):
        for option in node.options:
            yield from _beginnings(option, nullable)
    elif isinstance(node, Series):
        for item in node.items:
            yield from _beginnings(item, nullable)
            if not is_nullable(item, nullable):
                return


def _in_order(rules: Mapping[str, Node], nullable: Set[str], refuse: Refuse) -> list[str]:
    """Give the rules' names, each after those that it may begin with."""
    done: dict[str, None] = {}
    for start in rules:
        trail: dict[str, Iterator[Reference]] = {}
        if start not in done:
            trail[start] = _beginnings(rules[start], nullable)
        while trail:
            name = next(reversed(trail))
            reference = next(trail[name], None)
            if reference is None:
                del trail[name]
                done[name] = None
            elif reference.name in trail:
                names = [*trail, reference.name]
                circle = " -> ".join(names[names.index(reference.name) :])
                what = f"left recursion: {circle}; let a character come before it"
                raise refuse(name, reference.at, what, NO_LEFT_RECURSION)
            elif reference.name not in done:
                trail[reference.name] = _beginnings(rules[reference.name], nullable)
    return list(done)


def _check_ways(
    rules: Mapping[str, Node], order: list[str], nullable: Set[str], refuse: Refuse
) -> None:
    measure = _Measure(nullable)
    for name in order:
        measure.add(name, rules[name])
        if measure.most_ways > MAX_WAYS:
            limit = f"at most {MAX_WAYS} ways"
            what = f"at one place a text may go on in {limit}; let them share their beginning"
            raise refuse(name, None, what, limit)
        if measure.chains[name] > MAX_CHAIN:
            limit = f"at most {MAX_CHAIN} rules"
            what = f"{limit} may begin with one another; put some of them into one"
            raise refuse(name, None, what, limit)


class _Measure:
    """Counts in how many ways the text of a rule may begin, and how many rules deep that goes."""

    def __init__(self, nullable: Set[str]) -> None:
        self._nullable = nullable
        self._ways: dict[str, int] = {}
        self.chains: dict[str, int] = {}
        self.most_ways = 0

    def add(self, name: str, body: Node) -> None:
        """Measure a rule; those that it may begin with have been."""
        ways, chain = self._of_options(body.options if isinstance(body, Choice) else (body,))
        self._ways[name], self.chains[name] = ways, chain

    def _of(self, node: Node) -> tuple[int, int]:
        ways, chain = 1, 0
        if isinstance(node, Reference):
            ways, chain = self._ways.get(node.name, 1), self.chains.get(node.name, 0)
        elif isinstance(node, Series):
            ways, chain = self._of_series(node)
        elif isinstance(node, Choice):
            ways, chain = self._of_options(node.options)
        elif isinstance(node, Repeat):
            ways, chain = self._of(node.item)
            times = 1
            if is_nullable(node.item, self._nullable):
                times = node.most or node.least
            ways, chain = 1 + times * (1 + ways), times + chain
        self.most_ways = max(self.most_ways, ways)
        return ways, chain

    def _of_options(self, options: Sequence[Node]) -> tuple[int, int]:
        """Measure a rule, with a name or without, by its alternatives."""
        measures = [self._of(option) for option in options]
        ways = 1 + sum(each for each, _ in measures)
        self.most_ways = max(self.most_ways, ways)
        return ways, 1 + max(each for _, each in measures)

    def _of_series(self, node: Series) -> tuple[int, int]:
        ways, chain = 1, 0
        for item in reversed(node.items):
            own, deep = self._of(item)
            after = is_nullable(item, self._nullable)
            ways = own + (ways if after else 0)
            chain = max(deep, chain if after else 0)
            self.most_ways = max(self.most_ways, ways)
        return ways, chain
