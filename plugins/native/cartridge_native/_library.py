"""A library that exports the Cartridge ABI, called: handles, sessions, and results copied."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cartridge_core.errors import (
    AbiMismatchError,
    BackendError,
    InvalidArgumentError,
    Status,
)
from cartridge_core.results import ResultKind
from cartridge_native._binding import (
    BUFFER_SIZE,
    OPTIONS_SIZE,
    REPORT_SIZE,
    Buffer,
    Options,
    Report,
    bind,
)
from cartridge_native.statuses import error_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MAX_BUFFER_BYTES", "Array", "Library", "NativeSession", "Raw"]

MAX_BUFFER_BYTES = 2**31 - 1
"""``CTG_MAX_BUFFER_BYTES``."""

_SMALL_BYTES = 2**16
"""Copying less than that takes less time than asking numpy where it is."""

_LONGEST = 2000
"""Characters that are kept of what a library says."""

_KINDS = {int(kind): kind for kind in ResultKind}


class Array(Protocol):
    """What numpy's arrays have: where their data are, and how many bytes."""

    @property
    def __array_interface__(self) -> dict[str, tuple[int, bool]]: ...

    @property
    def nbytes(self) -> int: ...

    def tobytes(self) -> bytes: ...


class Raw(NamedTuple):
    """A result as the library gave it, copied."""

    kind: ResultKind
    payload: bytes


class Library:
    """
    A loaded library whose version is right and which has every function.

    A library stays loaded until the process ends.

    Args:
        path: Where it is.

    Raises:
        LoadError: It is no library for this machine, or lacks one that it needs.

        AbiMismatchError: It is of another version of the ABI, or lacks one of its functions.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.functions = bind(path)

    def descriptor_json(self) -> bytes:
        """
        Give the descriptor that is built in.

        Raises:
            AbiMismatchError: There is none.
        """
        text = self.functions["ctg_descriptor_json"]()
        if not isinstance(text, bytes):
            msg = f"{self.name}: ctg_descriptor_json returned NULL"
            raise AbiMismatchError(msg)
        return text

    def preflight(self, pack_dir: Path) -> tuple[bool, str]:
        """
        Have it look at this machine.

        Returns:
            Whether the machine has what it needs, and what it says of that.

        Raises:
            CartridgeError: It could not look; ``CTG_E_PREFLIGHT`` is an answer.
        """
        call = "ctg_preflight"
        report = Report(size=REPORT_SIZE)
        status = self.functions[call](os.fsencode(pack_dir), ctypes.byref(report))
        if status == Status.PREFLIGHT:
            return False, self.last_error(None)
        self.check(call, status, None)
        return bool(report.ok), _text(report.detail)

    def open(self, pack_dir: Path) -> int:
        """
        Open a pack; give the handle.

        Raises:
            CartridgeError: It failed.
        """
        call = "ctg_open"
        out, options = ctypes.c_void_p(), Options(size=OPTIONS_SIZE)
        status = self.functions[call](
            os.fsencode(pack_dir), ctypes.byref(options), ctypes.byref(out)
        )
        self.check(call, status, None)
        return self._given(call, out)

    def close(self, cartridge: int) -> None:
        """Close it; the handle is gone, also where this raises."""
        call = "ctg_close"
        status = self.functions[call](cartridge)
        if status:
            raise error_of(self.name, call, status, "")

    def begin(self, cartridge: int) -> NativeSession:
        """
        Begin a session.

        Raises:
            CartridgeError: It failed.
        """
        call = "ctg_session_begin"
        out, options = ctypes.c_void_p(), Options(size=OPTIONS_SIZE)
        status = self.functions[call](cartridge, ctypes.byref(options), ctypes.byref(out))
        self.check(call, status, cartridge)
        return NativeSession(self, self._given(call, out))

    def _given(self, call: str, out: ctypes.c_void_p) -> int:
        if out.value is None:
            msg = f"{self.name}: {call} returned CTG_OK and gave nothing"
            raise BackendError(msg)
        return out.value

    def check(self, call: str, status: int, handle: int | None) -> None:
        """Raise what a status says, in the library's own words."""
        if status:
            raise error_of(self.name, call, status, self.last_error(handle))

    def last_error(self, handle: int | None) -> str:
        """Give what failed last on a handle; None is the calls that have none."""
        return _text(self.functions["ctg_last_error"](handle))


class NativeSession:
    """
    One session; what its calls need is made once.

    Args:
        library: Where it is.
        handle: From ``ctg_session_begin``.
    """

    def __init__(self, library: Library, handle: int) -> None:
        functions = library.functions
        self._library = library
        self._handle = handle
        self._infer, self._push = functions["ctg_infer"], functions["ctg_push"]
        self._pull, self._flush = functions["ctg_pull"], functions["ctg_flush"]
        self._kind, self._payload = (
            functions["ctg_result_get_kind"],
            functions["ctg_result_get_payload"],
        )
        self._release = functions["ctg_result_release"]
        self._input, self._output = Buffer(size=BUFFER_SIZE), Buffer(size=BUFFER_SIZE)
        self._out = ctypes.c_void_p()
        # The same field seen as text: to set it takes no cast, and holds no copy.
        self._text = ctypes.c_char_p.from_buffer(self._input, Buffer.data.offset)
        self._input_ref = ctypes.byref(self._input)
        self._output_ref, self._out_ref = ctypes.byref(self._output), ctypes.byref(self._out)

    def infer(self, data: bytes | Array) -> Raw:
        """
        Give it one whole input, borrowed; take the result.

        Raises:
            CartridgeError: It failed, or gave what is no result.
        """
        self._lend(data)
        self._out.value = None
        status = self._infer(self._handle, self._input_ref, self._out_ref)
        if status:
            self._library.check("ctg_infer", status, self._handle)
        result = self._result()
        if result is None:
            msg = f"{self._library.name}: ctg_infer returned CTG_OK and gave no result"
            raise BackendError(msg)
        return self._take(result)

    def push(self, data: bytes | Array) -> None:
        """
        Give it a chunk, borrowed.

        Raises:
            CartridgeError: It failed.
        """
        self._lend(data)
        status = self._push(self._handle, self._input_ref)
        if status:
            self._library.check("ctg_push", status, self._handle)

    def pull(self) -> Raw | None:
        """
        Take the next result; None where there is none.

        Raises:
            CartridgeError: It failed, or gave what is no result.
        """
        self._out.value = None
        status = self._pull(self._handle, self._out_ref)
        if status:
            self._library.check("ctg_pull", status, self._handle)
        result = self._result()
        return None if result is None else self._take(result)

    def flush(self) -> None:
        """
        Tell it that there is no more input.

        Raises:
            CartridgeError: It failed.
        """
        self._library.check("ctg_flush", self._flush(self._handle), self._handle)

    def cancel(self) -> None:
        """
        Have it stop; from any thread, while a call is inside.

        Raises:
            CartridgeError: It failed.
        """
        # Without what it says: the text of the handle belongs to the thread that drives it.
        status = self._library.functions["ctg_cancel"](self._handle)
        if status:
            raise error_of(self._library.name, "ctg_cancel", status, "")

    def end(self) -> None:
        """End it; the handle is gone, also where this raises."""
        call = "ctg_session_end"
        status = self._library.functions[call](self._handle)
        if status:
            raise error_of(self._library.name, call, status, "")

    def _lend(self, data: bytes | Array) -> None:
        if not isinstance(data, bytes) and data.nbytes < _SMALL_BYTES:
            data = data.tobytes()
        if isinstance(data, bytes):
            length, self._text.value = len(data), data
        else:
            length = data.nbytes
            self._input.data = data.__array_interface__["data"][0]
        if length > MAX_BUFFER_BYTES:
            msg = f"an input of {length} bytes, and {MAX_BUFFER_BYTES} are the most that ABI takes"
            raise InvalidArgumentError(msg, rule=f"at most {MAX_BUFFER_BYTES} bytes")
        self._input.len = length

    def _result(self) -> int | None:
        return self._out.value

    def _take(self, result: int) -> Raw:
        """Copy a result, and give it back, however that ends."""
        try:
            kind = self._kind(result)
            status = self._payload(result, self._output_ref)
            if status:
                self._library.check("ctg_result_get_payload", status, self._handle)
            data, length = self._output.data, self._output.len
            if kind not in _KINDS:
                msg = f"a result of kind {kind}, which the ABI does not have"
                raise self._garbage(msg)
            if length > MAX_BUFFER_BYTES:
                msg = f"a payload of {length} bytes, and {MAX_BUFFER_BYTES} are the most"
                raise self._garbage(msg)
            if length and data is None:
                msg = f"a payload of {length} bytes at NULL"
                raise self._garbage(msg)
            return Raw(_KINDS[kind], ctypes.string_at(data, length) if length else b"")
        finally:
            self._release(result)

    def _garbage(self, what: str) -> BackendError:
        return BackendError(f"{self._library.name} gave {what}")


def _text(found: object) -> str:
    """Read a text of the library's; what is no UTF-8 in it is replaced."""
    return found.decode(errors="replace")[:_LONGEST] if isinstance(found, bytes) else ""
