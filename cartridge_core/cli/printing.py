"""Print what a call gives, for people or as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from cartridge_core.cli.plain import as_plain
from cartridge_core.results import Result, ResultKind

if TYPE_CHECKING:
    from cartridge_core.calls import Call
    from cartridge_core.cli.meter import Meter
    from cartridge_core.cli.terminal import Terminal
    from cartridge_core.progress import Log, Progress

__all__ = ["print_events", "print_result"]


_COLUMNS = 80
_NEW_LINE = "\r\x1b[K"
"""Clears the line of a terminal, and starts it again."""


def print_result(terminal: Terminal, result: Result) -> None:
    """Print the one result of a call."""
    if terminal.json:
        terminal.write(terminal.dump(result))
    else:
        _print_payload(terminal, result.payload)


def print_events(terminal: Terminal, call: Call, meter: Meter) -> None:
    """
    Print a call's events as they come.

    For people: the text as it grows where PARTIAL results append; where they replace, each FINAL
    one, and on a terminal the text so far before it.
    """
    live = _Live(terminal, call.route.offer.descriptor.partial)
    try:
        for event in call:
            if not isinstance(event, Result):
                meter.note(event)
            else:
                meter.stop()
            if terminal.json:
                terminal.write(terminal.dump(_document(event)))
            elif isinstance(event, Result):
                live.show(event)
    finally:
        live.end_line()


def _document(event: Progress | Log | Result) -> dict[str, object]:
    fields = as_plain(event)
    assert isinstance(fields, dict)  # noqa: S101 -- events are values of attrs classes
    return {"event": type(event).__name__.lower(), **fields}


@attrs.define
class _Live:
    """The results of a stream, for a person."""

    terminal: Terminal
    partial: str | None
    shown: str = ""
    """What stands on the screen of a segment that has no FINAL yet; of increments, the last."""

    def show(self, result: Result) -> None:
        """Print a result, or what is new in it."""
        if result.kind is ResultKind.FINAL:
            self._commit(result.payload)
        elif result.kind is ResultKind.PARTIAL and (text := _growing(result.payload)):
            if self.partial == "append":
                self.terminal.write(text)
                self.shown = text
            elif self.partial == "replace" and self.terminal.out.isatty():
                self.shown = " ".join(text.split())[1 - _columns(self.terminal) :]
                self.terminal.write(_NEW_LINE + self.shown)

    def _commit(self, payload: object) -> None:
        if self.shown and self.partial == "append":
            self.end_line()
            return
        if self.shown:
            self.shown = ""
            self.terminal.write(_NEW_LINE)
        _print_payload(self.terminal, payload)

    def end_line(self) -> None:
        """End the line that has begun, if one has."""
        shown, self.shown = self.shown, ""
        if shown and not shown.endswith("\n"):
            self.terminal.write("\n")


def _growing(payload: object) -> str | None:
    """Give the text of a PARTIAL result: its payload, or that record's field."""
    text = payload.get("text") if isinstance(payload, Mapping) else payload
    return text if isinstance(text, str) else None


def _columns(terminal: Terminal) -> int:
    try:
        return os.get_terminal_size(terminal.out.fileno()).columns or _COLUMNS
    except OSError:
        return _COLUMNS


def _print_payload(terminal: Terminal, payload: object) -> None:
    if not isinstance(payload, bytes | bytearray | memoryview):
        text = _text(payload)
        terminal.write(text if text.endswith("\n") or payload is None else text + "\n")
    elif terminal.out.isatty():
        terminal.write(f"{memoryview(payload).nbytes} bytes; send stdout to a file to keep them\n")
    else:
        terminal.write_bytes(bytes(payload))


def _text(payload: object) -> str:
    """Show a payload: text as it is, the fields of a record a line each, else JSON."""
    if payload is None:
        return ""
    if isinstance(payload, str):
        return payload
    if isinstance(payload, Mapping):
        return "\n".join(f"{name}: {_inline(value)}" for name, value in payload.items())
    if isinstance(payload, list) and all(isinstance(item, str | Mapping) for item in payload):
        return "\n".join(_text(item) for item in payload)
    return _inline(payload)


def _inline(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(as_plain(value), ensure_ascii=False)
