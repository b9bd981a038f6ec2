"""Where something is wrong in a grammar's text."""

from __future__ import annotations

import re
from typing import Final

import attrs

from cartridge_core.errors import InvalidArgumentError

__all__ = ["LINE_END", "Source"]

LINE_END: Final = re.compile(r"\r\n|\r|\n")


@attrs.frozen
class Source:
    """A text that is checked, and the argument it came as."""

    text: str
    arg: str

    def refusal(
        self, at: int, what: str, wanted: str, name: str | None = None
    ) -> InvalidArgumentError:
        """
        Make the error for one place.

        Args:
            at: Index of the character.
            what: What is wrong there, and what to do.
            wanted: What is asked of every grammar, in a few words.
            name: The rule that it is in.
        """
        line, column = self._place(at)
        rule = f", rule {name!r}" if name is not None else ""
        msg = f"{self.arg}: line {line}, column {column}{rule}: {what}"
        return InvalidArgumentError(msg, arg=self.arg, value=self.text, rule=wanted)

    def _place(self, at: int) -> tuple[int, int]:
        line, start = 1, 0
        for end in LINE_END.finditer(self.text, 0, at):
            line, start = line + 1, end.end()
        return line, at - start + 1
