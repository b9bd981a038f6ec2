"""The hooks of cartridge-native; what they do is in `model` and `sessions`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cartridge_core.hookspecs import hookimpl
from cartridge_native import model
from cartridge_native.model import Model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack
    from cartridge_core.reports import PreflightReport
    from cartridge_core.results import Result
    from cartridge_native.sessions import Session


@hookimpl
def cartridge_descriptors() -> Sequence[Descriptor]:
    """Give none: every cartridge of this plugin is a pack."""
    return ()


@hookimpl
def cartridge_preflight(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
) -> PreflightReport:
    """Load the library, and have it look at the machine."""
    del cartridge_id, options
    return model.preflight(pack)


@hookimpl
def cartridge_open(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object], context: Context
) -> Model:
    """Open a pack."""
    del cartridge_id, options, context
    return Model.open(pack)


@hookimpl
def cartridge_close(handle: Model) -> None:
    """Close it."""
    handle.close()


@hookimpl
def cartridge_session_begin(
    handle: Model, cap: str, parameters: Mapping[str, object], context: Context
) -> Session:
    """Begin a session; it has no context, and its progress is the host's."""
    del parameters, context
    return handle.begin(cap)


@hookimpl
def cartridge_session_end(session: Session) -> None:
    """End it."""
    session.end()


@hookimpl
def cartridge_infer(session: Session, value: object) -> Result:
    """Take one whole input."""
    return session.infer(value)


@hookimpl
def cartridge_push(session: Session, chunk: object) -> None:
    """Take one chunk."""
    session.push(chunk)


@hookimpl
def cartridge_pull(session: Session) -> Result | None:
    """Work, and give the next result."""
    return session.pull()


@hookimpl
def cartridge_flush(session: Session) -> None:
    """Take no more."""
    session.flush()


@hookimpl
def cartridge_cancel(session: Session) -> None:
    """Stop the call that is inside."""
    session.cancel()
