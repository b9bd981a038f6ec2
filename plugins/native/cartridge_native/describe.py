"""
Print the descriptor that is built into a library: ``python -m cartridge_native.describe LIBRARY``.

It is a program because loading a library may end the process. What the library prints goes to
stderr.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cartridge_core.errors import CartridgeError

__all__ = ["main"]

_FAILED = 10
"""More than the status of the ABI, as the command ``cartridge`` does."""


def main(library: str) -> int:
    """Print it; give the exit status."""
    # Deferred: it is what imports ctypes.
    from cartridge_native._library import Library  # noqa: PLC0415 -- see above

    out = os.dup(1)
    os.dup2(2, 1)
    try:
        text = Library(Path(library)).descriptor_json()
    except CartridgeError as exc:
        sys.stderr.write(f"{type(exc).__name__}: {exc}\n")
        return _FAILED - exc.status
    with open(out, "wb") as stream:
        stream.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
