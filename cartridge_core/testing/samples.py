"""Values to try a cartridge with, and to compare what it gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.records import Record

if TYPE_CHECKING:
    from cartridge_core.capdefs import Arg

__all__ = ["borrowed", "find_sample", "is_same", "overwrite", "strange"]

_TRIED: tuple[object, ...] = ("hello", 1, 1.0, True, ["hello"], [1.0])
_OTHER: tuple[object, ...] = ("good-bye", 2, 2.0, False, ["good-bye"], [2.0])
_TOLERANCE = 1e-5
"""Relative and absolute; what a batch of another size may do to float32."""


@runtime_checkable
class _Array(Protocol):
    """What numpy's arrays and torch's tensors have in common."""

    def tolist(self) -> object: ...


@runtime_checkable
class _Buffer(_Array, Protocol):
    def copy(self) -> _Buffer: ...

    def fill(self, value: int) -> None: ...


def find_sample(arg: Arg, *, other: bool = False) -> object:
    """
    Find a value for an argument by its declaration.

    Args:
        arg: The argument.
        other: Give a second value, where there is one.

    Returns:
        A value that passes its rule; None where the declaration does not say enough: records,
        images, audio, model specs and files.
    """
    media = arg.stdin or arg.media_urn
    if any(media.has(marker) for marker in ("model-spec", "file-path", "record")):
        return None
    tried = (*_OTHER, *_TRIED) if other else _TRIED
    # A rule that takes even this one says nothing.
    if _passes(arg, object()):
        return None
    return next((value for value in tried if _passes(arg, value)), None)


def _passes(arg: Arg, value: object) -> bool:
    try:
        arg.check(value)
    except InvalidArgumentError:
        return False
    return True


def is_same(one: object, two: object) -> bool:
    """Compare two payloads; numbers within a tolerance, arrays by their items."""
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(is_same(one[key], two[key]) for key in one)
    one = one.tolist() if isinstance(one, _Array) else one
    two = two.tolist() if isinstance(two, _Array) else two
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(is_same, one, two))
    if isinstance(one, float) and isinstance(two, float):
        both_nan = math.isnan(one) and math.isnan(two)
        return both_nan or math.isclose(one, two, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return type(one) is type(two) and one == two


def strange(value: object, place: str = "payload") -> list[str]:
    """Name every place in a payload that holds no plain value."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return [] if type(value) in _PLAIN else [f"{place} is a {type(value).__name__}"]
    if isinstance(value, Record):
        return [line for key, item in value.items() for line in strange(item, f"{place}.{key}")]
    if type(value) is list:
        return [
            line for index, item in enumerate(value) for line in strange(item, f"{place}[{index}]")
        ]
    # numpy's scalars have an interface too, and no length.
    if hasattr(type(value), "__array_interface__") and hasattr(type(value), "__len__"):
        return []
    return [f"{place} is a {type(value).__name__}"]


_PLAIN = {type(None), bool, int, float, str, bytes}


def borrowed(value: object) -> object:
    """Give a copy of a value as a buffer that can be overwritten; None for what is none."""
    if isinstance(value, bytes | bytearray):
        return bytearray(value)
    return value.copy() if isinstance(value, _Buffer) else None


def overwrite(buffer: object) -> None:
    """Fill a buffer with zeros, as its owner may once a call has returned."""
    if isinstance(buffer, bytearray):
        buffer[:] = bytes(len(buffer))
    elif isinstance(buffer, _Buffer):
        buffer.fill(0)
