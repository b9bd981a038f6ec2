"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from cartridge_core.cli.terminal import Terminal

__all__ = ["KeepsDashes", "needs_verb", "prints_result", "read_sets", "routes", "sets"]

F = TypeVar("F", bound=Callable[..., object])

_USAGE = 2


class KeepsDashes(click.Command):
    """A command whose argument ``words`` keeps the ``--`` that ends the flags."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse as usual, and put the ``--`` back before the words that came after it."""
        after = args[args.index("--") + 1 :] if "--" in args else None
        rest = super().parse_args(context, args)
        if after is not None:
            words = context.params["words"]
            place = max(0, len(words) - len(after))
            context.params["words"] = (*words[:place], "--", *words[place:])
        return rest


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


def needs_verb(context: click.Context) -> None:
    """End a group that was called without one of its verbs: its help, as wrong usage."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(_USAGE)


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
