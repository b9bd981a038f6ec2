"""
JSON as it comes from outside: read strictly, and frozen.

Every error starts with the place it is about, ``$.io.mode`` for one.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from cartridge_core.errors import InvalidArgumentError

__all__ = ["as_integer", "at", "freeze", "read_json", "refusal", "shown", "thaw"]

_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_SHORT = 80
_ABSENT = object()
_SCALARS = frozenset({str, int, float, bool, type(None)})

# Where `freeze` is: the trail before, and the last step. Spelt out only when something is wrong.
_Trail: TypeAlias = "tuple[_Trail | None, object]"


class _RepeatedKey(NamedTuple):
    """Stands for an object that has a key twice, until `freeze` can say where."""

    key: str


def read_json(data: str | bytes, where: str) -> object:
    """
    Read JSON text strictly.

    Args:
        data: The text; bytes are UTF-8 without a byte order mark.
        where: Stands for the root in errors.

    Returns:
        The value as `freeze` gives it.

    Raises:
        InvalidArgumentError: It is not JSON, not UTF-8, has a byte order mark, a key twice in one
            object, a number that is not finite, a text that is not Unicode, or nests too deep.
    """
    text = _decoded(data, where) if isinstance(data, bytes) else data
    if text.startswith("\ufeff"):
        raise refusal(where, "must not start with a byte order mark")
    try:
        return freeze(json.loads(text, object_pairs_hook=_once), where)
    except RecursionError:
        raise refusal(where, "nests too deep") from None
    except ValueError as exc:
        raise refusal(where, f"is not JSON: {exc}") from exc


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise refusal(where, f"is not UTF-8: byte {exc.start} cannot be read") from exc


def _once(pairs: list[tuple[str, object]]) -> object:
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    keys = [key for key, _ in pairs]
    return _RepeatedKey(next(key for key in keys if keys.count(key) > 1))


def freeze(value: object, where: str) -> object:
    """
    Copy a JSON value into what nobody can change: arrays are tuples, objects mapping proxies.

    Args:
        value: None, bool, int, float, str, and lists, tuples and mappings of these.
        where: Stands for the value in errors.

    Raises:
        InvalidArgumentError: It holds something that JSON does not have.
    """
    return _frozen(value, (None, where))


def _frozen(value: object, trail: _Trail) -> object:
    if isinstance(value, str):
        return value if value.isascii() else _unicode(value, trail)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, _RepeatedKey):
        raise refusal(at(_place(trail), value.key), "this key stands twice in one object")
    if isinstance(value, (list, tuple)):
        return tuple([_frozen(item, (trail, index)) for index, item in enumerate(value)])
    if isinstance(value, (dict, Mapping)):
        return MappingProxyType(
            {_key(key, trail): _frozen(item, (trail, key)) for key, item in value.items()}
        )
    if not isinstance(value, float):
        raise refusal(_place(trail), "must be a JSON value", value)
    if not math.isfinite(value):
        raise refusal(_place(trail), "must be a finite number", value)
    return value


def _unicode(text: str, trail: _Trail) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as exc:
        rule = "holds half of a surrogate pair, which is no Unicode text"
        raise refusal(_place(trail), rule) from exc
    return text


def _key(key: object, trail: _Trail) -> str:
    if isinstance(key, str):
        return key if key.isascii() else _unicode(key, trail)
    raise refusal(_place(trail), "the keys of an object must be strings", key)


def _place(trail: _Trail) -> str:
    before, step = trail
    return str(step) if before is None else at(_place(before), step)


def thaw(value: object) -> object:
    """Copy a frozen JSON value into plain dicts and lists."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value


def at(where: str, step: object) -> str:
    """Give the place one step further in: ``$.io``, ``texts[3]``, ``labels["a b"]``."""
    if isinstance(step, str):
        if (step.isascii() and step.isidentifier()) or _PLAIN_KEY.fullmatch(step):
            return f"{where}.{step}"
        return f"{where}[{json.dumps(step)}]"
    return f"{where}[{step}]"


def refusal(where: str, rule: str, found: object = _ABSENT) -> InvalidArgumentError:
    """Make the error for one place: ``$.io.mode: must be "batch", found "stream"``."""
    if found is _ABSENT:
        return InvalidArgumentError(f"{where}: {rule}", arg=where, rule=rule)
    msg = f"{where}: {rule}, found {shown(found)}"
    return InvalidArgumentError(msg, arg=where, value=thaw(found), rule=rule)


def shown(value: object) -> str:
    """Give a value as an error shows it: JSON for scalars, one line, at most 80 characters."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{len(value)} bytes"
    try:
        if isinstance(value, str):
            text = json.dumps(value[:_SHORT], ensure_ascii=False)
        elif value is None or isinstance(value, (bool, int, float)):
            text = json.dumps(value)
        else:
            text = " ".join(_REPR.repr(thaw(value)).split())
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__} too large to show"
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 60


def as_integer(value: object) -> int | None:
    """Give a JSON integer as an int, ``1.0`` too; None for everything else, ``true`` too."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None
