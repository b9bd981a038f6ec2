"""Calls on a native session in any order: a result or an error with a name, and the host lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis.strategies as st
import numpy as np  # noqa: TID253 -- arrays are what they take
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cartridge_core.errors import (
    CancelledError,
    CartridgeError,
    InvalidArgumentError,
    StateError,
    UnsupportedError,
)
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing import registry_of
from cartridge_native import plugin
from cartridge_native.sessions import Session as NativeSession

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cartridge_core.cartridge import Cartridge
    from cartridge_core.session import Session

GENERATOR = np.random.default_rng(0)
LOUD = GENERATOR.integers(-9000, 9000, 4000, np.int16)
TAKEN = [LOUD, LOUD[:1], np.zeros(4000, np.int16), LOUD[:0], bytes(320), [1, 2, 3]]
REFUSED = ["a/path.wav", b"odd", np.ones((2, 2), np.int16), [0.5], {"a": 1}, [40000]]


class Sessions(RuleBasedStateMachine):
    """Sessions of the endpointer, one after the other: the host's, or the plugin's own below it."""

    cartridge: Cartridge
    guarded: bool

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        """Begin a session, and forget what was known of the last."""
        self.host = self.cartridge.session()
        self.session: Session | NativeSession = self.host
        if not self.guarded:  # but by the library
            assert isinstance(self.host._session, NativeSession)
            self.session = self.host._session
        self.flushed = self.drained = self.cancelled = self.ended = False
        self.segment = 0
        self.last: Result | None = None

    def call(self, work: Callable[[], object], *broken: type[CartridgeError]) -> object:
        """Make a call; one that breaks rules has the error of one of them."""
        wrong = [*broken]
        if self.cancelled:
            wrong.append(CancelledError)
        if self.ended:
            wrong.append(StateError)
        if not wrong:
            return work()
        with pytest.raises(CartridgeError) as caught:
            work()
        assert type(caught.value) in wrong
        return None

    @rule(chunk=st.sampled_from(TAKEN))
    def push(self, chunk: object) -> None:
        self.call(lambda: self.session.push(chunk), *[StateError] * self.flushed)

    @rule(chunk=st.sampled_from(REFUSED))
    def push_what_is_none(self, chunk: object) -> None:
        wrong = [InvalidArgumentError, *[StateError] * self.flushed]
        self.call(lambda: self.session.push(chunk), *wrong)

    @rule()
    def pull(self) -> None:
        found = self.call(self.session.pull)
        if self.cancelled or self.ended:
            return
        self.drained |= self.flushed and found is None
        if found is None:
            return
        assert isinstance(found, Result)
        assert not self.drained
        assert found.segment == self.segment
        if self.last is not None and self.last.kind is ResultKind.ENDPOINT:
            assert found.kind is ResultKind.FINAL
            assert (found.start_s, found.end_s) == (self.last.start_s, self.last.end_s)
        self.segment += found.kind is ResultKind.FINAL
        self.last = found

    @rule()
    def flush(self) -> None:
        self.call(self.session.flush)
        self.flushed |= not (self.cancelled or self.ended)

    @rule()
    def infer(self) -> None:
        self.call(lambda: self.session.infer(LOUD), UnsupportedError)

    @rule()
    def cancel(self) -> None:
        self.session.cancel()
        self.cancelled |= not self.ended

    @precondition(lambda self: self.guarded)
    @rule()
    def end(self) -> None:
        self.host.end()
        self.ended, self.cancelled = True, False

    @rule()
    def begin_another(self) -> None:
        self.host.end()
        self.begin()

    def teardown(self) -> None:
        """The host lives: another session on the same cartridge works."""
        self.host.end()
        with self.cartridge.session() as other:
            other.push(LOUD)
            other.flush()
            assert [one.kind.name for one in other.drain()] == ["ENDPOINT", "FINAL"]


@pytest.mark.parametrize(
    ("isolation", "guarded", "examples"),
    [
        pytest.param("inline", False, 50, id="plugin"),
        pytest.param("inline", True, 20, id="host"),
        pytest.param("process", True, 5, id="process"),
    ],
)
def test_calls_in_any_order(isolation: str, guarded: bool, examples: int, endpointer: Path) -> None:
    """Of the plugin's session, of the host's over it, and of one in a process."""
    with (
        registry_of(plugin, packs=[endpointer], isolation=isolation) as registry,
        registry.open("native-endpointer") as opened,
    ):

        class Machine(Sessions):
            cartridge = opened

        Machine.guarded = guarded
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=25,
                deadline=None,
                derandomize=True,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
