"""
Frames: what goes between the host and a cartridge's process.

A frame is a u32 length, a JSON header of that length, and raw buffers::

    length | [kind, number, values, sizes] | buffer 0 | buffer 1 | ...

``kind`` says what it is, ``number`` whose: a call's or a context's. The other side is not trusted:
what it sends is a frame within the limits here, or is refused. Nothing is pickled.
"""

from __future__ import annotations

import json
import mmap
import struct
from typing import TYPE_CHECKING, TypeAlias

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.packing import (
    MARK,
    MAX_NESTING,
    Buffer,
    MalformedError,
    check_depth,
    pack,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["MAX_BUFFERS", "MAX_FRAME_BYTES", "MAX_HEADER_BYTES", "Frame", "Receiver", "encode"]

MAX_HEADER_BYTES = 64 * 2**20
"""All that is no buffer; a list of more than some million numbers should be an array."""

MAX_FRAME_BYTES = 4 * 2**30
MAX_BUFFERS = 65_536

_CHUNK_BYTES = 65_536
"""How much is asked of the system at once, where it is not known how much there is."""

_AT_ONCE_BYTES = 64 * 2**20
"""Up to here memory is taken when a frame says so; beyond, as its bytes come."""

_END = 2**63
"""Numbers are below."""

_PARTS = 4
_LENGTH = struct.Struct(">I")

_loads = json.JSONDecoder().raw_decode


Frame: TypeAlias = tuple[str, int, list[object]]
"""A message: what kind it is, whose, and its values."""


def encode(
    kind: str, number: int, values: Sequence[object] = (), names: Sequence[str] = ()
) -> list[Buffer]:
    """
    Make a frame, as pieces that are to be sent one after another; buffers are not copied.

    Args:
        kind: What it is; plain ASCII.
        number: Whose it is.
        values: Plain values, as for `pack`.
        names: What a person calls them.

    Raises:
        InvalidArgumentError: Something among them cannot cross, or is too large.
    """
    text, buffers = pack(values, names)
    sizes = [len(buffer) for buffer in buffers] if buffers else []
    header = f'["{kind}",{number},{text},{sizes}]'.encode("utf-8", "surrogatepass")
    if len(header) > MAX_HEADER_BYTES:
        rule = f"texts, lists and numbers of at most {MAX_HEADER_BYTES} bytes"
        raise _too_large(len(header), rule, "give many numbers as an array")
    frame: list[Buffer] = [_LENGTH.pack(len(header)) + header]
    if buffers:
        _check_sizes(len(header), sizes)
        frame += buffers
    return frame


def _check_sizes(header: int, sizes: list[int]) -> None:
    total = header + sum(sizes)
    if total > MAX_FRAME_BYTES:
        raise _too_large(total, f"at most {MAX_FRAME_BYTES} bytes", "give it in pieces")
    if len(sizes) > MAX_BUFFERS:
        rule = f"at most {MAX_BUFFERS} arrays and bytes"
        raise _too_large(len(sizes), rule, "give it in pieces")


def _too_large(found: int, rule: str, fix: str) -> InvalidArgumentError:
    msg = f"{found}: a cartridge's process takes and gives {rule} at once; {fix}"
    return InvalidArgumentError(msg, arg="value", rule=rule)


class Receiver:
    """
    Takes frames from a stream; one thread at a time may use it.

    Args:
        receive_into: A socket's ``recv_into``, or what does the same.
    """

    def __init__(self, receive_into: Callable[[memoryview], int]) -> None:
        self._receive_into = receive_into
        # What has come and is not read yet is between the two.
        self._chunk = memoryview(bytearray(_CHUNK_BYTES))
        self._begin = self._end = 0
        self._partial: _Partial | None = None

    def receive(self) -> Frame:
        """
        Give the next frame; wait for it where it is not there.

        Raises:
            MalformedError: What came is no frame; nothing that follows can be understood.

            EOFError: The other side has closed.

            OSError: The stream fails; where it only has nothing now, this may be called again.
        """
        if self._begin == self._end:
            self._fill()
        while True:
            frame = self._next() if self._partial is None else self._complete(self._partial)
            if frame is not None:
                return frame
            self._fill()

    def _next(self) -> Frame | None:
        """Give the next frame; None where it is not all there."""
        there = self._end - self._begin
        if there < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._chunk, self._begin)
        if length > MAX_HEADER_BYTES:
            msg = f"a header of {length} bytes, and {MAX_HEADER_BYTES} are the most"
            raise MalformedError(msg)
        if there < _LENGTH.size + length:
            self._make_room(_LENGTH.size + length)
            return None
        begin = self._begin + _LENGTH.size
        self._begin = begin + length
        text, kind, number, values, sizes = _read_header(self._chunk[begin : self._begin])
        if not sizes and MARK not in text:
            if text.count("[") + text.count("{") > MAX_NESTING:
                check_depth(values)
            return kind, number, values
        check_depth(values)
        self._partial = _Partial(kind, number, values, sizes=sizes)
        return self._complete(self._partial)

    def _complete(self, partial: _Partial) -> Frame | None:
        """Give the frame whose header was read; None where its buffers are not all there."""
        while partial.wants_more():
            count = min(len(partial.room), self._end - self._begin)
            partial.room[:count] = self._chunk[self._begin : self._begin + count]
            partial.room = partial.room[count:]
            self._begin += count
            if partial.room:
                return None
        self._partial = None
        values = [unpack(value, partial.buffers) for value in partial.values]
        return partial.kind, partial.number, values

    def _fill(self) -> None:
        """Wait for more bytes."""
        if self._partial is not None and len(self._partial.room) >= _CHUNK_BYTES:
            # Straight to where they belong.
            room = self._partial.room
            count = self._receive_into(room)
            self._partial.room = room[count:]
            if count == 0:
                raise EOFError
            return
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._end == len(self._chunk):
            self._make_room(len(self._chunk))
        count = self._receive_into(self._chunk[self._end :])
        if count == 0:
            raise EOFError
        self._end += count

    def _make_room(self, size: int) -> None:
        """Make sure that a header of a size finds place in the chunk."""
        if self._begin + size <= len(self._chunk):
            return
        rest = bytes(self._chunk[self._begin : self._end])
        if size > len(self._chunk) or len(self._chunk) > _CHUNK_BYTES >= size:
            self._chunk = memoryview(bytearray(max(size, _CHUNK_BYTES)))
        self._chunk[: len(rest)] = rest
        self._begin, self._end = 0, len(rest)


@attrs.define
class _Partial:
    """A frame whose header was read, and whose buffers are coming."""

    kind: str
    number: int
    values: list[object]
    sizes: list[int] = attrs.field(kw_only=True)
    buffers: list[Buffer] = attrs.field(factory=list, init=False)
    room: memoryview = attrs.field(factory=lambda: memoryview(b""), init=False)
    """What is empty of the last buffer."""

    def wants_more(self) -> bool:
        """Say whether there is a buffer to fill; make it, where the last one is full."""
        if not self.room and len(self.buffers) < len(self.sizes):
            self.buffers.append(_room(self.sizes[len(self.buffers)]))
            self.room = memoryview(self.buffers[-1])
            return True
        return bool(self.room)


def _room(size: int) -> bytearray | mmap.mmap:
    try:
        return bytearray(size) if size <= _AT_ONCE_BYTES else mmap.mmap(-1, size)
    except (MemoryError, OSError, OverflowError) as exc:
        msg = f"a buffer of {size} bytes, and there is no memory for it"
        raise MalformedError(msg) from exc


def _read_header(data: memoryview) -> tuple[str, str, int, list[object], list[int]]:
    """Give a header as text, and its parts."""
    try:
        text = str(data, "utf-8", "surrogatepass")
    except UnicodeDecodeError as exc:
        msg = f"a header that is no text: {bytes(data[:60])!a}"
        raise MalformedError(msg) from exc
    try:
        header, end = _loads(text)
    except (ValueError, RecursionError) as exc:
        msg = f"a header that is not JSON: {text[:60]!a}"
        raise MalformedError(msg) from exc
    # Spelt out, since every frame comes this way.
    if type(header) is list and len(header) == _PARTS and end == len(text):
        kind, number, values, sizes = header
        is_right = type(kind) is str and type(number) is int and 0 <= number < _END
        if is_right and type(values) is list and type(sizes) is list:
            return text, kind, number, values, _read_sizes(sizes) if sizes else sizes
    msg = f"a header that is not [kind, number, values, sizes]: {text[:60]!a}"
    raise MalformedError(msg)


def _read_sizes(sizes: list[object]) -> list[int]:
    found = [size for size in sizes if type(size) is int and size >= 0]
    if len(found) != len(sizes) or len(sizes) > MAX_BUFFERS or sum(found) > MAX_FRAME_BYTES:
        msg = f"buffers of {sum(found)} bytes in {len(sizes)}, and {MAX_FRAME_BYTES} are the most"
        raise MalformedError(msg)
    return found
