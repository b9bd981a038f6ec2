"""
Cartridges of `benchmarks.nothing` as a module, so that a process can import them.

It imports what a plugin does, and nothing of the kit for authors: what a process takes to start is
measured too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from benchmarks.nothing import answer, count
from cartridge_core import Descriptor, PreflightReport, Result, ResultKind, hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cartridge_core import Context, Pack


def _descriptor(cartridge_id: str, mode: str, op: str, takes: str, gives: str) -> Descriptor:
    main = {
        "name": "main",
        "media_urn": takes,
        "required": True,
        "sources": [{"stdin": takes}, {"position": 0}],
    }
    cap = {
        "urn": f'cap:{op};in="{takes}";out="{gives}"',
        "title": op,
        "aliases": [op],
        "args": [main],
        "outputs": [{"media_urn": gives, "name": "result", "output_description": "The result."}],
    }
    return Descriptor.from_json(
        {
            "spec_version": "0.3",
            "id": cartridge_id,
            "version": "0.1.0",
            "family": "nothing",
            "modality": "text",
            "task": op,
            "io": {"mode": mode, "input": {"dtype": "utf8"}, "output": {"dtype": "utf8"}},
            "target": {"hardware": "any", "abi": "any"},
            "performance": {"measured_on": "unmeasured"},
            "execution_mode": "native",
            "license": "MIT",
            "attributes": {
                "abi": "0.1",
                "hooks": 1,
                "max_concurrent_sessions": 8,
                "partial": "append",
                "caps": [cap],
            },
        }
    )


_TEXT = "media:enc=utf-8"
_ALL = (
    _descriptor("answering-text", "batch", "answer", _TEXT, "media:echo;enc=utf-8;record"),
    _descriptor(
        "counting-pieces", "streaming", "count", "media:integer;numeric", "media:enc=utf-8;piece"
    ),
)


@attrs.define(eq=False)
class _Session:
    pieces: Iterator[str] | None = None


@hookimpl
def cartridge_descriptors() -> Sequence[Descriptor]:
    """Give both."""
    return _ALL


@hookimpl
def cartridge_preflight(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
) -> PreflightReport:
    """Need nothing."""
    del cartridge_id, pack, options
    return PreflightReport((), memory_bytes=0)


@hookimpl
def cartridge_open(
    cartridge_id: str, pack: Pack | None, options: Mapping[str, object], context: Context
) -> str:
    """Load nothing."""
    del pack, options, context
    return cartridge_id


@hookimpl
def cartridge_close(handle: str) -> None:
    """Unload nothing."""


@hookimpl
def cartridge_session_begin(
    handle: str, cap: str, parameters: Mapping[str, object], context: Context
) -> _Session:
    """Begin."""
    del handle, cap, parameters, context
    return _Session()


@hookimpl
def cartridge_session_end(session: _Session) -> None:
    """Hold nothing."""


@hookimpl
def cartridge_infer(session: _Session, value: object) -> Result:
    """Answer."""
    del session
    return Result(ResultKind.FINAL, answer(str(value)))


@hookimpl
def cartridge_push(session: _Session, chunk: object) -> None:
    """Take the number."""
    session.pieces = count(int(str(chunk)))


@hookimpl
def cartridge_pull(session: _Session) -> Result | None:
    """Give the next piece, then FINAL, then None."""
    if session.pieces is None:
        return None
    piece = next(session.pieces, None)
    if piece is not None:
        return Result(ResultKind.PARTIAL, piece)
    session.pieces = None
    return Result(ResultKind.FINAL, "")


@hookimpl
def cartridge_flush(session: _Session) -> None:
    """Note the end of the input."""
