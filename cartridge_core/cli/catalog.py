"""The verbs ``list``, ``show`` and ``caps``: what is installed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from cartridge_core.cli.options import prints_result
from cartridge_core.cli.plain import as_plain
from cartridge_core.cli.tables import table
from cartridge_core.cli.values import flags_of
from cartridge_core.errors import NoRouteError

if TYPE_CHECKING:
    from cartridge_core.capdefs import Arg, Cap
    from cartridge_core.cli.terminal import Terminal
    from cartridge_core.offers import Index, Offer
    from cartridge_core.registry import Registry

__all__ = ["caps", "find_offer", "list_", "show"]


@click.command("list")
@prints_result
@click.pass_obj
def list_(terminal: Terminal) -> None:
    """List what is installed, and what of it cannot be used."""
    with terminal.catalog() as catalog:
        rows = [_row(offer) for offer in catalog.offers]
        issues = catalog.issues
    document = {"cartridges": rows, "issues": issues}
    heading = _listed(rows) if rows or not issues else "no cartridge can be used"
    terminal.give(document, "\n".join([heading, *(f"unusable: {each}" for each in issues)]))


def _row(offer: Offer) -> dict[str, object]:
    descriptor = offer.descriptor
    return {
        "id": offer.id,
        "mode": descriptor.mode.value,
        "plugin": offer.plugin,
        "version": descriptor.version,
        "caps": len(descriptor.caps),
        "pack": offer.pack,
    }


def _listed(rows: list[dict[str, object]]) -> str:
    if not rows:
        return "no cartridge is installed; for one: pip install cartridge-torch"
    lines = [["" if cell is None else cell for cell in row.values()] for row in rows]
    return table([[name.upper() for name in rows[0]], *lines])


@click.command
@click.argument("cartridge_id", metavar="ID")
@prints_result
@click.pass_obj
def show(terminal: Terminal, cartridge_id: str) -> None:
    """Show a cartridge's descriptor."""
    with terminal.catalog() as catalog:
        offer = find_offer(catalog, cartridge_id)
    terminal.give(offer.descriptor.to_json(), _shown(offer))


def find_offer(catalog: Index | Registry, cartridge_id: str) -> Offer:
    """
    Find what is installed by its id.

    Raises:
        NoRouteError: Nothing that can be used has it.
    """
    found = {offer.id: offer for offer in catalog.offers}
    if cartridge_id in found:
        return found[cartridge_id]
    issues = "".join(f" {issue}" for issue in catalog.issues)
    ids = ", ".join(found) or "none"
    msg = f"no usable cartridge has the id {cartridge_id!r}; installed: {ids}.{issues}"
    raise NoRouteError(msg)


def _shown(offer: Offer) -> str:
    """Show a descriptor to a person: what it says, a line each, then its caps."""
    document = offer.descriptor.to_json()
    attributes = document.pop("attributes", {})
    others = dict(attributes) if isinstance(attributes, dict) else {}
    others.pop("caps", None)
    facts: dict[str, object] = {**document, **others, "plugin": offer.plugin}
    if offer.pack is not None:
        facts["pack"] = offer.pack
    lines = [table([(name, _short(value)) for name, value in facts.items()])]
    return "\n\n".join([*lines, *(_cap_text(offer, cap) for cap in offer.descriptor.caps)])


@click.command
@prints_result
@click.pass_obj
def caps(terminal: Terminal) -> None:
    """List every cap with its cartridge and its arguments."""
    with terminal.catalog() as catalog:
        found = [(offer, cap) for offer in catalog.offers for cap in offer.descriptor.caps]
    text = "\n\n".join(_cap_text(offer, cap) for offer, cap in found)
    document = [_cap_row(offer, cap) for offer, cap in found]
    terminal.give(document, text or "no cap is offered; `cartridge list` says what is installed")


def _cap_row(offer: Offer, cap: Cap) -> dict[str, object]:
    return {
        "urn": str(cap.urn),
        "title": cap.title,
        "aliases": cap.aliases,
        "cartridge_id": offer.id,
        "plugin": offer.plugin,
        "mode": offer.descriptor.mode.value,
        "args": [_arg_row(cap, arg) for arg in cap.args],
    }


def _arg_row(cap: Cap, arg: Arg) -> dict[str, object]:
    row: dict[str, object] = {
        "name": arg.name,
        "cli_flags": flags_of(arg),
        "media_urn": str(arg.media_urn),
        "main": arg is cap.main,
        "required": arg.required,
        "is_sequence": arg.is_sequence,
        "streaming": arg.streaming,
        "scope": arg.scope,
        "description": arg.description,
    }
    return {**row, "default": arg.default} if arg.has_default else row


def _cap_text(offer: Offer, cap: Cap) -> str:
    heading = f"{cap.urn}\n  {cap.title}: {offer.id} ({offer.descriptor.mode.value})"
    rows = [(arg.name, _typed(cap, arg), _default(arg), arg.description or "") for arg in cap.args]
    return "\n".join([heading, *([table(rows, indent="    ")] if rows else [])])


def _typed(cap: Cap, arg: Arg) -> str:
    """Show how an argument is given on the command line."""
    ways = [*(["VALUE"] if arg is cap.main else []), *flags_of(arg)]
    return ", ".join(ways) or f"--set {arg.name}="


def _default(arg: Arg) -> str:
    if arg.has_default:
        return f"= {_short(arg.default)}"
    return "required" if arg.required else "optional"


def _short(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(as_plain(value), ensure_ascii=False)
