"""The hooks of cartridge-whisper; what they do is in the module of each cartridge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from cartridge_core.descriptor import read_descriptors
from cartridge_core.errors import InvalidArgumentError
from cartridge_core.hookspecs import hookimpl
from cartridge_whisper import preflight
from cartridge_whisper.model import SpeechModel
from cartridge_whisper.streams import StreamModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack
    from cartridge_core.reports import PreflightReport
    from cartridge_core.results import Result
    from cartridge_whisper.sessions import BatchSession, Handle, Session, StreamSession

OPENERS: Mapping[str, Callable[[Pack, Mapping[str, object], Context], Handle]] = {
    "whisper-streaming-transcription": StreamModel.open,
    "whisper-transcription": SpeechModel.open,
}


@hookimpl
def cartridge_descriptors() -> Sequence[Descriptor]:
    """Give what ``descriptors/`` holds."""
    return read_descriptors(Path(__file__).parent / "descriptors")


@hookimpl
def cartridge_preflight(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
) -> PreflightReport:
    """Check the backend, the device and the files; estimate the memory."""
    descriptor = next(item for item in cartridge_descriptors() if item.id == cartridge_id)
    return preflight.check(descriptor, pack, options)


@hookimpl
def cartridge_open(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object], context: Context
) -> Handle:
    """Open one of the cartridges on a pack."""
    if pack is None:
        msg = "model_spec: the cartridge needs a model, and none was given"
        raise InvalidArgumentError(msg, arg="model_spec", rule="a model")
    return OPENERS[cartridge_id](pack, options, context)


@hookimpl
def cartridge_close(handle: Handle) -> None:
    """Let go of the model."""
    handle.close()


@hookimpl
def cartridge_session_begin(
    handle: Handle, cap: str, parameters: Mapping[str, object], context: Context
) -> Session:
    """Begin a session of one of the cartridge's caps."""
    return handle.begin(cap, parameters, context)


@hookimpl
def cartridge_session_end(session: Session) -> None:
    """End a session; it holds nothing."""
    del session


@hookimpl
def cartridge_infer(session: Session, value: object) -> Result:
    """Take one whole input; the host calls it for batch sessions alone."""
    return cast("BatchSession", session).infer(value)


@hookimpl
def cartridge_push(session: Session, chunk: object) -> None:
    """Take one chunk; the host calls it, and the two below, for streaming sessions alone."""
    cast("StreamSession", session).push(chunk)


@hookimpl
def cartridge_pull(session: Session) -> Result | None:
    """Work, and give the next result."""
    return cast("StreamSession", session).pull()


@hookimpl
def cartridge_flush(session: Session) -> None:
    """Take no more."""
    cast("StreamSession", session).flush()
