"""A batch plugin that does what its input says: ``[verb, ...]``; some of it ends the process."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import logging
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core import errors
from cartridge_core.hookspecs import hookimpl
from cartridge_core.reports import Check, PreflightReport
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack

DESCRIPTOR = fake_descriptor(
    "trouble-batch", caps=[fake_cap("trouble", fake_arg("at", "string", scope="open"))]
)
CAP = str(DESCRIPTOR.caps[0].urn)

_log = logging.getLogger("cartridge.trouble")


class OwnError(errors.LoadError):
    """Known to this plugin alone."""


class ForeignError(Exception):
    """A backend's own."""


class Uncrossable:
    """No plain value."""


@attrs.define(eq=False)
class Session:
    context: Context
    parameters: Mapping[str, object]
    was_cancelled: bool = False


@hookimpl
def cartridge_descriptors() -> Sequence[Descriptor]:
    return (DESCRIPTOR,)


@hookimpl
def cartridge_preflight(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
) -> PreflightReport:
    found = f"{cartridge_id} {pack and pack.path} {options}"
    return PreflightReport((Check("trouble", ok=False, found=found, fix="x"),), memory_bytes=5)


@hookimpl
def cartridge_open(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object], context: Context
) -> object:
    context.progress(0.5, f"opening {cartridge_id}")
    context.log("info", f"offline: {context.offline}")
    _handles.append(cartridge_id)
    if options.get("at") == "open":
        _do(Session(context, {}), cast("list[object]", options["do"]))
    return {"pack": pack, "options": options}


_handles: list[str] = []


@hookimpl
def cartridge_close(handle: Mapping[str, Mapping[str, object]]) -> None:
    _handles.pop()
    if handle["options"].get("at") == "close":
        msg = "no, it does not close"
        raise errors.BackendError(msg)


@hookimpl
def cartridge_session_begin(
    handle: object, cap: str, parameters: Mapping[str, object], context: Context
) -> Session:
    if parameters.get("at") == "begin":
        _do(Session(context, parameters), cast("list[object]", parameters["do"]))
    return Session(context, parameters)


@hookimpl
def cartridge_session_end(session: Session) -> None:
    if session.parameters.get("at") == "end":
        _do(session, cast("list[object]", session.parameters["do"]))


@hookimpl
def cartridge_infer(session: Session, value: object) -> Result:
    return Result(
        ResultKind.FINAL,
        _do(session, cast("list[object]", value)),
        segment=3,
        start_s=0.5,
        end_s=2,
    )


@hookimpl
def cartridge_cancel(session: Session) -> None:
    session.was_cancelled = True


def _do(session: Session, what: list[object]) -> object:
    verb, *args = what
    return _VERBS[str(verb)](session, *args)


def _echo(session: Session, value: object) -> object:
    return value


def _kind(session: Session, value: object) -> object:
    return type(value).__name__


def _raise(session: Session, name: str) -> object:
    raise _ERRORS[name]()


def _cause() -> BaseException:
    error = errors.BackendError("it failed")
    error.__cause__ = ForeignError("deep inside")
    error.add_note("a note of its own")
    return error


_ERRORS: Mapping[str, Callable[[], BaseException]] = {
    "cancelled": lambda: errors.CancelledError("stop"),
    "invalid": lambda: errors.InvalidArgumentError("no", arg="a", value=[1], rule="r"),
    "own": lambda: OwnError("mine"),
    "foreign": lambda: ForeignError("theirs"),
    "value": lambda: ValueError("one", 2),
    "key": lambda: KeyError("k"),
    "file": lambda: FileNotFoundError(2, "No such file", "/x"),
    "memory": MemoryError,
    "group": lambda: ExceptionGroup("several", [ValueError("x")]),
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "stop": lambda: StopIteration("s"),
    "cause": _cause,
}


def _tell(session: Session, count: int) -> object:
    for number in range(count):
        session.context.progress(number / count, f"step {number}")
        session.context.log("info", f"line {number}")
    return count


_floods: list[int] = []


def _flood(session: Session, count: int) -> object:
    for number in range(count):
        _floods.append(number)
        session.context.progress(number / count)
        session.context.log("info", "x" * 100)
        session.context.run_with_keepalive(lambda: None, "short")
    return count


def _flooded(session: Session) -> object:
    return len(_floods)


def _record(session: Session) -> object:
    for _ in range(300):
        _log.debug("low")
    _log.warning("a %s", "record")
    try:
        int("x")
    except ValueError:
        _log.exception("failed")
    return None


def _record_later(session: Session) -> object:
    threading.Timer(0.3, lambda: _log.warning("later")).start()
    return None


def _print(session: Session, lines: int) -> object:
    for number in range(lines):
        print(f"out {number}", flush=True)  # noqa: T201 -- what is tested
        print(f"err {number}", file=sys.stderr)  # noqa: T201 -- what is tested
        os.write(1, b"raw\n")
    return lines


def _work(session: Session, seconds: float) -> object:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        session.context.check_cancelled()
        time.sleep(0.005)
    return "worked"


def _sleep(session: Session, seconds: float) -> object:
    time.sleep(seconds)
    return None


def _open_handles(session: Session) -> object:
    return len(_handles)


def _wait_for_cancel(session: Session) -> object:
    told = threading.Event()
    session.context.on_cancel(told.set)
    session.context.progress(0.1, "waiting")
    told.wait(30)
    end_s = time.monotonic() + 5
    while not session.was_cancelled and time.monotonic() < end_s:
        time.sleep(0.005)
    session.context.check_cancelled()
    return "not cancelled"


def _keepalive(session: Session, seconds: float) -> object:
    session.context.run_with_keepalive(lambda: time.sleep(seconds), "sleeping", 7.5)
    return "slept"


def _segv(session: Session) -> object:
    print("last words", file=sys.stderr)  # noqa: T201 -- what is tested
    return ctypes.string_at(0)


def _abort(session: Session) -> object:
    os.abort()


def _kill(session: Session, number: int) -> object:
    os.kill(os.getpid(), number)
    time.sleep(10)
    return None


def _exit(session: Session, status: int) -> object:
    print("leaving", file=sys.stderr, flush=True)  # noqa: T201 -- what is tested
    os._exit(status)


def _exit_blocking(session: Session, status: int) -> object:
    return session.context.run_with_keepalive(lambda: os._exit(status), "leaving")


def _exit_with_a_child(session: Session) -> object:
    """Leave a process behind that has everything open that this one had."""
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
    os._exit(3)


def _exit_thread(session: Session) -> object:
    thread = threading.Thread(target=sys.exit, args=(3,))
    thread.start()
    thread.join()
    return "alive"


def _hang(session: Session, seconds: int) -> object:
    """Sleep in C, and hold Python's lock."""
    return ctypes.PyDLL(None).sleep(seconds)


def _exhaust(session: Session, headroom: int) -> object:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + headroom
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return len(bytearray(headroom * 2))


def _close_line(session: Session) -> object:
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            os.close(number)
    time.sleep(30)
    return None


def _write_line(session: Session, data: bytes) -> object:
    """Write to the line what must not come there."""
    os.write(int(sys.argv[1]), data)
    time.sleep(30)
    return None


def _write_lanes(session: Session, data: bytes) -> object:
    """Write to every lane what must not come there."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}")[:6] == "socket" and name != sys.argv[1]:
                os.write(int(name), data)
    time.sleep(30)
    return None


def _surroundings(session: Session) -> object:
    return {
        "argv": sys.argv,
        "path": sys.path,
        "main": sys.modules["__main__"].__spec__.name,  # type: ignore[union-attr]
        "sigint": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "stdin": os.readlink("/proc/self/fd/0"),
        "faults": faulthandler.is_enabled(),
        "pythonpath": os.environ.get("PYTHONPATH"),
        "marker": os.environ.get("TROUBLE_MARKER"),
        "pid": os.getpid(),
        "thread": threading.current_thread() is threading.main_thread(),
        "numpy": "numpy" in sys.modules,
    }


def _peer(session: Session, cap: str, value: object, args: Mapping[str, object]) -> object:
    result = session.context.peer.call(cap, value, **args).result()
    return [result.payload, type(result.payload).__name__, result.cartridge_id]


def _peer_events(session: Session, cap: str, value: object) -> object:
    return [
        [type(event).__name__, getattr(event, "message", None), getattr(event, "payload", None)]
        for event in session.context.peer.call(cap, value)
    ]


def _peer_left(session: Session, cap: str) -> object:
    """Begin a peer call, take one event, and leave it."""
    return type(next(iter(session.context.peer.call(cap)))).__name__


_kept: list[object] = []


def _peer_kept(session: Session, cap: str) -> object:
    """Begin a peer call, take one event, and keep it."""
    call = session.context.peer.call(cap)
    _kept.append(call)
    return type(next(iter(call))).__name__


def _peer_caught(session: Session, cap: str) -> object:
    try:
        session.context.peer.call(cap).result()
    except errors.CartridgeError as exc:
        return [type(exc).__name__, str(exc)]
    return None


def _uncrossable(session: Session) -> object:
    return {"texts": ["fine", Uncrossable()]}


def _array(session: Session, value: object) -> object:
    return {"twice": value * 2, "same": value}  # type: ignore[operator]


_VERBS: Mapping[str, Callable[..., object]] = {
    name.removeprefix("_"): item
    for name, item in list(globals().items())
    if name[0] == "_" and name[1] != "_" and callable(item)
}
