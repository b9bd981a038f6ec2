"""
Plain values as JSON and raw buffers, and back.

Bytes and arrays are in buffers, and stand in the JSON as ``{"$b": 0}`` and
``{"$b": 0, "dtype": "<f4", "shape": [2, 3]}``. A tuple is ``{"$t": [...]}``, a path is
``{"$p": "..."}``, and a key that starts with ``$`` has one more of them.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.jsondata import at

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterable, Sequence

    import numpy as np

__all__ = ["MARK", "MAX_NESTING", "Buffer", "MalformedError", "check_depth", "pack", "unpack"]

Buffer: TypeAlias = "bytes | bytearray | memoryview | mmap.mmap"

MAX_NESTING = 100
"""How deep lists and dicts may stand in each other."""

MARK = '"$'
"""Stands in all JSON that is not the value itself."""

_PLAIN = frozenset({type(None), bool, int, float, str})
_DTYPE = re.compile(r"[<>|=][biufc]\d{1,2}", re.ASCII)

_dumps = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


class MalformedError(Exception):
    """What came from the other side is not what may come; never shown to a caller as it is."""


class _UnfitError(Exception):
    """A value that cannot cross; `_refusal` says where it stands."""


def pack(values: Sequence[object], names: Sequence[str] = ()) -> tuple[str, list[Buffer]]:
    """
    Give the JSON of a list of values, and their buffers; these are not copied.

    Args:
        values: Each None, bool, int, float, str, bytes, a path, an array of numbers, or a list, a
            tuple or a mapping with str keys of these.
        names: What a person calls them.

    Raises:
        InvalidArgumentError: Something else is among them; ``arg`` names the place.
    """
    # Most frames have nothing in them, or one number.
    if not values:
        return "[]", []
    try:
        if len(values) == 1 and type(values[0]) is int:
            return f"[{values[0]}]", []
        if _PLAIN.issuperset(map(type, values)):
            return _dumps(values), []
        packing = _Packing()
        return _dumps(packing.items(values, 0)), packing.buffers
    except _UnfitError as unfit:
        raise _refusal(values, names, str(unfit)) from None
    except (ValueError, RecursionError) as exc:
        # An int of more digits than Python writes, for one.
        raise _refusal(values, names, f"cannot be written: {exc}") from exc


class _Packing:
    """Values on their way into JSON, and their buffers."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def items(self, items: Sequence[object], depth: int) -> list[object]:
        """Give what stands for several values in the JSON."""
        one, below = self._one, depth + 1
        return [item if type(item) in _PLAIN else one(item, below) for item in items]

    def _one(self, value: object, depth: int) -> object:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if depth > MAX_NESTING:
            msg = f"nests deeper than {MAX_NESTING}"
            raise _UnfitError(msg)
        if isinstance(value, dict):
            return self._fields(value, depth)
        if isinstance(value, list):
            return self.items(value, depth)
        if isinstance(value, tuple):
            return {"$t": self.items(value, depth)}
        if isinstance(value, str | int | float):
            return value  # JSON has them as what they are below their own class
        if isinstance(value, bytes | bytearray | memoryview):
            return self._buffer(value)
        if isinstance(value, Mapping):
            return self._fields(value, depth)
        if isinstance(value, os.PathLike):
            return {"$p": os.fsdecode(value)}
        return self._array(value)

    def _fields(self, fields: Mapping[object, object], depth: int) -> dict[str, object]:
        packed: dict[str, object] = {}
        for key, item in fields.items():
            if not isinstance(key, str):
                msg = f"has the key {key!r}, and keys must be str"
                raise _UnfitError(msg)
            name = f"${key}" if key[:1] == "$" else key
            packed[name] = item if type(item) in _PLAIN else self._one(item, depth + 1)
        return packed

    def _buffer(self, value: bytes | bytearray | memoryview) -> dict[str, object]:
        if isinstance(value, memoryview):
            value = value.cast("B") if value.contiguous and value.nbytes else value.tobytes()
        self.buffers.append(value)
        return {"$b": len(self.buffers) - 1}

    def _array(self, value: object) -> object:
        if not hasattr(value, "__array__"):
            msg = f"is a {_named(type(value))}, which is no plain value"
            raise _UnfitError(msg)
        import numpy as np

        if isinstance(value, np.generic):
            return self._one(value.item(), MAX_NESTING)
        if isinstance(value, np.ndarray) and type(value) not in {np.ndarray, np.memmap}:
            msg = f"is a {_named(type(value))}; give a plain numpy array"
            raise _UnfitError(msg)
        array = np.asarray(value)
        if array.dtype.kind not in "biufc":
            msg = f"is an array of dtype {array.dtype}; only numbers and bools can cross"
            raise _UnfitError(msg)
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.buffers.append(flat.data if flat.size else b"")
        where = len(self.buffers) - 1
        return {"$b": where, "dtype": array.dtype.str, "shape": list(array.shape)}


def _named(kind: type) -> str:
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


def _refusal(values: Sequence[object], names: Sequence[str], rule: str) -> InvalidArgumentError:
    where, found = _unfit("values", dict(zip(names, values, strict=False)) or list(values), 0)
    where = where.removeprefix("values.")
    msg = f"{where} {rule}: it cannot cross to or from a cartridge's process"
    return InvalidArgumentError(msg, arg=where, value=found, rule=rule)


def _unfit(where: str, value: object, depth: int) -> tuple[str, object]:
    """Find the innermost value that cannot be packed; the slow way, since something is wrong."""
    for step, item in _inside(value):
        try:
            _dumps(_Packing().items([item], depth))
        except (_UnfitError, ValueError, RecursionError):
            if depth < MAX_NESTING:
                return _unfit(at(where, step), item, depth + 1)
    return where, value


def _inside(value: object) -> Iterable[tuple[object, object]]:
    if isinstance(value, Mapping):
        return value.items() if all(isinstance(key, str) for key in value) else ()
    return enumerate(value) if isinstance(value, list | tuple) else ()


def check_depth(value: object) -> None:
    """
    Refuse what nests too deep to be worked on.

    Args:
        value: As JSON gives it.

    Raises:
        MalformedError: It does.
    """
    level = [value]
    for _ in range(MAX_NESTING + 2):
        level = [item for one in level for item in _below(one)]
        if not level:
            return
    msg = f"a value that nests deeper than {MAX_NESTING}"
    raise MalformedError(msg)


def _below(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def unpack(value: object, buffers: Sequence[Buffer]) -> object:
    """
    Give the value that stands in JSON.

    Args:
        value: As JSON gives it, of a depth that was checked.
        buffers: Arrays are made in them, without a copy.

    Raises:
        MalformedError: It is none that `pack` gives.
    """
    if isinstance(value, list):
        return [unpack(item, buffers) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$b": index, **rest}:
            return _unpacked_buffer(index, rest, buffers)
        case {"$t": list(items), **rest} if not rest:
            return tuple([unpack(item, buffers) for item in items])
        case {"$p": str(path), **rest} if not rest:
            return Path(path)
    return {_unpacked_key(key): unpack(item, buffers) for key, item in value.items()}


def _unpacked_key(key: str) -> str:
    if key[:1] != "$":
        return key
    if key[:2] != "$$":
        msg = f"the key {key!r}, which means nothing"
        raise MalformedError(msg)
    return key[1:]


def _unpacked_buffer(
    index: object, rest: Mapping[str, object], buffers: Sequence[Buffer]
) -> object:
    if type(index) is not int or not 0 <= index < len(buffers):
        msg = f"a value in buffer {index!r} of {len(buffers)}"
        raise MalformedError(msg)
    buffer = buffers[index]
    match rest:
        case {"dtype": str(dtype), "shape": list(shape), **more} if not more:
            return _unpacked_array(dtype, shape, buffer)
        case {**more} if not more:
            return bytes(memoryview(buffer))
    msg = f"a buffer with the fields {', '.join(rest)}"
    raise MalformedError(msg)


def _unpacked_array(dtype: str, shape: Sequence[object], buffer: Buffer) -> np.ndarray:
    import numpy as np

    sizes = [size for size in shape if type(size) is int and size >= 0]
    length = memoryview(buffer).nbytes
    try:
        kind = np.dtype(dtype) if _DTYPE.fullmatch(dtype) else None
        if kind is not None and sizes == shape and math.prod(sizes) * kind.itemsize == length:
            return np.ndarray(tuple(sizes), kind, cast("bytes", buffer))
    except (TypeError, ValueError) as exc:
        msg = f"an array of dtype {dtype!r} and shape {shape!r}: {exc}"
        raise MalformedError(msg) from exc
    msg = f"an array of dtype {dtype!r} and shape {shape!r} in {length} bytes"
    raise MalformedError(msg)
