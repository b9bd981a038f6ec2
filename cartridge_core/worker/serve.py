"""The process's side of the line: calls the plugin's hooks for the host."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import sys
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, cast

from cartridge_core.binding import Binding
from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import (
    AbiMismatchError,
    BackendError,
    InvalidArgumentError,
    LoadError,
    StateError,
)
from cartridge_core.pack import Pack
from cartridge_core.threads import HostThreads
from cartridge_core.wire import Receiver, encode
from cartridge_core.worker.errors_on_wire import encode_error
from cartridge_core.worker.hosted import HostedContext, PeerCalls
from cartridge_core.worker.line import Line, send_frame
from cartridge_core.worker.logs import forward_logs, log_to, set_levels
from cartridge_core.worker.plain import as_plain, pack_result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cartridge_core.packing import Buffer
    from cartridge_core.wire import Frame

__all__ = ["Server"]

_log = logging.getLogger("cartridge.worker")


class _Lane:
    """One lane, as its thread and the plugin's own threads use it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()
        self.receive = Receiver(sock.recv_into).receive

    def send(self, frame: list[Buffer]) -> None:
        """Send a frame; once the host is gone nothing is sent."""
        with self._sending:
            try:
                send_frame(self._sock, frame)
            except OSError:
                return

    def close(self) -> None:
        """Close it, so that the host does not wait for what will not come."""
        self._sock.close()


_RESULT = ("kind", "payload", "segment", "start_s", "end_s", "cartridge_id")

_MAX_EARLY = 1000
"""How many cancellations are remembered that came before what they are for, or after."""


class Server:
    """
    Serves one plugin to the host, until that hangs up.

    Every lane has a thread, which calls the hooks it is asked for. The main thread takes what comes
    over the line.

    Args:
        sock: The line.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._files: deque[int] = deque()
        self._line = Line(sock, self._files)
        self._threads = HostThreads()
        self._peers = PeerCalls(self._line.send)
        self._active: set[int] = set()
        self._name = ""
        self._binding: Binding | None = None
        self._lock = threading.Lock()
        self._contexts: dict[int, HostedContext] = {}
        self._early: deque[int] = deque(maxlen=_MAX_EARLY)
        self._handles: dict[object, object] = {}
        self._sessions: dict[object, object] = {}
        self._hooks: Mapping[str, Callable[[_Lane, list[object]], list[object]]] = {
            "start": self._start,
            "preflight": self._preflight,
            "open": self._open,
            "close": self._close,
            "session_begin": self._begin,
            "session_end": self._end,
            "infer": self._infer,
            "push": self._push,
            "pull": self._pull,
            "flush": self._flush,
        }

    def run(self) -> bool:
        """
        Serve until the host hangs up; on the main thread.

        Returns:
            Whether nothing is left running.
        """
        with contextlib.suppress(EOFError, OSError):
            while True:
                for frame in self._line.receive():
                    self._take(frame)
        return not self._active

    def _take(self, frame: Frame) -> None:
        kind, number, values = frame
        if kind == "lane":
            lane = _Lane(socket.socket(fileno=self._files.popleft()))
            threading.Thread(target=self._serve, args=(lane,), daemon=True).start()
        elif kind == "ping":
            self._line.send(encode("pong", number))
        elif kind == "peer":
            self._peers.take(number, values)
        elif kind == "levels":
            set_levels(cast("dict[str, int]", values[0]))
        elif kind in {"cancel", "cancel_hook"}:
            # What a plugin does then may take long.
            self._threads.run(partial(self._cancel, kind, number))

    def _serve(self, lane: _Lane) -> None:
        """Call the hooks that are asked for over a lane."""
        log_to(lane.send)
        with contextlib.closing(lane), contextlib.suppress(EOFError, OSError):
            while True:
                for frame in lane.receive():
                    lane.send(self._answer_to(lane, frame))

    def _answer_to(self, lane: _Lane, frame: Frame) -> list[Buffer]:
        kind, number, values = frame
        self._active.add(number)
        try:
            given = self._hooks[kind](lane, values)
        except BaseException as exc:  # noqa: BLE001 -- raised again in the host
            return encode_error("failed", number, [], exc, trace=True)
        finally:
            self._active.discard(number)
        try:
            return encode("done", number, given, _RESULT)
        except (InvalidArgumentError, MemoryError) as exc:
            why = str(exc) or "size is beyond this machine's memory"
            msg = f"plugin {self._name}: cartridge_{kind} gave a result whose {why}"
            return encode_error("failed", number, [], BackendError(msg), trace=False)

    @property
    def _plugin(self) -> Binding:
        if self._binding is None:
            msg = "this process has no plugin yet"
            raise StateError(msg)
        return self._binding

    def _session(self, number: object) -> object:
        try:
            return self._sessions[number]
        except KeyError:
            msg = f"session {number} has ended"
            raise StateError(msg) from None

    def _begin_context(self, number: int, lane: _Lane, *, offline: bool) -> HostedContext:
        context = HostedContext(number, lane.send, self._peers, offline=offline)
        with self._lock:
            self._contexts[number] = context
            is_cancelled = number in self._early
        if is_cancelled:
            context.cancel()
        return context

    def _end_context(self, number: int) -> None:
        context = self._contexts.pop(number, None)
        if context is not None:
            context.close()

    def _start(self, _: _Lane, values: list[object]) -> list[object]:
        path, own_path, name, distribution, module, static, offered, found = values
        sys.path[:] = cast("list[str]", path)
        if own_path is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = str(own_path)
        set_levels(cast("dict[str, int]", found))
        forward_logs(self._line.send)
        self._name = str(name)
        descriptors = [
            Descriptor.from_json(cast("dict[str, object]", one))
            for one in cast("list[object]", static)
        ]
        wanted = [one for one in descriptors if one.id in cast("list[str]", offered)]
        try:
            plugin = importlib.import_module(str(module))
            binding = Binding(self._name, plugin, wanted)
            binding.check_descriptors(descriptors)
        except AbiMismatchError:
            raise
        except BaseException as exc:  # a plugin may raise anything at import, SystemExit too
            why = f"importing {module} failed with {type(exc).__name__}: {exc}"
            msg = f"plugin {name} ({distribution}): {why}"
            raise LoadError(msg) from exc
        self._binding = binding
        return [binding.has_cancel]

    def _preflight(self, _: _Lane, values: list[object]) -> list[object]:
        cartridge_id, path, options = values
        report = self._plugin.preflight(str(cartridge_id), _pack(path), _fields(options))
        return [as_plain(report)]

    def _open(self, lane: _Lane, values: list[object]) -> list[object]:
        number, cartridge_id, path, options, offline = values
        context = self._begin_context(_int(number), lane, offline=bool(offline))
        try:
            self._handles[number] = self._plugin.open(
                str(cartridge_id), _pack(path), _fields(options), context
            )
        finally:
            self._end_context(_int(number))
        return []

    def _close(self, _: _Lane, values: list[object]) -> list[object]:
        self._plugin.close(self._handles.pop(values[0]))
        return []

    def _begin(self, lane: _Lane, values: list[object]) -> list[object]:
        number, handle, cap, parameters, offline = values
        context = self._begin_context(_int(number), lane, offline=bool(offline))
        try:
            self._sessions[number] = self._plugin.session_begin(
                self._handles[handle], str(cap), _fields(parameters), context
            )
        except BaseException:
            self._end_context(_int(number))
            raise
        return []

    def _end(self, _: _Lane, values: list[object]) -> list[object]:
        session = self._session(values[0])
        self._end_context(_int(values[0]))
        try:
            self._plugin.session_end(session)
        finally:
            del self._sessions[values[0]]
        return []

    def _infer(self, _: _Lane, values: list[object]) -> list[object]:
        number, value = values
        return pack_result(self._plugin.infer(self._session(number), value))

    def _push(self, _: _Lane, values: list[object]) -> list[object]:
        number, chunk = values
        self._plugin.push(self._session(number), chunk)
        return []

    def _pull(self, _: _Lane, values: list[object]) -> list[object]:
        result = self._plugin.pull(self._session(values[0]))
        return [] if result is None else pack_result(result)

    def _flush(self, _: _Lane, values: list[object]) -> list[object]:
        self._plugin.flush(self._session(values[0]))
        return []

    def _cancel(self, kind: str, number: int) -> None:
        try:
            if kind == "cancel_hook":
                session = self._sessions.get(number)
                if session is not None:
                    self._plugin.cancel(session)
                return
            with self._lock:
                context = self._contexts.get(number)
                if context is None:
                    self._early.append(number)
            if context is not None:
                context.cancel()
        except Exception:  # noqa: BLE001 -- logged; the host does not wait for this
            _log.exception("cancelling failed")


def _pack(path: object) -> Pack | None:
    return None if path is None else Pack.from_path(str(path))


def _fields(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value)


def _int(value: object) -> int:
    return cast("int", value)
