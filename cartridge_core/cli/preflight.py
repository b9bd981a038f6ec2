"""The verb ``preflight``: does this machine have what a cartridge needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cartridge_core.arguments import bind_options
from cartridge_core.cli.options import KeepsDashes, prints_result, read_sets, sets
from cartridge_core.cli.terminal import Terminal
from cartridge_core.cli.values import read_values, split_flags
from cartridge_core.errors import Status

if TYPE_CHECKING:
    from cartridge_core.descriptor import Descriptor

__all__ = ["preflight"]

_NOT_MET = 10 - Status.PREFLIGHT


@click.command(cls=KeepsDashes, context_settings={"ignore_unknown_options": True})
@click.argument("cartridge_id", metavar="ID")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[PACK] [--ARG VALUE]...")
@sets
@prints_result
@click.pass_context
def preflight(
    context: click.Context, cartridge_id: str, words: tuple[str, ...], settings: tuple[str, ...]
) -> None:
    """Check what the cartridge ID needs of this machine.

    Nothing is loaded. PACK is its model: a path or a model spec. What takes effect when the
    cartridge loads is given as for `cartridge run`. Ends with status 13 where something is
    missing.
    """
    terminal = context.find_object(Terminal)
    assert terminal is not None  # noqa: S101 -- the application makes one for every command
    pairs = read_sets(settings)
    terminal.capture()
    with terminal.registry() as registry:
        pack: str | None = None
        options: dict[str, object] = {}
        descriptor = registry.descriptors.get(cartridge_id)
        if descriptor is not None:
            pack, options = _read(descriptor, words, pairs)
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


def _read(
    descriptor: Descriptor, words: tuple[str, ...], pairs: list[tuple[str, str]]
) -> tuple[str | None, dict[str, object]]:
    """Give the model and the open arguments."""
    declared = descriptor.open_args
    packs, flagged = split_flags(declared, words)
    if len(packs) > 1:
        msg = f"PACK is one model, and {len(packs)} were given"
        raise click.UsageError(msg)
    options = bind_options(descriptor, read_values(declared, [*pairs, *flagged]))
    return (packs[0] if packs else None), options
