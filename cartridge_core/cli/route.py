"""The verb ``route``: which cartridge serves a request, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cartridge_core.cli.options import prints_result, routes

if TYPE_CHECKING:
    from cartridge_core.cli.terminal import Terminal

__all__ = ["route"]


@click.command
@click.argument("cap")
@routes
@click.option("--explain", is_flag=True, help="Say of every candidate why it is taken or not.")
@prints_result
@click.pass_obj
def route(
    terminal: Terminal,
    cap: str,
    *,
    mode: str | None,
    cartridge_id: str | None,
    prefer: tuple[str, ...],
    model_spec: str | None,
    explain: bool,
) -> None:
    """Say which cartridge serves the request CAP, a cap URN."""
    with terminal.router() as router:
        if explain:
            explanation = router.explain(
                cap, mode, cartridge_id=cartridge_id, prefer=prefer, model_spec=model_spec
            )
            terminal.give(explanation, str(explanation))
            if explanation.chosen is not None:
                return
        # What cannot be routed ends in the error, after its explanation.
        found = router.route(
            cap, mode, cartridge_id=cartridge_id, prefer=prefer, model_spec=model_spec
        )
    document = {
        "request": str(found.request),
        "cartridge_id": found.cartridge_id,
        "plugin": found.plugin,
        "mode": found.mode.value,
        "cap": str(found.cap.urn),
        "reason": found.reason,
    }
    terminal.give(document, str(found))
