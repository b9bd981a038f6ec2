"""The cartridges of `benchmarks.backend` as a module, so that a process can import them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.backend import Answering, Counting
from cartridge_core import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cartridge_core import Context, Descriptor, Pack, PreflightReport, Result
    from cartridge_core.testing.fakes import FakeHandle, FakeSession

_batch, _streaming = Answering(), Counting()
_ALL = {one.descriptor.id: one for one in (_batch, _streaming)}


@hookimpl
def cartridge_descriptors() -> Sequence[Descriptor]:
    """Give both."""
    return [one.descriptor for one in _ALL.values()]


@hookimpl
def cartridge_preflight(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
) -> PreflightReport:
    """Need nothing."""
    return _ALL[cartridge_id].cartridge_preflight(cartridge_id, pack, options)


@hookimpl
def cartridge_open(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object], context: Context
) -> FakeHandle:
    """Load nothing."""
    return _ALL[cartridge_id].cartridge_open(cartridge_id, pack, options, context)


@hookimpl
def cartridge_close(handle: FakeHandle) -> None:
    """Unload nothing."""
    _ALL[handle.cartridge_id].cartridge_close(handle)


@hookimpl
def cartridge_session_begin(
    handle: FakeHandle, cap: str, parameters: Mapping[str, object], context: Context
) -> FakeSession:
    """Begin."""
    return _ALL[handle.cartridge_id].cartridge_session_begin(handle, cap, parameters, context)


@hookimpl
def cartridge_session_end(session: FakeSession) -> None:
    """End."""
    _ALL[session.handle.cartridge_id].cartridge_session_end(session)


@hookimpl
def cartridge_infer(session: FakeSession, value: object) -> Result:
    """Answer."""
    return _batch.cartridge_infer(session, value)


@hookimpl
def cartridge_push(session: FakeSession, chunk: object) -> None:
    """Take the number."""
    _streaming.cartridge_push(session, chunk)


@hookimpl
def cartridge_pull(session: FakeSession) -> Result | None:
    """Give the next piece."""
    return _streaming.cartridge_pull(session)


@hookimpl
def cartridge_flush(session: FakeSession) -> None:
    """Note the end of the input."""
    _streaming.cartridge_flush(session)
