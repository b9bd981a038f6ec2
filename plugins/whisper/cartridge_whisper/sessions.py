"""What a session and an open cartridge are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.context import Context
    from cartridge_core.results import Result

__all__ = ["BatchSession", "Handle", "Session", "StreamSession"]


class BatchSession(Protocol):
    """A session of a cartridge whose io.mode is batch; it holds nothing."""

    def infer(self, value: object) -> Result:
        """Take one whole input, give one FINAL result."""


class StreamSession(Protocol):
    """A session of a cartridge whose io.mode is streaming; it holds nothing that must be ended."""

    def push(self, chunk: object) -> None:
        """Take one chunk."""

    def pull(self) -> Result | None:
        """Work, and give the next result."""

    def flush(self) -> None:
        """Take no more."""


Session = BatchSession | StreamSession


class Handle(Protocol):
    """An open cartridge: one model."""

    def begin(self, cap: str, parameters: Mapping[str, object], context: Context) -> Session:
        """Begin a session of one of its caps."""

    def close(self) -> None:
        """Let go of the model."""
