"""
Drives exported libraries from a Python that has nothing of theirs; prints what came of it.

Run as ``python drive.py ECHO STREAM LEVELS``; the first two are loaded by two threads at once.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from cartridge_native._binding import BUFFER_SIZE, Buffer
from cartridge_native._library import Library

if TYPE_CHECKING:
    from collections.abc import Callable

PACK = b"/"


class Driver:
    """
    One library, and a cartridge open on it.

    Args:
        path: Where the library is.
    """

    def __init__(self, path: str) -> None:
        self.library = Library(Path(path))
        self.call = self.library.functions
        self.cartridge = self.library.open(Path("/"))

    def begin(self) -> int:
        """Begin a session; give its handle."""
        return self.new("ctg_session_begin", self.cartridge, None)[1]

    def new(self, name: str, *args: object) -> tuple[int, int]:
        """Call what writes a handle; give its status, and the handle or 0."""
        out = ctypes.c_void_p()
        status = self.call[name](*args, ctypes.byref(out))
        return status, out.value or 0

    def infer(self, session: int, data: bytes) -> tuple[int, object]:
        """Give a status with the payload, or with what the session says of its failure."""
        status, result = self.new("ctg_infer", session, buffer(data))
        return (status, self.said(session)) if status else (status, self.take(result)[1])

    def push(self, session: int, data: bytes) -> int:
        """Give the status."""
        return self.call["ctg_push"](session, buffer(data))

    def pull(self, session: int) -> object:
        """Give a status that is not 0, a kind and a payload, or None."""
        status, result = self.new("ctg_pull", session)
        return status or (self.take(result) if result else None)

    def take(self, result: int) -> tuple[int, str]:
        """Give a result's kind and payload, and release it."""
        kind, view = self.call["ctg_result_get_kind"](result), Buffer(size=BUFFER_SIZE)
        assert self.call["ctg_result_get_payload"](result, ctypes.byref(view)) == 0
        payload = ctypes.string_at(view.data, view.len) if view.len else b""
        self.call["ctg_result_release"](result)
        return kind, payload.decode("latin-1")

    def said(self, handle: int | None) -> str:
        """Give what a handle says of its last failure."""
        return self.library.last_error(handle)


def buffer(data: bytes, size: int = BUFFER_SIZE) -> object:
    """Give a buffer of bytes."""
    kept = ctypes.create_string_buffer(data, len(data) or 1)
    made = Buffer(size=size, data=ctypes.cast(kept, ctypes.c_void_p).value, len=len(data))
    made.kept = kept  # as long as the buffer
    return ctypes.byref(made)


def texts(echo: Driver, _: Driver, __: Driver) -> object:
    session = echo.begin()
    given = [b"tea", b"", "naïve 茶".encode(), b"caf\xe9"]
    return [echo.infer(session, data) for data in given]


def failures(echo: Driver, _: Driver, __: Driver) -> object:
    session = echo.begin()
    asked = [b"fail", b"bug", b"exit", b"wrong", b"tea"]
    return [echo.infer(session, data) for data in asked]


def cancel(echo: Driver, _: Driver, __: Driver) -> object:
    session, came = echo.begin(), []
    inside = threading.Thread(target=lambda: came.append(echo.infer(session, b"slow")[0]))
    inside.start()
    while not came and inside.is_alive():
        echo.call["ctg_cancel"](session)
        inside.join(0.01)
    inside.join()
    again = echo.infer(session, b"tea")[0], echo.call["ctg_cancel"](session)
    return [*came, *again, echo.call["ctg_session_end"](session), echo.infer(echo.begin(), b"tea")]


def stale(echo: Driver, _: Driver, __: Driver) -> object:
    cartridge = echo.library.open(Path("/"))
    session, other = (echo.new("ctg_session_begin", cartridge, None)[1] for _ in range(2))
    ended = echo.call["ctg_session_end"](session), echo.call["ctg_session_end"](session)
    after_end = echo.infer(session, b"tea")
    closed = echo.call["ctg_close"](cartridge), echo.call["ctg_close"](cartridge)
    begun = echo.new("ctg_session_begin", cartridge, None)
    after_close = echo.infer(other, b"tea"), echo.call["ctg_session_end"](other)
    return {
        "ended": ended,
        "infer after end": after_end,
        "closed": closed,
        "begin after close": begun,
        "infer after close": after_close,
    }


def results(echo: Driver, _: Driver, __: Driver) -> object:
    session = echo.begin()
    result = echo.new("ctg_infer", session, buffer(b"tea"))[1]
    echo.call["ctg_session_end"](session)
    taken = echo.take(result)
    view = Buffer(size=BUFFER_SIZE)
    gone = echo.call["ctg_result_get_payload"](result, ctypes.byref(view))
    echo.call["ctg_result_release"](result)
    echo.call["ctg_result_release"](None)
    return [taken, gone, echo.call["ctg_result_get_kind"](result)]


def mixed_up(echo: Driver, stream: Driver, _: Driver) -> object:
    session = echo.begin()
    return [
        echo.call["ctg_close"](session),
        echo.call["ctg_session_end"](echo.cartridge),
        echo.new("ctg_session_begin", session, None)[0],
        echo.infer(12345, b"tea"),
        stream.infer(session + 1000, b"tea")[0],
        echo.infer(session, b"tea"),
    ]


def arguments(echo: Driver, _: Driver, __: Driver) -> object:
    session, out = echo.begin(), ctypes.c_void_p()
    small = echo.new("ctg_infer", session, buffer(b"tea", BUFFER_SIZE - 1))[0]
    told = echo.said(session)
    nothing = Buffer(size=BUFFER_SIZE, data=None, len=3)
    long = Buffer(size=BUFFER_SIZE, data=1, len=2**31)
    return [
        small,
        told,
        echo.new("ctg_infer", session, None)[0],
        echo.new("ctg_infer", session, ctypes.byref(nothing))[0],
        echo.new("ctg_infer", session, ctypes.byref(long))[0],
        echo.call["ctg_infer"](session, buffer(b"tea"), None),
        echo.call["ctg_open"](None, None, ctypes.byref(out)),
        echo.said(None),
        echo.call["ctg_open"](PACK, None, None),
        echo.call["ctg_preflight"](PACK, None),
    ]


def families(echo: Driver, stream: Driver, _: Driver) -> object:
    batch, streaming = echo.begin(), stream.begin()
    return [
        echo.push(batch, b"tea"),
        echo.pull(batch),
        echo.call["ctg_flush"](batch),
        stream.infer(streaming, b"tea")[0],
    ]


def streaming(_: Driver, stream: Driver, __: Driver) -> object:
    session = stream.begin()
    came = [stream.pull(session)]
    for chunk in (b"tea", b" is served.", b"", b"Milk"):
        came += [stream.push(session, chunk), stream.pull(session)]
    came += [stream.pull(session), stream.call["ctg_flush"](session)]
    came += [stream.pull(session) for _ in range(4)]
    late = stream.push(session, b"!"), stream.said(session)
    return [*came, *late, stream.call["ctg_flush"](session), stream.pull(session)]


def arrays(_: Driver, __: Driver, levels: Driver) -> object:
    session = levels.begin()
    given = [b"\0\0\x80\x3f\0\0\0\x40", b"", b"\0\0\0"]
    return [levels.infer(session, data) for data in given]


def threads(echo: Driver, stream: Driver, _: Driver) -> object:
    came: dict[int, object] = {}

    def work(number: int) -> None:
        session, own = echo.begin(), str(number).encode()
        said = [echo.infer(session, own)[1] for _ in range(20)]
        other = stream.begin()
        stream.push(other, own + b".")
        kept = stream.pull(other), stream.pull(other)
        echo.call["ctg_open"](None, None, None)
        came[number] = [set(said) == {f"hot {number}" * 2}, f'"{number}."' in str(kept)]
        echo.call["ctg_session_end"](session)
        stream.call["ctg_session_end"](other)

    own_text = echo.said(None)
    all_of_them = [threading.Thread(target=work, args=[number]) for number in range(6)]
    for one in all_of_them:
        one.start()
    for one in all_of_them:
        one.join()
    return [came, echo.said(None) == own_text]


SCENES: list[Callable[[Driver, Driver, Driver], object]] = [
    texts,
    failures,
    cancel,
    stale,
    results,
    mixed_up,
    arguments,
    families,
    streaming,
    arrays,
    threads,
]


def load(paths: list[str]) -> list[Driver]:
    """Load libraries, a thread each, all at once."""
    made: dict[str, Driver] = {}
    at_once = threading.Barrier(len(paths))

    def work(path: str) -> None:
        at_once.wait()
        made[path] = Driver(path)

    all_of_them = [threading.Thread(target=work, args=[path]) for path in paths]
    for one in all_of_them:
        one.start()
    for one in all_of_them:
        one.join()
    return [made[path] for path in paths]


if __name__ == "__main__":
    drivers = load(sys.argv[1:])
    sys.stdout.write(json.dumps({scene.__name__: scene(*drivers) for scene in SCENES}))
