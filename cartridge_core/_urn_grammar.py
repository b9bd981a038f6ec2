r"""
The text of a tagged URN: reading it, writing it, and saying where it is malformed.

::

    urn      = prefix ":" *";" [ tag *( 1*";" tag ) *";" ]
    tag      = ( "?" / "!" ) key [ "=" value ]  /  key [ "?" / "!" ] [ "=" value ]
    key      = 1*( letter / digit / "_" / "-" / "/" / ":" / "." )        ; not digits alone
    value    = 1*( as in key / "*" / "?" / "!" )  /  quoted
    quoted   = DQUOTE *( any but DQUOTE and "\" / "\" DQUOTE / "\\" ) DQUOTE

The prefix ends at the first colon. Prefix, keys and unquoted values are read as lower case. A
tag is kept as key and *stored value*: ``*`` (set), ``?`` (no constraint), ``!`` (unset),
``?=v`` (not set to v), ``!=v`` (set, but not to v), or the value itself.

Source: the grammar of the tagged-urn package, 1.138.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from cartridge_core.errors import UrnError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["fault", "find_value", "read", "write"]


@cache
def _tags(letters: str) -> re.Pattern[str]:
    # Possessive quantifiers and the last alternative, which takes all that is left, keep
    # reading linear in the length of the text, also where it is malformed.
    return re.compile(
        rf"""
        ([?!])?+ ([{letters}_\-/:.]++) (?(1)|([?!])?+)
        (?: = ( "[^"\\]*+(?:\\["\\][^"\\]*+)*+" | [{letters}_\-/:.*?!]++ ) )?+
        (?: ;++ | \Z )
        | ;++
        | ( .+ )
        """,
        re.VERBOSE | re.DOTALL,
    )


_LETTERS = r"\w"
_ASCII_LETTERS = "A-Za-z0-9"
# A text in lower case without signs, in which a lone quote stands for every quoted value.
_PLAIN = re.compile(
    r"""[a-z]++: [a-z][a-z0-9_\-/:.]*+ (?: = (?:[a-z0-9_\-/:.]++|") )?+
    (?: ; [a-z][a-z0-9_\-/:.]*+ (?: = (?:[a-z0-9_\-/:.]++|") )?+ )*+""",
    re.VERBOSE,
)
_KEY = re.compile(r"[\w\-/:.]*+")
_VALUE = re.compile(r"[\w\-/:.*?!]*+")
_QUOTED = re.compile(r'"[^"\\]*+(?:\\["\\][^"\\]*+)*+')
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_BARE = re.compile(r"[a-z0-9_\-/:.*?!]++")
_SIGILS = frozenset("*?!")
_KEY_CHARACTERS = "a letter, a digit or one of _ - / : ."
_SHOWN = 60
_NONE: Sequence[str] = ()


def read(text: str) -> tuple[str, dict[str, str]]:
    """
    Read a tagged URN.

    Returns:
        The prefix, and the stored values by key, in the order of the text.

    Raises:
        UrnError: The text is malformed.
    """
    # Nearly all are plain: in lower case, without signs and escapes. This takes half the time.
    plain, quoted = text, _NONE
    if '"' in text:
        parts = text.split('"')
        plain, quoted = '"'.join(parts[::2]), parts[1::2]
        if len(parts) % 2 == 0 or not all(quoted) or not text.isascii() or "\\" in text:
            return _read_any(text)
    if not _PLAIN.fullmatch(plain):
        return _read_any(text)
    prefix, _, body = plain.partition(":")
    written = body.split(";")
    tags: dict[str, str] = {}
    place = 0
    for tag in written:
        if "=" not in tag:
            tags[tag] = "*"
            continue
        key, _, value = tag.partition("=")
        if value == '"':
            value = quoted[place]
            place += 1
        tags[key] = value
    return (prefix, tags) if len(tags) == len(written) else _read_any(text)


def _read_any(text: str) -> tuple[str, dict[str, str]]:
    colon = text.find(":")
    if colon < 1 or text != text.strip():
        raise _explain_start(text)
    ascii_only = text.isascii()
    letters, lower = (_ASCII_LETTERS, str.lower) if ascii_only else (_LETTERS, _lower)
    tags: dict[str, str] = {}
    for before, name, after, value, rest in _tags(letters).findall(text, colon + 1):
        if not name:
            if rest:
                raise _explain(text, len(text) - len(rest))
            continue
        key = lower(name)
        sign = before or after
        if not value:
            stored = sign or "*"
        else:
            stored = _unquote(value) if value[0] == '"' else lower(value)
            if sign:
                stored = _sign(text, len(tags), sign, stored)
            elif not stored:
                raise _empty_value(text, len(tags))
        if key in tags or key.isdigit():
            raise _unusable_key(text, len(tags), key, duplicate=key in tags)
        tags[key] = stored
    if not ascii_only:
        _check_characters(text, colon, tags)
    return text[:colon].lower(), tags


def write(prefix: str, tags: Mapping[str, str]) -> str:
    """
    Write the canonical text: sorted by key, quoted only where it has to be.

    What this writes, `read` reads back as it was.
    """
    return prefix + ":" + ";".join([_write_tag(key, tags[key]) for key in sorted(tags)])


def fault(text: str, position: int | None, kind: str, problem: str) -> UrnError:
    """
    Make an error that shows the text, with a caret under the place.

    Args:
        text: The whole text that was read.
        position: Index into the text, or None where there is no one place.
        kind: What is wrong, in one word.
        problem: What was expected and what was found, in one line.
    """
    start = max(0, (position or 0) - _SHOWN)
    shown = text[start : start + 2 * _SHOWN]
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)
    message = f"{problem}\n    {shown}"
    if position is not None:
        message += f"\n    {' ' * (position - start)}^"
    return UrnError(message, kind=kind, text=text, position=position)


def find_value(text: str, key: str, offset: int = 0) -> int:
    """
    Find where the value of a key begins in a text that can be read.

    Args:
        text: A well-formed tagged URN that has the key.
        key: In lower case.
        offset: Index into the value as it was read, its escapes resolved.

    Returns:
        Index into the text; of the tag itself where it has no value.
    """
    tags = _tags(_LETTERS).finditer(text, text.index(":") + 1)
    tag = next(tag for tag in tags if tag[2] and _lower(tag[2]) == key)
    if tag[4] is None:
        return tag.start()
    place = tag.start(4)
    if text[place] != '"':
        return place + offset
    place += 1
    for _ in range(offset):
        place += 2 if text[place] == "\\" else 1
    return place


def _explain_start(text: str) -> UrnError:
    """Say what is wrong with a text that has no prefix or white space around it."""
    if text != text.strip():
        position = 0 if text[0].isspace() else len(text.rstrip())
        problem = "expected no white space around a URN"
        return fault(text, position, "WhitespaceInInput", problem)
    if not text:
        return fault(text, 0, "Empty", "expected a URN such as 'media:enc=utf-8', found nothing")
    if text[0] == ":":
        return fault(text, 0, "EmptyPrefix", "expected a prefix before the first ':'")
    return fault(text, 0, "MissingPrefix", "expected a prefix that ends with ':', found no ':'")


def _lower(text: str) -> str:
    """Lower each character by itself; str.lower() looks at a sigma's neighbours."""
    return text.lower() if text.isascii() else "".join(map(str.lower, text))


def _unquote(value: str) -> str:
    inner = value[1:-1]
    return _ESCAPED.sub(r"\1", inner) if "\\" in inner else inner


def _sign(text: str, index: int, sign: str, value: str) -> str:
    if value in _SIGILS:
        position = _tag(text, index).start(4)
        problem = (
            f"expected a value, found the sign {value!r} after a key that has {sign!r} already"
        )
        raise fault(text, position, "InvalidCharacter", problem)
    return f"{sign}={value}"


def _tag(text: str, index: int) -> re.Match[str]:
    """Find the tag with this number, counted from 0."""
    tags = _tags(_LETTERS).finditer(text, text.index(":") + 1)
    return [tag for tag in tags if tag[2]][index]


def _empty_value(text: str, index: int) -> UrnError:
    problem = "expected a value, found nothing between the quotes; a bare key means any value"
    return fault(text, _tag(text, index).start(4), "EmptyTagComponent", problem)


def _unusable_key(text: str, index: int, key: str, *, duplicate: bool) -> UrnError:
    position = _tag(text, index).start(2)
    if duplicate:
        return fault(text, position, "DuplicateKey", f"expected each key once, found {key!r} again")
    problem = f"expected a key that is not a number, found {key!r}"
    return fault(text, position, "NumericKey", problem)


def _check_characters(text: str, colon: int, tags: Mapping[str, str]) -> None:
    lone = re.search("[\ud800-\udfff]", text)
    if lone:
        problem = "expected text, found half a surrogate pair"
        raise fault(text, lone.start(), "InvalidCharacter", problem)
    for index, key in enumerate(tags):
        if not _KEY.fullmatch(key):
            position = _tag(text, index).start(2)
            problem = f"expected {_KEY_CHARACTERS}, found a letter whose lower case is none"
            raise fault(text, position, "InvalidCharacter", problem)


def _write_tag(key: str, stored: str) -> str:
    if stored == "*":
        return key
    if stored in _SIGILS:
        return stored + key
    head = stored[:2]
    if head == "?=" or head == "!=":
        value = stored[2:]
        if value not in _SIGILS:
            return f"{key}{head}{_write_value(value)}"
    return f"{key}={_write_value(stored)}"


def _write_value(value: str) -> str:
    if _BARE.fullmatch(value) or (not value.isascii() and _is_bare(value)):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _is_bare(value: str) -> bool:
    if not _VALUE.fullmatch(value):
        return False
    return value == _lower(value) and not any(map(str.isupper, value))


def _explain(text: str, start: int) -> UrnError:
    """Say what is wrong with the malformed tag that begins at this index."""
    place = start
    sign = text[place] if text[place] in "?!" else ""
    place += len(sign)
    end = _end(_KEY, text, place)
    if end == place:
        return _expected(text, place, f"a key: {_KEY_CHARACTERS}", empty="EmptyTagComponent")
    place = end
    if text[place] in "?!":
        if sign:
            return _expected(text, place, f"no second sign on a key that has {sign!r} already")
        place += 1
        if text[place] != "=":
            return _expected(text, place, f"'=' or ';' after {text[place - 1]!r}")
    if text[place] != "=":
        return _expected(text, place, f"'=', ';' or more of the key: {_KEY_CHARACTERS}")
    return _explain_value(text, place + 1)


def _explain_value(text: str, start: int) -> UrnError:
    if text[start : start + 1] in ("", ";"):
        return fault(text, start, "EmptyTagComponent", "expected a value after '='")
    if text[start] != '"':
        end = _end(_VALUE, text, start)
        return _expected(text, end, "quotes around a value with such a character")
    end = _end(_QUOTED, text, start)
    if len(text) - end <= text.startswith("\\", end):
        problem = "expected a closing quote, found the end of the text"
        return fault(text, start, "UnterminatedQuote", problem)
    if text[end] == "\\":
        problem = f'expected \\" or \\\\ inside quotes, found {text[end : end + 2]!r}'
        return fault(text, end, "InvalidEscapeSequence", problem)
    return _expected(text, end + 1, "';' or the end after a closing quote")


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start


def _expected(text: str, place: int, what: str, empty: str = "InvalidCharacter") -> UrnError:
    if place == len(text):
        return fault(text, place, empty, f"expected {what}, found the end of the text")
    return fault(text, place, "InvalidCharacter", f"expected {what}, found {text[place]!r}")
