"""Write what a descriptor says as Python source: values, names, and texts for people."""

from __future__ import annotations

import keyword
import re
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["filled", "free_name", "function_name", "literal", "packed", "prose"]

_COLUMNS = 92
_QUOTE = "'"


def literal(value: object) -> str:
    """Write None, a bool, a number or a text; what cannot be printed is escaped in it."""
    text = repr(value)
    if text.startswith(_QUOTE) and '"' not in text:
        return f'"{text[1:-1]}"'
    return text


def prose(text: str) -> str:
    """
    Write a text for people, on one line, so that no docstring ends or begins anything by it.

    It has no double quote, no prompt of a doctest, and nothing that cannot be printed.
    """
    line = " ".join(text.split()).replace("\\", "\\\\").replace('"', _QUOTE)
    line = line.replace(">>>", "> > >")
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)


def function_name(text: str, taken: Collection[str]) -> str:
    """Make a function's name of a cap's alias."""
    name = re.sub(r"[^0-9a-z]+", "_", text.lower()).strip("_") or "cap"
    return free_name(f"cap_{name}" if name[0].isdigit() else name, taken)


def free_name(name: str, taken: Collection[str]) -> str:
    """Give a name as it is, or with as many underscores behind as make it one of its own."""
    while name in taken or keyword.iskeyword(name):
        name += "_"
    return name


def filled(first: str, text: str, indent: str) -> list[str]:
    """Write a text over as many lines as it needs; those after the first are indented deeper."""
    whole = prose(f"{first}{text}")
    return textwrap.wrap(
        whole,
        _COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent + "    " * bool(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def packed(items: Iterable[str], indent: str) -> list[str]:
    """Write items with a comma behind each, as many on a line as it takes."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 2 <= _COLUMNS:
            lines[-1] += f" {item},"
        else:
            lines.append(f"{indent}{item},")
    return lines
