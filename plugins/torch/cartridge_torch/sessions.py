"""What a session is, and the one that tells a model's dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

from cartridge_core.results import Result, ResultKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.context import Context

__all__ = ["BatchSession", "DimensionSession", "Handle", "Session", "StreamingSession"]


class BatchSession(Protocol):
    """A session of a cartridge whose io.mode is batch; it holds nothing."""

    def infer(self, value: object) -> Result:
        """Take one whole input, give one FINAL result."""


@runtime_checkable
class StreamingSession(Protocol):
    """A session of a cartridge whose io.mode is streaming."""

    def push(self, chunk: object) -> None:
        """Take one chunk."""

    def flush(self) -> None:
        """Take no more."""

    def pull(self) -> Result | None:
        """Work, and give the next result."""

    def end(self) -> None:
        """Let go of what it holds."""


Session = BatchSession | StreamingSession


class Handle(Protocol):
    """An open cartridge: one model."""

    def begin(self, cap: str, parameters: Mapping[str, object], context: Context) -> Session:
        """Begin a session of one of its caps."""

    def close(self) -> None:
        """Let go of the model."""


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
