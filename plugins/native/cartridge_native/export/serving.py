"""An installed cartridge with one cap and fixed arguments, whose values are bytes."""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, cast

from cartridge_core.arguments import bind
from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import BackendError, InvalidArgumentError, NoRouteError
from cartridge_core.jsondata import thaw
from cartridge_core.jsonfields import Fields
from cartridge_core.registry import Registry
from cartridge_core.results import ResultKind
from cartridge_native._library import MAX_BUFFER_BYTES, Raw
from cartridge_native.model import coders_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cartridge_core.arguments import Arguments
    from cartridge_core.cartridge import Cartridge
    from cartridge_core.results import Result
    from cartridge_core.session import Session
    from cartridge_native.ports import Coder

__all__ = ["SERVES", "Opened", "Served", "Stream"]

SERVES = "serves"
"""The attribute of a descriptor that says what an exported library runs."""


class Served:
    """
    What a library serves.

    Args:
        document: Its descriptor.
    """

    def __init__(self, document: bytes) -> None:
        descriptor = Descriptor.from_json(document)
        (cap,) = descriptor.caps
        self._urn, self._mode = cap.urn, descriptor.mode
        self._coders = coders_of(descriptor)[str(cap.urn)]
        self._may_be_none = cap.main is None or self._coders[0].form == "json"
        keys = frozenset({"cartridge_id", "args", "pack"})
        fields = Fields(descriptor.attributes[SERVES], SERVES, keys)
        self._id = fields.text("cartridge_id")
        self._args = cast("Mapping[str, object]", thaw(fields.mapping("args")))
        pack = fields.optional(fields.text, "pack")
        self._packs = () if pack is None else (pack,)
        self._making = threading.Lock()
        self._made: Registry | None = None

    def preflight(self) -> tuple[bool, str]:
        """
        Have the cartridge look at this machine.

        Returns:
            Whether it has what the cartridge needs, and what is missing.

        Raises:
            CartridgeError: It could not look.
        """
        registry, _, bound = self._found()
        report = registry.preflight(self._id, bound.model_spec, **bound.options)
        return report.ok, "; ".join(str(check) for check in report.failures)

    def open(self) -> Opened:
        """
        Open the cartridge.

        Raises:
            CartridgeError: It is not installed any more, takes other arguments now, or cannot be
                opened.
        """
        registry, urn, bound = self._found()
        opens: Callable[..., Cartridge] = registry.open
        cartridge = opens(self._id, bound.model_spec, **bound.options)
        return Opened(cartridge, urn, bound.parameters, self._coders, self._may_be_none)

    def _found(self) -> tuple[Registry, str, Arguments]:
        """Give the registry, the cap as it is declared now, and its arguments."""
        with self._making:
            if self._made is None:
                self._made = Registry.discover(packs=self._packs)
        registry = self._made
        if self._id not in registry.descriptors:
            msg = (
                f"{self._id}, which this library serves, is not usable in {sys.prefix}: install "
                "its plugin there; `cartridge doctor` says what is wrong"
            )
            raise NoRouteError(msg)
        spec = cast("str | None", self._args.get("model_spec"))
        route = registry.route(self._urn, self._mode, cartridge_id=self._id, model_spec=spec)
        return registry, str(route.cap.urn), bind(route.cap, self._args)


class Opened:
    """The open cartridge."""

    def __init__(
        self,
        cartridge: Cartridge,
        urn: str,
        parameters: Mapping[str, object],
        coders: tuple[Coder, Coder],
        may_be_none: bool,
    ) -> None:
        self._cartridge = cartridge
        self._urn = urn
        self._parameters = parameters
        self._coders = coders
        self._may_be_none = may_be_none

    def begin(self) -> Stream:
        """Begin a session; raises as `Cartridge.session`."""
        session = self._cartridge.session(self._urn, **self._parameters)
        return Stream(session, self._coders, self._may_be_none)

    def close(self) -> None:
        """Close it; raises as `Cartridge.close`."""
        self._cartridge.close()


class Stream:
    """
    One session; whatever is wrong raises as the calls of `Session` do.

    Args:
        session: Of the cartridge.
        coders: What goes in and comes out.
        may_be_none: Whether no bytes stand for None; else they are read like any.
    """

    def __init__(self, session: Session, coders: tuple[Coder, Coder], may_be_none: bool) -> None:
        self._session = session
        self._takes, self._gives = coders
        self._may_be_none = may_be_none

    def infer(self, data: bytes) -> Raw:
        """Take one whole input, give its FINAL."""
        return self._raw(self._session.infer(self._value(data)))

    def push(self, data: bytes) -> None:
        """Take one chunk."""
        self._session.push(self._value(data))

    def pull(self) -> Raw | None:
        """Work, and give the next result."""
        result = self._session.pull()
        return None if result is None else self._raw(result)

    def flush(self) -> None:
        """Take no more."""
        self._session.flush()

    def cancel(self) -> None:
        """Stop the call that is inside, from any thread."""
        self._session.cancel()

    def end(self) -> None:
        """End it."""
        self._session.end()

    def _value(self, data: bytes) -> object:
        if self._may_be_none and not data:
            return None
        try:
            return self._takes.decode(data)
        except BackendError as exc:
            raise InvalidArgumentError(str(exc), arg="value") from exc

    def _raw(self, result: Result) -> Raw:
        payload = _times(result) if result.kind is ResultKind.ENDPOINT else self._encoded(result)
        if len(payload) > MAX_BUFFER_BYTES:
            msg = f"a result of {len(payload)} bytes, and {MAX_BUFFER_BYTES} are the most"
            raise BackendError(msg)
        return Raw(result.kind, payload)

    def _encoded(self, result: Result) -> bytes:
        try:
            data = self._gives.encode(result.payload)
        except InvalidArgumentError as exc:
            msg = f"{result.cartridge_id} gave {exc}"
            raise BackendError(msg) from exc
        return data if isinstance(data, bytes) else data.tobytes()


def _times(result: Result) -> bytes:
    """Say when a segment was, as the payload of an ENDPOINT does; nothing where it is not known."""
    if result.end_s is None:
        return b""
    known = {} if result.start_s is None else {"start_s": result.start_s}
    return json.dumps({**known, "end_s": result.end_s}).encode()
