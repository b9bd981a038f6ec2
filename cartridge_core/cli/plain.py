"""Turn what cartridges give into JSON."""

from __future__ import annotations

import base64
import enum
import math
import os
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import attrs

__all__ = ["as_plain"]


@runtime_checkable
class _Array(Protocol):
    def tolist(self) -> object: ...


def as_plain(value: object) -> object:
    """
    Copy a value into what JSON has.

    Arrays become nested lists, bytes base64 text, numbers that are not finite null, values of
    attrs classes objects, and anything else its text.
    """
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_plain(item) for item in value]
    return _converted(value)


def _converted(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, enum.Enum):
        return value.name.lower() if isinstance(value, int) else as_plain(value.value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, memoryview):
        return as_plain(value.tobytes())
    if isinstance(value, _Array):
        return as_plain(value.tolist())
    kind = type(value)
    if attrs.has(kind):
        names = [field.name for field in attrs.fields(kind)]
        return {name: as_plain(getattr(value, name)) for name in names}
    return str(value)
