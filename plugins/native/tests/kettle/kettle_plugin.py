"""The plugin ``kettle``, which the tests install on a path of their own and export."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from cartridge_core.descriptor import read_descriptors
from cartridge_core.errors import BackendError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.reports import Check, PreflightReport
from cartridge_core.results import Result, ResultKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack

if "KETTLE_IS_BROKEN" in os.environ:
    msg = "the kettle has no lid"
    raise ImportError(msg)


@attrs.define(eq=False)
class Session:
    """One session."""

    cartridge_id: str
    options: Mapping[str, object]
    parameters: Mapping[str, object]
    context: Context
    waiting: list[Result] = attrs.field(factory=list)
    text: str = ""
    began: int = 0
    segment: int = 0


@hookimpl
def cartridge_descriptors() -> Sequence[Descriptor]:
    return read_descriptors(Path(__file__).parent / "descriptors")


@hookimpl
def cartridge_preflight(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
) -> PreflightReport:
    water = os.environ.get("KETTLE_WATER", "1") == "1"
    return PreflightReport((Check("water", water, found="none"),), memory_bytes=0)


@hookimpl
def cartridge_open(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object], context: Context
) -> tuple[str, Mapping[str, object]]:
    return cartridge_id, options


@hookimpl
def cartridge_close(handle: object) -> None:
    pass


@hookimpl
def cartridge_session_begin(
    handle: tuple[str, Mapping[str, object]],
    cap: str,
    parameters: Mapping[str, object],
    context: Context,
) -> Session:
    return Session(*handle, parameters, context)


@hookimpl
def cartridge_session_end(session: Session) -> None:
    pass


@hookimpl
def cartridge_infer(session: Session, value: object) -> Result:
    return Result(ResultKind.FINAL, _answer(session, value))


def _answer(session: Session, value: object) -> object:
    if not isinstance(value, str):
        return _pairs(session, value)
    match value:
        case "fail":
            msg = "the kettle is cold: \0 °C"
            raise BackendError(msg)
        case "bug":
            raise KeyError(value)
        case "exit":
            raise SystemExit(value)
        case "pipe":
            ours, theirs = os.pipe()
            os.close(ours)
            os.write(theirs, b"tea")
        case "wrong":
            return 5
        case "slow":
            while True:
                session.context.check_cancelled()
                time.sleep(0.001)
    prefix, times = session.options.get("prefix", ""), session.parameters["times"]
    return f"{prefix}{value}" * int(str(times))


def _pairs(session: Session, value: object) -> object:
    """Give each number, and it times the factor."""
    import numpy as np

    numbers = np.asarray(value)
    assert numbers.flags.writeable
    return np.stack([numbers, numbers * session.parameters["factor"]], axis=1)


@hookimpl
def cartridge_push(session: Session, chunk: object) -> None:
    session.text += str(chunk)
    if session.text.endswith("."):
        _commit(session)
    else:
        record = {"text": session.text, "pace": [1.5]}
        session.waiting.append(Result(ResultKind.PARTIAL, record, segment=session.segment))


def _commit(session: Session) -> None:
    """End a segment; a letter is a second."""
    start, end = float(session.began), float(session.began + len(session.text))
    record = {"text": session.text, "pace": [1.5]}
    for kind, payload in ((ResultKind.ENDPOINT, None), (ResultKind.FINAL, record)):
        session.waiting.append(
            Result(kind, payload, segment=session.segment, start_s=start, end_s=end)
        )
    session.began, session.text, session.segment = int(end), "", session.segment + 1


@hookimpl
def cartridge_pull(session: Session) -> Result | None:
    return session.waiting.pop(0) if session.waiting else None


@hookimpl
def cartridge_flush(session: Session) -> None:
    if session.text:
        _commit(session)


@hookimpl
def cartridge_cancel(session: Session) -> None:
    pass
