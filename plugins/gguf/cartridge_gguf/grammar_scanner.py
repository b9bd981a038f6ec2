"""The smallest parts of GBNF: names, numbers, quoted texts, classes, space."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cartridge_gguf.grammar_nodes import LAST, Characters

if TYPE_CHECKING:
    from cartridge_core.errors import InvalidArgumentError
    from cartridge_gguf.grammar_source import Source

__all__ = ["SPACE", "SPACE_AND_LINES", "Scanner"]

SPACE: Final = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
SPACE_AND_LINES: Final = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")

_NAME = re.compile(r"[a-zA-Z0-9-]+")
_NUMBER = re.compile(r"[0-9]+")
_HEX = {"x": 2, "u": 4, "U": 8}
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n"} | {char: char for char in '\\"[]-'}
_KNOWN_ESCAPES = r"\n \r \t \\ \" \[ \] \- \xNN \uNNNN \UNNNNNNNN"


class Scanner:
    """
    Reads a text from its beginning to its end.

    Attributes:
        at: Index of the next character.
        rule: Name of the rule that is being read, for errors.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._text = source.text
        self.at = 0
        self.rule: str | None = None

    @property
    def next(self) -> str:
        """The next character; empty at the end."""
        return self._text[self.at : self.at + 1]

    @property
    def found(self) -> str:
        """The next character, for errors."""
        return repr(self.next) if self.next else "the end of the text"

    def skip(self, pattern: re.Pattern[str]) -> bool:
        """Go on after what matches here, and tell whether something did."""
        found = pattern.match(self._text, self.at)
        self.at = found.end() if found else self.at
        return found is not None

    def take(self, text: str) -> bool:
        """Go on after this text, and tell whether it is here."""
        found = self._text.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

    def name(self) -> str | None:
        """Take a rule's name; None where there is none."""
        start = self.at
        return self._text[start : self.at] if self.skip(_NAME) else None

    def number(self, most: int) -> int | None:
        """Take a number, ``most + 1`` where it is larger than that; None where there is none."""
        start = self.at
        if not self.skip(_NUMBER):
            return None
        digits = self._text[start : self.at].lstrip("0") or "0"
        return most + 1 if len(digits) > len(str(most)) else min(int(digits), most + 1)

    def quoted(self) -> str:
        """Take a text in quotes, whose first quote is next."""
        start = self.at
        self.at += 1
        characters = []
        while not self.take('"'):
            if not self.next:
                raise self.wrong(start, 'this " is never closed', "closed quotes")
            at = self.at
            code = self._character()
            if code == 0 or 0xD800 <= code <= 0xDFFF:
                what = f"no text has the character U+{code:04X}"
                raise self.wrong(at, what, "Unicode characters")
            characters.append(chr(code))
        return "".join(characters)

    def character_class(self) -> tuple[Characters, int]:
        """Take a class, whose bracket is next; with it comes how many elements it is."""
        start = self.at
        self.at += 1
        inverse = self.take("^")
        ranges: list[tuple[int, int]] = []
        while not self.take("]"):
            if not self.next:
                raise self.wrong(start, "this [ is never closed", "closed classes")
            ranges.append(self._range())
        found = Characters.of(ranges)
        found = found.inverted() if inverse else found
        if not ranges or not found.ranges:
            raise self.wrong(start, "no character fits this class", "classes of characters")
        return found, sum(1 + (last > first) for first, last in ranges)

    def _range(self) -> tuple[int, int]:
        start, first = self.at, self._character()
        last = first
        if self.next == "-" and not self._text.startswith("-]", self.at):
            self.at += 1
            last = self._character()
        if last < first:
            raise self.wrong(start, "this range ends before it begins", "ranges in order")
        return first, last

    def _character(self) -> int:
        start, character = self.at, self.next
        if not character:
            raise self.wrong(start, "the text ends inside a class", "closed classes")
        if character != "\\":
            self.at += 1
            return ord(character)
        kind = self._text[start + 1 : start + 2]
        if kind in _ESCAPES:
            self.at += 2
            return ord(_ESCAPES[kind])
        if kind not in _HEX:
            what = f"unknown escape \\{kind}; GBNF knows {_KNOWN_ESCAPES}"
            raise self.wrong(start, what, "known escapes")
        return self._hexadecimal(kind)

    def _hexadecimal(self, kind: str) -> int:
        start, length = self.at, _HEX[kind]
        digits = self._text[start + 2 : start + 2 + length]
        if not re.fullmatch(f"[0-9a-fA-F]{{{length}}}", digits):
            what = f"\\{kind} must be followed by {length} hexadecimal digits"
            raise self.wrong(start, what, "known escapes")
        code = int(digits, 16)
        if code > LAST:
            raise self.wrong(start, f"there is no character U+{code:X}", "Unicode characters")
        self.at += 2 + length
        return code

    def wrong(self, at: int, what: str, wanted: str) -> InvalidArgumentError:
        """Make the error for one place; see `Source.refusal`."""
        return self._source.refusal(at, what, wanted, self.rule)
