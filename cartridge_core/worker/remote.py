"""A plugin in another process, with the hooks of one in this."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.hookspecs import hookimpl
from cartridge_core.packing import MalformedError
from cartridge_core.reports import PreflightReport
from cartridge_core.worker.plain import from_plain, unpack_result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack
    from cartridge_core.results import Result
    from cartridge_core.worker.client import Worker

__all__ = ["RemotePlugin", "remote_plugin"]

_OPEN_NAMES = ("number", "cartridge_id", "pack", "options")
_BEGIN_NAMES = ("number", "handle", "cap", "parameters", "offline")
_ONCE_NAMES = (*_BEGIN_NAMES, "value")


@attrs.define(eq=False)
class _Once:
    """
    A session for one input alone, which begins and ends in the process along with it.

    A process that is asked once has to wake up once.
    """

    handle: int
    cap: str
    parameters: Mapping[str, object]
    context: Context
    number: int = 0


def remote_plugin(
    worker: Worker, descriptors: Sequence[Descriptor], *, has_cancel: bool, is_watched: bool
) -> RemotePlugin:
    """
    Give a plugin that a worker has.

    Args:
        worker: Where it is.
        descriptors: What it offers, as the worker has checked.
        has_cancel: Whether it has a hook for `cartridge_cancel`.
        is_watched: Whether wrappers see its hooks, so that each must do its own part.
    """
    kind = _RemotePluginWithCancel if has_cancel else RemotePlugin
    return kind(worker, descriptors, is_watched=is_watched)


class RemotePlugin:
    """Sends every hook to a worker; handles and sessions are ints."""

    def __init__(
        self, worker: Worker, descriptors: Sequence[Descriptor], *, is_watched: bool
    ) -> None:
        self._worker = worker
        self._is_watched = is_watched
        self._descriptors = tuple(descriptors)

    @hookimpl
    def cartridge_descriptors(self) -> Sequence[Descriptor]:
        """Give what it offers."""
        return self._descriptors

    @hookimpl
    def cartridge_preflight(
        self, cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
    ) -> PreflightReport:
        """Have it look at the machine from its process."""
        values = [cartridge_id, _path(pack), options]
        return self._worker.ask("preflight", values, _report, names=_OPEN_NAMES[1:])

    @hookimpl
    def cartridge_open(
        self,
        cartridge_id: str,
        pack: Pack | None,
        options: Mapping[str, object],
        context: Context,
    ) -> int:
        """Have it load there."""
        held = self._worker.hold(context)
        try:
            values = [held.number, cartridge_id, _path(pack), options, context.offline]
            self._worker.ask("open", values, _nothing, names=_OPEN_NAMES, held=held, undo="close")
        finally:
            self._worker.let_go(held)
        return held.number

    @hookimpl
    def cartridge_close(self, handle: int) -> None:
        """Have it unload; one whose process is gone is unloaded."""
        if self._worker.is_alive:
            self._worker.ask("close", [handle], _nothing)

    @hookimpl
    def cartridge_session_begin(
        self, handle: int, cap: str, parameters: Mapping[str, object], context: Context
    ) -> int | _Once:
        """Begin a session there; where nobody looks on, one for one input is put off."""
        if context.once and not self._is_watched:
            return _Once(handle, cap, parameters, context)
        held = self._worker.hold(context)
        values = [held.number, handle, cap, parameters, context.offline]
        try:
            self._worker.ask(
                "session_begin",
                values,
                _nothing,
                names=_BEGIN_NAMES,
                held=held,
                undo="session_end",
            )
        except BaseException:
            self._worker.let_go(held)
            raise
        return held.number

    @hookimpl
    def cartridge_session_end(self, session: int | _Once) -> None:
        """End it there; one whose process is gone has ended."""
        if isinstance(session, _Once):
            return
        held = self._worker.held(session)
        try:
            if held is not None and held.owed:
                held.cancel()  # or its end would wait for what nobody wants any more
            if self._worker.is_alive:
                self._worker.ask("session_end", [session], _nothing, held=held)
        finally:
            self._worker.let_go(held)

    @hookimpl
    def cartridge_infer(self, session: int | _Once, value: object) -> Result:
        """Have it infer."""
        if isinstance(session, _Once):
            return self._infer_once(session, value)
        held = self._worker.held(session)
        return self._worker.ask(
            "infer", [session, value], unpack_result, names=("session", "value"), held=held
        )

    def _infer_once(self, session: _Once, value: object) -> Result:
        context = session.context
        held = self._worker.hold(context)
        session.number = number = held.number
        values = [number, session.handle, session.cap, session.parameters, context.offline, value]
        try:
            return self._worker.ask("infer_once", values, unpack_result, _ONCE_NAMES, held)
        finally:
            self._worker.let_go(held)

    @hookimpl
    def cartridge_push(self, session: int, chunk: object) -> None:
        """Give it a chunk."""
        held = self._worker.held(session)
        self._worker.ask("push", [session, chunk], _nothing, names=("session", "chunk"), held=held)

    @hookimpl
    def cartridge_pull(self, session: int) -> Result | None:
        """Have it work, and take what it gives."""
        held = self._worker.held(session)
        if held is None:
            return self._worker.ask("pull", [session, 1], _result_or_none)
        return self._worker.pull(held, _result_or_none)

    @hookimpl
    def cartridge_flush(self, session: int) -> None:
        """Tell it that there is no more input."""
        held = self._worker.held(session)
        self._worker.ask("flush", [session], _nothing, held=held)
        if held is not None:
            held.is_flushed = True


class _RemotePluginWithCancel(RemotePlugin):
    @hookimpl
    def cartridge_cancel(self, session: int | _Once) -> None:
        """Have it called there, and do not wait for it: the process may hang."""
        number = session.number if isinstance(session, _Once) else session
        self._worker.tell("cancel_hook", number)


def _path(pack: Pack | None) -> str | None:
    return None if pack is None else str(pack.path)


def _nothing(values: list[object]) -> None:
    if values:
        msg = f"{str(values)[:60]!a} where nothing is expected"
        raise MalformedError(msg)


def _report(values: list[object]) -> PreflightReport:
    match values:
        case [report]:
            return cast("PreflightReport", from_plain(PreflightReport, report))
    msg = f"{str(values)[:60]!a} where a report is expected"
    raise MalformedError(msg)


def _result_or_none(values: list[object]) -> Result | None:
    return unpack_result(values) if values else None
