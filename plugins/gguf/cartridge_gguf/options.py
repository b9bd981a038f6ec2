"""The open arguments of every cartridge that loads weights, as the host gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs

from cartridge_gguf.machine import usable_cores

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LoadOptions"]


@attrs.frozen(kw_only=True)
class LoadOptions:
    """How a model is loaded; the descriptors hold the defaults."""

    max_context_length: int
    """Tokens of one sequence, prompt and answer together; 0 = `memory.context_length` decides."""

    batch_size: int
    """How many prompt tokens are evaluated at a time."""

    rope_freq_base: float
    """0 = the file's."""

    rope_freq_scale: float
    """0 = the file's."""

    threads: int
    """0 = automatic; what is used is `thread_count`."""

    gpu_layers: int
    """How many layers go to a GPU; -1 = all."""

    parallel_sequences: int
    """How many sequences share one decode batch; 1 = each has a context of its own, as it is where
    a cartridge does not declare it."""

    @classmethod
    def read(cls, options: Mapping[str, object]) -> LoadOptions:
        """Take them, checked and with defaults filled in."""
        return cls(
            max_context_length=cast("int", options["max_context_length"]),
            batch_size=cast("int", options["batch_size"]),
            rope_freq_base=float(cast("float", options["rope_freq_base"])),
            rope_freq_scale=float(cast("float", options["rope_freq_scale"])),
            threads=cast("int", options["threads"]),
            gpu_layers=cast("int", options["gpu_layers"]),
            parallel_sequences=cast("int", options.get("parallel_sequences", 1)),
        )

    @property
    def thread_count(self) -> int:
        """
        How many threads compute.

        Automatic leaves one core to everybody else. llama.cpp's threads wait for each other by
        spinning: where one of them gets no core, all of them burn theirs for nothing. With a
        thread a core, any other busy process makes a model many times slower.
        """
        return self.threads or max(1, usable_cores() - 1)
