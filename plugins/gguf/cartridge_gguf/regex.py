r"""
Regular expressions as grammars: the part that means the same in Python and in ECMAScript.

- Characters, ``.`` (no line end: ``\n``, ``\r``, U+2028, U+2029), classes ``[a-z]`` and ``[^a-z]``.
- ``\d`` is ``[0-9]``, ``\w`` is ``[A-Za-z0-9_]``, ``\s`` is ``[ \t\n\r\f\v]``, and ``\D``, ``\W``,
  ``\S`` are all other characters: as in ASCII, whatever the text.
- ``\n \r \t \f \v \xNN \uNNNN``, and a backslash before anything that is no letter or digit.
- Groups, captured or not (``(...)``, ``(?:...)``, ``(?<name>...)``, ``(?P<name>...)``), and ``|``.
- ``* + ? {m} {m,} {m,n}``, at most 2000 times. A lazy one (``*?``) allows the same texts and is
  read the same. What is repeated without end must not be empty.
- ``^`` where a pattern or one of its alternatives begins, ``$`` where it ends.

Everything else is refused by name: looking around, references back, flags, word borders, atomic
groups, possessive repetition, Unicode properties. So is what the two languages read differently:
``[]``, ``a{,3}``, a ``{`` that begins no repetition.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_gguf.grammar_nodes import (
    Characters,
    Node,
    Repeat,
    Series,
    Text,
    is_nullable,
    one_of,
)
from cartridge_gguf.grammar_parser import MAX_NESTING, MAX_REPEATS

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Branch", "read_regex", "whole"]

_TIMES = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_SIGNS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_GROUP = re.compile(r"\((?:\?:|\?P?<[A-Za-z_][A-Za-z0-9_]*>|(?!\?))")
_OTHER_GROUPS = {
    "(?=": "looking ahead",
    "(?!": "looking ahead",
    "(?<": "looking behind",
    "(?P=": "a reference back",
    "(?P": "a group of this kind",
    "(?>": "an atomic group",
    "(?(": "a condition",
    "(?#": "a comment",
    "(?": "a flag",
}
_OTHER_ESCAPES = dict.fromkeys("bBAZzG", "a border") | dict.fromkeys("pP", "a Unicode property")
_OTHER_ESCAPES |= dict.fromkeys("123456789k", "a reference back")
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
_HEX = {"x": 2, "u": 4}

_NAMED = {
    "d": Characters.of([(0x30, 0x39)]),
    "w": Characters.of([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]),
    "s": Characters.among(" \t\n\r\f\v"),
}
_NAMED |= {name.upper(): characters.inverted() for name, characters in _NAMED.items()}
_DOT = Characters.among("\n\r\u2028\u2029").inverted()


@attrs.frozen
class Branch:
    """One of the alternatives that a pattern as a whole has."""

    node: Node
    from_start: bool
    """It began with ``^``."""

    to_end: bool
    """It ended with ``$``."""


def whole(pattern: str, arg: str) -> Node:
    """
    Make what matches a pattern from beginning to end; ``^`` and ``$`` change nothing.

    Raises:
        InvalidArgumentError: As `read_regex`.
    """
    return one_of(branch.node for branch in read_regex(pattern, arg))


def read_regex(pattern: str, arg: str) -> tuple[Branch, ...]:
    """
    Read a pattern.

    Args:
        pattern: A regular expression.
        arg: The argument that it comes from, for errors.

    Raises:
        InvalidArgumentError: It is empty, malformed, or has something that is not offered; the
            message names that, and where it stands.
    """
    return _Reader(pattern, arg).read()


class _Reader:
    def __init__(self, pattern: str, arg: str) -> None:
        self._pattern = pattern
        self._arg = arg
        self._at = 0

    def read(self) -> tuple[Branch, ...]:
        if not self._pattern:
            raise self._wrong(0, "it is empty, and only the empty text would fit", "not empty")
        branches = [self._branch()]
        while self._take("|"):
            branches.append(self._branch())
        if self._next:
            raise self._wrong(self._at, "this ) closes nothing", "closed groups")
        return tuple(branches)

    def _branch(self) -> Branch:
        from_start = self._take("^")
        node = self._series(0)
        return Branch(node, from_start, self._take("$"))

    def _series(self, nesting: int) -> Node:
        nodes: list[Node] = []
        while self._next not in ("", "|", ")"):
            if self._next == "$" and not nesting and self._pattern[self._at + 1 :][:1] in ("", "|"):
                break
            nodes.append(self._repeated(self._atom(nesting)))
        return nodes[0] if len(nodes) == 1 else Series(tuple(nodes))

    def _atom(self, nesting: int) -> Node:
        start, character = self._at, self._next
        if character == "(":
            return self._group(nesting)
        if character == "[":
            return self._class()
        if character == "\\":
            found = self._escape()
            return found if isinstance(found, Characters) else Text(found)
        if character in ("^", "$"):
            what = f"{character} is offered at the ends of a pattern or of its alternatives only"
            raise self._wrong(start, what, "^ and $ at the ends")
        if character in ("*", "+", "?"):
            raise self._wrong(start, f"there is nothing to repeat before {character}", "a pattern")
        if character == "{":
            raise self._wrong(start, "this { begins no repetition; write \\{", "a pattern")
        self._at += 1
        return _DOT if character == "." else Text(self._plain(start, ord(character)))

    def _repeated(self, node: Node) -> Node:
        start = self._at
        times = self._times()
        if times is None:
            return node
        least, most = times
        if max(least, most or 0) > MAX_REPEATS or (most is not None and most < least):
            wanted = f"{{m,n}}, m <= n <= {MAX_REPEATS}"
            raise self._wrong(start, f"a repetition is {wanted}", wanted)
        if most is None and is_nullable(node):
            what = "what is repeated without end may be empty; let it have a character"
            raise self._wrong(start, what, "no endless repetition of nothing")
        self._take("?")
        if self._next == "+":
            raise self._wrong(self._at, "possessive repetition is not offered", "no possessives")
        if self._next in ("*", "?", "{"):
            raise self._wrong(self._at, "this repeats a repetition; use a group", "a pattern")
        return Repeat(node, least, most=most)

    def _times(self) -> tuple[int, int | None] | None:
        if self._next in _SIGNS:
            self._at += 1
            return _SIGNS[self._pattern[self._at - 1]]
        found = _TIMES.match(self._pattern, self._at)
        if not found:
            return None
        self._at = found.end()
        least = _bounded(found[1])
        if not found[2]:
            return least, least
        return least, _bounded(found[3]) if found[3] else None

    def _group(self, nesting: int) -> Node:
        start = self._at
        found = _GROUP.match(self._pattern, start)
        if not found:
            begins = next(each for each in _OTHER_GROUPS if self._pattern.startswith(each, start))
            what = f"{begins}: {_OTHER_GROUPS[begins]} is not offered"
            raise self._wrong(start, what, "what grammars can say")
        if nesting >= MAX_NESTING:
            limit = f"at most {MAX_NESTING} deep"
            raise self._wrong(start, f"groups nest {limit}", limit)
        self._at = found.end()
        options = [self._series(nesting + 1)]
        while self._take("|"):
            options.append(self._series(nesting + 1))
        if not self._take(")"):
            raise self._wrong(start, "this ( is never closed", "closed groups")
        return one_of(options)

    def _class(self) -> Node:
        start = self._at
        self._at += 1
        inverse = self._take("^")
        if self._next == "]":
            what = "] at the beginning of a class means different things; write \\]"
            raise self._wrong(self._at, what, "no empty class")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            if not self._next:
                raise self._wrong(start, "this [ is never closed", "closed classes")
            ranges += self._members()
        found = Characters.of(ranges)
        found = found.inverted() if inverse else found
        if not found.ranges:
            raise self._wrong(start, "no character fits this class", "classes of characters")
        return found

    def _members(self) -> Iterable[tuple[int, int]]:
        start, first = self._at, self._member()
        if self._next != "-" or self._pattern.startswith("-]", self._at):
            return first.ranges if isinstance(first, Characters) else [(ord(first), ord(first))]
        self._at += 1
        if not self._next:
            raise self._wrong(start, "the pattern ends inside a class", "closed classes")
        last = self._member()
        if isinstance(first, Characters) or isinstance(last, Characters) or last < first:
            what = "a range goes from one character to a later one"
            raise self._wrong(start, what, "ranges in order")
        return [(ord(first), ord(last))]

    def _member(self) -> str | Characters:
        if self._next == "\\":
            return self._escape()
        self._at += 1
        return self._plain(self._at - 1, ord(self._pattern[self._at - 1]))

    def _escape(self) -> str | Characters:
        start = self._at
        kind = self._pattern[start + 1 : start + 2]
        self._at += 2
        if kind in _NAMED:
            return _NAMED[kind]
        if kind in _CONTROLS:
            return _CONTROLS[kind]
        if kind in _HEX:
            digits = self._pattern[self._at : self._at + _HEX[kind]]
            if not re.fullmatch(f"[0-9a-fA-F]{{{_HEX[kind]}}}", digits):
                what = f"\\{kind} must be followed by {_HEX[kind]} hexadecimal digits"
                raise self._wrong(start, what, "known escapes")
            self._at += _HEX[kind]
            return self._plain(start, int(digits, 16))
        if not kind or (kind.isascii() and kind.isalnum()):
            what = f"\\{kind}: {_OTHER_ESCAPES.get(kind, 'this escape')} is not offered"
            raise self._wrong(start, what, "known escapes")
        return self._plain(start, ord(kind))

    def _plain(self, at: int, code: int) -> str:
        if code == 0 or 0xD800 <= code <= 0xDFFF:
            raise self._wrong(at, f"no text has the character U+{code:04X}", "Unicode characters")
        return chr(code)

    @property
    def _next(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        found = self._pattern.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _wrong(self, at: int, what: str, wanted: str) -> InvalidArgumentError:
        msg = f"{self._arg}: character {at + 1}: {what}"
        return InvalidArgumentError(msg, arg=self._arg, value=self._pattern, rule=wanted)


def _bounded(digits: str) -> int:
    significant = digits.lstrip("0") or "0"
    return MAX_REPEATS + 1 if len(significant) > len(str(MAX_REPEATS)) else int(significant)
