"""The files of one model, fetched together: each by one process, whole, checked, then in place."""

from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import CancelledError, DownloadError
from cartridge_models.locks import Turn, hold
from cartridge_models.origin import megabytes
from cartridge_models.remote import Patience, RemoteFile, discard
from cartridge_models.tally import Tally
from cartridge_models.transfer import transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cartridge_core.context import Context

__all__ = ["Order", "check_room", "fetch"]

_AT_ONCE = 4
_QUIET_S = 5.0


@attrs.frozen
class Order:
    """What is fetched together."""

    what: str
    """The model, for a person."""

    files: Sequence[RemoteFile]

    locks: Path
    """The folder of the locks, one for each part."""

    advice: str
    """How to have the files on another disk."""

    publish: Callable[[RemoteFile], None] | None = None
    """Called for each file that is in place, also for one that was."""


def fetch(order: Order, context: Context, patience: Patience) -> None:
    """
    Fetch what is not here.

    Raises:
        DownloadError: A file does not come, or cannot be stored; what came of it is kept.

        VerificationError: A file is not what its source states.

        CancelledError: The context was cancelled; what came is kept.
    """
    tally = Tally(order.what, {file.name: file.size_bytes for file in order.files}, context)
    missing = [file for file in order.files if not _is_here(file)]
    check_room(missing, order.advice)
    job = _Job(order, patience, tally, context)
    for file in order.files:
        if file not in missing:
            job.finish(file)
    with ThreadPoolExecutor(min(_AT_ONCE, len(missing) or 1)) as pool:
        running = [pool.submit(job.run, file) for file in missing]
        try:
            for done in as_completed(running):
                done.result()
        finally:
            job.stop.set()
            for one in running:
                one.cancel()


def check_room(files: Sequence[RemoteFile], advice: str) -> None:
    """
    Refuse files that the disk has no room for.

    Raises:
        DownloadError: With what is needed and what is free.
    """
    if not files:
        return
    needed = sum((file.size_bytes or 0) - _size(file.part) for file in files)
    folder = files[0].target.parent
    existing = next(one for one in (folder, *folder.parents) if one.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        msg = (
            f"{files[0].what}: it needs {megabytes(needed)}, {existing} has {megabytes(free)} "
            f"free; make room, or {advice}"
        )
        raise DownloadError(msg)


def _is_here(file: RemoteFile) -> bool:
    if file.size_bytes is None:
        return file.target.exists()
    # What a power cut left may be shorter.
    return file.target.exists() and _size(file.target) == file.size_bytes


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@attrs.frozen
class _Job:
    """One call's files."""

    order: Order
    patience: Patience
    tally: Tally
    context: Context
    stop: threading.Event = attrs.field(factory=threading.Event)

    def run(self, file: RemoteFile) -> None:
        """Fetch one file, or wait for whoever does."""
        watch = _Watch(self, file)
        lock = self.order.locks / f"{file.part.name}.lock"
        try:
            with hold(lock, watch.wait_for):
                if _is_here(file):
                    discard(file)
                else:
                    transfer(file, self.patience, watch)
                    os.replace(file.part, file.target)
                    file.note.unlink(missing_ok=True)
                self.finish(file)
        except OSError as exc:
            msg = (
                f"{file.what}: it cannot be stored in {file.target.parent}: {exc}; make room, or "
                f"{self.order.advice}"
            )
            raise DownloadError(msg) from exc

    def finish(self, file: RemoteFile) -> None:
        """Take a file that is in place."""
        if self.order.publish is not None:
            self.order.publish(file)
        self.tally.finish(file.name, _size(file.target))

    def check(self) -> None:
        """Raise where the call or another of its files ended."""
        self.context.check_cancelled()
        if self.stop.is_set():
            msg = "another file of the model could not be fetched"
            raise CancelledError(msg)


class _Watch:
    """One file's line to the call."""

    def __init__(self, job: _Job, file: RemoteFile) -> None:
        self._job = job
        self._file = file
        self._done = _size(file.part)
        self._turn = Turn(file.what, lambda: _size(file.part), job.patience.lock_s)
        self._since_s = time.monotonic()
        self._said_s = self._since_s

    def check(self) -> None:
        """Stop where the call ended; say it where nothing comes."""
        self._job.check()
        now_s = time.monotonic()
        if now_s - self._said_s > _QUIET_S:
            self._said_s = now_s
            note = f"nothing came for {now_s - self._since_s:.0f} s"
            self._job.tally.have(self._file.name, self._done, note)

    def learn(self, size_bytes: int) -> None:
        """Take the size."""
        check_room([attrs.evolve(self._file, size_bytes=size_bytes)], self._job.order.advice)
        self._job.tally.learn(self._file.name, size_bytes)

    def have(self, done_bytes: int, note: str = "") -> None:
        """Take what is here."""
        self._done = done_bytes
        self._since_s = self._said_s = time.monotonic()
        self._job.tally.have(self._file.name, done_bytes, note)

    def wait_for(self, owner: str) -> None:
        """Take that somebody else fetches it."""
        self._job.check()
        done = self._turn.wait(owner)
        self._job.tally.have(self._file.name, done, f"waiting for {owner}, which fetches it")
