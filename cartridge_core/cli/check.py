"""The verb ``check``: does a cartridge still do with a pack what it did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cartridge_core.cli.options import prints_result
from cartridge_core.cli.tables import table
from cartridge_core.cli.terminal import Terminal
from cartridge_core.errors import Status

if TYPE_CHECKING:
    from cartridge_core.verification import VerificationReport

__all__ = ["check"]

_FAILED = 10 - Status.LOAD
_SKIPPED = 10 - Status.PREFLIGHT


@click.command
@click.argument("cartridge_id", metavar="ID")
@click.option(
    "--pack",
    "folder",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A pack with golden vectors.",
)
@prints_result
@click.pass_context
def check(context: click.Context, cartridge_id: str, folder: Path) -> None:
    """Run the golden vectors of a pack on the cartridge ID.

    ID is the pack's own, or that of the cartridge it narrows. Ends with status 14 where an output
    is not what was right, else with 13 where there was no output to compare.
    """
    from cartridge_core.verification import (  # noqa: PLC0415 -- few verbs need it
        Verdict,
        check,
    )

    terminal = context.find_object(Terminal)
    assert terminal is not None  # noqa: S101 -- the application makes one for every command
    terminal.capture()
    with terminal.registry(packs=[folder]) as registry:
        report = check(registry, cartridge_id, folder)
    document = {
        "cartridge_id": cartridge_id,
        "pack": folder,
        "verdict": report.verdict,
        "vectors": report.vectors,
    }
    terminal.give(document, _shown(report))
    if report.verdict is not Verdict.PASSED:
        context.exit(_FAILED if report.verdict is Verdict.FAILED else _SKIPPED)


def _shown(report: VerificationReport) -> str:
    rows = [("VERDICT", "VECTOR", "COMPARE", "DISTANCE", "TOLERANCE", "")]
    for vector in report.vectors:
        far = "" if vector.distance is None else f"{vector.distance:.3g}"
        rows.append(
            (vector.verdict, vector.id, vector.compare, far, f"{vector.tolerance:g}", vector.detail)
        )
    return f"{table(rows)}\n{report.verdict}"
