"""
Locks between processes, each a file that names its owner.

The kernel holds the lock and drops it with its process, whatever children that left; the file
alone means nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

from cartridge_core.errors import DownloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Turn", "hold", "owner_of"]

_NAP_S = 0.05
_MOST_TEXT = 200

# A process has a lock of this kind once, whichever of its threads asks, and loses it with any
# descriptor of the file that it closes: who opens the file holds the guard.
_guard = threading.Lock()
_held: dict[str, str] = {}


def _forget() -> None:
    _held.clear()
    _guard.release()


os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_forget)


@contextlib.contextmanager
def hold(path: Path, waiting: Callable[[str], None]) -> Iterator[None]:
    """
    Hold a lock for a block.

    Args:
        path: The lock's file; it goes with the lock.
        waiting: Called every 50 ms while somebody else has it, with who that is; may raise to
            stop.

    Raises:
        DownloadError: Its file system has no locks.

        OSError: Its file cannot be written.
    """
    key = os.path.abspath(path)
    while isinstance(lock := _try(key), str):
        waiting(lock)
        time.sleep(_NAP_S)
    try:
        yield
    finally:
        with _guard:
            del _held[key]
            with contextlib.suppress(OSError):
                os.unlink(key)
            os.close(lock)


class Turn:
    """
    One caller's wait for a lock: as long as what its owner fetches grows.

    Args:
        what: What is fetched, for a person.
        size: Gives how many bytes of it are here.
        limit_s: How long to wait without a byte more.
    """

    def __init__(self, what: str, size: Callable[[], int], limit_s: float) -> None:
        self._what = what
        self._size = size
        self._limit_s = limit_s
        self._done = -1
        self._since_s = 0.0

    def wait(self, owner: str) -> int:
        """
        Look how far the owner is.

        Raises:
            DownloadError: It has come no further for too long.
        """
        done, now_s = self._size(), time.monotonic()
        if done != self._done:
            self._done, self._since_s = done, now_s
        quiet_s = now_s - self._since_s
        if quiet_s > self._limit_s:
            msg = (
                f"{self._what}: {owner} fetches it, and nothing came for {quiet_s:.0f} s; end "
                "that, or try again later"
            )
            raise DownloadError(msg)
        return done


def owner_of(path: Path) -> str | None:
    """Say who has a lock now; None where nobody has."""
    key = os.path.abspath(path)
    with _guard:
        if key in _held:
            return _held[key]
        try:
            file = os.open(key, os.O_RDWR)
        except OSError:
            return None
        try:
            return None if _lock(key, file) else _read_owner(file)
        finally:
            os.close(file)


def _try(key: str) -> int | str:
    """Give the lock's descriptor, or who has it."""
    with _guard:
        if key in _held:
            return _held[key]
        os.makedirs(os.path.dirname(key), exist_ok=True)
        file = os.open(key, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not _lock(key, file) or not _is_still(key, file):
                owner = _read_owner(file)
                os.close(file)
                return owner
            me = f"process {os.getpid()} on {socket.gethostname()} since {_now()}"
            os.ftruncate(file, 0)
            os.pwrite(file, me.encode(), 0)
        except BaseException:
            os.close(file)
            raise
        _held[key] = me
        return file


def _lock(key: str, file: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as exc:
        msg = f"{key}: its file system has no locks ({exc.strerror}); keep the cache on another"
        raise DownloadError(msg) from exc
    return True


def _is_still(key: str, file: int) -> bool:
    """Tell whether the file that was locked is the one that others find."""
    try:
        return os.path.samestat(os.stat(key), os.fstat(file))
    except FileNotFoundError:
        return False


def _read_owner(file: int) -> str:
    text = os.pread(file, _MOST_TEXT, 0).decode(errors="replace")
    return text if text.isprintable() and text else "another process"


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")
