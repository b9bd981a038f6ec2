"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from cartridge_core.cli.terminal import Terminal

__all__ = ["prints_result", "read_sets", "routes", "sets"]

F = TypeVar("F", bound=Callable[..., object])


def _terminal(context: click.Context) -> Terminal:
    terminal = context.find_object(Terminal)
    assert terminal is not None  # noqa: S101 -- the application makes one for every command
    return terminal


def _use_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    _terminal(context).json = value


def _show_log(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        _terminal(context).show_log()


_JSON = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=_use_json,
    help="Print the result as one JSON document.",
)
_VERBOSE = click.option(
    "--verbose",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_log,
    help="Show the log on stderr, and the traceback of an error.",
)
_MODE = click.option("--mode", type=click.Choice(["batch", "streaming"]), help="Which io.mode.")
_ID = click.option("--cartridge-id", metavar="ID", help="Take this cartridge or none.")
_PREFER = click.option(
    "--prefer",
    multiple=True,
    metavar="NAME",
    help="A cartridge id or plugin name that wins where several serve the request; repeatable.",
)
_SPEC = click.option("--model-spec", metavar="SPEC", help="The model: a model spec or a path.")


def prints_result(command: F) -> F:
    """Add ``--json`` and ``--verbose``."""
    return _JSON(_VERBOSE(command))


def routes(command: F) -> F:
    """Add ``--mode``, ``--cartridge-id``, ``--prefer`` and ``--model-spec``."""
    return _MODE(_ID(_PREFER(_SPEC(command))))


def sets(command: F) -> F:
    """Add ``--set``."""
    option = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="An argument; repeatable. `cartridge caps` lists them.",
    )
    return option(command)


def read_sets(settings: tuple[str, ...]) -> list[tuple[str, str]]:
    """
    Split the values of ``--set``.

    Raises:
        UsageError: One has no name.
    """
    pairs = []
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            msg = f"--set {setting}: NAME=VALUE is expected"
            raise click.UsageError(msg)
        pairs.append((name, text))
    return pairs
