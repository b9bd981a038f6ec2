"""What of this machine's CPUs the process may use: its affinity, its container's quota."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["usable_cores", "usable_cpus"]

_CGROUP = Path("/sys/fs/cgroup")
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


def _siblings(topology: Path, cpu: int) -> str:
    """Name the core that a CPU is a thread of, the same for all its threads."""
    try:
        return (topology / f"cpu{cpu}/topology/thread_siblings_list").read_text("ascii")
    except OSError:
        return str(cpu)
