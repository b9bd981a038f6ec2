"""The hooks a plugin implements, in the ABI's words; they only ever gain trailing arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import pluggy

from cartridge_core.descriptor import HOOKS_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack
    from cartridge_core.reports import PreflightReport
    from cartridge_core.results import Result

__all__ = ["HOOKS_VERSION", "BatchPlugin", "HookSpecs", "StreamingPlugin", "hookimpl"]

hookimpl = pluggy.HookimplMarker("cartridge")
hookspec = pluggy.HookspecMarker("cartridge")


class HookSpecs:
    """The specifications pluggy checks a plugin against."""

    @hookspec(firstresult=True)
    def cartridge_descriptors(self) -> Sequence[Descriptor]:
        """Give the descriptors; equal to the plugin's ``descriptors/*.json``."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def cartridge_preflight(
        self, cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
    ) -> PreflightReport:
        """
        Check what only this machine can answer, loading nothing.

        ``memory_bytes`` of the report says what the open cartridge will hold, or None.
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def cartridge_open(
        self,
        cartridge_id: str,
        pack: Pack | None,
        options: Mapping[str, object],
        context: Context,
    ) -> object:
        """
        Load, and give a handle of the plugin's own (never None).

        ``pack`` is None for a cartridge without a ``pack`` argument; ``options`` holds the open
        arguments, defaults filled in.
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def cartridge_close(self, handle: object) -> None:
        """Unload; called once, after every session has ended."""

    @hookspec(firstresult=True)
    def cartridge_session_begin(
        self, handle: object, cap: str, parameters: Mapping[str, object], context: Context
    ) -> object:
        """
        Begin a session, and give it (never None).

        ``cap`` is the cartridge's own declared cap URN; ``parameters`` holds the session
        arguments, checked and with defaults filled in.
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def cartridge_session_end(self, session: object) -> None:
        """End a session; called once, also after errors and cancellation."""

    @hookspec(firstresult=True)
    def cartridge_infer(self, session: object, value: object) -> Result:
        """Batch: take one whole input, give one FINAL result."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def cartridge_push(self, session: object, chunk: object) -> None:
        """Streaming: take one chunk, borrowed for this call; the work happens in pull."""

    @hookspec(firstresult=True)
    def cartridge_pull(self, session: object) -> Result | None:
        """
        Streaming: work, and give the next result.

        Before flush, None comes at once when nothing is due; after it, pull blocks and None
        means drained.
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def cartridge_flush(self, session: object) -> None:
        """Streaming: there is no more input."""

    @hookspec(firstresult=True)
    def cartridge_cancel(self, session: object) -> None:
        """Optional: stop what ``context.cancelled`` cannot reach; called from any thread."""


H = TypeVar("H")
S = TypeVar("S")


class _Plugin(Protocol[H, S]):
    """What batch and streaming plugins share; H is the plugin's handle, S its session."""

    def cartridge_descriptors(self) -> Sequence[Descriptor]: ...

    def cartridge_preflight(
        self, cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
    ) -> PreflightReport: ...

    def cartridge_open(
        self,
        cartridge_id: str,
        pack: Pack | None,
        options: Mapping[str, object],
        context: Context,
    ) -> H: ...

    def cartridge_close(self, handle: H) -> None: ...

    def cartridge_session_begin(
        self, handle: H, cap: str, parameters: Mapping[str, object], context: Context
    ) -> S: ...

    def cartridge_session_end(self, session: S) -> None: ...


class BatchPlugin(_Plugin[H, S], Protocol[H, S]):
    """
    The hooks of a plugin with batch cartridges.

    One line in its tests has mypy check a module: ``_: BatchPlugin[Model, Session] = plugin``.
    """

    def cartridge_infer(self, session: S, value: object) -> Result:
        """Take one whole input, give one FINAL result."""


class StreamingPlugin(_Plugin[H, S], Protocol[H, S]):
    """
    The hooks of a plugin with streaming cartridges.

    One line in its tests has mypy check a module: ``_: StreamingPlugin[Model, Session] = plugin``.
    """

    def cartridge_push(self, session: S, chunk: object) -> None:
        """Take one chunk."""

    def cartridge_pull(self, session: S) -> Result | None:
        """Work, and give the next result."""

    def cartridge_flush(self, session: S) -> None:
        """Note the end of the input."""
