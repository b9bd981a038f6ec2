"""What an open cartridge and a session are, and the session that tells a model's dimension."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import attrs

from cartridge_core.results import Result, ResultKind
from cartridge_core.urn import CapUrn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.context import Context

__all__ = [
    "BatchSession",
    "DimensionSession",
    "Handle",
    "Session",
    "StreamingSession",
    "read_cap",
]


class BatchSession(Protocol):
    """A session of a cartridge whose io.mode is batch; it holds nothing."""

    def infer(self, value: object) -> Result:
        """Take one whole input, give one FINAL result."""


class StreamingSession(Protocol):
    """A session of a cartridge whose io.mode is streaming."""

    def push(self, chunk: object) -> None:
        """Take one chunk."""

    def flush(self) -> None:
        """Take no more."""

    def pull(self) -> Result | None:
        """Work, and give the next result."""


Session = BatchSession | StreamingSession


class Handle(Protocol):
    """An open cartridge: one model."""

    def begin(self, cap: str, parameters: Mapping[str, object], context: Context) -> Session:
        """Begin a session of one of its caps."""

    def close(self) -> None:
        """Let go of the model."""


@lru_cache(maxsize=16)
def read_cap(cap: str) -> CapUrn:
    """Read one of the declared caps; each of them once."""
    return CapUrn.parse(cap)


class _Measured(Protocol):
    @property
    def dimension(self) -> int: ...


@attrs.frozen
class DimensionSession:
    """Tells how many numbers a vector has."""

    _model: _Measured

    def infer(self, value: object) -> Result:
        """Give the dimension; the value, the model spec, is already the open model."""
        del value
        return Result(ResultKind.FINAL, self._model.dimension)
