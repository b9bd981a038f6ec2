"""An open cartridge as a user holds it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from cartridge_core.arguments import bind_parameters
from cartridge_core.errors import StateError, UnsupportedError
from cartridge_core.session import Session
from cartridge_core.urn import CapUrn

if TYPE_CHECKING:
    from collections.abc import Callable

    from cartridge_core.capdefs import Cap
    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.residency import Lease

__all__ = ["Cartridge"]


class Cartridge:
    """
    An open cartridge; a context manager that closes it.

    Several may be open on the same model and options at once: they share what is loaded, and
    the last to close unloads it, unless calls keep it for the next one.
    """

    def __init__(
        self,
        lease: Lease,
        make_context: Callable[[], Context],
        on_close: Callable[[Cartridge], None],
    ) -> None:
        self._lease = lease
        self._make_context = make_context
        self._on_close = on_close
        self._sessions: set[Session] = set()
        self._closed = False

    @property
    def descriptor(self) -> Descriptor:
        """What the cartridge offers and needs."""
        return self._lease.resident.offer.descriptor

    def session(self, cap: str | CapUrn | None = None, **parameters: object) -> Session:
        """
        Begin a session.

        Args:
            cap: Which of the cartridge's caps, as a request; None takes the first.
            **parameters: The cap's session arguments, by name.

        Raises:
            UnsupportedError: The cartridge does not offer the cap.

            InvalidArgumentError: An argument breaks its rule.

            StateError: The cartridge is closed.
        """
        if self._closed:
            msg = f"{self.descriptor.id} is closed: open it again"
            raise StateError(msg)
        resident = self._lease.resident
        chosen = self._cap(cap)
        session = Session(
            resident.binding,
            resident.handle,
            self.descriptor,
            chosen,
            bind_parameters(chosen, parameters),
            self._make_context(),
            self._sessions.discard,
        )
        self._sessions.add(session)
        return session

    def close(self) -> None:
        """
        End its sessions and close it; again is harmless.

        Raises:
            StateError: A call is inside one of its sessions, which is cancelled now;
                close again when it is out.
        """
        if self._closed:
            return
        with ExitStack() as stack:
            stack.callback(self._give_back)
            for session in list(self._sessions):
                stack.callback(session.end)
                stack.callback(session.cancel)

    def _give_back(self) -> None:
        """Give the lease back, once no session is left."""
        if not self._sessions:
            self._closed = True
            self._on_close(self)
            self._lease.release()

    def _cap(self, request: str | CapUrn | None) -> Cap:
        caps = self.descriptor.caps
        if request is None and caps:
            return caps[0]
        asked = None if request is None else CapUrn.of(request)
        serving = [cap for cap in caps if asked is not None and cap.urn.is_dispatchable(asked)]
        if asked is None or not serving:
            offered = ", ".join(str(cap.urn) for cap in caps) or "no cap"
            msg = f"{self.descriptor.id} does not offer {asked or 'a cap'}; it offers {offered}"
            raise UnsupportedError(msg)
        return min(serving, key=lambda cap: cap.urn.distance(asked))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Cartridge {self.descriptor.id}: {state}>"
