"""
A CTranslate2 model file, read without CTranslate2: what it holds, and where.

Source: CTranslate2, ``ModelSpec._serialize``: little-endian; a version, the model's name and
revision, the variables (name, shape, dtype, bytes), the aliases. A text is a 16-bit length with
its final NUL counted, then the bytes.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, BinaryIO

import attrs

from cartridge_core.errors import LoadError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Variable", "read_variables"]

_DTYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
_ITEM_BYTES = (4, 1, 2, 4, 2, 2)
_MODEL = "WhisperSpec"
_MOST_VARIABLES = 100_000
_MOST_RANK = 8


@attrs.frozen
class Variable:
    """One array of the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    """Where its bytes begin."""

    @property
    def count(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


def read_variables(file: Path) -> dict[str, Variable]:
    """
    List the arrays of a model file, and check that it is whole.

    Raises:
        LoadError: It is no Whisper model of CTranslate2, is cut short, or cannot be read.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            return _read(stream, size)
    except (OSError, ValueError, struct.error) as exc:
        msg = f"{file}: it is no whole Whisper model of CTranslate2 ({exc}); download it again"
        raise LoadError(msg) from exc


def _read(stream: BinaryIO, size: int) -> dict[str, Variable]:
    _number(stream, "I")  # the version of the format
    name = _text(stream)
    if name != _MODEL:
        msg = f"it says {name[:40]!r}, not {_MODEL}"
        raise ValueError(msg)
    _number(stream, "I")  # the revision of the model's layout
    count = _number(stream, "I")
    if count > _MOST_VARIABLES:
        msg = f"it claims {count} arrays"
        raise ValueError(msg)
    found: dict[str, Variable] = {}
    for _ in range(count):
        key = _text(stream)
        rank = _number(stream, "B")
        shape = tuple(_number(stream, "I") for _ in range(min(rank, _MOST_RANK)))
        kind, length = _number(stream, "B"), _number(stream, "I")
        if rank > _MOST_RANK or kind >= len(_DTYPES):
            msg = f"the array {key[:40]!r} has rank {rank} and type {kind}"
            raise ValueError(msg)
        found[key] = Variable(_DTYPES[kind], shape, stream.tell())
        if found[key].count * _ITEM_BYTES[kind] != length:
            msg = f"the array {key[:40]!r} has {length} bytes, which its shape {shape} does not"
            raise ValueError(msg)
        if stream.seek(length, 1) > size:
            msg = f"it ends inside the array {key[:40]!r}"
            raise ValueError(msg)
    return found


def _number(stream: BinaryIO, code: str) -> int:
    width = struct.calcsize(f"<{code}")
    (value,) = struct.unpack(f"<{code}", stream.read(width))
    return int(value)


def _text(stream: BinaryIO) -> str:
    length = _number(stream, "H")
    data = stream.read(length)
    if len(data) != length:
        msg = "it ends inside a name"
        raise ValueError(msg)
    return data.rstrip(b"\0").decode("utf-8", "replace")
