"""The hooks of cartridge-torch; what they do is in `preflight`, `model` and `session`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cartridge_core.descriptor import read_descriptors
from cartridge_core.hookspecs import hookimpl
from cartridge_torch import preflight, session
from cartridge_torch.model import LoadOptions, Model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack
    from cartridge_core.reports import PreflightReport
    from cartridge_core.results import Result
    from cartridge_torch.session import Session


@hookimpl
def cartridge_descriptors() -> Sequence[Descriptor]:
    """Give what ``descriptors/`` holds."""
    return read_descriptors(Path(__file__).parent / "descriptors")


@hookimpl
def cartridge_preflight(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
) -> PreflightReport:
    """Check the backend, the device and the dtype; estimate the memory from the pack."""
    descriptor = next(item for item in cartridge_descriptors() if item.id == cartridge_id)
    return preflight.check(descriptor, pack, LoadOptions.read(options))


@hookimpl
def cartridge_open(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object], context: Context
) -> Model:
    """Load the pack's model."""
    del cartridge_id
    return Model.open(pack, LoadOptions.read(options), context)


@hookimpl
def cartridge_close(handle: Model) -> None:
    """Let go of the model."""
    handle.close()


@hookimpl
def cartridge_session_begin(
    handle: Model, cap: str, parameters: Mapping[str, object], context: Context
) -> Session:
    """Begin a session of one of the two caps."""
    return session.begin(handle, cap, parameters, context)


@hookimpl
def cartridge_session_end(session: Session) -> None:
    """End a session; it holds nothing of its own."""
    del session


@hookimpl
def cartridge_infer(session: Session, value: object) -> Result:
    """Embed, or give the dimension."""
    return session.infer(value)
