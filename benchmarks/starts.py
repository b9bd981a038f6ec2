"""What it takes to start: the import, and the command line."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measuring import interleave
from benchmarks.processes import environment, run
from benchmarks.rows import Row
from benchmarks.sites import REQUEST, install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring import Effort

__all__ = ["measure"]

_IMPORT_S = 0.08
_COMMAND_S = 0.3

_BARE = "pass"
_HEAVY = "numpy torch sentence_transformers transformers huggingface_hub llama_cpp whisper"
_CHECK = f"""
import sys, cartridge_core, cartridge_core.registry
heavy = sorted(set({_HEAVY.split()!r}) & sys.modules.keys())
sys.exit("import cartridge_core imports " + ", ".join(heavy) if heavy else 0)
"""


def measure(effort: Effort) -> Iterator[Row]:
    """Import in a bare interpreter; run whole commands."""
    yield _import(effort, "import cartridge_core", _IMPORT_S)
    yield _import(effort, "from cartridge_core import Registry", None)
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder), 1, 1)
        for words in (["--help"], ["list"], ["route", REQUEST]):
            yield _command(words, folder, effort)


def _import(effort: Effort, statement: str, budget_s: float | None) -> Row:
    environ = environment()
    # Also writes the bytecode.
    run([sys.executable, "-c", _CHECK], environ)

    def cpu_s(code: str) -> float:
        return run([sys.executable, "-c", code], environ).cpu_s

    turns = [lambda: cpu_s(statement), lambda: cpu_s(_BARE)]
    rounds = interleave(turns, effort)
    return Row(
        "start",
        statement,
        measured=min(ours for ours, _ in rounds) - min(bare for _, bare in rounds),
        budget=budget_s,
        note=f"CPU over a bare interpreter, best of {len(rounds)}; no backend imported",
        samples=rounds,
    )


def _command(words: list[str], site: str, effort: Effort) -> Row:
    path = os.pathsep.join([site, *filter(None, [os.environ.get("PYTHONPATH")])])
    environ = environment(PYTHONPATH=path)
    command = [str(Path(sys.executable).with_name("cartridge")), *words]
    run(command, environ)
    rounds = interleave([lambda: run(command, environ).wall_s], effort)
    return Row(
        "start",
        f"cartridge {words[0]}",
        measured=statistics.median(times[0] for times in rounds),
        budget=_COMMAND_S,
        note="whole process",
        samples=rounds,
    )
