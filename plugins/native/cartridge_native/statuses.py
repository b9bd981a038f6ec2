"""From a status of the ABI to the error that a caller meets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cartridge_core.errors import (
    AbiMismatchError,
    BackendError,
    CancelledError,
    CartridgeError,
    InternalError,
    InvalidArgumentError,
    LoadError,
    PreflightError,
    StateError,
    Status,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["error_of"]

_CLASSES: Final[Mapping[int, type[CartridgeError]]] = {
    kind.status: kind
    for kind in (
        InvalidArgumentError,
        UnsupportedError,
        PreflightError,
        LoadError,
        BackendError,
        CancelledError,
        StateError,
        AbiMismatchError,
        InternalError,
    )
}


def error_of(library: str, call: str, status: int, text: str) -> CartridgeError:
    """
    Give the error for a status that is not ``CTG_OK``.

    Args:
        library: The library's name.
        call: The function that returned it.
        status: The number.
        text: What ``ctg_last_error`` says; empty where it says nothing.

    Returns:
        The class of the status; `InternalError` for a number that the ABI does not have.
    """
    kind = _CLASSES.get(status)
    if kind is None:
        msg = f"{library}: {call} returned {status}, which is no status of the ABI"
        return InternalError(f"{msg}: {text}" if text else msg)
    name = f"CTG_E_{Status(status).name}"
    return kind(f"{library}: {call} returned {name} ({status}): {text or 'it does not say why'}")
