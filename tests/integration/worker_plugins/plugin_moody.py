"""Cartridges that work as their text says: ``<mood>-<number>``; some moods end the process."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

from cartridge_core.errors import BackendError, LoadError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.reports import Check, PreflightReport
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor
from cartridge_core.testing.fakes import BatchEcho, FakeHandle, StreamingEcho

if TYPE_CHECKING:
    from collections.abc import Callable

_STEPS = 20


def behave(mood, context, error):
    """Do what a mood says: within 30 ms, and where it is not deaf within 1 ms of a cancel."""
    if mood == "fail":
        raise error(mood)
    if mood in _DEATHS:
        _DEATHS[mood]()
    for step in range(_STEPS if mood in {"slow", "deaf", "chatty"} else 0):
        if mood == "chatty":
            context.progress(step / _STEPS, "on the way")
            context.log("debug", "still on the way")
        else:
            time.sleep(0.001)
        if mood != "deaf":
            context.check_cancelled()


def _send_garbage():
    """Write to every lane what must not come there, and wait for what comes of it."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}")[:6] == "socket":
                os.write(int(name), b"\x86rubbish" * 100)
    time.sleep(30)


_DEATHS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "abort": os.abort,
    "exit": lambda: os._exit(3),
    "garbage": _send_garbage,
}
DEATHS = tuple(_DEATHS)


class _Moody:
    """Opens as its argument says."""

    memory_bytes = 4
    saw: Callable[[str], None]

    @hookimpl
    def cartridge_preflight(self, cartridge_id, pack, options):
        return PreflightReport((Check("fake", ok=True),), memory_bytes=self.memory_bytes)

    @hookimpl
    def cartridge_open(self, cartridge_id, pack, options, context):
        behave(options.get("load", ""), context, LoadError)
        self.saw("open")
        return FakeHandle(cartridge_id, options)


class Batch(_Moody, BatchEcho):
    """Works as its text says."""

    @hookimpl
    def cartridge_infer(self, session, value):
        behave(str(value).partition("-")[0], session.context, BackendError)
        return Result(ResultKind.FINAL, value)


class Asks(_Moody, BatchEcho):
    """Has another do it."""

    @hookimpl
    def cartridge_infer(self, session, value):
        call = session.context.peer.call("cap:one", value, load=session.handle.options.get("load"))
        return Result(ResultKind.FINAL, call.result().payload)


class Stream(_Moody, StreamingEcho):
    """Works as each of its texts says."""

    @hookimpl
    def cartridge_pull(self, session):
        if session.chunks:
            behave(str(session.chunks[0]).partition("-")[0], session.context, BackendError)
        return super().cartridge_pull(session)


def _make(kind, name, memory_bytes, **attributes):
    batch = kind is not Stream
    load = fake_arg("load", "string", default="", scope="open")
    cap = fake_cap(name, load, gives="media:echo;enc=utf-8", streaming=not batch)
    descriptor = fake_descriptor(
        f"{name}-text",
        "batch" if batch else "streaming",
        [cap],
        partial="append",
        **attributes,
    )
    body = {"plugin_name": name, "descriptor": descriptor, "memory_bytes": memory_bytes}
    return type(kind.__name__, (kind,), body)()


def make_all():
    """Give four cartridges, as plugins of their own."""
    return [
        _make(Batch, "one", 4, max_concurrent_sessions=2),
        _make(Batch, "two", 3, max_concurrent_sessions=1, device_key="gpu"),
        _make(Stream, "three", 3, max_concurrent_sessions=1, device_key="gpu"),
        _make(Asks, "four", 0, max_concurrent_sessions=2),
    ]


_ALL = {one.descriptor.id: one for one in make_all()}


@hookimpl
def cartridge_descriptors():
    return [one.descriptor for one in _ALL.values()]


@hookimpl
def cartridge_preflight(cartridge_id, pack, options):
    return _ALL[cartridge_id].cartridge_preflight(cartridge_id, pack, options)


@hookimpl
def cartridge_open(cartridge_id, pack, options, context):
    return _ALL[cartridge_id].cartridge_open(cartridge_id, pack, options, context)


@hookimpl
def cartridge_close(handle):
    _ALL[handle.cartridge_id].cartridge_close(handle)


@hookimpl
def cartridge_session_begin(handle, cap, parameters, context):
    return _ALL[handle.cartridge_id].cartridge_session_begin(handle, cap, parameters, context)


@hookimpl
def cartridge_session_end(session):
    _ALL[session.handle.cartridge_id].cartridge_session_end(session)


@hookimpl
def cartridge_infer(session, value):
    return _ALL[session.handle.cartridge_id].cartridge_infer(session, value)


@hookimpl
def cartridge_push(session, chunk):
    _ALL[session.handle.cartridge_id].cartridge_push(session, chunk)


@hookimpl
def cartridge_pull(session):
    return _ALL[session.handle.cartridge_id].cartridge_pull(session)


@hookimpl
def cartridge_flush(session):
    _ALL[session.handle.cartridge_id].cartridge_flush(session)
