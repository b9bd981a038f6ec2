"""Processes that are none: plugins of this process, which give nothing once they have "died"."""

from __future__ import annotations

import functools
import itertools
import signal
import threading
from typing import TYPE_CHECKING

from cartridge_core.binding import Binding
from cartridge_core.errors import CartridgeDiedError
from cartridge_core.testing.background import Background

if TYPE_CHECKING:
    from collections.abc import Callable

_numbers = itertools.count(1_000_000)
_ENDS = {"cartridge_session_end", "cartridge_close", "cartridge_cancel"}


class FakeProcess:
    """What core has of a process; a plugin's hooks go through it."""

    def __init__(self, cartridge_id, plugin):
        self.pid = next(_numbers)
        self.is_alive = True
        self.has_died = False
        self.plugin = _Plugin()
        for name in dir(plugin):
            if name.startswith("cartridge_"):
                setattr(self.plugin, name, self._guarded(name, getattr(plugin, name)))
        self._cartridge_id = cartridge_id
        self._lock = threading.Lock()
        self._on_death: list[Callable[[], None]] = []

    def _guarded(self, name, hook):
        @functools.wraps(hook)
        def ask(*given):
            if name in _ENDS and not self.is_alive:
                return None
            self._check()
            try:
                return hook(*given)
            finally:
                self._check()

        return ask

    def _check(self):
        if not self.is_alive:
            raise self.death()

    def death(self):
        msg = f"{self._cartridge_id}: its process {self.pid} was ended by SIGKILL"
        return CartridgeDiedError(msg, exit_status=-signal.SIGKILL)

    def die(self):
        """End it; whoever wants to know is told a little later."""
        with self._lock:
            if not self.is_alive:
                return
            self.is_alive, self.has_died = False, True
            tell, self._on_death = self._on_death, []
        for one in tell:
            Background(one)

    def on_death(self, tell):
        with self._lock:
            if self.is_alive:
                self._on_death.append(tell)
                return
        if self.has_died:
            tell()

    def kill(self, why=""):
        del why
        self.die()

    def end(self):
        with self._lock:
            self.is_alive = False

    def ping(self, timeout_s):
        del timeout_s
        return self.is_alive


class _Plugin:
    """The hooks of a plugin, as they are seen from outside its process."""


class FakeProcesses:
    """
    Starts them.

    Args:
        plugins: The plugins, each with one descriptor.
    """

    def __init__(self, plugins):
        self._plugins = {one.plugin_name: one for one in plugins}
        self.started: list[FakeProcess] = []

    def start(self, offer, context):
        """Stand in for `Plugins.start`."""
        context.check_cancelled()
        process = FakeProcess(offer.id, self._plugins[offer.plugin])
        self.started.append(process)
        return process, Binding(offer.plugin, process.plugin, [offer.descriptor])

    def alive(self):
        return [one for one in self.started if one.is_alive]

    def count_of_deaths(self):
        return sum(one.has_died for one in self.started)
