"""What this machine must have, answered without importing llama_cpp and without reading weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cartridge_core.machine import available_bytes
from cartridge_core.preflight import core_checks
from cartridge_core.reports import Check, PreflightReport
from cartridge_gguf import memory
from cartridge_gguf.files import ModelFiles
from cartridge_gguf.machine import usable_cpus
from cartridge_gguf.options import LoadOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack

__all__ = ["check"]

_EMBEDDING = "gguf-embedding"
_INSPECT = "gguf-inspect"
_VISION = "gguf-vision"
_MIB = 1 << 20


def check(
    descriptor: Descriptor,
    pack: Pack | None,
    options: Mapping[str, object],
    available: int | None = None,
) -> PreflightReport:
    """
    Check the backend, the threads and the memory; look at the headers of the pack's files.

    Args:
        descriptor: The cartridge's.
        pack: The model; None leaves the memory open.
        options: The open arguments, defaults filled in.
        available: Bytes of memory that may be taken; None is what this machine has.

    Raises:
        LoadError: The pack holds no model that could be loaded: what open would say.

        InvalidArgumentError: More context is asked for than the model can do.
    """
    # The host makes core's checks itself and shows them; here only a missing backend matters.
    missing = tuple(c for c in core_checks(descriptor) if c.name == "backend" and not c.ok)
    if descriptor.id == _INSPECT:
        headers = () if pack is None else ModelFiles.to_inspect(pack).headers
        held = sum(header.file_size - header.data_size for header in headers)
        return PreflightReport(missing, memory_bytes=held)
    wanted = LoadOptions.read(options)
    checks = (*missing, _threads(wanted))
    if pack is None:
        return PreflightReport(checks)
    files = ModelFiles.of(pack, projector=descriptor.id == _VISION)
    available = available_bytes() if available is None else available
    needed = memory.estimate(files, wanted, available, embeds=descriptor.id == _EMBEDDING)
    return PreflightReport((*checks, _memory(needed, wanted, available)), memory_bytes=needed)


def _threads(options: LoadOptions) -> Check:
    cpus, count = len(usable_cpus()), options.thread_count
    fix = "threads=0 takes what suits this machine"
    found = f"{cpus} CPUs"
    return Check("threads", count <= cpus, required=f"{count} threads", found=found, fix=fix)


def _memory(needed: int, options: LoadOptions, available: int | None) -> Check:
    required = f"{-(-needed // _MIB)} MiB for weights and context"
    if available is None or options.gpu_layers:
        return Check("memory", ok=True, required=required)
    fix = "take a smaller model or quantisation, or a smaller max_context_length"
    found = f"{available // _MIB} MiB"
    return Check("memory", needed <= available, required=required, found=found, fix=fix)
