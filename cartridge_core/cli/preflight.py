"""The verb ``preflight``: does this machine have what a cartridge needs."""

from __future__ import annotations

import click

from cartridge_core.arguments import bind_options
from cartridge_core.cli.options import prints_result, read_sets, sets
from cartridge_core.cli.terminal import Terminal
from cartridge_core.cli.values import read_values
from cartridge_core.errors import Status

__all__ = ["preflight"]

_NOT_MET = 10 - Status.PREFLIGHT


@click.command
@click.argument("cartridge_id", metavar="ID")
@click.argument("pack", required=False)
@sets
@prints_result
@click.pass_context
def preflight(
    context: click.Context, cartridge_id: str, pack: str | None, settings: tuple[str, ...]
) -> None:
    """Check what the cartridge ID needs of this machine, loading nothing.

    PACK is its model: a path or a model spec. Ends with status 13 where something is missing.
    """
    terminal = context.find_object(Terminal)
    assert terminal is not None  # noqa: S101 -- the application makes one for every command
    pairs = read_sets(settings)
    terminal.capture()
    with terminal.registry() as registry:
        options: dict[str, object] = {}
        descriptor = registry.descriptors.get(cartridge_id)
        if descriptor is not None:
            options = bind_options(descriptor, read_values(descriptor.open_args, pairs))
        report = registry.preflight(cartridge_id, pack, **options)
    document = {
        "cartridge_id": cartridge_id,
        "ok": report.ok,
        "memory_bytes": report.memory_bytes,
        "checks": report.checks,
    }
    terminal.give(document, str(report) or "ok   nothing is needed")
    if not report.ok:
        context.exit(_NOT_MET)
