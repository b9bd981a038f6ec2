"""Core's own values as plain ones, and back: reports, events and results."""

from __future__ import annotations

import enum
import types
import typing
from typing import cast

import attrs

from cartridge_core.packing import MalformedError
from cartridge_core.progress import Log, Progress
from cartridge_core.records import as_records
from cartridge_core.results import Result, ResultKind

__all__ = ["as_plain", "from_plain", "pack_event", "pack_result", "unpack_event", "unpack_result"]


def as_plain(value: object) -> object:
    """Give a value of a class of fields as dicts and lists."""
    kind = type(value)
    if attrs.has(kind):
        return {one.name: as_plain(getattr(value, one.name)) for one in attrs.fields(kind)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple):
        return [as_plain(item) for item in value]
    return value


def from_plain(kind: object, value: object) -> object:
    """
    Give a value of a class again.

    Args:
        kind: The class, or another type of what `as_plain` was given.
        value: What it gave, as it came.

    Raises:
        MalformedError: It is not of that class.
    """
    if isinstance(kind, types.UnionType):
        arms = typing.get_args(kind)
        if value is None and types.NoneType in arms:
            return None
        return from_plain(next(arm for arm in arms if arm is not types.NoneType), value)
    if typing.get_origin(kind) is tuple and isinstance(value, list):
        return tuple([from_plain(typing.get_args(kind)[0], item) for item in value])
    if isinstance(kind, type):
        if attrs.has(kind) and isinstance(value, dict):
            return _instance(kind, value)
        if issubclass(kind, enum.Enum) and value in [one.value for one in kind]:
            return kind(value)
        if kind is float and type(value) is int:
            return float(value)
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return value
    msg = f"{str(value)[:60]!a} where {kind} is expected"
    raise MalformedError(msg)


def _instance(kind: type, fields: dict[str, object]) -> object:
    hints = typing.get_type_hints(kind)
    if fields.keys() != {one.name for one in attrs.fields(kind)}:
        msg = f"a {kind.__name__} with the fields {', '.join(map(str, fields))}"
        raise MalformedError(msg)
    values = {name: from_plain(hints[name], item) for name, item in fields.items()}
    return cast("object", kind(**values))


def pack_result(result: Result) -> list[object]:
    """Give a result as plain values; its payload is one."""
    return [
        int(result.kind),
        result.payload,
        result.segment,
        result.start_s,
        result.end_s,
        result.cartridge_id,
    ]


_PARTS = 6
_TIME = (float, int, type(None))
_NAME = (str, type(None))
_KINDS = {int(kind): kind for kind in ResultKind}


def unpack_result(values: object) -> Result:
    """
    Make a result of what `pack_result` gave.

    Raises:
        MalformedError: It is not that.
    """
    if isinstance(values, list) and len(values) == _PARTS:
        kind, payload, segment, start_s, end_s, cartridge_id = values
        is_result = type(kind) is int and kind in _KINDS and type(segment) is int
        is_timed = isinstance(start_s, _TIME) and isinstance(end_s, _TIME)
        if is_result and is_timed and isinstance(cartridge_id, _NAME):
            return Result(
                _KINDS[kind],
                payload,
                segment=segment,
                start_s=start_s,
                end_s=end_s,
                cartridge_id=cartridge_id,
            )
    msg = f"a result that is none: {str(values)[:60]!a}"
    raise MalformedError(msg)


def pack_event(event: Progress | Log | Result) -> list[object]:
    """Give what a peer call gives as plain values."""
    if isinstance(event, Result):
        return ["result", pack_result(event)]
    return ["progress" if isinstance(event, Progress) else "log", as_plain(event)]


def unpack_event(kind: object, values: object) -> Progress | Log | Result:
    """
    Make an event of what `pack_event` gave; dicts in a payload are records, as for every caller.

    Raises:
        MalformedError: It is not that.
    """
    if kind == "result":
        result = unpack_result(values)
        return attrs.evolve(result, payload=as_records(result.payload))
    if kind in {"progress", "log"}:
        shape = Progress if kind == "progress" else Log
        return cast("Progress | Log", from_plain(shape, values))
    msg = f"an event of the kind {str(kind)[:60]!a}"
    raise MalformedError(msg)
