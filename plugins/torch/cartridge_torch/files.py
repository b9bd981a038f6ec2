"""A model's files, opened only where they are plain files, so that reading one never waits."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

from cartridge_core.errors import LoadError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["check_plain", "read_json", "refused"]


def refused(path: Path, what: str) -> LoadError:
    """Make the error that names a model's folder and what is wrong with it."""
    msg = f"model {path}: {what}"
    return LoadError(msg)


def check_plain(path: Path, file: Path) -> None:
    """
    Refuse a pipe, a socket or a device: whoever opens one may wait for ever.

    Args:
        path: The model's folder.
        file: A file in it.

    Raises:
        LoadError: It is no regular file, or a link to nothing.
    """
    name = file.relative_to(path)
    try:
        mode = file.stat().st_mode
    except OSError as exc:
        raise refused(path, f"{name} cannot be read ({exc.strerror})") from exc
    if not stat.S_ISREG(mode):
        raise refused(path, f"{name} is a pipe, a socket or a device, no regular file; replace it")


def read_json(path: Path, file: Path) -> object:
    """
    Read a JSON file of a model's folder.

    Raises:
        LoadError: It is no regular file, cannot be read, is no JSON, or nested too deeply.
    """
    check_plain(path, file)
    name = file.relative_to(path)
    try:
        document: object = json.loads(file.read_bytes())
    except RecursionError as exc:
        raise refused(path, f"{name} is nested too deeply; download it again") from exc
    except (OSError, ValueError) as exc:
        raise refused(path, f"{name} is no JSON ({exc}); download it again") from exc
    return document
