"""A plugin in another process, with the hooks of one in this."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

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
_BEGIN_NAMES = ("number", "handle", "cap", "parameters")


def remote_plugin(
    worker: Worker, descriptors: Sequence[Descriptor], *, has_cancel: bool
) -> RemotePlugin:
    """
    Give a plugin that a worker has.

    Args:
        worker: Where it is.
        descriptors: What it offers, as the worker has checked.
        has_cancel: Whether it has a hook for `cartridge_cancel`.
    """
    kind = _RemotePluginWithCancel if has_cancel else RemotePlugin
    return kind(worker, descriptors)


class RemotePlugin:
    """Sends every hook to a worker; handles and sessions are ints."""

    def __init__(self, worker: Worker, descriptors: Sequence[Descriptor]) -> None:
        self._worker = worker
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
    ) -> int:
        """Begin a session there."""
        held = self._worker.hold(context)
        try:
            values = [held.number, handle, cap, parameters, context.offline]
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
    def cartridge_session_end(self, session: int) -> None:
        """End it there; one whose process is gone has ended."""
        held = self._worker.held(session)
        try:
            if self._worker.is_alive:
                self._worker.ask("session_end", [session], _nothing, held=held)
        finally:
            self._worker.let_go(held)

    @hookimpl
    def cartridge_infer(self, session: int, value: object) -> Result:
        """Have it infer."""
        held = self._worker.held(session)
        return self._worker.ask(
            "infer", [session, value], _result, names=("session", "value"), held=held
        )

    @hookimpl
    def cartridge_push(self, session: int, chunk: object) -> None:
        """Give it a chunk."""
        held = self._worker.held(session)
        self._worker.ask("push", [session, chunk], _nothing, names=("session", "chunk"), held=held)

    @hookimpl
    def cartridge_pull(self, session: int) -> Result | None:
        """Have it work, and take what it gives."""
        held = self._worker.held(session)
        return self._worker.ask("pull", [session], _result_or_none, held=held)

    @hookimpl
    def cartridge_flush(self, session: int) -> None:
        """Tell it that there is no more input."""
        self._worker.ask("flush", [session], _nothing, held=self._worker.held(session))


class _RemotePluginWithCancel(RemotePlugin):
    @hookimpl
    def cartridge_cancel(self, session: int) -> None:
        """Have it called there, and do not wait for it: the process may hang."""
        self._worker.tell("cancel_hook", session)


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


def _result(values: list[object]) -> Result:
    return unpack_result(values)


def _result_or_none(values: list[object]) -> Result | None:
    return unpack_result(values) if values else None
