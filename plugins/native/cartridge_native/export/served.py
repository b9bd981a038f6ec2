"""The functions in Python that the C of an exported library calls: numbers, pointers, statuses."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import attrs

from cartridge_core.errors import CartridgeError, Status
from cartridge_native.export.serving import Opened, Served, Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from cartridge_native._library import Raw

__all__ = ["serve"]

_log = logging.getLogger("cartridge.native.export")

T = TypeVar("T", Opened, Stream)

_UNKNOWN: Final = b"there is no such handle: it was closed or ended, or never was one"

_RETURN_STATUS: Final = (
    "preflight",
    "open",
    "close",
    "begin",
    "end",
    "infer",
    "push",
    "pull",
    "flush",
    "cancel",
    "kind",
    "payload",
    "refuse",
)


class Pointer(Protocol):
    """Where C wants something written."""

    def __setitem__(self, index: int, value: object) -> None: ...


class Ffi(Protocol):
    """What is used of cffi's compiled ``ffi``."""

    NULL: object

    def buffer(self, data: object, length: int) -> bytes: ...

    def def_extern(
        self, *, name: str, error: int | None = None
    ) -> Callable[[Callable[..., object]], object]: ...

    def from_buffer(self, data: bytes) -> object: ...

    def memmove(self, target: object, data: bytes, length: int) -> None: ...

    def new(self, kind: str, data: bytes) -> object: ...

    def string(self, data: object) -> bytes: ...


@attrs.define(eq=False)
class _Held:
    """What a handle stands for, and the text of its last failure."""

    thing: Opened | Stream
    text: object


def serve(ffi: Ffi, document: bytes) -> None:
    """
    Give the functions of a library what they do.

    Args:
        ffi: The library's.
        document: Its descriptor.
    """
    bridge = _Bridge(ffi, Served(document))
    for name in _RETURN_STATUS:
        extern = ffi.def_extern(name=f"served_{name}", error=Status.INTERNAL)
        extern(getattr(bridge, name))
    for name in ("release", "last_error"):
        ffi.def_extern(name=f"served_{name}")(getattr(bridge, name))


class _Bridge:
    """
    The handles of a library, and its functions.

    Nothing is raised into C. A number stands for one thing for ever, so that what was closed
    cannot be taken for something else.
    """

    def __init__(self, ffi: Ffi, served: Served) -> None:
        self._ffi = ffi
        self._served = served
        self._numbers = itertools.count(1)
        self._handles: dict[int, _Held] = {}
        self._results: dict[int, tuple[Raw, object]] = {}
        self._unknown = ffi.new("char[]", _UNKNOWN)

    def preflight(self, detail: object, why: object, room: int) -> int:
        """Look at this machine: 1 where all is there, 0 where not, or a status."""
        try:
            ok, text = self._served.preflight()
        except BaseException as exc:  # noqa: BLE001 -- see the class
            return self._failed(exc, why, room)
        self._write(detail, text, room)
        return int(ok)

    def open(self, out: Pointer, why: object, room: int) -> int:
        """Open the cartridge."""
        try:
            out[0] = self._held(self._served.open())
        except BaseException as exc:  # noqa: BLE001 -- see the class
            return self._failed(exc, why, room)
        return Status.OK

    def close(self, cartridge: int) -> int:
        """Close it."""
        return self._let_go(Opened, cartridge, Opened.close)

    def begin(self, cartridge: int, out: Pointer) -> int:
        """Begin a session."""

        def work(opened: Opened) -> None:
            out[0] = self._held(opened.begin())

        return self._on(Opened, cartridge, work)

    def end(self, session: int) -> int:
        """End it."""
        return self._let_go(Stream, session, Stream.end)

    def infer(self, session: int, data: object, length: int, out: Pointer) -> int:
        """Take one whole input."""

        def work(stream: Stream) -> None:
            out[0] = self._given(stream.infer(self._bytes(data, length)))

        return self._on(Stream, session, work)

    def push(self, session: int, data: object, length: int) -> int:
        """Take one chunk."""
        return self._on(Stream, session, lambda stream: stream.push(self._bytes(data, length)))

    def pull(self, session: int, out: Pointer) -> int:
        """Give the next result; where there is none, ``out`` stays 0."""

        def work(stream: Stream) -> None:
            raw = stream.pull()
            if raw is not None:
                out[0] = self._given(raw)

        return self._on(Stream, session, work)

    def flush(self, session: int) -> int:
        """Take no more."""
        return self._on(Stream, session, Stream.flush)

    def cancel(self, session: int) -> int:
        """Stop what is inside; the text of the handle is left to the thread that drives it."""
        held = self._handles.get(session)
        if held is None or not isinstance(held.thing, Stream):
            return Status.INVALID_ARG
        try:
            held.thing.cancel()
        except BaseException as exc:  # noqa: BLE001 -- see the class
            return _status(exc)
        return Status.OK

    def kind(self, result: int) -> int:
        """Give a result's kind."""
        found = self._results.get(result)
        return Status.INVALID_ARG if found is None else found[0].kind

    def payload(self, result: int, data: Pointer, length: Pointer) -> int:
        """Say where a result's payload is."""
        found = self._results.get(result)
        if found is None:
            return Status.INVALID_ARG
        raw, view = found
        data[0], length[0] = view, len(raw.payload)
        return Status.OK

    def release(self, result: int) -> None:
        """Forget a result; again is harmless."""
        self._results.pop(result, None)

    def last_error(self, handle: int) -> object:
        """Give the text of the last failure on a handle."""
        held = self._handles.get(handle)
        return self._unknown if held is None else held.text

    def refuse(self, handle: int, status: int, text: object) -> int:
        """Note what C found wrong in a call on a handle."""
        held = self._handles.get(handle)
        if held is None:
            return Status.INVALID_ARG
        held.text = self._ffi.new("char[]", self._ffi.string(text))
        return status

    def _on(self, kind: type[T], handle: int, work: Callable[[T], None]) -> int:
        held = self._handles.get(handle)
        if held is None or not isinstance(held.thing, kind):
            return Status.INVALID_ARG
        try:
            work(held.thing)
        except BaseException as exc:  # noqa: BLE001 -- see the class
            held.text = self._ffi.new("char[]", _words(exc))
            return _status(exc)
        return Status.OK

    def _let_go(self, kind: type[T], handle: int, work: Callable[[T], None]) -> int:
        status = self._on(kind, handle, work)
        held = self._handles.get(handle)
        if held is not None and isinstance(held.thing, kind):
            self._handles.pop(handle, None)  # another thread may have been faster
        return status

    def _held(self, thing: Opened | Stream) -> int:
        number = next(self._numbers)
        self._handles[number] = _Held(thing, self._ffi.NULL)
        return number

    def _given(self, raw: Raw) -> int:
        number = next(self._numbers)
        self._results[number] = raw, self._ffi.from_buffer(raw.payload)
        return number

    def _bytes(self, data: object, length: int) -> bytes:
        # A copy: a cartridge in Python may keep what it is given.
        return bytes(self._ffi.buffer(data, length)) if length else b""

    def _failed(self, exc: BaseException, why: object, room: int) -> int:
        self._write(why, _words(exc).decode(), room)
        return _status(exc)

    def _write(self, target: object, text: str, room: int) -> None:
        data = text.encode(errors="replace")[: room - 1].decode(errors="ignore").encode() + b"\0"
        self._ffi.memmove(target, data, len(data))


def _status(exc: BaseException) -> int:
    _log.debug("a call into an exported library failed", exc_info=exc)
    return exc.status if isinstance(exc, CartridgeError) else Status.INTERNAL


def _words(exc: BaseException) -> bytes:
    """Say what failed, in UTF-8 without a zero."""
    text = str(exc) if isinstance(exc, CartridgeError) else f"{type(exc).__name__}: {exc}"
    return text.replace("\0", " ").encode(errors="replace")
