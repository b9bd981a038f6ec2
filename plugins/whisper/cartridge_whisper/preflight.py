"""What this machine must have, answered without importing torch or whisper."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from cartridge_core.descriptor import IoMode
from cartridge_core.preflight import core_checks
from cartridge_core.reports import Check, PreflightReport
from cartridge_whisper.files import ModelFiles
from cartridge_whisper.options import LoadOptions
from cartridge_whisper.voice import INSTALL, is_installed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack

__all__ = ["Machine", "check"]

_GPU_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""What NVIDIA's driver, the one of WSL, and AMD's put there."""

_WITHOUT_TRITON = (
    "pip install --no-deps openai-whisper && pip install more-itertools numba tiktoken tqdm"
)
_FLOAT_BYTES = 4


@attrs.frozen(kw_only=True)
class Machine:
    """What decides whether whisper can run here."""

    versions: Mapping[str, str | None]
    """Of the distributions that are needed; None where one is not installed."""

    gpu_driver: bool
    ffmpeg: bool
    vad: bool

    @classmethod
    def read(cls) -> Machine:
        """Look at this machine."""
        return cls(
            versions={name: _version(name) for name in ("torch", "soundfile", "soxr")},
            gpu_driver=any(Path(device).exists() for device in _GPU_DRIVERS),
            ffmpeg=shutil.which("ffmpeg") is not None,
            vad=is_installed(),
        )


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def check(
    descriptor: Descriptor,
    pack: Pack | None,
    options: Mapping[str, object],
    machine: Machine | None = None,
) -> PreflightReport:
    """
    Check the backend, the device and the model's files; loads nothing.

    Args:
        descriptor: The cartridge's.
        pack: The model; None leaves the memory open.
        options: The open arguments, defaults filled in.
        machine: What to check against; None is this machine.

    Raises:
        LoadError: The pack holds no model that could be loaded: what open would say.
    """
    machine = Machine.read() if machine is None else machine
    # The host makes core's checks itself and shows them; here only a missing backend matters.
    missing = [c for c in core_checks(descriptor) if c.name == "backend" and not c.ok]
    checks = (
        *(attrs.evolve(one, fix=_backend_fix(one, machine)) for one in missing),
        _torch(machine),
        _sound(machine),
        _device(LoadOptions.read(options).device, machine),
        _ffmpeg(machine),
        _voice(machine, is_needed=descriptor.mode is IoMode.STREAMING),
    )
    if pack is None:
        return PreflightReport(checks)
    return PreflightReport(checks, memory_bytes=ModelFiles.read(pack).number_count() * _FLOAT_BYTES)


def _backend_fix(missing: Check, machine: Machine) -> str:
    """Say what to type; without a GPU, so that no triton comes along."""
    return missing.fix if machine.gpu_driver else f"{_WITHOUT_TRITON} (without triton, 1 GB)"


def _torch(machine: Machine) -> Check:
    found = machine.versions["torch"]
    return Check(
        "torch",
        found is not None,
        required="torch",
        found=found or "not installed",
        fix="pip install cartridge-whisper",
    )


def _sound(machine: Machine) -> Check:
    lacking = [name for name in ("soundfile", "soxr") if machine.versions[name] is None]
    return Check(
        "sound",
        not lacking,
        required="soundfile and soxr",
        found=f"no {' and no '.join(lacking)}" if lacking else "both",
        fix='pip install "cartridge-media[audio]"',
    )


def _device(device: str, machine: Machine) -> Check:
    if device != "cuda":
        return Check("device", ok=True, required=device)
    version = machine.versions["torch"] or ""
    if version.endswith("+cpu"):
        found = f"torch {version}, a build for the CPU alone"
        fix = "install a CUDA build of torch (pytorch.org/get-started), or device='cpu'"
        return Check("device", ok=False, required=device, found=found, fix=fix)
    found = "a GPU driver" if machine.gpu_driver else "no GPU driver"
    fix = "install the GPU's driver, or device='cpu'"
    return Check("device", machine.gpu_driver, required=device, found=found, fix=fix)


def _ffmpeg(machine: Machine) -> Check:
    """Say what is not needed, and what lacks without it."""
    found = "installed" if machine.ffmpeg else "not installed: no M4A, WMA and the like"
    return Check("ffmpeg", ok=True, required="ffmpeg, if at all", found=found)


def _voice(machine: Machine, *, is_needed: bool) -> Check:
    """Check what streams need, and what a whole sound can do without."""
    required = "silero-vad and onnxruntime"
    if is_needed:
        found = "both" if machine.vad else "one of them is not installed"
        return Check("voice detector", machine.vad, required=required, found=found, fix=INSTALL)
    found = "installed" if machine.vad else f"not installed: no vad=True; {INSTALL}"
    return Check("voice detector", ok=True, required=f"{required}, if at all", found=found)
