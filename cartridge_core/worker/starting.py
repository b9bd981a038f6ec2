"""The start of a cartridge's process: launched, and its plugin imported there and checked."""

from __future__ import annotations

import os
import sys
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING

from cartridge_core.errors import CancelledError, CartridgeDiedError, LoadError
from cartridge_core.packing import MalformedError
from cartridge_core.worker.client import Worker
from cartridge_core.worker.launch import launch
from cartridge_core.worker.logs import levels
from cartridge_core.worker.remote import remote_plugin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cartridge_core.context import Context
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.discovery import PluginSource

__all__ = ["START_S", "start"]

START_S = 120.0
"""How long a process may take until it has imported its plugin."""


def start(
    source: PluginSource,
    cartridge_id: str,
    offered: Sequence[Descriptor],
    *,
    context: Context | None = None,
    timeout_s: float = START_S,
    is_watched: bool = False,
) -> Worker:
    """
    Start a process, and have it import a plugin and check it against the contract.

    Args:
        source: The plugin.
        cartridge_id: Whose process it is: what it logs is under ``cartridge.<cartridge id>``.
        offered: The plugin's descriptors that are offered.
        context: Cancelling it ends the start.
        timeout_s: How long it may take.
        is_watched: Whether wrappers see its hooks, so that each must do its own part.

    Raises:
        LoadError: The process cannot be started, does not come up in time or dies; or it cannot
            import the plugin, and then what was raised is the error's cause.

        AbiMismatchError: The plugin does not follow the contract.

        CancelledError: The context was cancelled.
    """
    worker = Worker(cartridge_id, *launch(cartridge_id))
    try:
        has_cancel = _greet(worker, _told(source, offered), context, timeout_s)
    except BaseException as exc:
        worker.end(0.0)
        if isinstance(exc, CartridgeDiedError):
            msg = f"{exc}\nIt was starting, and importing {source.module}"
            raise LoadError(msg) from None
        raise
    worker.plugin = remote_plugin(
        worker, source.descriptors, has_cancel=has_cancel, is_watched=is_watched
    )
    return worker


def _told(source: PluginSource, offered: Sequence[Descriptor]) -> list[object]:
    """Give what a process has to know."""
    path: Sequence[object] = sys.path
    return [
        [entry for entry in path if isinstance(entry, str)],
        os.environ.get("PYTHONPATH"),
        source.name,
        source.distribution,
        source.module,
        [one.to_json() for one in source.descriptors],
        [one.id for one in offered],
        levels(),
    ]


def _greet(worker: Worker, values: list[object], context: Context | None, timeout_s: float) -> bool:
    """Have the process import the plugin; give whether this has a hook for cancel."""
    greeting = worker.ask_aside("start", values, _yes_or_no)
    msg = f"the start of a process for {worker.cartridge_id} was cancelled"
    stop = partial(greeting.fail, CancelledError(msg))
    if context is not None:
        context.on_cancel(stop)
    try:
        return greeting.wait(timeout_s).get()
    except Empty:
        worker.end(0.0)
        raise LoadError(worker.told(f"did not come up within {timeout_s:g} s")) from None
    finally:
        if context is not None:
            context.forget(stop)


def _yes_or_no(values: list[object]) -> bool:
    match values:
        case [bool(answer)]:
            return answer
    msg = f"{str(values)[:60]!a} where yes or no is expected"
    raise MalformedError(msg)
