"""A plugin in another process, with the hooks of one in this."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, cast

from cartridge_core.errors import ActivityTimeoutError, CartridgeDiedError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.packing import MalformedError
from cartridge_core.reports import PreflightReport
from cartridge_core.worker.plain import from_plain, unpack_result

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack
    from cartridge_core.results import Result
    from cartridge_core.worker.client import Worker

__all__ = ["RemotePlugin", "remote_plugin"]

_OPEN_NAMES = ("number", "cartridge_id", "pack", "options")
_BEGIN_NAMES = ("number", "handle", "cap", "parameters", "offline")
_ONCE_NAMES = (*_BEGIN_NAMES, "value")


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
            with self._limited(cartridge_id, pack, context):
                self._worker.ask(
                    "open", values, _nothing, names=_OPEN_NAMES, held=held, undo="close"
                )
        finally:
            self._worker.let_go(held)
        return held.number

    @contextlib.contextmanager
    def _limited(self, cartridge_id: str, pack: Pack | None, context: Context) -> Iterator[None]:
        """End the process where a load by hand takes too long: no call's clock counts it."""
        if context.activity is not None:
            yield
            return
        own = None if pack is None else pack.descriptor
        limit_s = (own or self._descriptor(cartridge_id)).load_timeout_s
        why = f"loading {cartridge_id} has not ended within its limit of {limit_s:g} s"
        timer = threading.Timer(limit_s, self._worker.kill, [why])
        timer.daemon = True
        timer.start()
        try:
            yield
        except CartridgeDiedError as exc:
            if why not in str(exc):
                raise
            msg = f"{why}; where that is too early, the cartridge has to allow itself more"
            raise ActivityTimeoutError(msg) from exc
        finally:
            timer.cancel()

    def _descriptor(self, cartridge_id: str) -> Descriptor:
        return next(one for one in self._descriptors if one.id == cartridge_id)

    @hookimpl
    def cartridge_close(self, handle: int) -> None:
        """Have it unload; one whose process is gone is unloaded."""
        if self._worker.is_alive:
            self._worker.ask("close", [handle], _nothing)

    @hookimpl
    def cartridge_session_begin(
        self, handle: int, cap: str, parameters: Mapping[str, object], context: Context
    ) -> int:
        """
        Begin a session there.

        Where it is for one input alone, and nobody looks on, this goes along with the input: a
        process that is asked once has to wake up once.
        """
        held = self._worker.hold(context)
        values = [held.number, handle, cap, parameters, context.offline]
        if context.once and not self._is_watched:
            held.put_off = values
            return held.number
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
    def cartridge_session_end(self, session: int) -> None:
        """End it there; one whose process is gone has ended."""
        held = self._worker.held(session)
        try:
            if held is not None and held.owed:
                held.cancel()  # or its end would wait for what nobody wants any more
            has_begun = held is None or not (held.put_off or held.is_ended)
            if has_begun and self._worker.is_alive:
                self._worker.ask("session_end", [session], _nothing, held=held)
        finally:
            self._worker.let_go(held)

    @hookimpl
    def cartridge_infer(self, session: int, value: object) -> Result:
        """Have it infer."""
        held = self._worker.held(session)
        if held is not None and held.put_off is not None:
            values, held.put_off, held.is_ended = [*held.put_off, value], None, True
            return self._worker.ask("infer_once", values, _result, names=_ONCE_NAMES, held=held)
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
