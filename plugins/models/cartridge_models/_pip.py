"""One wheel fetched by pip, with the user's own pip configuration."""

from __future__ import annotations

import collections
import importlib.util
import logging
import os
import re
import sys
from importlib import metadata
from typing import TYPE_CHECKING

from cartridge_core.errors import DownloadError
from cartridge_models import _child
from cartridge_models.settings import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cartridge_core.context import Context

__all__ = ["download_wheel", "has_wheel"]

_log = logging.getLogger("cartridge.models.pip")
_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_RAW_PROGRESS_SINCE = (24, 1)
_TAIL_LINES = 3
_NOISE = re.compile(r"\[notice\]|Looking in |Looking up |Collecting |Traceback |\^+$|~*\^+~*$")
_FULL = re.compile(r"no space left|disk quota exceeded|\[errno (28|122)\]", re.IGNORECASE)


def download_wheel(
    name: str, version: str, folder: Path, context: Context, on_bytes: Callable[[int, int], None]
) -> Path:
    """
    Have pip download one wheel; nothing is installed and nothing of it is executed.

    Args:
        name: The project.
        version: The exact version.
        folder: An empty folder, on the disk where the wheel will be unpacked.
        context: Takes pip's other lines; its cancellation ends pip.
        on_bytes: Told how many bytes are here and how many there are (0: not known).

    Raises:
        DownloadError: This Python has no pip, or pip failed; its last lines are in the message.

        CancelledError: The context was cancelled; pip has ended.
    """
    tail: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)
    advice = "check the name and the version, the network and pip's configuration"

    def take(line: str) -> None:
        nonlocal advice
        if _FULL.search(line):
            advice = f"no space left for {cache_folder()}; make room, or set CARTRIDGE_CACHE"
        if progress := _RAW_PROGRESS.fullmatch(line.strip()):
            on_bytes(int(progress[1]), int(progress[2]))
        elif line.strip():
            _log.debug("%s", line)
            if not _NOISE.match(line.strip()):
                tail.append(line.strip())
            context.log("debug", line.strip())

    command = _command(name, version, folder)
    # pip's own scratch files go where the wheel goes: one disk, and gone with the folder.
    env = os.environ | {"TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8"}
    status = _child.run(command, env=env, context=context, on_output=take, on_error=take)
    wheels = sorted(folder.glob("*.whl"))
    if status == 0 and len(wheels) == 1:
        return wheels[0]
    said = "\n".join(tail) or "it said nothing"
    msg = (
        f"{name}=={version} could not be downloaded: pip ended with status {status}; {advice}. "
        f"pip said:\n{said}"
    )
    raise DownloadError(msg)


def has_wheel(name: str, version: str, context: Context) -> bool:
    """
    Ask pip whether there is a wheel; nothing is downloaded.

    Raises:
        DownloadError: This Python has no pip, or pip cannot ask.

        CancelledError: The context was cancelled; pip has ended.
    """
    lines: list[str] = []
    options = ["--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--pre"]
    command = [*_pip(f"{name}=={version}"), "index", "versions", *options, name]
    env = os.environ | {"PYTHONIOENCODING": "utf-8"}
    status = _child.run(
        command, env=env, context=context, on_output=lines.append, on_error=lines.append
    )
    if status == 0:
        found = re.search(r"^Available versions: (.*)$", "\n".join(lines), re.MULTILINE)
        return found is not None and version in re.split(r"[,\s]+", found[1])
    said = "\n".join(line for line in lines[-_TAIL_LINES:] if not _NOISE.match(line))
    if "No matching distribution found" in said:
        return False
    msg = f"{name}=={version}: pip cannot say whether there is a wheel. pip said:\n{said}"
    raise DownloadError(msg)


def _pip(what: str) -> list[str]:
    if not sys.executable or importlib.util.find_spec("pip") is None:
        msg = (
            f"{what} could not be downloaded: this Python ({sys.executable or '?'}) has "
            f"no pip; type `python -m ensurepip`, or install {what} by other means"
        )
        raise DownloadError(msg)
    # -P: a folder named pip in the working directory is not pip.
    return [sys.executable, "-P", "-m", "pip"]


def _command(name: str, version: str, folder: Path) -> list[str]:
    bar = "raw" if _pip_release() >= _RAW_PROGRESS_SINCE else "off"
    return [
        *_pip(f"{name}=={version}"),
        *("download", "--no-input", "--no-deps"),
        *("--only-binary=:all:", "--disable-pip-version-check", f"--progress-bar={bar}"),
        *("--dest", str(folder), f"{name}=={version}"),
    ]


def _pip_release() -> tuple[int, ...]:
    try:
        version = metadata.version("pip")
    except metadata.PackageNotFoundError:
        return (0,)
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
