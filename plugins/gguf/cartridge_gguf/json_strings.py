"""JSON strings as grammars: any, of some length, of a pattern, of a format."""

from __future__ import annotations

import json
from typing import Final

from cartridge_gguf.grammar_nodes import (
    LAST,
    Characters,
    Choice,
    Node,
    Reference,
    Repeat,
    Series,
    Text,
    one_of,
)

__all__ = ["CHARACTER", "FORMATS", "PLAIN", "encoded", "inside_string"]

PLAIN: Final = Characters.of([(0x20, 0x7E), (0xA0, LAST)]).minus(Characters.among('"\\'))
"""What stands in a string as it is; no control characters."""

_SHORT = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_HEX = Characters.among("0123456789abcdefABCDEF")


def _hex(digits: str, *, more: int) -> Node:
    return Series((Characters.among(digits), Repeat(_HEX, more, most=more)))


_PAIR = Series(
    (
        Characters.among("dD"),
        _hex("89abAB", more=2),
        Text("\\u"),
        Characters.among("dD"),
        _hex("cdefCDEF", more=2),
    )
)
_CODE = Choice(
    (
        _hex("0123456789abcefABCEF", more=3),
        Series((Characters.among("dD"), _hex("01234567", more=2))),
        _PAIR,
    )
)

CHARACTER: Final = Choice(
    (
        PLAIN,
        Series((Text("\\"), Choice((Characters.among('"\\/bfnrt'), Series((Text("u"), _CODE)))))),
    )
)
"""One character, escaped or not; half of a surrogate pair is none."""

_TIME = (
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29"
_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_DAY = (
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_DATE = f"({_YEAR}-{_DAY}|{_LEAP})"

FORMATS: Final = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "uuid": "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}
"""The formats that are enforced, as patterns of the whole string: RFC 3339's, but no leap seconds,
no year 0 and at most microseconds, which Python's ``datetime`` would not read."""


def encoded(text: str) -> Text:
    """Make exactly one string, with its quotes."""
    return Text(json.dumps(text, ensure_ascii=False))


def inside_string(node: Node) -> Node:
    """
    Make the texts of a pattern as they stand between the quotes of a string.

    Quotes, backslashes and the control characters that have a short escape are escaped; the other
    control characters are left out.

    Raises:
        ValueError: Nothing is left of a set of characters, or of a text.
    """
    if isinstance(node, Text):
        if all(character in PLAIN for character in node.text):
            return node
        return Series(tuple(_in_string(Characters.among(each)) for each in node.text))
    if isinstance(node, Characters):
        return _in_string(node)
    if isinstance(node, Series):
        return Series(tuple(inside_string(item) for item in node.items))
    if isinstance(node, Choice):
        return Choice(tuple(inside_string(option) for option in node.options))
    if isinstance(node, Repeat):
        return Repeat(inside_string(node.item), node.least, most=node.most)
    return Reference(node.name)


def _in_string(characters: Characters) -> Node:
    plain = characters.both(PLAIN)
    options: list[Node] = [plain] if plain.ranges else []
    short = "".join(letter for each, letter in _SHORT.items() if each in characters)
    if short:
        options.append(Series((Text("\\"), Characters.among(short))))
    if not options:
        msg = "control characters only"
        raise ValueError(msg)
    return one_of(options)
