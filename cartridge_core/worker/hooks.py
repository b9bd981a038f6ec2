"""The hooks of a process's plugin, as the host asks for them: values come, and values go."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, TypeAlias, cast

import attrs

from cartridge_core.binding import Binding
from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import AbiMismatchError, LoadError, StateError
from cartridge_core.pack import Pack
from cartridge_core.worker.hosted import HostedContext, PeerCalls
from cartridge_core.worker.logs import forward_logs, set_levels
from cartridge_core.worker.plain import as_plain, pack_result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cartridge_core.packing import Buffer

__all__ = ["Hooks", "Send"]

Send: TypeAlias = "Callable[[list[Buffer]], None]"
"""Sends a frame to the host."""

_Fields: TypeAlias = dict[str, object]
_Opening: TypeAlias = tuple[int, str, object, _Fields, bool]
_Beginning: TypeAlias = tuple[int, int, str, _Fields, bool]

_log = logging.getLogger("cartridge.worker")

_LONG_S = 1.0
"""A hook that takes longer is a sign of life when it returns, where others follow at once."""

_MAX_EARLY = 1000
"""How many cancellations are remembered that came before what they are for, or after."""


@attrs.define(eq=False)
class _Session:
    """A session that runs."""

    own: object
    """The plugin's."""

    context: HostedContext

    cancelling: threading.Lock = attrs.field(factory=threading.Lock)
    """Held while the plugin's hook for cancel works: the session's end waits for that."""


class Hooks:
    """
    One plugin's hooks, and what it has open: loads, handles and sessions, by the host's numbers.

    Args:
        send: Sends what is about no hook.
        peers: The peer calls of this process.

    Attributes:
        name: The plugin's; empty before it is started.
    """

    def __init__(self, send: Send, peers: PeerCalls) -> None:
        self.name = ""
        self._send = send
        self._peers = peers
        self._binding: Binding | None = None
        self._lock = threading.Lock()
        self._contexts: dict[int, HostedContext] = {}
        self._early: deque[int] = deque(maxlen=_MAX_EARLY)
        self._handles: dict[object, object] = {}
        self._sessions: dict[object, _Session] = {}
        self._hooks: Mapping[str, Callable[[Send, list[object]], list[object]]] = {
            "start": self._start,
            "preflight": self._preflight,
            "open": self._open,
            "close": self._close,
            "session_begin": self._begin,
            "session_end": self._end,
            "infer": self._infer,
            "infer_once": self._infer_once,
            "push": self._push,
            "pull": self._pull,
            "flush": self._flush,
        }

    def call(self, kind: str, send: Send, values: list[object]) -> list[object]:
        """
        Call a hook.

        Args:
            kind: Which one.
            send: Sends what is said meanwhile.
            values: What with.

        Returns:
            What it gave.
        """
        return self._hooks[kind](send, values)

    @property
    def _plugin(self) -> Binding:
        if self._binding is None:
            msg = "this process has no plugin yet"
            raise StateError(msg)
        return self._binding

    def _session(self, number: object) -> _Session:
        try:
            return self._sessions[number]
        except KeyError:
            msg = f"session {number} has ended"
            raise StateError(msg) from None

    def _begin_context(self, number: int, send: Send, *, offline: bool) -> HostedContext:
        context = HostedContext(number, send, self._peers, offline=offline)
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

    def _start(self, _: Send, values: list[object]) -> list[object]:
        path, own_path, name, distribution, module, static, offered, found = values
        sys.path[:] = cast("list[str]", path)
        if own_path is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = str(own_path)
        set_levels(cast("dict[str, int]", found))
        forward_logs(self._send)
        self.name = str(name)
        descriptors = [
            Descriptor.from_json(cast("dict[str, object]", one))
            for one in cast("list[object]", static)
        ]
        wanted = [one for one in descriptors if one.id in cast("list[str]", offered)]
        try:
            plugin = importlib.import_module(str(module))
            binding = Binding(self.name, plugin, wanted)
            binding.check_descriptors(descriptors)
        except AbiMismatchError:
            raise
        except BaseException as exc:  # a plugin may raise anything at import, SystemExit too
            why = f"importing {module} failed with {type(exc).__name__}: {exc}"
            msg = f"plugin {name} ({distribution}): {why}"
            raise LoadError(msg) from exc
        self._binding = binding
        return [binding.has_cancel]

    def _preflight(self, _: Send, values: list[object]) -> list[object]:
        cartridge_id, path, options = cast("tuple[str, object, _Fields]", values)
        report = self._plugin.preflight(cartridge_id, _pack(path), options)
        return [as_plain(report)]

    def _open(self, send: Send, values: list[object]) -> list[object]:
        number, cartridge_id, path, options, offline = cast("_Opening", values)
        context = self._begin_context(number, send, offline=offline)
        try:
            self._handles[number] = self._plugin.open(cartridge_id, _pack(path), options, context)
        finally:
            self._end_context(number)
        return []

    def _close(self, _: Send, values: list[object]) -> list[object]:
        self._plugin.close(self._handles.pop(values[0]))
        return []

    def _begin(self, send: Send, values: list[object]) -> list[object]:
        self._begin_session(send, *cast("_Beginning", values))
        return []

    def _begin_session(
        self, send: Send, number: int, handle: int, cap: str, parameters: _Fields, offline: bool
    ) -> _Session:
        context = self._begin_context(number, send, offline=offline)
        try:
            own = self._plugin.session_begin(self._handles[handle], cap, parameters, context)
        except BaseException:
            self._end_context(number)
            raise
        session = self._sessions[number] = _Session(own, context)
        return session

    def _end(self, _: Send, values: list[object]) -> list[object]:
        (number,) = cast("tuple[int]", values)
        self._end_session(number, self._session(number))
        return []

    def _end_session(self, number: int, session: _Session) -> None:
        # What it says from here on goes nowhere; that it is cancelled it still hears.
        session.context.close()
        with session.cancelling:
            del self._sessions[number]
        try:
            self._plugin.session_end(session.own)
        finally:
            del self._contexts[number]

    def _infer(self, _: Send, values: list[object]) -> list[object]:
        number, value = values
        return pack_result(self._plugin.infer(self._session(number).own, value))

    def _infer_once(self, send: Send, values: list[object]) -> list[object]:
        """Begin a session, infer, and end it; a part that takes long is a sign of life."""
        *begin, value = values
        number, *_ = beginning = cast("_Beginning", begin)
        began_s = time.monotonic()
        session = self._begin_session(send, *beginning)
        try:
            began_s = _sign(session.context, began_s)
            result = self._plugin.infer(session.own, value)
            _sign(session.context, began_s)
        finally:
            self._end_session(number, session)
        return pack_result(result)

    def _push(self, _: Send, values: list[object]) -> list[object]:
        number, chunk = values
        self._plugin.push(self._session(number).own, chunk)
        return []

    def _pull(self, _: Send, values: list[object]) -> list[object]:
        session = self._session(values[0])
        # The host, which asks for several, may have cancelled since.
        session.context.check_cancelled()
        result = self._plugin.pull(session.own)
        return [] if result is None else pack_result(result)

    def _flush(self, _: Send, values: list[object]) -> list[object]:
        self._plugin.flush(self._session(values[0]).own)
        return []

    def _call_cancel(self, number: int) -> None:
        session = self._sessions.get(number)
        if session is not None:
            with session.cancelling:
                if number in self._sessions:
                    self._plugin.cancel(session.own)

    def cancel(self, kind: str, number: int) -> None:
        """Have a context, or a session by the plugin's hook, hear that it is cancelled."""
        try:
            if kind == "cancel_hook":
                self._call_cancel(number)
                return
            with self._lock:
                context = self._contexts.get(number)
                if context is None:
                    self._early.append(number)
            if context is not None:
                context.cancel()
        except Exception:  # noqa: BLE001 -- logged; the host does not wait for this
            _log.exception("cancelling failed")


def _sign(context: HostedContext, since_s: float) -> float:
    """Show a sign of life where a hook has taken long; give the time."""
    now_s = time.monotonic()
    if now_s - since_s > _LONG_S:
        context.sign()
    return now_s


def _pack(path: object) -> Pack | None:
    return None if path is None else Pack.from_path(str(path))
