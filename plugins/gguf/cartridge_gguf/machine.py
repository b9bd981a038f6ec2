"""What of this machine the process may use: its affinity, its container's quota and limit."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["available_bytes", "usable_cores", "usable_cpus"]

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")
_TOPOLOGY = Path("/sys/devices/system/cpu")


def usable_cpus() -> set[int]:
    """Give the numbers of the CPUs that the process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def usable_cores(topology: Path = _TOPOLOGY, cgroup: Path = _CGROUP) -> int:
    """
    Count physical cores; at least 1.

    Two hyper-threads of a core count once: the second adds little to arithmetic. What the system
    does not tell is not subtracted.

    Args:
        topology: Where Linux describes the CPUs.
        cgroup: Where Linux keeps the quota of this container.
    """
    cores = len({_siblings(topology, cpu) for cpu in usable_cpus()})
    try:
        quota, period = (cgroup / "cpu.max").read_text("ascii").split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # "max" is no number: there is no quota
        return cores


def available_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """
    Give how much memory can be taken; None where the system does not say it this way.

    Args:
        meminfo: Where Linux describes the memory.
        cgroup: Where Linux keeps the limit of this container.
    """
    machine = _field(meminfo, "MemAvailable:")
    if machine is None:
        return None
    try:
        limit = int((cgroup / "memory.max").read_text("ascii"))
        taken = int((cgroup / "memory.current").read_text("ascii"))
    except (OSError, ValueError):  # "max" is no number: there is no limit
        return machine * 1024
    # What the container has read from files counts as taken, and is given back when needed.
    cached = _field(cgroup / "memory.stat", "inactive_file") or 0
    return max(0, min(machine * 1024, limit - taken + cached))


def _siblings(topology: Path, cpu: int) -> str:
    """Name the core that a CPU is a thread of, the same for all its threads."""
    try:
        return (topology / f"cpu{cpu}/topology/thread_siblings_list").read_text("ascii")
    except OSError:
        return str(cpu)


def _field(file: Path, name: str) -> int | None:
    """Find a line that starts with a name; give the number behind it."""
    try:
        for line in file.read_text("ascii").splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    except OSError:
        pass
    return None
