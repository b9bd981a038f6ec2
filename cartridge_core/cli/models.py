"""The verbs ``models get`` and ``models path``: models on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from cartridge_core.cli.meter import Meter
from cartridge_core.cli.options import needs_verb, prints_result
from cartridge_core.errors import LoadError

if TYPE_CHECKING:
    from cartridge_core.cli.terminal import Terminal
    from cartridge_core.results import Result

__all__ = ["models"]

_SPEC = 'in="media:enc=utf-8;model-spec"'
_GET = f'cap:download-model;{_SPEC};out="media:download-result;enc=utf-8;file-path;record"'
_PATH = f'cap:{_SPEC};model-path;out="media:enc=utf-8;model-path;record"'


@click.group(invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> None:
    """Fetch models and find them on this machine."""
    needs_verb(context)


@models.command
@click.argument("spec")
@prints_result
@click.pass_obj
def get(terminal: Terminal, spec: str) -> None:
    """Fetch the model SPEC unless it is here, and print its path."""
    result = _ask(terminal, _GET, spec)
    terminal.give(result.payload, _path(result, spec))


@models.command
@click.argument("spec")
@prints_result
@click.pass_obj
def path(terminal: Terminal, spec: str) -> None:
    """Print the path of the model SPEC; nothing is fetched."""
    result = _ask(terminal, _PATH, spec)
    if isinstance(result.payload, Mapping) and not result.payload.get("exists", True):
        msg = f"{spec} is not on this machine, or not all of it: `cartridge models get {spec}`"
        raise LoadError(msg)
    terminal.give(result.payload, _path(result, spec))


def _ask(terminal: Terminal, cap: str, spec: str) -> Result:
    terminal.capture()
    with terminal.registry() as registry, Meter(terminal) as meter:
        return registry.call(cap, spec, on_progress=meter.note)


def _path(result: Result, spec: str) -> str:
    found = result.payload.get("path") if isinstance(result.payload, Mapping) else None
    if not isinstance(found, str):
        msg = f"{spec}: {result.cartridge_id} gave no path"
        raise LoadError(msg)
    return found
