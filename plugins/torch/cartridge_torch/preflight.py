"""What this machine must have, answered without importing torch."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import LoadError
from cartridge_core.preflight import core_checks
from cartridge_core.reports import Check, PreflightReport
from cartridge_torch.folder import ModelFolder
from cartridge_torch.vision_folder import BLIP, CLIP, VisionFolder

if TYPE_CHECKING:
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack
    from cartridge_torch.options import LoadOptions

__all__ = ["Machine", "check"]

_GPU_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""What NVIDIA's driver, the one of WSL, and AMD's put there."""

_ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_MPS_BFLOAT16 = (14,)
_VISION = {"torch-image-captioning": BLIP, "torch-image-embedding": CLIP}


@attrs.frozen(kw_only=True)
class Machine:
    """What decides where torch can run."""

    torch: str | None
    """The installed torch's version; a build for the CPU alone ends in ``+cpu``."""

    gpu_driver: bool
    macos: tuple[int, ...] = ()
    """The version of macOS on Apple silicon; empty elsewhere."""

    pillow: bool = True
    """Whether it can read pictures."""

    @classmethod
    def read(cls) -> Machine:
        """Look at this machine."""
        torch = _version("torch")
        driver = any(Path(device).exists() for device in _GPU_DRIVERS)
        apple = platform.system() == "Darwin" and platform.machine() == "arm64"
        version = platform.mac_ver()[0].split(".") if apple else []
        return cls(
            torch=torch,
            gpu_driver=driver,
            macos=tuple(int(part) for part in version),
            pillow=_version("pillow") is not None,
        )


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def check(
    descriptor: Descriptor,
    pack: Pack | None,
    options: LoadOptions,
    machine: Machine | None = None,
) -> PreflightReport:
    """
    Check the backend, the device and the dtype; loads nothing.

    Of a cartridge that takes pictures the model's folder is looked over too.

    Args:
        descriptor: The cartridge's.
        pack: The model; None leaves the memory open.
        options: Where and how it would run.
        machine: What to check against; None is this machine.

    Raises:
        LoadError: The folder is no model that takes pictures: what open would say.
    """
    machine = Machine.read() if machine is None else machine
    # The host makes core's checks itself and shows them; here only a missing backend matters.
    missing = [c for c in core_checks(descriptor) if c.name == "backend" and not c.ok]
    kind = _VISION.get(descriptor.id)
    checks = (
        *missing,
        _torch(machine),
        *([] if kind is None else [_pillow(machine)]),
        _device(options.device, machine),
        _dtype(options, machine),
    )
    if pack is None:
        return PreflightReport(checks)
    item_bytes = _ITEM_BYTES[options.dtype]
    if kind is None:
        return PreflightReport(checks, memory_bytes=_memory_bytes(pack, item_bytes))
    folder = VisionFolder.read(pack, kind).folder
    return PreflightReport(checks, memory_bytes=folder.memory_bytes(item_bytes))


def _torch(machine: Machine) -> Check:
    found = machine.torch or "not installed"
    fix = "pip install cartridge-torch"
    return Check("torch", machine.torch is not None, required="torch", found=found, fix=fix)


def _pillow(machine: Machine) -> Check:
    found = "installed" if machine.pillow else "not installed"
    fix = 'pip install "cartridge-media[image]"'
    return Check("pictures", machine.pillow, required="pillow", found=found, fix=fix)


def _device(device: str, machine: Machine) -> Check:
    if device == "cuda":
        if (machine.torch or "").endswith("+cpu"):
            found = f"torch {machine.torch}, a build for the CPU alone"
            fix = "install a CUDA build of torch (pytorch.org/get-started), or device='cpu'"
        else:
            found = "a GPU driver" if machine.gpu_driver else "no GPU driver"
            fix = "install the GPU's driver, or device='cpu'"
        ok = machine.gpu_driver and not (machine.torch or "").endswith("+cpu")
        return Check("device", ok, required="cuda", found=found, fix=fix)
    if device == "mps":
        ok, found = bool(machine.macos), "Apple silicon" if machine.macos else "no Apple silicon"
        return Check("device", ok, required="mps", found=found, fix="device='cpu'")
    return Check("device", ok=True, required=device)


def _dtype(options: LoadOptions, machine: Machine) -> Check:
    ok = (options.device, options.dtype) != ("mps", "bfloat16") or machine.macos >= _MPS_BFLOAT16
    required = options.dtype if ok else "macOS 14 for bfloat16 on mps"
    return Check("dtype", ok, required=required, fix="dtype='float32' or 'float16'")


def _memory_bytes(pack: Pack, item_bytes: int) -> int | None:
    """Estimate from the weights; None for a wrong folder, which open then names."""
    try:
        return ModelFolder.read(pack).memory_bytes(item_bytes)
    except LoadError:
        return None
