"""The functions of a library that exports the Cartridge ABI, found and given their types."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from cartridge_core.errors import AbiMismatchError, LoadError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "BUFFER_SIZE",
    "FUNCTIONS",
    "OPTIONS_SIZE",
    "REPORT_SIZE",
    "Buffer",
    "Options",
    "Report",
    "bind",
]

_MAJOR = 0


class Report(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("ok", ctypes.c_int32),
        ("detail", ctypes.c_char_p),
    )


class Options(ctypes.Structure):
    """``ctg_open_options``, and ``ctg_session_options`` too."""

    _fields_ = (("size", ctypes.c_size_t), ("flags", ctypes.c_uint32))


class Buffer(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
    )


# The end of the last field, not sizeof, which counts padding.
REPORT_SIZE = Report.detail.offset + Report.detail.size
OPTIONS_SIZE = Options.flags.offset + Options.flags.size
BUFFER_SIZE = Buffer.len.offset + Buffer.len.size

_HANDLE = ctypes.c_void_p
_OUT = ctypes.POINTER(ctypes.c_void_p)
_STATUS = ctypes.c_int32
_BUFFERS = ctypes.POINTER(Buffer)
_OPTIONS = ctypes.POINTER(Options)

FUNCTIONS: dict[str, tuple[object, list[object]]] = {
    "ctg_descriptor_json": (ctypes.c_char_p, []),
    "ctg_preflight": (_STATUS, [ctypes.c_char_p, ctypes.POINTER(Report)]),
    "ctg_open": (_STATUS, [ctypes.c_char_p, _OPTIONS, _OUT]),
    "ctg_close": (_STATUS, [_HANDLE]),
    "ctg_session_begin": (_STATUS, [_HANDLE, _OPTIONS, _OUT]),
    "ctg_session_end": (_STATUS, [_HANDLE]),
    "ctg_infer": (_STATUS, [_HANDLE, _BUFFERS, _OUT]),
    "ctg_push": (_STATUS, [_HANDLE, _BUFFERS]),
    "ctg_pull": (_STATUS, [_HANDLE, _OUT]),
    "ctg_flush": (_STATUS, [_HANDLE]),
    "ctg_cancel": (_STATUS, [_HANDLE]),
    "ctg_result_get_kind": (ctypes.c_int32, [_HANDLE]),
    "ctg_result_get_payload": (_STATUS, [_HANDLE, _BUFFERS]),
    "ctg_result_release": (None, [_HANDLE]),
    "ctg_last_error": (ctypes.c_char_p, [_HANDLE]),
}


def bind(path: Path) -> dict[str, Callable[..., int]]:
    """
    Load a library whose version is right and which has every function.

    It stays loaded until the process ends.

    Returns:
        Its functions by name, all but ``ctg_abi_version``.

    Raises:
        LoadError: It is no library for this machine, or lacks one that it needs.

        AbiMismatchError: It is of another version of the ABI, or lacks one of its functions.
    """
    try:
        library = ctypes.CDLL(os.fspath(path))
    except OSError as exc:
        msg = f"{path}: the library cannot be loaded: {exc}"
        raise LoadError(msg) from exc
    _check_version(library, path.name)
    missing = [name for name in FUNCTIONS if not hasattr(library, name)]
    if missing:
        msg = f"{path.name}: it does not export {', '.join(missing)}, which ABI 0.1 has"
        raise AbiMismatchError(msg)
    return {name: _bound(library, name) for name in FUNCTIONS}


def _check_version(library: ctypes.CDLL, name: str) -> None:
    try:
        version_of = library.ctg_abi_version
    except AttributeError as exc:
        msg = f"{name}: it exports no ctg_abi_version, so it is no cartridge library"
        raise AbiMismatchError(msg) from exc
    version_of.restype, version_of.argtypes = ctypes.c_uint32, []
    version = version_of()
    if version == 0:
        msg = f"{name}: ctg_abi_version returned 0: the library could not set itself up"
        raise AbiMismatchError(msg)
    if version >> 16 != _MAJOR:
        msg = (
            f"{name}: it speaks ABI {version >> 16}.{version & 0xFFFF}, and {_MAJOR}.x is "
            "spoken here; take a build of it for that"
        )
        raise AbiMismatchError(msg)


def _bound(library: ctypes.CDLL, name: str) -> Callable[..., int]:
    function = getattr(library, name)
    function.restype, function.argtypes = FUNCTIONS[name]
    bound: Callable[..., int] = function
    return bound
