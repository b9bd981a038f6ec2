"""Print what a call gives, for people or as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cartridge_core.cli.plain import as_plain
from cartridge_core.results import Result, ResultKind

if TYPE_CHECKING:
    from cartridge_core.calls import Call
    from cartridge_core.cli.meter import Meter
    from cartridge_core.cli.terminal import Terminal
    from cartridge_core.progress import Log, Progress

__all__ = ["print_events", "print_result"]


def print_result(terminal: Terminal, result: Result) -> None:
    """Print the one result of a call."""
    if terminal.json:
        terminal.write(terminal.dump(result))
    else:
        _print_payload(terminal, result.payload)


def print_events(terminal: Terminal, call: Call, meter: Meter) -> None:
    """
    Print a call's events as they come.

    For people: the increments of a cartridge whose PARTIAL results append, else each FINAL one.
    """
    appends = call.route.offer.descriptor.partial == "append"
    in_line = False
    for event in call:
        if not isinstance(event, Result):
            meter.note(event)
        else:
            meter.stop()
        if terminal.json:
            terminal.write(terminal.dump(_document(event)))
        elif isinstance(event, Result):
            in_line = _print_event(terminal, event, appends=appends, in_line=in_line)


def _document(event: Progress | Log | Result) -> dict[str, object]:
    fields = as_plain(event)
    assert isinstance(fields, dict)  # noqa: S101 -- events are values of attrs classes
    return {"event": type(event).__name__.lower(), **fields}


def _print_event(terminal: Terminal, result: Result, *, appends: bool, in_line: bool) -> bool:
    """Print a result of a stream; say whether a line has begun."""
    if result.kind is ResultKind.FINAL:
        if in_line:
            terminal.write("\n")
        else:
            _print_payload(terminal, result.payload)
        return False
    if result.kind is ResultKind.PARTIAL and appends and isinstance(result.payload, str):
        terminal.write(result.payload)
        return True
    return in_line


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
