"""What was measured, as rows: a table for a person, a document for a program."""

from __future__ import annotations

import enum
import importlib.metadata
import platform
from typing import TYPE_CHECKING, Literal

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

__all__ = ["Outcome", "Row", "document", "format_table", "machine", "version_of"]


class Outcome(enum.Enum):
    """What a row says."""

    OK = "ok"
    OVER = "over"
    NOT_MEASURED = "not measured"
    BROKEN = "broken"


@attrs.frozen
class Row:
    """One figure and what it is held against."""

    group: str
    name: str

    measured: float | None = attrs.field(default=None, kw_only=True)
    """Seconds, or a ratio; None where it was not measured."""

    budget: float | None = attrs.field(default=None, kw_only=True)
    """The most seconds, or the least ratio; None where the figure is for comparison only."""

    unit: Literal["s", "ratio"] = attrs.field(default="s", kw_only=True)

    note: str = attrs.field(default="", kw_only=True)
    """What the figure is made of, or why there is none."""

    samples: Sequence[Sequence[float]] = attrs.field(default=(), kw_only=True)
    """The rounds behind the figure, each a number per contender."""

    broken: bool = attrs.field(default=False, kw_only=True)
    """Whether the measurement itself failed."""

    @property
    def outcome(self) -> Outcome:
        """Hold the figure against its budget."""
        if self.broken:
            return Outcome.BROKEN
        if self.measured is None:
            return Outcome.NOT_MEASURED
        if self.budget is None:
            return Outcome.OK
        kept = self.measured <= self.budget if self.unit == "s" else self.measured >= self.budget
        return Outcome.OK if kept else Outcome.OVER


_HEAD = ("group", "row", "measured", "budget", "", "note")


def format_table(rows: Iterable[Row]) -> str:
    """Lay rows out in columns."""
    lines = [_HEAD, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = {2, 3}
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    measured = "-" if row.measured is None else _text(row.measured, row.unit)
    sign = "<=" if row.unit == "s" else ">="
    budget = "-" if row.budget is None else f"{sign} {_text(row.budget, row.unit)}"
    return (row.group, row.name, measured, budget, row.outcome.value, row.note)


def _text(value: float, unit: str) -> str:
    if unit == "ratio":
        return f"{value:.3f}"
    for factor, name in ((1.0, "s"), (1e-3, "ms")):
        if abs(value) >= 0.1 * factor:
            return f"{value / factor:.3g} {name}"
    return f"{value * 1e6:.3g} µs"


def document(rows: Iterable[Row], where: dict[str, object]) -> dict[str, object]:
    """Give the rows and where they were measured as JSON data; times are in seconds."""
    return {
        **where,
        "rows": [
            {
                **attrs.asdict(row, filter=attrs.filters.exclude("broken")),
                "outcome": row.outcome.value,
            }
            for row in rows
        ],
    }


_DISTRIBUTIONS = (
    "cartridge-core",
    "pluggy",
    "llama-cpp-python",
    "torch",
    "sentence-transformers",
    "transformers",
    "openai-whisper",
    "faster-whisper",
)


def machine(
    started: datetime, load: tuple[float, float, float], *, quick: bool
) -> dict[str, object]:
    """Say what a run was made on, as JSON data."""
    return {
        "started": started.isoformat(timespec="seconds"),
        "quick": quick,
        "load": list(load),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "versions": {name: version_of(name) for name in _DISTRIBUTIONS},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line[:10] == "model name"]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def version_of(distribution: str) -> str | None:
    """Give the version of a distribution; None where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
