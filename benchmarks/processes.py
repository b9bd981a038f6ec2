"""Whole processes, measured from outside."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Usage", "environment", "run"]


@attrs.frozen
class Usage:
    """What a process took, in seconds."""

    wall_s: float
    cpu_s: float


def environment(**more: str) -> dict[str, str]:
    """Give our environment without what keeps Python from writing and reading bytecode."""
    ours = {name: value for name, value in os.environ.items() if name not in _WITHOUT}
    return {**ours, **more}


_WITHOUT = {"PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONPROFILEIMPORTTIME"}


def run(command: Sequence[str], environ: Mapping[str, str], folder: str = os.sep) -> Usage:
    """
    Run a command to its end; its stdout is dropped.

    Raises:
        RuntimeError: Its exit status is not 0.
    """
    start = time.perf_counter()
    # All commands are the benchmarks' own.
    process = subprocess.Popen(command, env=environ, cwd=folder, stdout=subprocess.DEVNULL)  # noqa: S603 -- see above
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        msg = f"{' '.join(command)} ended with exit status {process.returncode}"
        raise RuntimeError(msg)
    return Usage(wall_s, usage.ru_utime + usage.ru_stime)
