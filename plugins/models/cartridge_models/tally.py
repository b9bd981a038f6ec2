"""How far several files are, told in files and bytes, never backwards."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from cartridge_models.origin import megabytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.context import Context

__all__ = ["Tally"]

_EVERY_S = 0.1


class Tally:
    """
    What is here of a model.

    Args:
        what: The model, for a person.
        sizes: Bytes of every file by its name; None where that is not known yet.
        context: Takes the progress.
    """

    def __init__(self, what: str, sizes: Mapping[str, int | None], context: Context) -> None:
        self._what = what
        self._sizes = dict(sizes)
        self._context = context
        self._done = dict.fromkeys(sizes, 0)
        self._whole: set[str] = set()
        self._most = 0.0
        self._next_s = 0.0
        self._lock = threading.Lock()

    def learn(self, name: str, size_bytes: int) -> None:
        """Be told a file's size."""
        with self._lock:
            self._sizes[name] = size_bytes

    def have(self, name: str, done_bytes: int, note: str = "") -> None:
        """Be told how much of a file is here, and what is done about it."""
        with self._lock:
            self._done[name] = max(self._done[name], done_bytes)
            self._tell(name, note, is_due=False)

    def finish(self, name: str, size_bytes: int) -> None:
        """Be told that a file is whole."""
        with self._lock:
            self._sizes[name] = self._done[name] = size_bytes
            self._whole.add(name)
            self._tell(name, "", is_due=True)

    def _tell(self, name: str, note: str, *, is_due: bool) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s and not is_due:
            return
        self._next_s = now_s + _EVERY_S
        done = sum(self._done.values())
        sizes = [size for size in self._sizes.values() if size is not None]
        total = max(sum(sizes), done)
        is_known = len(sizes) == len(self._sizes) and total > 0
        self._most = max(self._most, done / total if is_known else 0.0)
        of_total = f" of {megabytes(total)}" if is_known else ""
        text = (
            f"downloading {self._what}: {len(self._whole)} of {len(self._sizes)} files, "
            f"{megabytes(done)}{of_total}"
        )
        self._context.progress(self._most, f"{text}; {name}: {note}" if note else text)
