"""The hooks: each hands over to the module that does the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cartridge_core.descriptor import Descriptor, read_descriptors
from cartridge_core.hookspecs import hookimpl
from cartridge_models.preflight import preflight
from cartridge_models.session import Session, begin
from cartridge_models.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cartridge_core.context import Context
    from cartridge_core.pack import Pack
    from cartridge_core.reports import PreflightReport
    from cartridge_core.results import Result


@hookimpl
def cartridge_descriptors() -> Sequence[Descriptor]:
    """Give the descriptors that lie beside this file."""
    return read_descriptors(Path(__file__).parent / "descriptors")


@hookimpl
def cartridge_preflight(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
) -> PreflightReport:
    """Check what fetching needs."""
    del cartridge_id, pack, options
    return preflight()


@hookimpl
def cartridge_open(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object], context: Context
) -> Store:
    """Open the store; nothing is loaded."""
    del cartridge_id, pack, options, context
    return Store()


@hookimpl
def cartridge_close(handle: Store) -> None:
    """Close the store; there is nothing to unload."""
    del handle


@hookimpl
def cartridge_session_begin(
    handle: Store, cap: str, parameters: Mapping[str, object], context: Context
) -> Session:
    """Begin a session for one cap."""
    del parameters
    return begin(handle, cap, context)


@hookimpl
def cartridge_session_end(session: Session) -> None:
    """End a session; it holds nothing."""
    del session


@hookimpl
def cartridge_infer(session: Session, value: object) -> Result:
    """Answer for one model spec."""
    return session.infer(value)
