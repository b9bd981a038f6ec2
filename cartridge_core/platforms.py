"""Whether a cartridge is built for a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cartridge_core.descriptor import Descriptor

__all__ = ["what_is_foreign"]

# One name for each, whoever speaks: Linux, macOS, Windows, Android, Python.
_MACHINES = {
    "aarch64": "arm64",
    "amd64": "x86_64",
    "arm64-v8a": "arm64",
    "armeabi-v7a": "armv7l",
    "x64": "x86_64",
}
_SYSTEMS = {"macos": "darwin", "windows": "win32"}


def what_is_foreign(descriptor: Descriptor, system: str, machine: str) -> str | None:
    """
    Say what a descriptor is built for, if that is not a machine.

    Args:
        descriptor: What is asked about.
        system: As ``sys.platform`` names it.
        machine: As ``platform.machine()`` names it.
    """
    abi, own = descriptor.target.abi.lower(), machine.lower()
    if abi != "any" and _MACHINES.get(abi, abi) != _MACHINES.get(own, own):
        return f"it is built for {descriptor.target.abi}, and this machine is {machine}"
    wanted = (descriptor.requirements.os_name or "any").lower()
    if wanted != "any" and _SYSTEMS.get(wanted, wanted) != system:
        return f"it needs {descriptor.requirements.os_name}, and this system is {system}"
    return None
