"""The checks that core can answer by itself, before a load and without importing a backend."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cartridge_core.reports import Check

if TYPE_CHECKING:
    from cartridge_core.descriptor import Backend, Descriptor

__all__ = ["core_checks"]


def core_checks(descriptor: Descriptor) -> tuple[Check, ...]:
    """Check what a descriptor declares: its backend's version, and memory."""
    checks = []
    if descriptor.backend is not None:
        checks.append(_backend(descriptor.backend))
    needed_mb = descriptor.requirements.memory_mb
    available_mb = _available_mb()
    if needed_mb is not None and available_mb is not None:
        ok = available_mb >= needed_mb
        fix = "close other programs, or take a smaller model"
        required, found = f"{needed_mb} MB", f"{available_mb} MB"
        checks.append(Check("memory", ok, required=required, found=found, fix=fix))
    return tuple(checks)


def _backend(backend: Backend) -> Check:
    # Deferred: it costs as much as the whole of core, and only a load needs it.
    from importlib import metadata  # noqa: PLC0415 -- see above

    name, minimum = backend.distribution, backend.min_version
    wanted = f"{name}>={minimum}" if minimum else name
    fix = f'pip install "{wanted}"'
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check("backend", ok=False, required=wanted, found="not installed", fix=fix)
    ok = minimum is None or _release(found) >= _release(minimum)
    return Check("backend", ok, required=wanted, found=f"{name} {found}", fix=fix)


def _release(version: str) -> tuple[int, ...]:
    """Read the release numbers of a version; enough to compare with a minimum."""
    match = re.match(r"v?(?:\d+!)?(\d+(?:\.\d+)*)", version)
    numbers = [int(part) for part in match[1].split(".")] if match else [0]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _available_mb() -> int | None:
    """Read how much memory can be taken; None where the system does not say it this way."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) // 1024
    except OSError:
        pass
    return None
