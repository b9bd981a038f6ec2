"""The checks that core can answer by itself, before a load and without importing a backend."""

from __future__ import annotations

import platform
import re
import sys
from typing import TYPE_CHECKING

from cartridge_core.folders import cache_folder
from cartridge_core.machine import (
    available_bytes,
    driver_version,
    free_disk_bytes,
    list_accelerators,
)
from cartridge_core.platforms import what_is_foreign
from cartridge_core.reports import Check, PreflightReport

if TYPE_CHECKING:
    from cartridge_core.descriptor import Backend, Descriptor, Requirements

__all__ = ["complete", "core_checks", "disk_check"]

_MB = 1 << 20
_LESS_MEMORY = "close other programs, or take a smaller model"
_GPUS = ("cuda", "rocm", "gpu", "mps")
_KINDS = {
    "any": (*_GPUS, "npu"),
    "gpu": _GPUS,
    "vulkan": _GPUS,
    "npu": ("npu",),
    "cuda": ("cuda",),
    "rocm": ("rocm",),
    "mps": ("mps",),
}
"""What a descriptor may ask for by name, and what of that may be there."""

_WITH_MEMORY = {"cuda", "rocm", "npu"}
"""Those that have a memory of their own."""


def core_checks(descriptor: Descriptor) -> tuple[Check, ...]:
    """Check what a descriptor declares: platform, accelerator, driver, backend and memory."""
    needs = descriptor.requirements
    is_anywhere = (descriptor.target.abi, needs.os_name, needs.os_min_api) == ("any", None, None)
    checks = (
        None if is_anywhere else _platform(descriptor),
        _accelerator(descriptor) if needs.needs_accelerator else None,
        None if needs.driver_name is None else _driver(needs.driver_name, needs),
        None if descriptor.backend is None else _backend(descriptor.backend),
        None if needs.memory_mb is None else _memory(needs.memory_mb * _MB),
    )
    return tuple(check for check in checks if check is not None)


def complete(checks: tuple[Check, ...], report: PreflightReport) -> PreflightReport:
    """
    Put core's checks before a plugin's, and compare its estimate with what is free.

    A plugin that has a check named ``memory`` has compared it itself. Where there is an
    accelerator, a model may go into its memory, of which only the plugin knows: then core says
    what is free, and refuses nothing.

    Args:
        checks: Core's.
        report: The plugin's.
    """
    all_checks = (*checks, *report.checks)
    needed = report.memory_bytes
    if needed and not any(check.name == "memory" for check in report.checks):
        estimate = _memory(needed)
        if estimate is not None and not estimate.ok and _WITH_MEMORY & set(list_accelerators()):
            found = f"{estimate.found}, and an accelerator"
            estimate = Check("memory", ok=True, required=estimate.required, found=found)
        if estimate is not None:
            all_checks = (*all_checks, estimate)
    return PreflightReport(all_checks, memory_bytes=needed)


def disk_check(descriptor: Descriptor) -> Check | None:
    """
    Check that a model which is yet to be fetched has room in the cache.

    How large it is nobody knows before. It takes about as much on disk as in memory, so as much
    is asked for as the descriptor says of that.

    Returns:
        None where the descriptor does not say.
    """
    memory_mb = descriptor.requirements.memory_mb
    folder = cache_folder()
    free = free_disk_bytes(folder)
    if memory_mb is None or free is None:
        return None
    required, found = f"about {memory_mb} MB for its model", f"{free // _MB} MB in {folder}"
    fix = "remove models (`cartridge models list`), or set CARTRIDGE_CACHE to another disk"
    return Check("disk", free >= memory_mb * _MB, required=required, found=found, fix=fix)


def _platform(descriptor: Descriptor) -> Check:
    system, machine = sys.platform, platform.machine()
    found = f"{system} {machine}"
    needs = descriptor.requirements
    required = " ".join([needs.os_name or "any system", descriptor.target.abi])
    fix = "take a build of this cartridge for this machine"
    ok = what_is_foreign(descriptor, system, machine) is None
    if ok and needs.os_min_api is not None:
        level = sys.getandroidapilevel() if hasattr(sys, "getandroidapilevel") else None
        required = f"{required}, API level {needs.os_min_api}"
        found = f"{found}, {'no API level' if level is None else f'API level {level}'}"
        ok = level is not None and level >= needs.os_min_api
    return Check("platform", ok, required=required, found=found, fix=fix)


def _accelerator(descriptor: Descriptor) -> Check | None:
    there = list_accelerators()
    wanted = (descriptor.target.accelerator or "any").lower()
    if wanted not in _KINDS:
        return None  # what core does not know by name is the driver's and the plugin's to find
    ok = bool(set(there) & set(_KINDS[wanted]))
    required = "an accelerator" if wanted == "any" else f"the accelerator {wanted}"
    fix = "install its driver, or run this cartridge on a machine that has one"
    found = ", ".join(there) or "none"
    return Check("accelerator", ok, required=required, found=found, fix=fix)


def _driver(name: str, needs: Requirements) -> Check:
    version, minimum = driver_version(name), needs.driver_min_version
    required = f"{name}>={minimum}" if minimum else name
    fix = needs.driver_note or f"install the driver {required}"
    if not version:
        found = "not loaded" if version is None else "a version that it does not say"
        ok = version is not None and minimum is None
        return Check("driver", ok, required=required, found=found, fix=fix)
    ok = minimum is None or _release(version) >= _release(minimum)
    return Check("driver", ok, required=required, found=f"{name} {version}", fix=fix)


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


def _memory(needed: int) -> Check | None:
    available = available_bytes()
    if available is None:
        return None
    required, found = f"{-(-needed // _MB)} MB", f"{available // _MB} MB"
    return Check("memory", available >= needed, required=required, found=found, fix=_LESS_MEMORY)


def _release(version: str) -> tuple[int, ...]:
    """Read the release numbers of a version; enough to compare with a minimum."""
    match = re.match(r"v?(?:\d+!)?(\d+(?:\.\d+)*)", version)
    numbers = [int(part) for part in match[1].split(".")] if match else [0]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
