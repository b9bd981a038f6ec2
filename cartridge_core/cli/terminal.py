"""One command's surroundings: where results, errors and the log go, and the registry it asks."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
from typing import TYPE_CHECKING, TextIO

from cartridge_core.cli.plain import as_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from cartridge_core.cli.capture import Capture
    from cartridge_core.offers import Index
    from cartridge_core.registry import Registry
    from cartridge_core.router import Router

__all__ = ["Terminal"]


class Terminal:
    """
    What a verb is given: streams that nothing else writes to, and a registry.

    Args:
        make_registry: Gives the registry; None discovers what is installed.
    """

    def __init__(self, make_registry: Callable[[], Registry] | None = None) -> None:
        self._make_registry = make_registry
        self._capture: Capture | None = None
        self._handler: logging.Handler = logging.NullHandler()
        self.json = False
        self.verbose = False
        _fill_closed()
        self.out = _own(sys.stdout, 1)
        self.err = _own(sys.stderr, 2)
        logging.getLogger().addHandler(self._handler)

    def registry(self, packs: Iterable[Path] = ()) -> Registry:
        """
        Give the registry; the verb closes it.

        Args:
            packs: Pack folders that it finds besides those of ``CARTRIDGE_PACKS``.
        """
        if self._make_registry is not None:
            return self._make_registry()
        from cartridge_core.registry import Registry  # noqa: PLC0415 -- `--help` needs none

        return Registry.discover(packs=packs)

    @contextlib.contextmanager
    def catalog(self) -> Iterator[Index | Registry]:
        """Give what is installed; a verb that does no more than read it starts in half the time."""
        if self._make_registry is not None:
            with self._make_registry() as registry:
                yield registry
        else:
            yield _installed()

    @contextlib.contextmanager
    def router(self) -> Iterator[Router | Registry]:
        """Give what routes over what is installed, to a verb that runs nothing."""
        if self._make_registry is not None:
            with self._make_registry() as registry:
                yield registry
        else:
            from cartridge_core.environment import preferred  # noqa: PLC0415 -- as above
            from cartridge_core.router import Router  # noqa: PLC0415 -- as above

            index = _installed()
            yield Router(lambda: index, preferred())

    def capture(self) -> None:
        """Keep what plugins write to stdout and stderr out of both, until the command ends."""
        from cartridge_core.cli.capture import Capture  # noqa: PLC0415 -- few verbs need it

        # With --verbose the log goes to stderr anyway, and the last words of a crash must not
        # wait in a file.
        self._capture = Capture(("stdout",) if self.verbose else ("stdout", "stderr"))

    def show_log(self) -> None:
        """Have the log on stderr."""
        self.verbose = True
        root, ours = logging.getLogger(), logging.getLogger("cartridge")
        root.removeHandler(self._handler)
        self._handler = logging.StreamHandler(self.err)
        self._handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        root.addHandler(self._handler)
        ours.setLevel(logging.DEBUG)

    def give(self, document: object, text: str) -> None:
        """
        Write a result: its document with ``--json``, else its text.

        Args:
            document: Made of plain values, with arrays, bytes and records inside.
            text: For people; lines without the last line's end.
        """
        self.write(self.dump(document) if self.json else text + "\n")

    def write(self, text: str) -> None:
        """Write text to stdout, at once."""
        self.out.write(text)
        self.out.flush()

    def write_bytes(self, data: bytes) -> None:
        """Write bytes to stdout, at once."""
        self.out.buffer.write(data)
        self.out.flush()

    def dump(self, document: object) -> str:
        """Give a document as one line of JSON, with its end."""
        plain = as_plain(document)
        return json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n"

    def complain(self, line: str) -> None:
        """Write a line to stderr."""
        self.err.write(line + "\n")
        self.err.flush()

    def close(self, *, restore: bool) -> None:
        """
        End the command.

        Args:
            restore: Whether the process's streams are themselves again; if not, whatever is
                still written to stdout goes nowhere.
        """
        if self._capture is not None:
            self._capture.close(restore=restore)
        logging.getLogger().removeHandler(self._handler)
        if self.verbose:
            logging.getLogger("cartridge").setLevel(logging.NOTSET)
        for stream, others in ((self.out, sys.stdout), (self.err, sys.stderr)):
            if stream is not others:
                _close(stream)
        if not restore:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _installed() -> Index:
    from cartridge_core.environment import discover_installed  # noqa: PLC0415 -- as above
    from cartridge_core.offers import Index  # noqa: PLC0415 -- as above

    found = discover_installed()
    return Index(found.offers, found.issues)


def _own(stream: TextIO | None, fd: int) -> TextIO:
    """Give a stream of our own on what a standard stream writes to."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    try:
        is_standard = stream.fileno() == fd
    except (OSError, io.UnsupportedOperation):
        is_standard = False
    if not is_standard:
        return stream
    stream.flush()
    # What JSON escapes as \udc80 cannot be encoded: backslashreplace writes just that.
    return open(os.dup(fd), "w", encoding="utf-8", errors="backslashreplace")


def _fill_closed() -> None:
    """Open what the caller closed: else the next file would become stdin, stdout or stderr."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _close(stream: TextIO) -> None:
    # Where nobody reads it any more, what was left is lost either way.
    with contextlib.suppress(OSError):
        stream.close()
