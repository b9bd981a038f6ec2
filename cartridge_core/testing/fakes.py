"""
Small real plugins: objects with hooks and descriptors, that tests put into a registry.

Each notes the hooks it saw in ``calls``, in order, and keeps no other state between sessions.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, ClassVar

import attrs

from cartridge_core.errors import BackendError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.reports import Check, PreflightReport
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack

__all__ = [
    "BatchEcho",
    "FailingEcho",
    "FakeHandle",
    "FakeSession",
    "SegmentingEcho",
    "SlowCounter",
    "StreamingEcho",
]

_UPPER = fake_arg("upper", "boolean", default=False)
_PREFIX = fake_arg("prefix", "string", scope="open")


@attrs.frozen(eq=False)
class FakeHandle:
    """What a fake has open."""

    cartridge_id: str
    options: Mapping[str, object]


@attrs.define(eq=False)
class FakeSession:
    """A fake's session."""

    handle: FakeHandle
    cap: str
    parameters: Mapping[str, object] = attrs.field(kw_only=True)
    context: Context = attrs.field(kw_only=True)
    chunks: list[object] = attrs.field(factory=list, kw_only=True)
    """Pushed, and not yet worked on."""

    done: list[str] = attrs.field(factory=list, kw_only=True)
    """Texts worked on, of this segment."""

    heard_s: float = attrs.field(default=0.0, kw_only=True)
    """Of all segments, where a fake counts time."""

    segment: int = attrs.field(default=0, kw_only=True)
    flushed: bool = attrs.field(default=False, kw_only=True)
    over: bool = attrs.field(default=False, kw_only=True)
    """Whether the last result was given."""

    def echo(self, text: str) -> str:
        """Give a text back, as the options and parameters say."""
        text = f"{self.handle.options.get('prefix', '')}{text}"
        return text.upper() if self.parameters.get("upper") else text


class _Fake:
    """The hooks that all fakes share."""

    plugin_name: ClassVar[str]
    descriptor: Descriptor

    def __init__(self) -> None:
        self.calls: list[str] = []

    def saw(self, hook: str) -> None:
        """Note a hook call, under its name without ``cartridge_``."""
        self.calls.append(hook)

    @hookimpl
    def cartridge_descriptors(self) -> tuple[Descriptor, ...]:
        """Give the one descriptor."""
        self.saw("descriptors")
        return (self.descriptor,)

    @hookimpl
    def cartridge_preflight(
        self, cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
    ) -> PreflightReport:
        """Find nothing missing."""
        del cartridge_id, pack, options
        self.saw("preflight")
        return PreflightReport((Check("fake", ok=True),), memory_bytes=0)

    @hookimpl
    def cartridge_open(
        self,
        cartridge_id: str,
        pack: Pack | None,
        options: Mapping[str, object],
        context: Context,
    ) -> FakeHandle:
        """Keep the options."""
        del pack, context
        self.saw("open")
        return FakeHandle(cartridge_id, options)

    @hookimpl
    def cartridge_close(self, handle: FakeHandle) -> None:
        """Hold nothing."""
        del handle
        self.saw("close")

    @hookimpl
    def cartridge_session_begin(
        self, handle: FakeHandle, cap: str, parameters: Mapping[str, object], context: Context
    ) -> FakeSession:
        """Begin with nothing pushed."""
        self.saw("session_begin")
        return FakeSession(handle, cap, parameters=parameters, context=context)

    @hookimpl
    def cartridge_session_end(self, session: FakeSession) -> None:
        """Hold nothing."""
        del session
        self.saw("session_end")


class BatchEcho(_Fake):
    """
    Batch; gives its text back as a record with the field ``text``.

    ``upper`` is an argument of its sessions, ``prefix`` one of its open.
    """

    plugin_name = "batch-echo"
    descriptor = fake_descriptor("batch-echo-text", caps=[fake_cap("echo", _UPPER, _PREFIX)])

    @hookimpl
    def cartridge_infer(self, session: FakeSession, value: object) -> Result:
        """Give the text back."""
        self.saw("infer")
        return Result(ResultKind.FINAL, {"text": session.echo(str(value))})


class FailingEcho(BatchEcho):
    """
    A `BatchEcho` of which one hook raises.

    Args:
        hook: Which one, without ``cartridge_``.
        error: What it raises; None is a `BackendError`.
    """

    plugin_name = "failing-echo"
    descriptor = fake_descriptor("failing-echo-text", caps=[fake_cap("echo", _UPPER, _PREFIX)])

    def __init__(self, hook: str = "infer", error: BaseException | None = None) -> None:
        super().__init__()
        self.hook = hook
        self.error: BaseException = error or BackendError("the fake backend gave up")

    def saw(self, hook: str) -> None:
        """Note a hook call, and raise in the one that fails."""
        super().saw(hook)
        if hook == self.hook:
            raise self.error


class SlowCounter(_Fake):
    """
    Batch; counts to its integer, a millisecond each, and stops when it is cancelled.

    ``working`` is set while it counts.
    """

    plugin_name = "slow-counter"
    descriptor = fake_descriptor(
        "slow-counter-batch",
        caps=[
            fake_cap("count", takes="media:integer;numeric", gives="media:count;integer;numeric")
        ],
    )

    def __init__(self) -> None:
        super().__init__()
        self.working = threading.Event()

    @hookimpl
    def cartridge_infer(self, session: FakeSession, value: object) -> Result:
        """Count."""
        self.saw("infer")
        assert isinstance(value, int)  # noqa: S101 -- declared, so the host has checked it
        self.working.set()
        pause = threading.Event()
        for _ in range(value):
            session.context.check_cancelled()
            pause.wait(0.001)
        self.working.clear()
        return Result(ResultKind.FINAL, value)

    @hookimpl
    def cartridge_cancel(self, session: FakeSession) -> None:
        """Leave it to the context."""
        del session
        self.saw("cancel")


class StreamingEcho(_Fake):
    """
    Streaming; gives every text chunk back as a PARTIAL, and all of them as one FINAL after flush.

    ``upper`` is an argument of its sessions, ``prefix`` one of its open. Both kinds of payload are
    texts.
    """

    plugin_name = "streaming-echo"
    descriptor = fake_descriptor(
        "streaming-echo-text",
        "streaming",
        [fake_cap("echo", _UPPER, _PREFIX, gives="media:echo;enc=utf-8", streaming=True)],
        partial="append",
    )

    @hookimpl
    def cartridge_push(self, session: FakeSession, chunk: object) -> None:
        """Keep the chunk for pull."""
        self.saw("push")
        session.chunks.append(chunk)

    @hookimpl
    def cartridge_pull(self, session: FakeSession) -> Result | None:
        """Work on one chunk, or give what is left."""
        self.saw("pull")
        session.context.check_cancelled()
        if session.chunks:
            return self.step(session, session.chunks.pop(0))
        if not session.flushed or session.over:
            return None
        session.over = True
        return self.commit(session)

    @hookimpl
    def cartridge_flush(self, session: FakeSession) -> None:
        """Note it."""
        self.saw("flush")
        session.flushed = True

    def step(self, session: FakeSession, chunk: object) -> Result:
        """Work on one chunk."""
        text = session.echo(str(chunk))
        session.done.append(text)
        return Result(ResultKind.PARTIAL, text, segment=session.segment)

    def commit(self, session: FakeSession) -> Result:
        """End a segment."""
        text, session.done = "".join(session.done), []
        session.segment += 1
        return Result(ResultKind.FINAL, text, segment=session.segment - 1)


class SegmentingEcho(StreamingEcho):
    """
    Streaming; takes bytes, each a second; a chunk that ends in a full stop ends a segment.

    Such a chunk gives ENDPOINT, then FINAL; the others give a PARTIAL with the segment so far.
    """

    plugin_name = "segmenting-echo"
    descriptor = fake_descriptor(
        "segmenting-echo-bytes",
        "streaming",
        [fake_cap("hear", takes="media:audio", gives="media:enc=utf-8;text", streaming=True)],
        partial="replace",
        endpointing="signal",
    )

    @hookimpl
    def cartridge_push(self, session: FakeSession, chunk: object) -> None:
        """Keep a copy of the chunk for pull, and the end of a segment as a chunk of its own."""
        self.saw("push")
        if not isinstance(chunk, bytes | bytearray):
            msg = f"{self.descriptor.id} hears bytes, and got a {type(chunk).__name__}"
            raise BackendError(msg)
        text = chunk.decode()
        session.chunks += [text, _END_OF_SEGMENT] if text.endswith(".") else [text]

    def step(self, session: FakeSession, chunk: object) -> Result:
        """Work on one chunk."""
        if chunk is _END_OF_SEGMENT:
            return self.commit(session)
        text = str(chunk)
        session.done.append(session.echo(text))
        session.heard_s += len(text)
        if session.chunks[:1] == [_END_OF_SEGMENT]:
            return Result(ResultKind.ENDPOINT, segment=session.segment, end_s=session.heard_s)
        return Result(ResultKind.PARTIAL, "".join(session.done), segment=session.segment)


_END_OF_SEGMENT = object()
