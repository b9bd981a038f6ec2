"""The verb ``facade``: a typed Python module of a cartridge."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cartridge_core.cli.catalog import find_offer
from cartridge_core.cli.options import prints_result
from cartridge_core.cli.terminal import Terminal
from cartridge_core.errors import InvalidArgumentError

if TYPE_CHECKING:
    from cartridge_core.descriptor import Descriptor

__all__ = ["facade"]

_NOT_CURRENT = 1
_MODE = 0o644


@click.command
@click.argument("cartridge_id", metavar="ID")
@click.option(
    "--out",
    "file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.py",
    help="The module.",
)
@click.option("--check", is_flag=True, help="Write nothing, and say whether FILE.py is current.")
@prints_result
@click.pass_context
def facade(context: click.Context, cartridge_id: str, file: Path, *, check: bool) -> None:
    """Write a typed Python module that calls the cartridge ID.

    It has a function for every cap, made of the descriptor alone: no plugin is imported. With
    --check it ends with status 1 where the module is not what would be written now.
    """
    from cartridge_core.cli.facade_module import write_facade  # noqa: PLC0415 -- few verbs need it

    terminal = context.find_object(Terminal)
    assert terminal is not None  # noqa: S101 -- the application makes one for every command
    with terminal.catalog() as catalog:
        descriptor = find_offer(catalog, cartridge_id).descriptor
    text = write_facade(descriptor)
    found = _read(file)
    is_current = found == text
    if not check and not is_current:
        _write(file, found, text)
    said = _judged(descriptor, file, found, is_current=is_current)
    document = {"cartridge_id": cartridge_id, "file": file, "current": is_current or not check}
    terminal.give(document, said if check else f"{file}: {descriptor.id} {descriptor.version}")
    if check and not is_current:
        context.exit(_NOT_CURRENT)


def _read(file: Path) -> str | None:
    """Give what the file holds, line ends as they are; None where there is none."""
    if os.path.exists(file) and not os.path.isfile(file):
        # A device would be replaced by a file, and a pipe read for ever.
        msg = f"{file} is no file that could be a module; name another"
        raise click.UsageError(msg)
    try:
        return file.read_bytes().decode("utf-8", "backslashreplace")
    except FileNotFoundError:
        return None
    except OSError as exc:
        msg = f"{file} cannot be read: {exc.strerror or exc}"
        raise click.UsageError(msg) from exc


def _write(file: Path, found: str | None, text: str) -> None:
    from cartridge_core.cli.facade_module import FIRST_WORDS  # noqa: PLC0415 -- as above
    from cartridge_core.wholefiles import write_whole  # noqa: PLC0415 -- as above

    if found and not found.startswith(FIRST_WORDS):
        msg = f"{file} is there, and `cartridge facade` did not make it; name another file"
        raise InvalidArgumentError(msg, arg="out", value=str(file))
    try:
        write_whole(file, text, _MODE)
    except OSError as exc:
        msg = f"{file} cannot be written: {exc.strerror or exc}"
        raise click.UsageError(msg) from exc


def _judged(descriptor: Descriptor, file: Path, found: str | None, *, is_current: bool) -> str:
    """Say whether a module is current, and what to do where it is not."""
    if is_current:
        return f"{file} is current: {descriptor.id} {descriptor.version}"
    lines = (found or "").splitlines()
    made = lines[1].removeprefix("# ") if len(lines) > 1 else "empty"
    why = "is not there" if found is None else f"is not current ({made[:200]})"
    return f"{file} {why}; make it: cartridge facade {descriptor.id} --out {file}"
