"""The command: which groups to run, where their rows go, and the exit status."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import (
    calls,
    cancels,
    discovery,
    downloads,
    embeddings,
    llama,
    natives,
    routes,
    speed,
    starts,
    urns,
    whispers,
    workers,
)
from benchmarks.measuring import FULL, QUICK
from benchmarks.rows import Outcome, Row, document, format_table, machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.measuring import Effort

__all__ = ["main"]

_RESULTS = Path(__file__).parent / "results"

# Those that import a backend come last: it stays in this process.
_GROUPS: dict[str, Callable[[Effort], Iterator[Row]]] = {
    "machine": speed.measure,
    "start": starts.measure,
    "discovery": discovery.measure,
    "urn": urns.measure,
    "route": routes.measure,
    "call": calls.measure,
    "worker": workers.measure,
    "models": downloads.measure,
    "native": natives.measure,
    "gguf": llama.measure,
    "embedding": embeddings.measure,
    "whisper": whispers.measure,
    "cancel": cancels.measure,
}


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run the benchmarks: one table on stdout, the rest on stderr.

    Returns:
        The exit status: 0 where everything was measured, over its budget or not; 1 where a
        measurement broke.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=_GROUPS, help="run this group alone")
    parser.add_argument("--quick", action="store_true", help="see that it works; no figures")
    options = parser.parse_args(argv)
    started, load = datetime.now().astimezone(), os.getloadavg()
    _say(f"load at start: {' '.join(f'{value:.2f}' for value in load)}, {os.cpu_count()} CPUs")
    rows: list[Row] = []
    try:
        for group in _GROUPS:
            if group in (options.only or _GROUPS):
                rows.extend(_run(group, QUICK if options.quick else FULL))
    except KeyboardInterrupt:
        _say("interrupted: what was measured follows")
    print(format_table(rows))
    found = document(rows, machine(started, load, quick=options.quick))
    _say(f"written to {_write(started, found)}")
    return 1 if any(row.outcome is Outcome.BROKEN for row in rows) else 0


def _run(group: str, effort: Effort) -> Iterator[Row]:
    """Give a group's rows as they come, a broken one where it breaks."""
    try:
        for row in _GROUPS[group](effort):
            _say(f"{group}: {row.name}")
            yield row
    except Exception as exc:  # noqa: BLE001 -- the other groups can still be measured
        traceback.print_exc()
        yield Row(group, "the rest of this group", note=f"{type(exc).__name__}", broken=True)


def _write(started: datetime, found: dict[str, object]) -> Path:
    _RESULTS.mkdir(exist_ok=True)
    path = _RESULTS / f"{started:%Y-%m-%d-%H%M%S}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    return path


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
