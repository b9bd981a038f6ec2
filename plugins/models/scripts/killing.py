"""
Kill downloads again and again, and look after each what is in the cache.

    python killing.py COUNT FOLDER URL SHA256 SHA256 ...

Each file is at URL/SHA256. Prints, as JSON, how many downloads were killed, how many of them after
a byte had come, how often everything was there, and what was ever wrong.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from cartridge_core.context import Context
from cartridge_models.digests import Digest
from cartridge_models.fetching import Order, fetch
from cartridge_models.remote import Patience, RemoteFile

_NAP_S = 0.001
_LONG_S = 20.0


def main(count: int, folder: Path, url: str, names: list[str]) -> None:
    """Kill."""
    files = [_remote(folder, url, name) for name in names]
    order = Order("files", files, folder / "locks", "use another disk")
    chance = random.Random(7)  # noqa: S311 -- the same every time
    killed = late = whole = 0
    wrong: list[str] = []
    while killed < count:
        before = _bytes(files)
        child = os.fork()
        if child == 0:
            fetch(order, Context(), Patience(pause_s=0.01))
            os._exit(0)
        if chance.random() < 0.8:
            _wait_for_a_byte(files, before, child)
        time.sleep(chance.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        killed += 1
        late += _bytes(files) > before
        wrong += [file.name for file in files if not _is_sound(file)]
        if all(file.target.exists() for file in files):
            whole += 1
            for file in files:
                file.target.unlink()
    fetch(order, Context(), Patience())
    wrong += [file.name for file in files if not file.target.exists() or not _is_sound(file)]
    print(json.dumps({"killed": killed, "late": late, "whole": whole, "wrong": wrong}))


def _remote(folder: Path, url: str, name: str) -> RemoteFile:
    target = folder / name
    part = folder / f"{name}.part"
    digest = Digest("sha256", name)
    return RemoteFile(name, name, f"{url}/{name}", digest, None, target, part)


def _wait_for_a_byte(files: list[RemoteFile], before: int, child: int) -> None:
    until = time.monotonic() + _LONG_S
    while _bytes(files) <= before and time.monotonic() < until:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(_NAP_S)


def _bytes(files: list[RemoteFile]) -> int:
    return sum(_size(file.part) + _size(file.target) for file in files)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _is_sound(file: RemoteFile) -> bool:
    if not file.target.exists():
        return True
    return hashlib.sha256(file.target.read_bytes()).hexdigest() == file.digest.hex


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
