"""What every batch cartridge keeps, as a test class to inherit."""

# ruff: noqa: S101 -- asserts are what a test says it with

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import CancelledError, UnsupportedError
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing.contract import CartridgeContract, cancel_when_working, finals
from cartridge_core.testing.samples import overwrite

if TYPE_CHECKING:
    from cartridge_core.capdefs import Cap
    from cartridge_core.cartridge import Cartridge
    from cartridge_core.session import Session
    from cartridge_core.testing.watching import Watch

__all__ = ["BatchContract", "CancellableBatchContract"]


class BatchContract(CartridgeContract):
    """
    What every batch cartridge keeps.

    Example:
        >>> from cartridge_core.testing import BatchContract, BatchEcho
        >>> class TestEcho(BatchContract):
        ...     plugin = BatchEcho()
        ...     cartridge_id = "batch-echo-text"
    """

    _value: object = None

    def run(self, session: Session, value: object) -> list[Result]:
        """Give a session a main value and take its result."""
        return [session.infer(value)]

    def start(self, session: Session, value: object) -> None:
        """Keep the value for `go_on`."""
        self._value = value
        del session

    def go_on(self, session: Session) -> None:
        """Infer once."""
        session.infer(self._value)

    def interleaved(
        self, one: Session, two: Session, value: object, other: object
    ) -> list[list[object]]:
        """Infer in both, after both have begun; give the payloads."""
        return [finals(self.run(one, value)), finals(self.run(two, other))]

    def lent(self, session: Session, buffer: object) -> list[object]:
        """Infer on a buffer, and overwrite it."""
        results = self.run(session, buffer)
        overwrite(buffer)
        return finals(results)

    def test_infer_gives_one_final(self, cartridge: Cartridge) -> None:
        """Infer gives a FINAL result, and may be called again for the next input."""
        for cap in cartridge.descriptor.caps:
            with self.begin(cartridge, cap) as session:
                for _ in range(2):
                    assert session.infer(self.value(cap)).kind is ResultKind.FINAL

    def test_the_streaming_family_is_unsupported(self, cartridge: Cartridge) -> None:
        """Push, pull and flush of a batch cartridge are an UnsupportedError."""
        cap = cartridge.descriptor.caps[0]
        with self.begin(cartridge, cap) as session:
            with pytest.raises(UnsupportedError):
                session.push(self.value(cap))
            with pytest.raises(UnsupportedError):
                session.pull()
            with pytest.raises(UnsupportedError):
                session.flush()


class CancellableBatchContract(BatchContract):
    """
    What a batch cartridge keeps that can work for seconds: cancelling stops the work itself.

    Override `slow_value` besides.
    """

    def slow_value(self, cap: Cap) -> object:
        """Give a main value that takes seconds."""
        raise NotImplementedError

    def test_cancelling_stops_the_work(self, cartridge: Cartridge, watch: Watch) -> None:
        """Cancel makes the hook that works raise CancelledError, not only the host."""
        cap = cartridge.descriptor.caps[0]
        with self.begin(cartridge, cap) as session:
            self.start(session, self.slow_value(cap))
            canceller = cancel_when_working(session, watch, after_s=0.05)
            with pytest.raises(CancelledError):
                self.go_on(session)
            canceller.join(self.patience_s)
        assert isinstance(watch.raised, CancelledError), (
            f"after cancel the hook went on to its end ({watch.raised!r}); call "
            "context.check_cancelled() between steps, and let its CancelledError out"
        )
