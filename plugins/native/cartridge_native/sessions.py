"""Sessions of a native cartridge: what goes in and comes out, as Python has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cartridge_core.errors import BackendError, InvalidArgumentError
from cartridge_core.jsondata import read_json
from cartridge_core.jsonfields import Fields
from cartridge_core.results import Result, ResultKind

if TYPE_CHECKING:
    from cartridge_native._library import NativeSession
    from cartridge_native.ports import Coder

__all__ = ["Session"]

# Read once: Python 3.11 takes 0.15 µs to find a member of an enum.
_PARTIAL, _FINAL, _ENDPOINT = ResultKind


class Session:
    """
    One session.

    Args:
        native: The library's own.
        takes: What the input is.
        gives: What the output is.
    """

    def __init__(self, native: NativeSession, takes: Coder, gives: Coder) -> None:
        self._native = native
        self._takes = takes
        self._gives = gives
        self._pushed = 0
        self._segment = 0
        self._start_s: float | None = None
        self._end_s: float | None = None

    def infer(self, value: object) -> Result:
        """
        Take one whole input.

        Raises:
            CartridgeError: The input is not what the port takes, the library failed, or gave what
                is no FINAL of the output port.
        """
        raw = self._native.infer(self._takes.encode(value))
        if raw.kind is not _FINAL:
            msg = f"ctg_infer gave {raw.kind.name}, and one whole input has one FINAL"
            raise BackendError(msg)
        return Result(_FINAL, self._gives.decode(raw.payload))

    def push(self, chunk: object) -> None:
        """
        Take one chunk.

        Raises:
            CartridgeError: It is not what the port takes, or the library failed.
        """
        data = self._takes.encode(chunk)
        self._native.push(data)
        self._pushed += len(data) if isinstance(data, bytes) else data.nbytes

    def pull(self) -> Result | None:
        """
        Give the next result.

        Raises:
            CartridgeError: The library failed, or gave what the descriptor does not say.
        """
        raw = self._native.pull()
        if raw is None:
            return None
        if raw.kind is _ENDPOINT:
            self._start_s, self._end_s = self._times(raw.payload)
            return self._result(_ENDPOINT, None)
        result = self._result(raw.kind, self._gives.decode(raw.payload))
        if raw.kind is _FINAL:
            self._segment += 1
            self._start_s = self._end_s = None
        return result

    def _result(self, kind: ResultKind, payload: object) -> Result:
        return Result(
            kind, payload, segment=self._segment, start_s=self._start_s, end_s=self._end_s
        )

    def _times(self, payload: bytes) -> tuple[float | None, float | None]:
        """Read what an ENDPOINT says of its segment; without words it ends where the input does."""
        if not payload:
            return None, self._takes.seconds(self._pushed)
        try:
            fields = Fields(read_json(payload, "$"), "$", frozenset({"start_s", "end_s"}))
            times = [fields.data.get(name) for name in ("start_s", "end_s")]
        except InvalidArgumentError as exc:
            msg = f"the library gave an ENDPOINT that does not say when: {exc}"
            raise BackendError(msg) from exc
        start_s, end_s = (_second(value) for value in times)
        if end_s is None:
            msg = 'the library gave an ENDPOINT that does not say when: "end_s" is missing'
            raise BackendError(msg)
        return start_s, end_s

    def flush(self) -> None:
        """
        Take no more.

        Raises:
            CartridgeError: The library failed.
        """
        self._native.flush()

    def cancel(self) -> None:
        """
        Have the library stop; from any thread.

        Raises:
            CartridgeError: The library failed.
        """
        self._native.cancel()

    def end(self) -> None:
        """
        End it.

        Raises:
            CartridgeError: The library failed.
        """
        self._native.end()


def _second(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        msg = f"the library gave an ENDPOINT whose time is {value!r}; seconds from 0 are expected"
        raise BackendError(msg)
    return float(value)
