"""What a result has to hold for a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from cartridge_core.errors import BackendError

if TYPE_CHECKING:
    from cartridge_core.results import Result

__all__ = ["record_with"]


def record_with(result: Result, field: str) -> Mapping[str, object]:
    payload = result.payload
    if isinstance(payload, Mapping) and field in payload:
        return cast("Mapping[str, object]", payload)
    msg = f"{result.cartridge_id} gave {type(payload).__name__}; a record with {field} is expected"
    raise BackendError(msg)
