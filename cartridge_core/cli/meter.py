"""The progress bar of a call, on stderr where that is a terminal."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

from cartridge_core.progress import Log, Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from cartridge_core.cli.terminal import Terminal

__all__ = ["Meter"]

_log = logging.getLogger("cartridge.run")
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class Meter:
    """
    Shows progress and logs log lines; a context manager that takes the bar away.

    Args:
        terminal: The bar is on its stderr, unless the log is there.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def note(self, event: Progress | Log) -> None:
        """Show or log what a call tells."""
        if isinstance(event, Log):
            level = _LEVELS.get(event.level, logging.INFO)
            _log.log(level, "%s: %s", event.cartridge_id, event.message)
        elif self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=event.fraction, description=event.message)

    def stop(self) -> None:
        """Take the bar away; again is harmless."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> Self:
        if self._terminal.err.isatty() and not self._terminal.verbose:
            self._bar, self._task = _start(self._terminal)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def _start(terminal: Terminal) -> tuple[Bar, TaskID]:
    # Deferred: rich takes longer to import than everything else here.
    from rich.console import Console  # noqa: PLC0415 -- see above
    from rich.progress import Progress as Bar  # noqa: PLC0415 -- see above

    console = Console(file=terminal.err)
    bar = Bar(console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    task = bar.add_task("", total=1.0)
    bar.start()
    return bar, task
