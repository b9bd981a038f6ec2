"""The fakes of `cartridge_core.testing` as one module, so that a process can import them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cartridge_core.hookspecs import hookimpl
from cartridge_core.testing.fakes import BatchEcho, SegmentingEcho, SlowCounter, StreamingEcho

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack
    from cartridge_core.reports import PreflightReport
    from cartridge_core.results import Result
    from cartridge_core.testing.fakes import FakeHandle, FakeSession

_BATCH = {fake.descriptor.id: fake for fake in (BatchEcho(), SlowCounter())}
_STREAMING = {fake.descriptor.id: fake for fake in (StreamingEcho(), SegmentingEcho())}
_ALL = {**_BATCH, **_STREAMING}
DESCRIPTORS = tuple(fake.descriptor for fake in _ALL.values())


@hookimpl
def cartridge_descriptors() -> Sequence[Descriptor]:
    return DESCRIPTORS


@hookimpl
def cartridge_preflight(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
) -> PreflightReport:
    return _ALL[cartridge_id].cartridge_preflight(cartridge_id, pack, options)


@hookimpl
def cartridge_open(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object], context: Context
) -> FakeHandle:
    return _ALL[cartridge_id].cartridge_open(cartridge_id, pack, options, context)


@hookimpl
def cartridge_close(handle: FakeHandle) -> None:
    _ALL[handle.cartridge_id].cartridge_close(handle)


@hookimpl
def cartridge_session_begin(
    handle: FakeHandle, cap: str, parameters: Mapping[str, object], context: Context
) -> FakeSession:
    return _ALL[handle.cartridge_id].cartridge_session_begin(handle, cap, parameters, context)


@hookimpl
def cartridge_session_end(session: FakeSession) -> None:
    _ALL[session.handle.cartridge_id].cartridge_session_end(session)


@hookimpl
def cartridge_infer(session: FakeSession, value: object) -> Result:
    return _BATCH[session.handle.cartridge_id].cartridge_infer(session, value)


@hookimpl
def cartridge_push(session: FakeSession, chunk: object) -> None:
    _STREAMING[session.handle.cartridge_id].cartridge_push(session, chunk)


@hookimpl
def cartridge_pull(session: FakeSession) -> Result | None:
    return _STREAMING[session.handle.cartridge_id].cartridge_pull(session)


@hookimpl
def cartridge_flush(session: FakeSession) -> None:
    _STREAMING[session.handle.cartridge_id].cartridge_flush(session)
