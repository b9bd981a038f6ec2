"""An open cartridge as a user holds it."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Self

from cartridge_core.arguments import bind_parameters
from cartridge_core.capdefs import whole_io
from cartridge_core.errors import StateError, UnsupportedError
from cartridge_core.session import Session
from cartridge_core.threads import check_process
from cartridge_core.urn import CapUrn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cartridge_core.capdefs import Cap
    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.leases import Lease
    from cartridge_core.resident import Resident

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
        self._lock = threading.Lock()
        self._sessions: set[Session] = set()
        self._beginning: set[Context] = set()
        self._is_revoked = False
        self._closed = False
        self._pid = os.getpid()

    @property
    def descriptor(self) -> Descriptor:
        """What the cartridge offers and needs."""
        return self._lease.offer.descriptor

    def session(self, cap: str | CapUrn | None = None, **parameters: object) -> Session:
        """
        Begin a session.

        Args:
            cap: Which of the cartridge's caps, as a request; None takes the first, or whatever a
                cartridge without caps does.
            **parameters: The cap's session arguments, by name.

        Raises:
            UnsupportedError: The cartridge does not offer the cap.

            InvalidArgumentError: An argument breaks its rule.

            StateError: The cartridge is closed, or stuck.

            BusyError: As many sessions as it takes at once are open already, and none has ended
                within the queue's time.

            CartridgeDiedError: Its process has ended.
        """
        check_process(self._pid)
        context = self._make_context()
        with self._lock:
            if self._closed or self._is_revoked:
                msg = f"{self.descriptor.id} is closed: open it again"
                raise StateError(msg)
            resident = self._lease.resident
            self._beginning.add(context)
        session = None
        try:
            chosen = self._cap(cap)
            session = self._begin(resident, chosen, bind_parameters(chosen, parameters), context)
        finally:
            with self._lock:
                self._beginning.discard(context)
                if session is not None:
                    self._sessions.add(session)
            if session is None and self._is_revoked:
                self._give_back()
        return session

    def _begin(
        self, resident: Resident, cap: Cap, parameters: Mapping[str, object], context: Context
    ) -> Session:
        """Begin a session once there is a place for it."""

        def on_end(session: Session) -> None:
            resident.leave()
            with self._lock:
                self._sessions.discard(session)
            if self._is_revoked:
                self._give_back()

        resident.enter(context, lambda why: context.log("info", why))
        try:
            binding, handle = resident.binding, resident.handle
            return Session(binding, handle, self.descriptor, cap, parameters, context, on_end)
        except BaseException:
            resident.leave()
            raise

    def close(self) -> None:
        """
        End its sessions and close it; again is harmless.

        Raises:
            StateError: A call is inside one of its sessions, or begins one, and is cancelled now;
                close again when it is out.
        """
        if self._pid != os.getpid():
            return  # what is open is the parent's
        with self._lock:
            sessions, beginning = list(self._sessions), list(self._beginning)
        with contextlib.ExitStack() as stack:
            stack.callback(self._give_back)
            for session in sessions:
                stack.callback(session.end)
                stack.callback(session.cancel)
            for context in beginning:
                stack.callback(context.cancel)
        if beginning and not self._closed:
            msg = f"{self.descriptor.id} begins a session; close it again when that is out"
            raise StateError(msg)

    def revoke(self) -> None:
        """Cancel its sessions, and close it as soon as they are out: it is taken away."""
        if self._lease.opening is not None:
            return  # who opens it is told by his context
        self._is_revoked = True
        with contextlib.suppress(StateError):
            self.close()

    def _give_back(self) -> None:
        """Give the lease back, once no session is left."""
        with self._lock:
            if self._closed or self._sessions or self._beginning:
                return
            self._closed = True
        self._on_close(self)
        self._lease.release()

    def _cap(self, request: str | CapUrn | None) -> Cap:
        caps = self.descriptor.caps
        if request is None:
            return caps[0] if caps else whole_io()
        asked = CapUrn.of(request)
        serving = [cap for cap in caps if cap.urn.is_dispatchable(asked)]
        if not serving:
            offered = ", ".join(str(cap.urn) for cap in caps) or "no cap"
            msg = f"{self.descriptor.id} does not offer {asked}; it offers {offered}"
            raise UnsupportedError(msg)
        return min(serving, key=lambda cap: cap.urn.distance(asked))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Cartridge {self.descriptor.id}: {state}>"
