"""A grammar in GBNF, checked before anything native sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_gguf.grammar_checks import ROOT, check_rules
from cartridge_gguf.grammar_growth import worst_text
from cartridge_gguf.grammar_parser import read_rules
from cartridge_gguf.grammar_source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_gguf.grammar_nodes import Node

__all__ = ["MAX_CHARACTERS", "Grammar"]

MAX_CHARACTERS: Final = 200_000


@attrs.frozen
class Grammar:
    """A grammar that llama.cpp takes, and can follow to an end."""

    text: str
    """What was given, unchanged."""

    rules: Mapping[str, Node] = attrs.field(eq=False, repr=False)
    """What each rule stands for."""

    @classmethod
    def parse(cls, text: str, arg: str = "grammar") -> Grammar:
        """
        Read and check a grammar.

        Args:
            text: GBNF, in llama.cpp's dialect, without tokens.
            arg: The argument that it comes from, for errors.

        Raises:
            InvalidArgumentError: The text is blank, too long or no GBNF; there is no ``root``; a
                rule is missing, stands twice, begins with itself or never ends; or llama.cpp would
                need too much memory or time for it. The message has line, column and rule.
        """
        source = Source(text, arg)
        if not text.strip():
            msg = f"{arg}: is blank, which would constrain nothing; leave it out to do that"
            raise InvalidArgumentError(msg, arg=arg, value=text, rule="not blank")
        if len(text) > MAX_CHARACTERS:
            limit = f"at most {MAX_CHARACTERS} characters"
            raise source.refusal(MAX_CHARACTERS, f"a grammar has {limit}", limit)
        _check_unicode(source)
        rules = read_rules(source)
        if not rules:
            what = "there are comments only; a grammar has a rule 'root'"
            raise source.refusal(0, what, "a rule 'root'")
        bodies = {name: rule.body for name, rule in rules.items()}

        def refuse(name: str, at: int | None, what: str, wanted: str) -> InvalidArgumentError:
            return source.refusal(rules[name].at if at is None else at, what, wanted, name)

        check_rules(bodies, refuse)
        worst = worst_text(bodies, ROOT)
        if worst is not None:
            what = (
                f"after {worst!r} a text could go on in too many ways to follow; let alternatives "
                "that begin alike share their beginning, and repeat nothing that may be empty"
            )
            raise refuse(ROOT, None, what, "few ways to go on")
        return cls(text, bodies)


def _check_unicode(source: Source) -> None:
    at = source.text.find("\0")
    if at >= 0:
        raise source.refusal(at, "there is a NUL, where llama.cpp would stop reading", "no NUL")
    try:
        source.text.encode()
    except UnicodeEncodeError as exc:
        what = f"U+{ord(source.text[exc.start]):04X} is half of a surrogate pair"
        raise source.refusal(exc.start, what, "Unicode text") from None
