"""The command ``cartridge``, also as ``python -m cartridge_core``."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cartridge_core.registry import Registry

__all__ = ["main"]

_USAGE = 2
_INTERRUPTED = 130


def main(
    argv: Sequence[str] | None = None, make_registry: Callable[[], Registry] | None = None
) -> int:
    """
    Run one command.

    Args:
        argv: The words after the command's name. None takes the process's own, and with them the
            process: what anything prints to its stdout afterwards goes nowhere.
        make_registry: Gives the registry to ask; None discovers what is installed.

    Returns:
        The exit status: 0; 2 for wrong usage; 10 plus the ABI status's number for a
        `CartridgeError`, 109 for any other error; 130 after Ctrl-C; 141 when nobody reads stdout
        any more.
    """
    # Not a try around the import: a broken click should say so itself.
    if any(importlib.util.find_spec(name) is None for name in ("click", "rich")):
        sys.stderr.write('cartridge needs click and rich: pip install "cartridge-core[cli]"\n')
        return _USAGE
    try:
        from cartridge_core.cli.app import run  # noqa: PLC0415 -- click is an extra

        words = sys.argv[1:] if argv is None else argv
        return run(words, make_registry, owns_process=argv is None)
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
