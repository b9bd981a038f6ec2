"""Write a file whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_whole"]


def write_whole(file: Path, text: str, mode: int) -> None:
    """
    Replace a file, so that whoever reads it finds the old text or the new one.

    Args:
        file: Which one; it need not exist, and its folder must.
        text: What it holds from then on.
        mode: Its permissions.

    Raises:
        OSError: It cannot be written; it is then what it was.
    """
    fd, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with open(fd, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        os.replace(name, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
