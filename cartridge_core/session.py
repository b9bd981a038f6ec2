"""
One inference or one stream: its states, and the guard that holds them.

::

                 ┌──────── infer (batch) ────────┐
    begin ──> OPEN ── push · pull (streaming) ────┤
               │ flush                            │ end
             FLUSHED ── pull gives None ─> DRAINED ├────> ENDED
               │                                  │
               └──── cancel ──> CANCELLED ────────┘

Source: Cartridge ABI 0.1, "Threading & reentrancy".
"""

from __future__ import annotations

import enum
import os
import threading
from typing import TYPE_CHECKING, Self, TypeVar

from cartridge_core.arguments import check_main
from cartridge_core.descriptor import IoMode
from cartridge_core.errors import CancelledError, StateError, UnsupportedError
from cartridge_core.records import as_records
from cartridge_core.results import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from cartridge_core.binding import Binding
    from cartridge_core.capdefs import Cap
    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor

__all__ = ["Session", "SessionState"]

T = TypeVar("T")


class SessionState(enum.Enum):
    """Where a session is in its life."""

    OPEN = "open"
    """Takes input."""

    FLUSHED = "flushed"
    """There is no more input; results may be left to pull."""

    DRAINED = "drained"
    """Flushed, and everything was pulled; `Session.pull` gives None from here on."""

    CANCELLED = "cancelled"
    """Takes only `Session.end`."""

    ENDED = "ended"
    """Takes nothing; ending again is harmless."""


# Read once: Python 3.11 takes 0.15 µs to find a member of an enum.
_OPEN, _FLUSHED, _DRAINED, _CANCELLED, _ENDED = SessionState
_BATCH, _STREAMING = IoMode.BATCH, IoMode.STREAMING


class Session:
    """
    One utterance, stream or series of inputs on an open cartridge.

    Drive it from one thread at a time; only `cancel` may come from another. A context
    manager that ends it. Sessions are made by ``cartridge.session(...)``, and by a call's work,
    which has checked the main value before it began (``is_checked``).
    """

    def __init__(
        self,
        binding: Binding,
        handle: object,
        descriptor: Descriptor,
        cap: Cap,
        parameters: Mapping[str, object],
        context: Context,
        on_end: Callable[[Session], None] | None = None,
        *,
        is_checked: bool = False,
    ) -> None:
        self._on_end = on_end
        self._is_checked = is_checked
        self._binding = binding
        self._descriptor = descriptor
        self._cap = cap
        self._context = context
        self._inside = threading.Lock()
        self._cancelling = threading.RLock()  # a signal handler may cancel inside a cancel
        self._cancel_asked = False
        self._pid = os.getpid()
        self._session = binding.session_begin(handle, str(cap.urn), parameters, context)
        self._state = _OPEN

    @property
    def state(self) -> SessionState:
        """Where the session is in its life."""
        if self._context.cancelled and self._state is not _ENDED:
            return _CANCELLED
        return self._state

    @property
    def cap(self) -> Cap:
        """The cap this session serves."""
        return self._cap

    def infer(self, value: object = None) -> Result:
        """
        Give one whole input, wait for its FINAL result; may be called again for the next.

        Args:
            value: What the cap's main argument declares; None for a cap without one.

        Raises:
            UnsupportedError: The cartridge's ``io.mode`` is ``streaming``.

            InvalidArgumentError: The value breaks the main argument's rule.

            StateError: The session has ended, or another call is inside.

            CancelledError: `cancel` was called before or during this call.

        Source:
            Cartridge ABI 0.1, ``ctg_infer``.
        """
        self._enter("infer", _BATCH)
        try:
            checked = value if self._is_checked else check_main(self._cap, value)
            return self._finish(self._work(self._binding.infer, checked))
        finally:
            self._inside.release()

    def push(self, chunk: object) -> None:
        """
        Give one chunk of input; collect results with `pull`.

        Args:
            chunk: A piece of what the cap's main argument declares; borrowed for this call.

        Raises:
            UnsupportedError: The cartridge's ``io.mode`` is ``batch``.

            InvalidArgumentError: The chunk breaks the main argument's rule.

            StateError: After `flush` or `end`, or while another call is inside.

            CancelledError: `cancel` was called before or during this call.

        Source:
            Cartridge ABI 0.1, ``ctg_push``.
        """
        self._enter("push", _STREAMING)
        try:
            if self._state is not _OPEN:
                msg = f"push after flush: the session is {self._state.value}; begin a new session"
                raise StateError(msg)
            checked = chunk if self._is_checked else check_main(self._cap, chunk)
            self._work(self._binding.push, checked)
        finally:
            self._inside.release()

    def pull(self) -> Result | None:
        """
        Take the next result.

        Returns:
            A result, or None: before `flush` nothing is due yet, after it the session is
            drained, and stays so.

        Raises:
            UnsupportedError: The cartridge's ``io.mode`` is ``batch``.

            StateError: After `end`, or while another call is inside.

            CancelledError: `cancel` was called before or during this call.

        Source:
            Cartridge ABI 0.1, ``ctg_pull``.
        """
        self._enter("pull", _STREAMING)
        try:
            if self._state is _DRAINED:
                return None
            result = self._work(self._binding.pull)
            if result is not None:
                return self._finish(result)
            if self._state is _FLUSHED:
                self._state = _DRAINED
            return None
        finally:
            self._inside.release()

    def flush(self) -> None:
        """
        Say that there is no more input; saying it again is harmless.

        Raises:
            UnsupportedError: The cartridge's ``io.mode`` is ``batch``.

            StateError: After `end`, or while another call is inside.

            CancelledError: `cancel` was called before or during this call.

        Source:
            Cartridge ABI 0.1, ``ctg_flush``.
        """
        self._enter("flush", _STREAMING)
        try:
            if self._state is _OPEN:
                self._work(self._binding.flush)
                self._state = _FLUSHED
        finally:
            self._inside.release()

    def drain(self) -> Iterator[Result]:
        """
        Give every result that is left; call it after `flush`.

        Raises:
            StateError: Before `flush`, where the end would never be known; and as `pull`.
        """
        if self._state is _OPEN and self._descriptor.mode is _STREAMING:
            msg = "drain before flush: the session still takes input; call flush first"
            raise StateError(msg)
        return iter(self.pull, None)

    def cancel(self) -> None:
        """
        Stop the work; the call that is inside raises `CancelledError`.

        From any thread, and again, and after `end`: then it does nothing.

        Source:
            Cartridge ABI 0.1, ``ctg_cancel``.
        """
        with self._cancelling:
            if self._cancel_asked or self._state is _ENDED:
                return
            self._cancel_asked = True
            self._context.cancel()
            self._binding.cancel(self._session)

    def end(self) -> None:
        """
        End the session; again is harmless, and so is in a fork, where it is the parent's.

        Raises:
            StateError: Another call is inside; `cancel` first and let it come out.
        """
        if self._pid != os.getpid():
            return
        if not self._inside.acquire(False):
            msg = "end"
            raise self._occupied(msg)
        try:
            with self._cancelling:
                if self._state is _ENDED:
                    return
                self._state = _ENDED
            self._context.close()
            try:
                self._binding.session_end(self._session)
            finally:
                if self._on_end is not None:
                    self._on_end(self)
        finally:
            self._inside.release()

    def _enter(self, verb: str, mode: IoMode) -> None:
        """Take the session for one call, or say why that cannot be."""
        if self._descriptor.mode is not mode:
            own = self._descriptor.mode.value
            use = "infer" if own == "batch" else "push, flush and pull"
            msg = f"{self._descriptor.id} has io.mode {own} and no {verb}; use {use}"
            raise UnsupportedError(msg)
        if not self._inside.acquire(False):
            raise self._occupied(verb)
        if self._state is _ENDED or self._context.cancelled:
            self._inside.release()
            if self._state is not _ENDED:
                raise self._cancelled()
            msg = f"{verb} after end: begin a new session"
            raise StateError(msg)

    def _work(self, hook: Callable[..., T], *given: object) -> T:
        """Call a hook; however it ends, a cancelled session raises CancelledError."""
        try:
            found = hook(self._session, *given)
        except CancelledError:
            raise
        except Exception as exc:
            # A backend that was stopped often fails in words of its own.
            if self._context.cancelled:
                raise self._cancelled() from exc
            raise
        if self._context.cancelled:
            raise self._cancelled()
        return found

    def _cancelled(self) -> CancelledError:
        msg = f"the session on {self._descriptor.id} was cancelled; it takes only end"
        return CancelledError(msg)

    def _occupied(self, verb: str) -> StateError:
        msg = f"{verb} of {self!r} while a call is inside: one session, one thread at a time"
        return StateError(msg)

    def _finish(self, result: Result) -> Result:
        """Say who gave a result, and turn its dicts into records."""
        return Result(
            result.kind,
            as_records(result.payload),
            segment=result.segment,
            start_s=result.start_s,
            end_s=result.end_s,
            cartridge_id=self._descriptor.id,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<Session on {self._descriptor.id}: {self.state.value}>"
