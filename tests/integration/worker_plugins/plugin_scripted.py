"""Three batch cartridges whose sessions do something in the hooks that their arguments name."""

from __future__ import annotations

import ctypes
import os
import resource
import tempfile
import time
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import attrs

from cartridge_core.context import Context
from cartridge_core.errors import BackendError, InvalidArgumentError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.reports import PreflightReport
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack

_LIMIT = {"metadata": {"activity_timeout_secs": "2"}}


def _cap(name: str, more: Mapping[str, object] = MappingProxyType({})) -> Mapping[str, object]:
    session = (fake_arg("at", "string"), fake_arg("does", "string"))
    return {**fake_cap(name, *session, fake_arg("load", "string", scope="open")), **more}


_ALL = (
    # One cartridge with two caps, so that a call with a limit finds the process there.
    fake_descriptor("scripted-one", caps=[_cap("one"), _cap("limited", _LIMIT)]),
    fake_descriptor("scripted-two", caps=[_cap("two")]),
    fake_descriptor("scripted-brief", caps=[_cap("brief")], load_timeout_s=1),
)

_hooks: list[str] = []


@attrs.define(eq=False)
class Session:
    context: Context
    parameters: Mapping[str, object]

    is_in_cancel: bool = False

    def enter(self, hook: str) -> None:
        _hooks.append(hook)
        if self.is_in_cancel:
            _hooks.append(f"{hook} during cancel")
        if hook not in str(self.parameters.get("at")).split():
            return
        if self.parameters["does"] == "linger":
            self.linger()
        else:
            do(str(self.parameters["does"]), self.context)

    def linger(self) -> None:
        """Return as soon as the hook for cancel is at work."""
        end_s = time.monotonic() + 30
        while not self.is_in_cancel and time.monotonic() < end_s:
            time.sleep(0.005)


def do(what: str, context: Context) -> None:
    name, _, seconds = what.partition(" ")
    _VERBS[name](context, float(seconds or 0))


def _refuse(context: Context, seconds: float) -> None:
    msg = "no"
    raise InvalidArgumentError(msg, arg="a", value=[1], rule="r")


def _fail(context: Context, seconds: float) -> None:
    cause = RuntimeError("deep inside")
    msg = "it failed"
    raise BackendError(msg) from cause


def _value(context: Context, seconds: float) -> None:
    raise ValueError(1, 2)


def _exit(context: Context, seconds: float) -> None:
    raise SystemExit(3)


def _work(context: Context, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        context.check_cancelled()
        time.sleep(0.005)


def _write(context: Context, megabytes: float) -> None:
    """Write a file that the system allows half of."""
    half = int(megabytes * 2**19)
    _allow(resource.RLIMIT_FSIZE, half)
    with tempfile.TemporaryFile() as file:
        file.write(bytes(2 * half))


def _grow(context: Context, megabytes: float) -> None:
    """Take memory that the system allows half of."""
    half = int(megabytes * 2**19)
    _allow(resource.RLIMIT_AS, _size_bytes() + half)
    bytearray(2 * half)


def _starve(context: Context, seconds: float) -> None:
    """Have all memory that is left taken: no thread can start then."""
    _allow(resource.RLIMIT_AS, _size_bytes() + 2**20)


def _allow(what: int, limit: int) -> None:
    resource.setrlimit(what, (limit, resource.getrlimit(what)[1]))


def _size_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


_VERBS: Mapping[str, Callable[[Context, float], None]] = {
    "refuse": _refuse,
    "fail": _fail,
    "value": _value,
    "exit": _exit,
    "work": _work,
    "write": _write,
    "grow": _grow,
    "starve": _starve,
    "sleep": lambda _, seconds: time.sleep(seconds),
    # In C, and holding Python's lock.
    "hang": lambda _, seconds: ctypes.PyDLL(None).sleep(int(seconds)),
    "die": lambda _, seconds: os._exit(3),
}


@hookimpl
def cartridge_descriptors() -> Sequence[Descriptor]:
    return _ALL


@hookimpl
def cartridge_preflight(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
) -> PreflightReport:
    load = str(options.get("load"))
    if load.startswith("preflight "):
        do(load.removeprefix("preflight "), Context())
    return PreflightReport((), memory_bytes=0)


@hookimpl
def cartridge_open(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object], context: Context
) -> str:
    load = str(options.get("load", ""))
    if load.startswith("once "):
        began = Path(load.removeprefix("once "))
        if not began.exists():
            began.touch()
            do("work 60", context)
    elif load and not load.startswith("preflight "):
        do(load, context)
    return cartridge_id


@hookimpl
def cartridge_close(handle: str) -> None:
    pass


@hookimpl
def cartridge_session_begin(
    handle: str, cap: str, parameters: Mapping[str, object], context: Context
) -> Session:
    session = Session(context, parameters)
    session.enter("begin")
    return session


@hookimpl
def cartridge_session_end(session: Session) -> None:
    session.enter("end")


@hookimpl
def cartridge_cancel(session: Session) -> None:
    session.is_in_cancel = True
    time.sleep(0.3)
    session.is_in_cancel = False


@hookimpl
def cartridge_infer(session: Session, value: object) -> Result:
    """Give the text, and the hooks of sessions since the last time, if that is the text."""
    session.enter("infer")
    if value == "hooks":
        seen, _hooks[:] = list(_hooks), []
        return Result(ResultKind.FINAL, seen)
    return Result(ResultKind.FINAL, value)
