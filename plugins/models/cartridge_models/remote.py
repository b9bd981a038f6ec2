"""A file that is to be fetched, how long to wait for it, and who waits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cartridge_models.digests import Digest

__all__ = ["Patience", "RemoteFile", "Watch", "discard", "wait"]

_NAP_S = 0.05


@attrs.frozen
class Patience:
    """How long to wait for what."""

    stall_s: float = 30.0
    """For a byte."""

    attempts: int = 4
    """How often to ask again without a byte more."""

    pause_s: float = 1.0
    """Before asking again; twice that the next time."""

    longest_pause_s: float = 60.0
    """The most that a server may ask for."""

    lock_s: float = 600.0
    """For somebody else's download that does not grow."""


@attrs.frozen
class RemoteFile:
    """A file on a server, and what its source states of it."""

    what: str
    """Its name for a person, which begins errors."""

    name: str
    """Its path in the model."""

    url: str = attrs.field(repr=False)
    digest: Digest
    size_bytes: int | None
    target: Path
    """Where it lies once it is whole and checked."""

    part: Path
    """Where its beginning lies until then, on the same disk."""

    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @property
    def note(self) -> Path:
        """Beside the part: what the server called the content that it is a part of."""
        return self.part.with_name(self.part.name + ".from")


class Watch(Protocol):
    """Whoever waits for a file."""

    def check(self) -> None:
        """Raise to stop; called at least every 50 ms."""

    def learn(self, size_bytes: int) -> None:
        """Be told the file's size, before its first byte is stored; raise to stop."""

    def have(self, done_bytes: int, note: str = "") -> None:
        """Be told how much is here; may be less than before."""


def discard(file: RemoteFile) -> None:
    """Remove what is here of a file that is not whole."""
    file.part.unlink(missing_ok=True)
    file.note.unlink(missing_ok=True)


def wait(seconds: float, check: Callable[[], None]) -> None:
    """Wait, and let ``check`` end it."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        check()
        time.sleep(min(_NAP_S, left))
