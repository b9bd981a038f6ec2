"""Read a call's input from a file or from stdin."""

from __future__ import annotations

import io
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from cartridge_core.cli.values import is_binary, is_text, read_value
from cartridge_core.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cartridge_core.capdefs import Arg

__all__ = ["read_source"]

_PIECE_BYTES = 1 << 16


def read_source(main: Arg | None, source: str | None, *, chunked: bool) -> object:
    """
    Read the input where it is not on the command line.

    Args:
        main: What it is for; None for a cap that takes no input.
        source: A file, or ``-`` for stdin; None takes stdin where something is sent to it.
        chunked: Whether the cartridge takes stdin as it comes.

    Returns:
        A path for what is not text, bytes of stdin, else the value that the text says; an
        iterator of bytes or of lines for what comes in chunks. None where nothing was given.

    Raises:
        UsageError: The file cannot be read, or the cap takes no input.

        InvalidArgumentError: It is not UTF-8 where text is taken, or what is needed is nowhere.
    """
    if main is None:
        if source is not None:
            msg = "--input is given, and the cap takes no input"
            raise click.UsageError(msg)
        return None
    if source is None:
        return _implied(main, chunked=chunked)
    if source != "-":
        return _file(main, Path(source))
    stdin = _stdin()
    if stdin is None:
        msg = "--input - is given, and stdin is closed"
        raise click.UsageError(msg)
    return _chunks(main, stdin) if chunked else _read(main, stdin.read(), "stdin")


def _implied(main: Arg, *, chunked: bool) -> object:
    """Take stdin where something is sent to it; None where nothing is, and nothing is needed."""
    stdin = _stdin()
    missing = "no VALUE and no --input is given"
    if stdin is not None and not stdin.isatty():
        if chunked:
            chunks = _chunks(main, stdin)
            for first in chunks:
                return itertools.chain((first,), chunks)
        elif data := stdin.read():
            return _read(main, data, "stdin")
        missing += ", and stdin was empty"
    if main.required:
        msg = f"{main.name}: {missing}"
        raise InvalidArgumentError(msg, arg=main.name, rule="required")
    return None


def _stdin() -> BinaryIO | None:
    return None if sys.stdin is None else sys.stdin.buffer


def _file(main: Arg, path: Path) -> object:
    try:
        data = path.read_bytes()
    except OSError as exc:
        msg = f"--input {path} cannot be read: {exc.strerror}"
        raise click.UsageError(msg) from exc
    return path.absolute() if is_binary(main) else _read(main, data, str(path))


def _read(main: Arg, data: bytes, where: str, start: int = 0) -> object:
    if is_binary(main):
        return data
    try:
        return read_value(main, data.decode("utf-8"))
    except UnicodeDecodeError as exc:
        msg = f"{main.name}: {where} is not UTF-8: byte {start + exc.start} cannot be read"
        raise InvalidArgumentError(msg, arg=main.name, rule="UTF-8") from exc


def _chunks(main: Arg, stdin: BinaryIO) -> Iterator[object]:
    """Give stdin as it comes: text by lines, with their ends, and JSON as one value."""
    if is_binary(main):
        yield from _pieces(stdin)
    elif is_text(main):
        done = 0
        while line := stdin.readline():
            yield _read(main, line, "stdin", done)
            done += len(line)
    elif data := stdin.read():
        yield _read(main, data, "stdin")


def _pieces(stdin: BinaryIO) -> Iterator[bytes]:
    read = stdin.read1 if isinstance(stdin, io.BufferedReader) else stdin.read
    while piece := read(_PIECE_BYTES):
        yield piece
