"""The command ``cartridge``, also as ``python -m cartridge_core``."""

from __future__ import annotations

import gc
import importlib.util
import sys
from typing import TYPE_CHECKING

from cartridge_core.cli.interrupt import Interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cartridge_core.registry import Registry

__all__ = ["main"]

_GARBAGE_EVERY = 100_000
"""How many more objects there must be before garbage is looked for."""

_USAGE = 2
_INTERRUPTED = 130


def main(
    argv: Sequence[str] | None = None, make_registry: Callable[[], Registry] | None = None
) -> int:
    """
    Run one command.

    Args:
        argv: The words after the command's name. None takes the process's own, and with them the
            process: what anything prints to its stdout afterwards goes nowhere, and Ctrl-C ends
            it within a second, whatever a plugin is doing.
        make_registry: Gives the registry to ask; None discovers what is installed.

    Returns:
        The exit status: 0; 2 for wrong usage; 10 plus the ABI status's number for a
        `CartridgeError`, 109 for any other error; 130 after Ctrl-C; 141 when nobody reads stdout
        any more.
    """
    interrupts = Interrupts()
    try:
        if argv is not None:
            return _run(argv, make_registry, owns_process=False)
        interrupts.watch()
        # What an import makes is no garbage: to look through it time and again, and once more at
        # the end, takes a fifth of a short command.
        gc.set_threshold(_GARBAGE_EVERY)
        status = _run(sys.argv[1:], make_registry, owns_process=True)
        interrupts.finish()
        gc.freeze()
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


def _run(
    argv: Sequence[str], make_registry: Callable[[], Registry] | None, *, owns_process: bool
) -> int:
    # Not a try around the import: a broken click should say so itself.
    if any(importlib.util.find_spec(name) is None for name in ("click", "rich")):
        sys.stderr.write('cartridge needs click and rich: pip install "cartridge-core[cli]"\n')
        return _USAGE
    from cartridge_core.cli.app import run  # noqa: PLC0415 -- click is an extra

    return run(argv, make_registry, owns_process=owns_process)


if __name__ == "__main__":
    sys.exit(main())
