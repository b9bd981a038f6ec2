"""
The bytes of a GGUF header, read into plain values.

Nothing here trusts a length: each is compared with the bytes that are there before it is used.

Source: ggml, "GGUF" (``docs/gguf.md``); what llama.cpp refuses is refused here too.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import cast, overload

import attrs

from cartridge_gguf.tensors import Tensor

__all__ = ["MAGIC", "Malformed", "Parsed", "Short", "Texts", "parse"]

MAGIC = b"GGUF"
_BIG_ENDIAN = 0xFFFF
_VERSIONS = (2, 3)
_MOST_ENTRIES = 1 << 16
_MOST_TENSORS = 1 << 18
_MOST_DIMENSIONS = 4
_MOST_TEXTS = 1 << 21
"""In one array; the largest vocabularies have an eighth of it."""
_SHOWN = 80

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_COUNTS = struct.Struct("<QQ")
_TEXT, _ARRAY = 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_ARRAY_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B"}
_ARRAY_CODES |= {10: "Q", 11: "q", 12: "d"}


class Short(Exception):  # noqa: N818 -- no error as yet: the file may go on
    """The bytes end before the header does; it goes on to ``end`` at least."""

    def __init__(self, end: int) -> None:
        super().__init__(end)
        self.end = end


class Malformed(Exception):  # noqa: N818 -- `header` makes the error of it
    """What is wrong with a header, and what to do."""


@attrs.frozen
class Parsed:
    """A header's content."""

    version: int
    metadata: dict[str, object]
    tensors: tuple[Tensor, ...]

    end: int
    """How many bytes the header takes; the tensor data begins at the next aligned place."""


class Texts(Sequence[str]):
    """
    An array of texts, cut into single ones when they are asked for.

    Bytes that are no UTF-8 become lone surrogates (``surrogateescape``), so nothing is lost.
    """

    def __init__(self, data: bytes, count: int) -> None:
        self._data = data
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for raw in self.raw():
            yield raw.decode("utf-8", "surrogateescape")

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(self._count))]
        at = self._starts[index]
        end = at + _U64.size + _U64.unpack_from(self._data, at)[0]
        return self._data[at + _U64.size : end].decode("utf-8", "surrogateescape")

    def __repr__(self) -> str:
        return f"<{self._count} texts>"

    def raw(self) -> Iterator[bytes]:
        """Give their bytes."""
        data, read, at = self._data, _U64.unpack_from, 0
        for _ in range(self._count):
            start = at + 8
            at = start + read(data, at)[0]
            yield data[start:at]

    @cached_property
    def _starts(self) -> array[int]:
        data, read, at = self._data, _U64.unpack_from, 0
        starts = array("Q")
        for _ in range(self._count):
            starts.append(at)
            at += 8 + read(data, at)[0]
        return starts


def parse(data: bytes) -> Parsed:
    """
    Read a header.

    Args:
        data: The beginning of a file that starts with `MAGIC`, as much of it as is there.

    Raises:
        Short: The header is longer than that.

        Malformed: It is not what the format allows, or not in a version that is read here.
    """
    reader = _Reader(data)
    reader.take(len(MAGIC))
    version = _check_version(cast("int", reader.number(_U32)))
    tensor_count, entry_count = reader.counts()
    if entry_count > _MOST_ENTRIES or tensor_count > _MOST_TENSORS:
        what = f"{entry_count} metadata entries and {tensor_count} tensors"
        msg = f"its header promises {what}, which no model has; it is damaged, download it again"
        raise Malformed(msg)
    metadata = dict[str, object]()
    for _ in range(entry_count):
        key = reader.text()
        if key in metadata:
            msg = f"its metadata has {_shown(key)} twice; it is damaged, make or download it again"
            raise Malformed(msg)
        metadata[key] = reader.value(key)
    tensors = tuple(reader.tensor() for _ in range(tensor_count))
    return Parsed(version, metadata, tensors, reader.at)


def _check_version(version: int) -> int:
    if version in _VERSIONS:
        return version
    if not version & _BIG_ENDIAN:
        msg = "it is written for big-endian machines; take or make the little-endian file"
    elif version == 1:
        msg = "it is GGUF version 1, and 2 and 3 are read here; convert the model again"
    else:
        known = " and ".join(map(str, _VERSIONS))
        msg = (
            f"it is GGUF version {version}, an unsupported version: {known} are read here; "
            "take a newer cartridge-gguf, or download the file again"
        )
    raise Malformed(msg)


class _Reader:
    """A place in the bytes that moves on as values are taken."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise Short(end)
        taken, self.at = self.data[self.at : end], end
        return taken

    def number(self, kind: struct.Struct) -> object:
        value: object = kind.unpack(self.take(kind.size))[0]
        return value

    def counts(self) -> tuple[int, int]:
        one, two = _COUNTS.unpack(self.take(_COUNTS.size))
        return int(one), int(two)

    def text(self) -> str:
        return self.take(cast("int", self.number(_U64))).decode("utf-8", "surrogateescape")

    def value(self, key: str) -> object:
        kind = cast("int", self.number(_U32))
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            if kind not in _SCALARS:
                raise _unknown(key, kind)
            return self.number(_SCALARS[kind])
        item = cast("int", self.number(_U32))
        count = cast("int", self.number(_U64))
        if item == _TEXT:
            return self.texts(key, count)
        if item not in _ARRAY_CODES:
            raise _unknown(key, item)
        numbers = array(_ARRAY_CODES[item])
        numbers.frombytes(self.take(count * _SCALARS[item].size))
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers

    def texts(self, key: str, count: int) -> Texts:
        data, read, start = self.data, _U64.unpack_from, self.at
        if start + count * _U64.size > len(data):
            raise Short(start + count * _U64.size)
        if count > _MOST_TEXTS:
            msg = f"its metadata entry {_shown(key)} has {count} texts, which no model has"
            raise Malformed(msg)
        at = start
        try:
            for _ in range(count):
                at += 8 + read(data, at)[0]
        except (struct.error, OverflowError):
            raise Short(at + _U64.size) from None
        return Texts(self.take(at - start), count)

    def tensor(self) -> Tensor:
        name = self.text()
        dimensions = cast("int", self.number(_U32))
        if dimensions > _MOST_DIMENSIONS:
            msg = f"its tensor {_shown(name)} has {dimensions} dimensions; it is damaged"
            raise Malformed(msg)
        shape = tuple(cast("int", self.number(_U64)) for _ in range(dimensions))
        kind, offset = cast("int", self.number(_U32)), cast("int", self.number(_U64))
        return Tensor(name, shape, kind, offset)


def _unknown(key: str, kind: int) -> Malformed:
    msg = f"its metadata entry {_shown(key)} has the unknown type {kind}; download it again"
    return Malformed(msg)


def _shown(name: str) -> str:
    return ascii(name[:_SHOWN])
