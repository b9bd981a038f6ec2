"""The command ``cartridge``: its verbs, and what the exit status says."""

from __future__ import annotations

import importlib
import traceback
from typing import TYPE_CHECKING

import click

from cartridge_core.cli.options import needs_verb
from cartridge_core.cli.terminal import Terminal
from cartridge_core.cli.version import own_version
from cartridge_core.errors import CartridgeError, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cartridge_core.registry import Registry

__all__ = ["run"]

_VERBS = {
    "caps": ("catalog", "caps"),
    "check": ("check", "check"),
    "conform": ("conform", "conform"),
    "doctor": ("doctor", "doctor"),
    "export-c": ("export_c", "export_c"),
    "facade": ("facade", "facade"),
    "list": ("catalog", "list_"),
    "models": ("models", "models"),
    "pack": ("pack", "pack"),
    "preflight": ("preflight", "preflight"),
    "route": ("route", "route"),
    "run": ("run", "run"),
    "show": ("catalog", "show"),
}
"""Where each verb is: the module and its command."""

_USAGE = 2
_ERROR = 10
_INTERRUPTED = 130
_NOBODY_READS = 141


class _Verbs(click.Group):
    """A group that imports a verb when it is asked for."""

    def list_commands(self, _: click.Context) -> list[str]:
        return sorted(_VERBS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in _VERBS:
            return None
        module, command = _VERBS[name]
        found = getattr(importlib.import_module(f"cartridge_core.cli.{module}"), command)
        assert isinstance(found, click.Command)  # noqa: S101 -- as the table says
        return found


def _show_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"cartridge {own_version()}")
        context.exit()


@click.group(cls=_Verbs, invoke_without_command=True)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.pass_context
def _cartridge(context: click.Context) -> None:
    """Ask local AI models for capabilities."""
    needs_verb(context)


def run(
    argv: Sequence[str],
    make_registry: Callable[[], Registry] | None = None,
    *,
    owns_process: bool = False,
) -> int:
    """
    Run one command and give its exit status.

    Args:
        argv: The words after the command's name.
        make_registry: Gives the registry; None discovers what is installed.
        owns_process: Whether the process ends with the command; if so, stdout stays closed to
            whatever still writes to it.
    """
    terminal = Terminal(make_registry)
    try:
        return _status(argv, terminal)
    finally:
        terminal.close(restore=not owns_process)


def _status(argv: Sequence[str], terminal: Terminal) -> int:
    try:
        with _cartridge.make_context("cartridge", list(argv), obj=terminal) as context:
            _cartridge.invoke(context)
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except BrokenPipeError:
        return _NOBODY_READS
    except KeyboardInterrupt:
        return _INTERRUPTED
    # A plugin may raise anything, SystemExit too: only the verbs end a command on purpose.
    except BaseException as exc:  # noqa: BLE001 -- see above
        return _failed(exc, terminal)
    return 0


def _failed(exc: BaseException, terminal: Terminal) -> int:
    """Say what went wrong; give the exit status."""
    # A plugin may have a class of its own below one of ours, which means nothing to a user.
    ours = (kind for kind in type(exc).__mro__ if kind.__module__ == CartridgeError.__module__)
    name, message = next(ours, type(exc)).__name__, str(exc)
    status = _ERROR - (exc.status if isinstance(exc, CartridgeError) else Status.INTERNAL)
    if isinstance(exc, click.ClickException):
        name, message, status = "UsageError", exc.format_message(), _USAGE
        context = exc.ctx if isinstance(exc, click.UsageError) else None
        if context is not None:
            terminal.complain(context.get_usage())
    elif terminal.verbose:
        terminal.complain("".join(traceback.format_exception(exc)).rstrip())
    terminal.complain(f"error: {name}: {message}")
    return status
