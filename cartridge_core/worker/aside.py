"""Work that another thread does while this one waits: one that may be stopped in its wait."""

from __future__ import annotations

from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Aside", "Outcome"]

T = TypeVar("T")


@attrs.frozen
class Outcome(Generic[T]):
    """What some work gave or raised."""

    result: T | None = None
    error: BaseException | None = None

    @classmethod
    def of(cls, work: Callable[[], T]) -> Outcome[T]:
        """Do the work in this thread."""
        try:
            return cls(work())
        except BaseException as exc:  # noqa: BLE001 -- raised by `get`
            return cls(error=exc)

    def get(self) -> T:
        """Give it, or raise it."""
        if self.error is not None:
            raise self.error
        return cast("T", self.result)


class Aside(Generic[T]):
    """
    Work that begins at once on another thread.

    Args:
        work: What to do.
        run: Runs a job on another thread.
    """

    def __init__(self, work: Callable[[], T], run: Callable[[Callable[[], None]], None]) -> None:
        self._outcomes: SimpleQueue[Outcome[T]] = SimpleQueue()
        run(lambda: self._outcomes.put(Outcome.of(work)))

    def wait(self, timeout_s: float | None = None) -> Outcome[T]:
        """
        Wait for what comes of it; only once.

        Raises:
            queue.Empty: It takes longer.
        """
        return self._outcomes.get(timeout=timeout_s)

    def fail(self, error: BaseException) -> None:
        """Have who waits get an error, whatever comes of the work."""
        self._outcomes.put(Outcome(error=error))
