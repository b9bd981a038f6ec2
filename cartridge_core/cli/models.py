"""The verbs ``models get|path|status|contents|list|remove``: models on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from cartridge_core.cli.meter import Meter
from cartridge_core.cli.options import needs_verb, prints_result
from cartridge_core.cli.tables import table
from cartridge_core.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cartridge_core.cli.terminal import Terminal

__all__ = ["models"]

_SPEC = 'in="media:enc=utf-8;model-spec"'
_REPOSITORY = 'in="media:enc=utf-8;model-repo;record"'
_GET = f'cap:download-model;{_SPEC};out="media:download-result;enc=utf-8;file-path;record"'
_PATH = f'cap:{_SPEC};model-path;out="media:enc=utf-8;model-path;record"'
_STATUS = f'cap:{_SPEC};model-status;out="media:enc=utf-8;model-status;record"'
_CONTENTS = f'cap:{_SPEC};model-contents;out="media:enc=utf-8;model-contents;record"'
_LIST = f'cap:{_REPOSITORY};list-models;out="media:enc=utf-8;model-list;record"'
_REMOVE = f'cap:{_SPEC};out="media:enc=utf-8;model-removal;record";remove-model'

_MEGABYTE = 1_000_000


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
    record = _ask(terminal, _GET, spec)
    terminal.give(record, _path(record, spec))


@models.command
@click.argument("spec")
@prints_result
@click.pass_obj
def path(terminal: Terminal, spec: str) -> None:
    """Print the path of the model SPEC; nothing is fetched."""
    record = _ask(terminal, _PATH, spec)
    if not record.get("exists", True):
        msg = f"{spec} is not on this machine, or not all of it: `cartridge models get {spec}`"
        raise LoadError(msg)
    terminal.give(record, _path(record, spec))


@models.command
@click.argument("spec")
@prints_result
@click.pass_obj
def status(terminal: Terminal, spec: str) -> None:
    """Say how much of the model SPEC is here."""
    record = _ask(terminal, _STATUS, spec)
    here = f"{record.get('file_count')} files, {_size(record)}"
    terminal.give(record, f"{record.get('state')}  {here}")


@models.command
@click.argument("spec")
@prints_result
@click.pass_obj
def contents(terminal: Terminal, spec: str) -> None:
    """List the files of the model SPEC."""
    record = _ask(terminal, _CONTENTS, spec)
    rows = [(file["path"], file["size_bytes"]) for file in _records(record, "all_files")]
    terminal.give(record, table([("PATH", "BYTES"), *rows]))


@models.command("list")
@click.argument("repository", default="all")
@prints_result
@click.pass_obj
def list_(terminal: Terminal, repository: str) -> None:
    """List what was fetched, from huggingface, pypi, https or all."""
    record = _ask(terminal, _LIST, repository)
    rows = [
        (model["model_spec"], model["state"], _size(model)) for model in _records(record, "models")
    ]
    terminal.give(record, table([("MODEL", "STATE", "SIZE"), *rows]) if rows else "no model")


@models.command
@click.argument("spec")
@prints_result
@click.pass_obj
def remove(terminal: Terminal, spec: str) -> None:
    """Remove what was fetched of the model SPEC."""
    record = _ask(terminal, _REMOVE, spec)
    freed = f"{record.get('file_count')} files, {_size(record, 'freed_bytes')} freed"
    terminal.give(record, freed if record.get("removed") else f"{spec} was not here")


def _ask(terminal: Terminal, cap: str, value: str) -> Mapping[str, object]:
    terminal.capture()
    with terminal.registry() as registry, Meter(terminal) as meter:
        result = registry.call(cap, value, on_progress=meter.note)
    if not isinstance(result.payload, Mapping):
        msg = f"{value}: {result.cartridge_id} gave no record"
        raise LoadError(msg)
    return result.payload


def _path(record: Mapping[str, object], spec: str) -> str:
    found = record.get("path")
    if not isinstance(found, str):
        msg = f"{spec}: the record that came back names no path"
        raise LoadError(msg)
    return found


def _records(record: Mapping[str, object], name: str) -> Iterable[Mapping[str, object]]:
    found = record.get(name)
    return found if isinstance(found, list | tuple) else ()


def _size(record: Mapping[str, object], name: str = "total_bytes") -> str:
    size = record.get(name)
    return f"{size / _MEGABYTE:.1f} MB" if isinstance(size, int) else "? MB"
