"""
Values as the ABI moves them: texts in UTF-8, records as JSON, arrays little-endian and raw.

What a port takes is said by the descriptor's ``io``: ``utf8`` is text, or JSON where the media
URN says ``record``, ``list``, ``bool``, ``integer`` or ``numeric``; ``json`` is JSON; ``bytes`` is
bytes; a number's name, ``float32`` for one, is an array of the port's shape, of which one axis may
be open.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol, cast, runtime_checkable

import attrs

from cartridge_core.errors import AbiMismatchError, BackendError, InvalidArgumentError
from cartridge_core.jsondata import read_json, thaw

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.descriptor import Port
    from cartridge_core.urn import MediaUrn

    Form = Literal["text", "json", "bytes", "array"]

__all__ = ["Coder", "coder_of", "is_structured", "number_shape"]

_STRUCTURED = ("record", "list", "bool", "integer", "numeric")
_NUMBERS = {
    "bool": "|b1",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint8": "|u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
}
"""What numpy calls them, with their byte order and the bytes of one."""


@runtime_checkable
class _Numbers(Protocol):
    """An array of numpy's, or one number of it; as lists they lose nothing."""

    dtype: object

    def tolist(self) -> object: ...


@attrs.frozen(kw_only=True)
class Coder:
    """Turns the values of one port into bytes, and bytes into values."""

    form: Form
    where: str
    """The place of the port in the descriptor, for messages."""

    number: str = ""
    """Of arrays alone, as the descriptor names it."""

    shape: tuple[int | None, ...] = ()
    rate_hz: int | None = None

    _step: int = attrs.field(init=False)
    """The bytes of one step along the open axis; 0 for what has none."""

    @_step.default
    def _count(self) -> int:
        itemsize = int(_NUMBERS[self.number][2:]) if self.number else 0
        return itemsize * math.prod(axis for axis in self.shape if axis is not None)

    def encode(self, value: object) -> bytes | NDArray[np.generic]:
        """
        Give what the library reads: the value's own memory where it is as it must be.

        Args:
            value: What the caller gave; None is no bytes.

        Raises:
            InvalidArgumentError: It is nothing that the port takes.
        """
        if value is None:
            return b""
        if self.form == "array":
            return self._encode_array(value)
        if self.form == "json":
            return _as_json(value)
        if self.form == "text" and isinstance(value, str):
            return _utf8(value)
        if self.form == "bytes" and isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise self._refusal(value, "a text" if self.form == "text" else "bytes")

    def _encode_array(self, value: object) -> bytes | NDArray[np.generic]:
        import numpy as np

        dtype = _dtype(self.number)
        if isinstance(value, np.ndarray) and value.dtype == dtype and value.flags.c_contiguous:
            array = value
        elif isinstance(value, bytes | bytearray | memoryview):
            return self._encode_raw(bytes(value))
        elif isinstance(value, str | os.PathLike):
            raise self._refusal(value, f"{self}; nothing is decoded here, so give the numbers")
        else:
            array = self._converted(value)
        if not self._fits(array.shape):
            raise self._refusal(value, f"{self}; its shape is {list(array.shape)}")
        return array

    def _encode_raw(self, data: bytes) -> bytes:
        step = self._step
        if step and len(data) % step == 0 and (None in self.shape or len(data) == step):
            return data
        raise self._refusal(data, f"bytes of {self}; {len(data)} are none")

    def _converted(self, value: object) -> NDArray[np.generic]:
        """Give an array in the port's dtype; what that cannot hold is refused."""
        import numpy as np

        dtype = _dtype(self.number)
        try:
            found = np.asarray(value)
        except (TypeError, ValueError) as exc:
            raise self._refusal(value, f"{self}; it is no array: {exc}") from exc
        is_lossy = found.dtype.kind == "f" and dtype.kind != "f" and found.size > 0
        if found.dtype.kind not in "biuf" or is_lossy:
            raise self._refusal(value, f"{self}; its dtype is {found.dtype}")
        with np.errstate(invalid="ignore", over="ignore"):
            array = np.ascontiguousarray(found, dtype).reshape(found.shape)
        same = np.isfinite(array) == np.isfinite(found) if dtype.kind == "f" else array == found
        if not same.all():
            raise self._refusal(value, f"{self}; it has numbers beyond that")
        return array

    def _fits(self, shape: Sequence[int]) -> bool:
        return len(shape) == len(self.shape) and all(
            axis is None or axis == length for axis, length in zip(self.shape, shape, strict=True)
        )

    def decode(self, payload: bytes) -> object:
        """
        Give the value that bytes stand for: a library's output, or the input of an exported one.

        Raises:
            BackendError: They are not what the descriptor says.
        """
        if self.form == "bytes":
            return payload
        if self.form == "array":
            return self._decode_array(payload)
        try:
            return thaw(read_json(payload, "$")) if self.form == "json" else payload.decode()
        except (InvalidArgumentError, UnicodeDecodeError) as exc:
            what = "JSON" if self.form == "json" else "a text in UTF-8"
            msg = f"{self.where} is {what}, and {self._giver} gave something else: {exc}"
            raise BackendError(msg) from exc

    def _decode_array(self, payload: bytes) -> NDArray[np.generic]:
        import numpy as np

        dtype, step = _dtype(self.number), self._step
        rows, rest = divmod(len(payload), step) if step else (0, len(payload))
        if rest or (None not in self.shape and rows != 1):
            msg = f"{self.where} is {self}, and {self._giver} gave {len(payload)} bytes"
            raise BackendError(msg)
        shape = [rows if axis is None else axis for axis in self.shape]
        return np.frombuffer(payload, dtype).reshape(shape).copy()

    @property
    def _giver(self) -> str:
        return "the host" if self.where == "io.input" else "the library"

    def seconds(self, count: int) -> float | None:
        """Give how long that many bytes of sound are; None where the port does not say its rate."""
        return count / self._step / self.rate_hz if self.rate_hz and self._step else None

    def _refusal(self, value: object, rule: str) -> InvalidArgumentError:
        msg = f"a value of type {type(value).__name__}, and {self.where} is {rule}"
        return InvalidArgumentError(msg, arg="value", rule=rule)

    def __str__(self) -> str:
        if not self.number:
            return self.form
        axes = ", ".join("any" if axis is None else str(axis) for axis in self.shape)
        return f"{self.number} of the shape [{axes}]"


def coder_of(port: Port, media: MediaUrn | None, where: str) -> Coder:
    """
    Give what turns a port's values into bytes and back.

    Args:
        port: What the descriptor says of it.
        media: The media URN that the cap has for it; None where there is no cap.
        where: The port's place in the descriptor.

    Raises:
        AbiMismatchError: The ABI cannot carry it: an unknown dtype, or more than one open axis.
    """
    if port.dtype in _NUMBERS:
        shape = (None,) if port.shape is None else port.shape
        if shape.count(None) > 1:
            msg = (
                f"{where}.shape leaves {shape.count(None)} axes open; a buffer of the ABI has one "
                "length, so one at most may be"
            )
            raise AbiMismatchError(msg)
        rate_hz = port.sample_rate_hz
        return Coder(form="array", where=where, number=port.dtype, shape=shape, rate_hz=rate_hz)
    forms: Mapping[str, Form] = {
        "utf8": "json" if media is not None and is_structured(media) else "text",
        "json": "json",
        "bytes": "bytes",
    }
    if port.dtype not in forms:
        known = ", ".join([*forms, *_NUMBERS])
        msg = f"{where}.dtype is {port.dtype!r}, which is not known here; known are {known}"
        raise AbiMismatchError(msg)
    return Coder(form=forms[port.dtype], where=where)


def is_structured(media: MediaUrn) -> bool:
    """Say whether a media URN stands for what JSON has besides text."""
    return any(media.has(marker) for marker in _STRUCTURED)


def number_shape(port: Port) -> tuple[int | None, ...] | None:
    """Give the shape of a port of numbers; None where it has none, or other things."""
    return port.shape if port.dtype in _NUMBERS else None


@functools.cache
def _dtype(number: str) -> np.dtype[np.generic]:
    import numpy as np

    return np.dtype(_NUMBERS[number])


def _as_json(value: object) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_as_plain)
    except (TypeError, ValueError, RecursionError) as exc:
        msg = f"a value of type {type(value).__name__} that JSON cannot carry: {exc}"
        raise InvalidArgumentError(msg, arg="value", rule="JSON") from exc
    return _utf8(text)


def _as_plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, object]", value))
    if isinstance(value, _Numbers):
        return value.tolist()
    msg = f"{type(value).__name__} is no JSON"
    raise TypeError(msg)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        msg = f"a text that is not Unicode: {exc}"
        raise InvalidArgumentError(msg, arg="value", rule="Unicode") from exc
