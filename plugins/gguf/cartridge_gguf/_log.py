"""What llama.cpp says, line by line, into `logging`; and its last complaints, for errors."""

from __future__ import annotations

import logging
import threading
from collections import deque

__all__ = ["NativeLog"]

_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
"""By ggml's numbers (``ggml_log_level``)."""

_CONTINUATION = 5
_KEPT = 8


class _Speech(threading.local):
    """What one thread's native calls have said."""

    def __init__(self) -> None:
        self.level = logging.DEBUG
        self.line = ""
        self.complaints: deque[str] = deque(maxlen=_KEPT)


class NativeLog:
    """
    One of the backend's logs.

    It speaks in the thread that calls it, in pieces: a line may come in several, of which the
    later ones are marked as continuations.

    Args:
        name: Of the logger.
    """

    def __init__(self, name: str) -> None:
        self._log = logging.getLogger(name)
        self._speech = _Speech()

    def write(self, level: int, text: str) -> None:
        """
        Take a piece, and pass on the lines that are whole.

        Args:
            level: ggml's number.
            text: Ends with a line feed where the line ends.
        """
        speech = self._speech
        if level != _CONTINUATION:
            self._end_line()
            speech.level = _LEVELS.get(level, logging.DEBUG)
        *lines, speech.line = (speech.line + text).split("\n")
        for line in lines:
            self._tell(line)

    def take_complaints(self) -> str:
        """Give the last warnings and errors of this thread's calls, and forget them."""
        self._end_line()
        complaints = "; ".join(self._speech.complaints)
        self._speech.complaints.clear()
        return complaints

    def _end_line(self) -> None:
        line, self._speech.line = self._speech.line, ""
        self._tell(line)

    def _tell(self, line: str) -> None:
        if not line.strip():
            return
        self._log.log(self._speech.level, "%s", line.rstrip())
        if self._speech.level >= logging.WARNING:
            self._speech.complaints.append(line.strip())
