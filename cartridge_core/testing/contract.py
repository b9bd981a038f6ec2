"""The facts that every open cartridge keeps, in both modes."""

# ruff: noqa: S101 -- asserts are what a test says it with

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import (
    CancelledError,
    InvalidArgumentError,
)
from cartridge_core.results import Result, ResultKind
from cartridge_core.session import SessionState
from cartridge_core.testing.background import Background
from cartridge_core.testing.describing import Describing
from cartridge_core.testing.samples import borrowed, is_same, strange

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from cartridge_core.capdefs import Cap
    from cartridge_core.cartridge import Cartridge
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack
    from cartridge_core.registry import Registry
    from cartridge_core.session import Session
    from cartridge_core.testing.watching import Watch

__all__ = ["CartridgeContract", "cancel_when_working", "finals"]

_WORK_LIMIT_S = 60.0
"""How long a canceller waits for a hook to begin its work."""


class CartridgeContract(Describing):
    """Facts that hold in both modes."""

    def run(self, session: Session, value: object) -> list[Result]:
        """Give a session a main value and take all its results."""
        raise NotImplementedError

    def go_on(self, session: Session) -> None:
        """Have a session that was begun with `start` work on, however long it is done."""
        raise NotImplementedError

    def start(self, session: Session, value: object) -> None:
        """Give a session what `go_on` works on."""
        raise NotImplementedError

    def go_on_until_over(self, session: Session, thread: threading.Thread) -> None:
        """Have a session work on until a thread is over, and once more."""
        while thread.is_alive():
            self.go_on(session)
        self.go_on(session)

    def begin(self, cartridge: Cartridge, cap: Cap) -> Session:
        """Begin a session of a cap with its required arguments alone."""
        return cartridge.session(cap.urn, **self.parameters(cap))

    def as_input(self, cap: Cap, value: object) -> object:
        """Give what a registry's call takes for a main value."""
        del cap
        return value

    def alone(self, cartridge: Cartridge, cap: Cap, value: object) -> list[object]:
        """Give the FINAL payloads for a value, from a session of its own."""
        with self.begin(cartridge, cap) as session:
            return self.steady(finals(self.run(session, value)))

    def steady(self, payloads: list[object]) -> list[object]:
        """Leave out what differs from run to run."""
        return [
            {key: item for key, item in payload.items() if key not in self.varying}
            if isinstance(payload, Mapping)
            else payload
            for payload in payloads
        ]

    def test_every_cap_runs_on_its_required_arguments(self, cartridge: Cartridge) -> None:
        """A cap works with its main value alone: every other argument has a default or no need."""
        for cap in cartridge.descriptor.caps:
            assert self.alone(cartridge, cap, self.value(cap)), f"{cap.urn} gives no FINAL"

    def test_results_are_plain(self, cartridge: Cartridge) -> None:
        """A payload holds None, bool, int, float, str, bytes, lists, records and arrays alone."""
        for cap in cartridge.descriptor.caps:
            with self.begin(cartridge, cap) as session:
                for result in self.run(session, self.value(cap)):
                    lines = strange(result.payload)
                    assert not lines, f"{cap.urn}: {'; '.join(lines)}, which is no plain value"

    def test_results_name_the_cartridge(self, cartridge: Cartridge) -> None:
        """A result says which cartridge gave it, and its repr and the session's say it too."""
        cap = cartridge.descriptor.caps[0]
        with self.begin(cartridge, cap) as session:
            assert self.cartridge_id in repr(session)
            for result in self.run(session, self.value(cap)):
                assert result.cartridge_id == self.cartridge_id
                assert self.cartridge_id in repr(result)

    def test_calls_reach_it_through_the_registry(
        self,
        registry: Registry,
        cartridge: Cartridge,
        model_spec: Pack | str | os.PathLike[str] | None,
    ) -> None:
        """A registry's call, which works on a thread of the host, gives what a session gives."""
        for cap in cartridge.descriptor.caps:
            value, arguments = self.value(cap), self.parameters(cap)
            if cap.pack_arg is not None and model_spec is not None:
                arguments["model_spec"] = model_spec
            call: Callable[..., Result] = registry.call
            result = call(
                str(cap.urn),
                self.as_input(cap, value),
                cartridge_id=cartridge.descriptor.id,
                **arguments,
            )
            alone = self.alone(cartridge, cap, value)
            payload = result.payload
            several = len(alone) != 1
            found = self.steady(payload if several and isinstance(payload, list) else [payload])
            assert is_same(found, alone), (
                f"call({cap.urn}) gives {found!r}, and a session {alone!r}"
            )

    def test_nothing_is_printed(
        self,
        registry: Registry,
        descriptor: Descriptor,
        model_spec: Pack | str | os.PathLike[str] | None,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        """Opening, running and closing leave stdout and stderr alone; a library's log included."""
        with registry.open(descriptor.id, model_spec) as cartridge:
            for cap in descriptor.caps:
                self.alone(cartridge, cap, self.value(cap))
        out, err = capfd.readouterr()
        assert not out, f"this is printed on stdout, which is the program's own: {out!r}"
        assert not err, f"this is printed on stderr; use logging or context.log: {err!r}"

    def test_sessions_do_not_share_state(self, cartridge: Cartridge) -> None:
        """Two sessions at once give what each gives alone; so does one after another."""
        for cap in cartridge.descriptor.caps:
            value, other = self.value(cap), self.other_value(cap)
            first, second = self.alone(cartridge, cap, value), self.alone(cartridge, cap, other)
            again = self.alone(cartridge, cap, value)
            assert is_same(again, first), f"{cap.urn}: a session gives {again!r} after {first!r}"
            if cartridge.descriptor.max_concurrent_sessions > 1:
                with self.begin(cartridge, cap) as one, self.begin(cartridge, cap) as two:
                    both = [self.steady(x) for x in self.interleaved(one, two, value, other)]
                assert is_same(both, [first, second]), (
                    f"{cap.urn}: two sessions at once give {both!r}, alone {[first, second]!r}; "
                    "keep what belongs to a session in the session"
                )

    def interleaved(
        self, one: Session, two: Session, value: object, other: object
    ) -> list[list[object]]:
        """Work with two sessions by turns; give the FINAL payloads of both."""
        raise NotImplementedError

    def test_input_is_only_borrowed(self, cartridge: Cartridge) -> None:
        """What the caller does to his buffer once a call has returned changes no result."""
        for cap in cartridge.descriptor.caps:
            value = self.value(cap)
            buffer = borrowed(value)
            if buffer is not None:
                expected = self.alone(cartridge, cap, value)
                with self.begin(cartridge, cap) as session:
                    try:
                        found = self.steady(self.lent(session, buffer))
                    except InvalidArgumentError:
                        continue  # it takes bytes that nobody can overwrite, and no buffers
                assert is_same(found, expected), (
                    f"{cap.urn}: a buffer overwritten after the call changes the result from "
                    f"{expected!r} to {found!r}; copy what must outlive the call"
                )

    def lent(self, session: Session, buffer: object) -> list[object]:
        """Give a session a buffer, overwrite it, and give the FINAL payloads."""
        raise NotImplementedError

    def test_an_unknown_argument_is_refused_by_name(
        self, registry: Registry, cartridge: Cartridge
    ) -> None:
        """An argument that no cap declares is an InvalidArgumentError that names it."""
        with pytest.raises(InvalidArgumentError, match="no_such_argument") as session_error:
            cartridge.session(no_such_argument=1)
        assert session_error.value.arg == "no_such_argument"
        with pytest.raises(InvalidArgumentError, match="no_such_argument") as open_error:
            registry.open(self.cartridge_id, no_such_argument=1)
        assert open_error.value.arg == "no_such_argument"

    def test_ending_and_closing_twice_is_harmless(
        self,
        registry: Registry,
        descriptor: Descriptor,
        model_spec: Pack | str | os.PathLike[str] | None,
        watch: Watch,
    ) -> None:
        """A session may be ended twice and a cartridge closed twice; the hooks see it once."""
        cartridge = registry.open(descriptor.id, model_spec)
        session = self.begin(cartridge, descriptor.caps[0])
        for _ in range(2):
            session.end()
        for _ in range(2):
            cartridge.close()
        assert watch.calls.count("session_end") == 1
        assert watch.calls.count("close") == 1

    def test_cancelling_from_another_thread_ends_the_session(
        self, cartridge: Cartridge, watch: Watch
    ) -> None:
        """After cancel the call inside raises CancelledError, then only end works; others go on."""
        cap = cartridge.descriptor.caps[0]
        session = self.begin(cartridge, cap)
        self.start(session, self.value(cap))
        canceller = cancel_when_working(session, watch)
        with pytest.raises(CancelledError):
            self.go_on_until_over(session, canceller)
        canceller.join(self.patience_s)
        assert canceller.error is None, f"cancel raises {canceller.error!r}"
        with pytest.raises(CancelledError):
            self.go_on(session)
        session.end()
        assert session.state is SessionState.ENDED
        assert "session_end" in watch.calls
        assert self.alone(cartridge, cap, self.value(cap)), "no session works after a cancelled one"


def finals(results: Iterator[Result] | Sequence[Result]) -> list[object]:
    """Give the payloads of the FINAL results."""
    return [result.payload for result in results if result.kind is ResultKind.FINAL]


def cancel_when_working(session: Session, watch: Watch, after_s: float = 0.0) -> Background:
    """Cancel a session from another thread, some seconds after its hook has begun to work."""

    def cancel() -> None:
        watch.working.wait(_WORK_LIMIT_S)
        threading.Event().wait(after_s)
        session.cancel()

    watch.working.clear()
    return Background(cancel)
