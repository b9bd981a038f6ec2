"""
How much work llama.cpp would have while it follows a text.

It keeps one stack for each way in which the text so far can be read and may go on. Where several
alternatives begin alike and come back to the same rule (``sum ::= n "+" sum | n "-" sum | n`` with
``n ::= [0-9] | "(" sum ")"``), each further character multiplies them, and a dozen parentheses fill
the memory. And to refuse a token it tries every way through it, also where ways meet again: where
letters may be read in many ways (``[a-z]? [a-z]? ...``) one long token takes minutes.
Whether a grammar does that cannot be decided in general; here the text that makes most ways,
character by character, is followed for a while.

Source: llama.cpp 0c1e57098, ``src/llama-grammar.cpp``, ``llama_grammar_accept``,
``llama_grammar_advance_stack`` and ``llama_grammar_reject_candidates``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cartridge_gguf.grammar_elements import Elements
from cartridge_gguf.grammar_nodes import Characters

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from cartridge_gguf.grammar_nodes import Node

__all__ = ["worst_text"]

_MAX_STEP = 20_000
"""How many stacks may be made on the way over one character; with more it takes seconds."""

_TOKEN = 8
_MAX_WAYS = 100_000
"""How many ways there may be through a token of so many characters."""

_MAX_LENGTH = 64
_MAX_WORK = 100_000
"""How many stacks are made before the search ends; most grammars need some hundreds."""

_TRIED = 2
"""How many characters are tried at each place, those that fit most stacks."""


def worst_text(rules: Mapping[str, Node], root: str) -> str | None:
    """
    Look for a text after which there are too many stacks, or too many ways to them.

    Args:
        rules: The bodies of rules without left recursion.
        root: Where texts begin.

    Returns:
        The text, None where none was found.
    """
    elements = Elements.of(rules)
    stacks = _Stacks(elements)
    here: Mapping[int, int] = dict.fromkeys(stacks.begun(elements.names[root]), 1)
    text = ""
    while here and len(text) < _MAX_LENGTH and stacks.work < _MAX_WORK:
        if not len(text) % _TOKEN:
            here = dict.fromkeys(here, 1)
        made = 0
        worst: tuple[str, Mapping[int, int]] = ("", {})
        for character in stacks.candidates(here):
            before = stacks.work
            after = stacks.after(here, character)
            made = max(made, stacks.work - before)
            worst = max(worst, (character, after), key=lambda found: sum(found[1].values()))
        text, here = text + worst[0], worst[1]
        ways = sum(here.values())
        if made > _MAX_STEP or ways > _MAX_WAYS:
            return text
    return None


class _Stacks:
    """Stacks of places in the elements that share what lies below; each is a number."""

    def __init__(self, elements: Elements) -> None:
        self._elements = elements
        self._tops = [(-1, 0)]
        self._numbers: dict[tuple[int, int], int] = {}
        self.work = 0

    def begun(self, rule: int) -> Collection[int]:
        """Give the stacks before the first character; 0 is the empty one, where a text may end."""
        return self._opened(
            [self._put(start, 0) for start in self._elements.starts[rule]], self.work
        )

    def _put(self, place: int, below: int) -> int:
        """Put a place on a stack, unless an alternative ends there."""
        if self._elements.parts[place] is None:
            return below
        key = (place, below)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._tops)
            self._tops.append(key)
        return number

    def _opened(self, stacks: Iterable[int], since: int) -> Collection[int]:
        """Replace references on top by what they stand for; ``since`` is the work before."""
        waiting = list(stacks)
        seen = set(waiting)
        found: list[int] = []
        while waiting and self.work - since <= _MAX_STEP:
            self.work += 1
            stack = waiting.pop()
            place, below = self._tops[stack]
            rule = self._elements.parts[place] if stack else None
            if not isinstance(rule, int):
                found.append(stack)
                continue
            rest = self._put(place + 1, below)
            for start in self._elements.starts[rule]:
                after = self._put(start, rest)
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
        return found

    def candidates(self, stacks: Iterable[int]) -> Iterable[str]:
        """Give the characters that fit most stacks."""
        parts = [self._elements.parts[self._tops[stack][0]] for stack in stacks if stack]
        starts = dict.fromkeys(start for part in parts for start in _starts(part))
        fits = {start: sum(_fits(part, start) for part in parts) for start in starts}
        return sorted(fits, key=lambda start: -fits[start])[:_TRIED]

    def after(self, stacks: Mapping[int, int], character: str) -> Mapping[int, int]:
        """Give the stacks after a character, with in how many ways each is come to."""
        since = self.work
        found: dict[int, int] = {}
        for stack, ways in stacks.items():
            place, below = self._tops[stack]
            if stack and _fits(self._elements.parts[place], character):
                for after in self._opened([self._put(place + 1, below)], since):
                    found[after] = found.get(after, 0) + ways
        return found


def _starts(part: object) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, Characters):
        yield from (chr(first) for first, _ in part.ranges[:_TRIED])


def _fits(part: object, character: str) -> bool:
    return character in part if isinstance(part, Characters) else part == character
