"""What every streaming cartridge keeps, as a test class to inherit."""

# ruff: noqa: S101 -- asserts are what a test says it with

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import CartridgeError, StateError, UnsupportedError
from cartridge_core.results import Result, ResultKind
from cartridge_core.session import SessionState
from cartridge_core.testing.background import Background
from cartridge_core.testing.contract import CartridgeContract, finals
from cartridge_core.testing.samples import borrowed, overwrite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cartridge_core.capdefs import Cap
    from cartridge_core.cartridge import Cartridge
    from cartridge_core.session import Session

__all__ = ["StreamingContract"]


class StreamingContract(CartridgeContract):
    """
    What every streaming cartridge keeps.

    Example:
        >>> from cartridge_core.testing import StreamingContract, StreamingEcho
        >>> class TestEcho(StreamingContract):
        ...     plugin = StreamingEcho()
        ...     cartridge_id = "streaming-echo-text"
    """

    def chunks(self, cap: Cap, value: object) -> Sequence[object]:
        """
        Give the chunks of a main value.

        The usual ones are the value alone, or twice where the main argument may be given in chunks.
        """
        return [value, value] if cap.main is not None and cap.main.streaming else [value]

    def as_input(self, cap: Cap, value: object) -> object:
        """Give the chunks, where the main argument may be given in chunks."""
        chunked = cap.main is not None and cap.main.streaming
        return iter(self.chunks(cap, value)) if chunked else value

    def run(self, session: Session, value: object) -> list[Result]:
        """Push the chunks of a main value, pulling after each, and drain."""
        results: list[Result] = []
        for _ in self._feed(session, value):
            results += iter(session.pull, None)
        return [*results, *session.drain()]

    def start(self, session: Session, value: object) -> None:
        """Push the chunks, and flush."""
        for _ in self._feed(session, value):
            pass

    def go_on(self, session: Session) -> None:
        """Pull once."""
        session.pull()

    def interleaved(
        self, one: Session, two: Session, value: object, other: object
    ) -> list[list[object]]:
        """Push to both by turns, then pull from both by turns, the second first."""
        results: tuple[list[Result], list[Result]] = ([], [])
        feeds = [self._feed(one, value), self._feed(two, other)]
        while feeds:
            feeds = [feed for feed in feeds if next(feed, _END) is not _END]
        drains = [(two.drain(), results[1]), (one.drain(), results[0])]
        while drains:
            for drain, into in list(drains):
                result = next(drain, None)
                if result is None:
                    drains.remove((drain, into))
                else:
                    into.append(result)
        return [finals(into) for into in results]

    def lent(self, session: Session, buffer: object) -> list[object]:
        """Push a copy for every chunk, overwriting each at once."""
        for chunk in self.chunks(session.cap, buffer):
            lent = borrowed(chunk)
            session.push(chunk if lent is None else lent)
            overwrite(lent)
        session.flush()
        return finals(session.drain())

    def _feed(self, session: Session, value: object) -> Iterator[None]:
        """Push the chunks of a main value, a step each, and flush at the end."""
        main = session.cap.main
        if main is not None and not main.pack:
            for chunk in self.chunks(session.cap, value):
                session.push(chunk)
                yield
        session.flush()

    def test_results_form_segments(self, cartridge: Cartridge) -> None:
        """FINAL results count up from 0; PARTIAL and ENDPOINT belong to the FINAL to come."""
        for cap in cartridge.descriptor.caps:
            with self.begin(cartridge, cap) as session:
                results = self.run(session, self.value(cap))
            _check_segments(results)
            partial = any(result.kind is ResultKind.PARTIAL for result in results)
            assert not partial or cartridge.descriptor.partial is not None, (
                "PARTIAL results need attributes.partial, replace or append, in the descriptor"
            )

    def test_pull_before_anything_is_due_gives_none(self, cartridge: Cartridge) -> None:
        """A pull before flush gives None at once when nothing is due."""
        with self.begin(cartridge, cartridge.descriptor.caps[0]) as session:
            pulled = Background(session.pull)
            pulled.join(self.patience_s)
            waits = pulled.is_alive()
            if waits:
                session.cancel()
                pulled.join(self.patience_s)
        assert not waits, "pull waits for input; before flush it gives None at once"
        assert pulled.error is None, f"pull before any push raises {pulled.error!r}"
        assert pulled.result is None, f"pull gives {pulled.result!r} where nothing was pushed"

    def test_pull_after_the_end_stays_none(self, cartridge: Cartridge) -> None:
        """Once a flushed session has given None it is drained, and gives None from there on."""
        cap = cartridge.descriptor.caps[0]
        with self.begin(cartridge, cap) as session:
            self.run(session, self.value(cap))
            assert [session.pull(), session.pull()] == [None, None]
            assert session.state is SessionState.DRAINED

    def test_push_after_flush_is_a_state_error(self, cartridge: Cartridge) -> None:
        """After flush a session takes no more input."""
        cap = cartridge.descriptor.caps[0]
        with self.begin(cartridge, cap) as session:
            self.start(session, self.value(cap))
            with pytest.raises(StateError, match="flush"):
                session.push(self.value(cap))

    def test_flushing_without_input_comes_to_an_end(self, cartridge: Cartridge) -> None:
        """A session without input drains, or says with a CartridgeError what it lacks."""
        with self.begin(cartridge, cartridge.descriptor.caps[0]) as session:
            try:
                session.flush()
                results = list(session.drain())
            except CartridgeError:
                return
        _check_segments(results)

    def test_the_batch_family_is_unsupported(self, cartridge: Cartridge) -> None:
        """Infer of a streaming cartridge is an UnsupportedError."""
        cap = cartridge.descriptor.caps[0]
        with self.begin(cartridge, cap) as session, pytest.raises(UnsupportedError):
            session.infer(self.value(cap))


_END = object()


def _check_segments(results: Sequence[Result]) -> None:
    """Hold a session's results against the order of segments."""
    segment, ended = 0, False
    for result in results:
        assert result.segment == segment, (
            f"{result!r} belongs to segment {result.segment}, and the next FINAL is of {segment}"
        )
        if result.kind is ResultKind.ENDPOINT:
            assert not ended, f"segment {segment} has two ENDPOINTs"
            assert result.payload is None, f"{result!r} has a payload; an ENDPOINT has none"
            assert result.end_s is not None, f"{result!r} does not say when: end_s is None"
        ended = result.kind is ResultKind.ENDPOINT or (
            ended and result.kind is not ResultKind.FINAL
        )
        segment += result.kind is ResultKind.FINAL
    assert not ended, f"segment {segment} has an ENDPOINT and no FINAL after it"
