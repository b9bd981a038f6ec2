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
from cartridge_gguf.projector_tensors import CHECKED_KINDS, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.descriptor import Descriptor
    from cartridge_core.pack import Pack
    from cartridge_gguf.header import Header

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
    embeds = descriptor.id == _EMBEDDING
    estimate = memory.estimate(files, wanted, available, embeds=embeds)
    # Embedding sessions share a context; of those that write, each has a sequence of one.
    sessions = 1 if embeds else descriptor.max_concurrent_sessions
    contexts = -(-sessions // wanted.parallel_sequences)
    fits = _memory(estimate, contexts, wanted, available)
    checks = (*checks, fits, *_projector(files.projector_header))
    return PreflightReport(checks, memory_bytes=estimate.nbytes)


def _threads(options: LoadOptions) -> Check:
    cpus, count = len(usable_cpus()), options.thread_count
    fix = "threads=0 takes what suits this machine"
    found = f"{cpus} CPUs"
    return Check("threads", count <= cpus, required=f"{count} threads", found=found, fix=fix)


def _memory(
    estimate: memory.Estimate, contexts: int, options: LoadOptions, available: int | None
) -> Check:
    count = options.parallel_sequences
    tokens = (
        f"{estimate.length} tokens" if count == 1 else f"{count} times {estimate.length} tokens"
    )
    required = f"{_mib(estimate.nbytes)} MiB for weights and a context of {tokens}"
    if contexts > 1:
        required += (
            f", and {_mib(estimate.context_bytes)} MiB for each context more: sessions at the same "
            f"time need up to {contexts - 1} of them"
        )
    if not estimate.is_whole:
        required += (
            ", without the states of its recurrent layers: they are not estimated, as its header "
            "does not tell their size"
        )
    if available is None or options.gpu_layers:
        return Check("memory", ok=True, required=required)
    fix = "take a smaller model or quantisation, or a smaller max_context_length"
    found = f"{available // _MIB} MiB"
    is_enough = estimate.nbytes <= available
    return Check("memory", is_enough, required=required, found=found, fix=fix)


def _mib(nbytes: int) -> int:
    return -(-nbytes // _MIB)


def _projector(header: Header | None) -> tuple[Check, ...]:
    """Say what could not be checked of a projector."""
    if header is None or kind_of(header) in CHECKED_KINDS:
        return ()
    required = (
        f"tensors that go together; of a projector of the kind {kind_of(header)!a} those of its "
        "encoder's blocks are checked, and no others: a damaged file may end the process"
    )
    return (Check("projector", ok=True, required=required),)
