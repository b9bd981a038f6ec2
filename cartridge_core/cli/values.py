"""From words on a command line to the values of declared arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cartridge_core.capdefs import Arg, Cap

__all__ = [
    "flags_of",
    "is_binary",
    "is_text",
    "read_value",
    "read_values",
    "split_flags",
    "split_words",
]

_TEXT = frozenset({"string"})
_LIKE_BOOLEANS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})
_OPAQUE = ("image", "audio", "video")
_IMPLIED = (
    ("list", "array"),
    ("bool", "boolean"),
    ("integer", "integer"),
    ("numeric", "number"),
    ("record", "object"),
)
_JSON_TYPES: Mapping[type, frozenset[str]] = {
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
    type(None): frozenset({"null"}),
}


def read_value(arg: Arg, text: str) -> object:
    """
    Read one value as its argument declares it.

    Text stays as it is where the argument takes text; anything else is JSON. What is not the
    JSON that the argument takes stays text, and is refused when the argument is checked.
    """
    types = _types(arg)
    if types == _TEXT:
        return text.strip() if arg.pack else text
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, str):
        return text if "string" in types or not types else value
    fits = not types or bool(types & _JSON_TYPES[type(value)])
    return text if "string" in types and not fits else value


def read_values(args: Iterable[Arg], pairs: Iterable[tuple[str, str]]) -> dict[str, object]:
    """
    Read arguments given by name; one that takes a sequence may be given several times.

    A name that is not declared is kept with its text, for the registry to refuse.

    Raises:
        UsageError: An argument that takes one value is given twice.
    """
    declared = {arg.name: arg for arg in args}
    given: dict[str, object] = {}
    for name, text in pairs:
        arg = declared.get(name)
        value = text if arg is None else read_value(arg, text)
        if name not in given:
            given[name] = value
        elif arg is not None and arg.is_sequence:
            earlier = given[name]
            given[name] = [*(earlier if isinstance(earlier, list) else [earlier]), value]
        else:
            msg = f"{name} is given twice"
            raise click.UsageError(msg)
    return given


def split_words(
    cap: Cap, words: Sequence[str], *, several: bool
) -> tuple[list[str], list[tuple[str, str]]]:
    """
    Tell a cap's input from the flags that its arguments declare.

    Args:
        cap: Whose arguments they are.
        words: As typed; after ``--`` there are no flags.
        several: Whether the main argument takes any number of words.

    Returns:
        The words of the main argument, and other arguments as name and text.

    Raises:
        UsageError: A flag is not declared or lacks its value, or there are more words than the
            cap takes.
    """
    inputs, pairs = split_flags(cap.args, words)
    return (inputs, pairs) if several else _by_position(cap, inputs, pairs)


def split_flags(
    args: Iterable[Arg], words: Sequence[str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """
    Tell the flags that arguments declare from the other words.

    Returns:
        The other words, and the arguments as name and text.

    Raises:
        UsageError: A flag is not declared or lacks its value.
    """
    others: list[str] = []
    pairs: list[tuple[str, str]] = []
    flags = {flag: arg for arg in args for flag in flags_of(arg)}
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return [*others, *left], pairs
        if not word.startswith("--"):
            others.append(word)
            continue
        flag, equals, text = word.partition("=")
        if flag not in flags:
            raise _unknown(flag, flags)
        pairs.append((flags[flag].name, text if equals else _next(flags[flag], flag, left)))
    return others, pairs


def flags_of(arg: Arg) -> list[str]:
    """Give the flags that an argument declares."""
    return [str(source.value) for source in arg.sources if source.kind == "cli_flag"]


def is_text(arg: Arg) -> bool:
    """Say whether an argument takes any text as it is."""
    return not is_binary(arg) and _types(arg) == _TEXT


def is_binary(arg: Arg) -> bool:
    """Say whether an argument takes bytes or a path rather than text or JSON."""
    urn = arg.stdin or arg.accepts or arg.media_urn
    if arg.schema is not None:
        return False
    if any(urn.has(marker) for marker in _OPAQUE):
        return True
    return not urn.has("enc") and not any(urn.has(marker) for marker, _ in _IMPLIED)


def _unknown(flag: str, flags: Iterable[str]) -> click.UsageError:
    """Refuse a flag; the nearest one may be an argument's or the command's own."""
    import difflib  # noqa: PLC0415 -- only an error needs it

    options = click.get_current_context().command.params
    own = [name for option in options for name in option.opts if name.startswith("--")]
    close = difflib.get_close_matches(flag, [*flags, *own], n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    known = ", ".join(sorted(flags)) or "none"
    return click.UsageError(f"no such option: {flag}.{hint} The arguments have {known}")


def _next(arg: Arg, flag: str, left: list[str]) -> str:
    """Take the value after a flag; that of a bool stands alone before any other word."""
    if _types(arg) == {"boolean"} and (not left or left[0].lower() not in _LIKE_BOOLEANS):
        return "true"
    if not left:
        msg = f"option {flag} needs a value"
        raise click.UsageError(msg)
    return left.pop(0)


def _by_position(
    cap: Cap, inputs: list[str], pairs: list[tuple[str, str]]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Give the second and later words to the arguments that declare their position."""
    if cap.main is None or len(inputs) < 2:
        return inputs, pairs
    places = {s.value: arg for arg in cap.args for s in arg.sources if s.kind == "position"}
    for position, text in enumerate(inputs[1:], start=1):
        arg = places.get(position)
        if arg is None or arg is cap.main:
            msg = f"{cap.main.name} takes one value, and {len(inputs)} were given"
            raise click.UsageError(msg)
        pairs = [*pairs, (arg.name, text)]
    return inputs[:1], pairs


def _types(arg: Arg) -> frozenset[str]:
    """Give the JSON types an argument takes; none where it does not say."""
    document = arg.schema.document if arg.schema is not None else None
    if isinstance(document, Mapping):
        return _of_schema(document)
    urn = arg.stdin or arg.accepts or arg.media_urn
    if any(urn.has(marker) for marker in _OPAQUE):
        return _TEXT
    return next((frozenset({kind}) for marker, kind in _IMPLIED if urn.has(marker)), _TEXT)


def _of_schema(document: Mapping[str, object]) -> frozenset[str]:
    declared = document.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list | tuple):
        return frozenset(str(kind) for kind in declared)
    choices = document.get("enum", (document["const"],) if "const" in document else ())
    is_text = isinstance(choices, list | tuple) and all(isinstance(one, str) for one in choices)
    return _TEXT if choices and is_text else frozenset()
