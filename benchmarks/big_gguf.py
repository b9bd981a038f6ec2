"""A language model of 272 million parameters in F16, with random weights: 0.5 GB, in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_big"]


def write_big(folder: Path) -> Path:
    """
    Write the model into a folder.

    Its weights are far larger than a CPU's caches, so that reading them is what a token costs.
    """
    import gguf  # noqa: PLC0415 -- brings numpy
    from tiny_models import Shape, write_llama  # noqa: PLC0415 -- brings numpy

    shape = Shape(width=1024, layers=24, heads=16, key_heads=4, hidden=2816, context=8192)
    return write_llama(folder / "big-f16.gguf", shape=shape, weights=gguf.GGMLQuantizationType.F16)[
        0
    ]
