"""What a safetensors file says of itself in its header, without reading a tensor."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Weights", "read_weights"]

_LENGTH_BYTES = 8
_MOST_HEADER_BYTES = 100_000_000
_SHOWN = 80


@attrs.frozen
class Weights:
    """How much a file holds."""

    float_count: int
    """Floating-point numbers; loading converts them to the dtype asked for."""

    other_bytes: int
    """Bytes of everything else, kept as it is."""

    def bytes_as(self, item_bytes: int) -> int:
        """Give the size in memory where a floating-point number takes so many bytes."""
        return self.float_count * item_bytes + self.other_bytes


def read_weights(file: Path) -> Weights:
    """
    Read a header, and check that the file is as long as it says.

    Raises:
        LoadError: The file is no safetensors file, is cut short, or cannot be read.

    Source:
        safetensors, "Format": eight bytes of length, a JSON header, then the tensors.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(_LENGTH_BYTES).ljust(_LENGTH_BYTES, b"\0"))
            fits = _LENGTH_BYTES + length <= size and length <= _MOST_HEADER_BYTES
            document: object = json.loads(stream.read(length)) if fits else None
        tensors = _tensors(document)
    except (OSError, ValueError, RecursionError) as exc:
        why = f"its header is cut short or malformed ({str(exc)[:_SHOWN]})"
        msg = f"{file}: it is no safetensors file, or {why}; download it again"
        raise LoadError(msg) from exc
    end = max((end for _, end, _, _ in tensors), default=0)
    if size != (wanted := _LENGTH_BYTES + length + end):
        msg = f"{file}: its header promises {wanted} bytes, it has {size}; download it again"
        raise LoadError(msg)
    return Weights(
        sum(count for _, _, dtype, count in tensors if _is_float(dtype)),
        sum(end - start for start, end, dtype, _ in tensors if not _is_float(dtype)),
    )


def _tensors(document: object) -> list[tuple[int, int, str, int]]:
    """List each tensor's start, end, dtype and number of elements."""
    if not isinstance(document, dict):
        msg = "it is no JSON object"
        raise ValueError(msg)  # noqa: TRY004 -- the file is wrong, not the caller
    entries = cast("Mapping[str, object]", document)
    return [_tensor(name, entry) for name, entry in entries.items() if name != "__metadata__"]


def _tensor(name: str, entry: object) -> tuple[int, int, str, int]:
    match entry:
        case {"data_offsets": [int(start), int(end)], "shape": [*shape], "dtype": str(dtype)}:
            sizes = [size for size in shape if isinstance(size, int) and size >= 0]
            if len(sizes) == len(shape) and 0 <= start <= end:
                return start, end, dtype, math.prod(sizes)
    msg = f"tensor {name[:_SHOWN]!r} has no proper dtype, shape and data_offsets"
    raise ValueError(msg)


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("F", "BF"))
