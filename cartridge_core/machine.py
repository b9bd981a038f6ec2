"""
What this machine has: memory that is free, accelerators, drivers.

All of it is read from what Linux shows as files; no program is started and no library loaded.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path

__all__ = ["available_bytes", "driver_version", "free_disk_bytes", "list_accelerators"]

_ROOT = Path("/")

_DEVICES = (
    ("cuda", ("dev/nvidiactl", "proc/driver/nvidia/version", "dev/dxg")),
    ("rocm", ("dev/kfd",)),
    ("npu", ("dev/accel/accel0", "dev/apex_0", "dev/davinci0", "dev/galcore", "dev/rknpu")),
    ("gpu", ("dev/dri/renderD128", "dev/mali0")),
)
"""
What drivers put there: those of NVIDIA, of WSL, of AMD; of Linux's ``accel`` subsystem and of some
makers of NPUs; of any GPU that the kernel renders with.
"""

_MODULE = re.compile(r"[A-Za-z0-9_-]+")
_NUMBERS = re.compile(r"\d+(?:\.\d+)+")


def available_bytes(root: Path = _ROOT) -> int | None:
    """
    Give how much memory can be taken; None where the system does not say it this way.

    That is what the machine has free, or less where a control group that the process is in, or
    one above it, has less left. What such a group has read from files counts as taken there, and
    is given back when it is needed.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    free = _field(root / "proc/meminfo", "MemAvailable:")
    if free is None:
        return None
    left = [_left(folder, *names) for folder, names in _groups(root)]
    return max(0, min([free * 1024, *(amount for amount in left if amount is not None)]))


_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _groups(root: Path) -> list[tuple[Path, tuple[str, str, str]]]:
    """Give the folders of the control groups that the process is in, and their files' names."""
    mount = root / "sys/fs/cgroup"
    found = [(mount, _V2), (mount / "memory", _V1)]
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        # In a container the path may be the host's, of which nothing is to be seen here.
        parts = [part for part in path.split("/") if part not in {"", "..", "."}]
        if controllers and "memory" not in controllers.split(","):
            continue
        top, names = (mount / "memory", _V1) if controllers else (mount, _V2)
        found += [(top.joinpath(*parts[:count]), names) for count in range(1, len(parts) + 1)]
    return found


def _left(folder: Path, limit: str, usage: str, cached: str) -> int | None:
    """Give what is left of a group's memory; None where it has no limit."""
    try:
        most = int((folder / limit).read_text("ascii"))
        taken = int((folder / usage).read_text("ascii"))
    except (OSError, ValueError):  # "max" is no number: there is no limit
        return None
    return most - taken + (_field(folder / "memory.stat", f"{cached} ") or 0)


def _field(file: Path, name: str) -> int | None:
    """Find a line that starts with a name; give the number behind it."""
    try:
        for line in file.read_text("ascii").splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return None


def list_accelerators(root: Path = _ROOT) -> tuple[str, ...]:
    """
    Name the accelerators whose driver is there: ``cuda``, ``rocm``, ``npu``, ``gpu``, ``mps``.

    Args:
        root: Where ``dev`` and ``proc`` are.
    """
    found = [name for name, files in _DEVICES if any((root / file).exists() for file in files)]
    if sys.platform == "darwin" and platform.machine() == "arm64":
        found.append("mps")
    return tuple(found)


def driver_version(name: str, root: Path = _ROOT) -> str | None:
    """
    Give the version of a kernel driver; "" where it is loaded and does not say it.

    Args:
        name: As the kernel calls the module: ``nvidia``, ``amdgpu``.
        root: Where ``sys`` and ``proc`` are.

    Returns:
        None where it is not there.
    """
    if not _MODULE.fullmatch(name):
        return None
    folder = root / "sys/module" / name.replace("-", "_")
    try:
        if (folder / "version").is_file():
            return (folder / "version").read_text("utf-8", "replace").strip()
        text = (root / f"proc/driver/{name}/version").read_text("utf-8", "replace")
    except OSError:
        return "" if folder.is_dir() else None
    match = _NUMBERS.search(text)
    return match[0] if match else ""


def free_disk_bytes(folder: Path) -> int | None:
    """Give what can be written below a folder, which need not exist yet; None: unknown."""
    for place in (folder, *folder.parents):
        try:
            seen = os.statvfs(place)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return seen.f_bavail * seen.f_frsize
    return None
