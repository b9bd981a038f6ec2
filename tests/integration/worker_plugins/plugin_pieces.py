"""A streaming plugin that gives pieces, and a batch one that says what was asked of it."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import BackendError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.reports import PreflightReport
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing.descriptors import fake_cap, fake_descriptor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack

PIECES = fake_descriptor(
    "pieces-stream", "streaming", [fake_cap("pieces", takes="media:json")], partial="append"
)
ASKED = fake_descriptor("pieces-asked", caps=[fake_cap("asked", takes="media:json")])

_asked: Counter[str] = Counter()
"""What was asked of sessions with pieces: hooks, cancellations."""


@attrs.define(eq=False)
class Session:
    cartridge_id: str
    context: Context
    given: int = 0
    does: Mapping[str, object] = attrs.field(factory=dict)
    """What was pushed: how many pieces there are, and what happens at which."""


@hookimpl
def cartridge_descriptors() -> Sequence[Descriptor]:
    return (PIECES, ASKED)


@hookimpl
def cartridge_preflight(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
) -> PreflightReport:
    return PreflightReport((), memory_bytes=0)


@hookimpl
def cartridge_open(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object], context: Context
) -> str:
    return cartridge_id


@hookimpl
def cartridge_close(handle: str) -> None:
    pass


@hookimpl
def cartridge_session_begin(
    handle: str, cap: str, parameters: Mapping[str, object], context: Context
) -> Session:
    if handle == PIECES.id:
        _asked.clear()
    return Session(handle, context)


@hookimpl
def cartridge_session_end(session: Session) -> None:
    if session.cartridge_id == PIECES.id:
        _asked["ended"] += 1
        _asked["cancelled"] += session.context.cancelled


@hookimpl
def cartridge_infer(session: Session, value: object) -> Result:
    return Result(ResultKind.FINAL, dict(_asked))


@hookimpl
def cartridge_push(session: Session, chunk: object) -> None:
    session.does = cast("Mapping[str, object]", chunk)


@hookimpl
def cartridge_pull(session: Session) -> Result | None:
    _asked["pulls"] += 1
    session.given += 1
    number = session.given
    time.sleep(cast("float", session.does.get("pause_s", 0.0)))
    if session.does.get("talks"):
        session.context.log("info", f"piece {number}")
    if number == session.does.get("fails_at"):
        msg = f"piece {number} failed"
        raise BackendError(msg)
    if number == session.does.get("dies_at"):
        os._exit(3)
    return None if number > cast("int", session.does["count"]) else piece(number)


def piece(number: int) -> Result:
    return Result(ResultKind.PARTIAL, f"piece {number}")


@hookimpl
def cartridge_flush(session: Session) -> None:
    pass
