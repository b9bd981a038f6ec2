"""What a cartridge's process logs, in the host's logging."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from cartridge_core.packing import MalformedError
from cartridge_core.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cartridge_core.packing import Buffer

__all__ = ["forward_logs", "levels", "log_to", "set_levels", "tell_record"]

_ROOT = "cartridge"


def levels() -> dict[str, int]:
    """Give the levels of the host's loggers ``cartridge.*``, by name."""
    found = {_ROOT: logging.getLogger(_ROOT).getEffectiveLevel()}
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.startswith(f"{_ROOT}.") and isinstance(logger, logging.Logger) and logger.level:
            found[name] = logger.level
    return found


def forward_logs(send: Callable[[list[Buffer]], None]) -> None:
    """Have what is logged under ``cartridge`` in this process sent to the host."""
    logger = logging.getLogger(_ROOT)
    logger.handlers = [_Forwarding(send)]
    logger.propagate = False


def set_levels(found: Mapping[str, int]) -> None:
    """Log what the host would."""
    for name, level in found.items():
        logging.getLogger(name).setLevel(level)


def log_to(send: Callable[[list[Buffer]], None]) -> None:
    """Have what this thread logs go another way, so that it comes before the answer there."""
    _here.send = send


_here = threading.local()


class _Forwarding(logging.Handler):
    def __init__(self, send: Callable[[list[Buffer]], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            send = getattr(_here, "send", self._send)
            send(encode("record", 0, [record.name, record.levelno, text]))
        except Exception:  # noqa: BLE001 -- logging's own way with what a record's text raises
            self.handleError(record)


def tell_record(values: list[object]) -> None:
    """
    Log in the host what a process logged.

    Raises:
        MalformedError: It is no record, or not of a logger of ours.
    """
    match values:
        case [str(name), int(level), str(message)] if f"{name}.".startswith(f"{_ROOT}."):
            # A filter of the user's may raise, and who reads must go on.
            with contextlib.suppress(Exception):
                logging.getLogger(name).log(level, "%s", message)
        case _:
            msg = f"a log record that says {str(values)[:60]!a}"
            raise MalformedError(msg)
