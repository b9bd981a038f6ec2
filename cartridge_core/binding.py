"""One plugin's hooks, typed; the only place that handles what pluggy does not type."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

from cartridge_core.descriptor import Descriptor, IoMode
from cartridge_core.errors import AbiMismatchError, BackendError
from cartridge_core.hookspecs import HookSpecs
from cartridge_core.reports import PreflightReport
from cartridge_core.results import Result, ResultKind

if TYPE_CHECKING:
    from cartridge_core.context import Context
    from cartridge_core.pack import Pack

__all__ = ["Binding", "is_interrupt"]

_COMMON = (
    "cartridge_descriptors",
    "cartridge_preflight",
    "cartridge_open",
    "cartridge_close",
    "cartridge_session_begin",
    "cartridge_session_end",
)
_OF_MODE = {
    IoMode.BATCH: ("cartridge_infer",),
    IoMode.STREAMING: ("cartridge_push", "cartridge_pull", "cartridge_flush"),
}

_FINAL = ResultKind.FINAL  # read once: Python 3.11 takes 0.15 µs to find a member of an enum

# What must not travel on as it is: it would end the caller's loop or program.
_ESCAPES = (StopIteration, StopAsyncIteration, GeneratorExit, SystemExit, KeyboardInterrupt)


def is_interrupt(exc: BaseException) -> bool:
    """Say whether this is the user's Ctrl-C, which reaches no thread but the main one."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and isinstance(exc, KeyboardInterrupt)


class Binding:
    """
    A plugin under a plugin manager of its own, so that a call reaches exactly one cartridge.

    Args:
        name: The plugin's name.
        plugin: The module or object with the hook implementations.
        descriptors: What discovery read for it; says which hooks it needs.
        wrappers: Plugins of ``hookimpl(wrapper=True)`` functions that see every call.

    Raises:
        AbiMismatchError: A hook is missing or misspelt, or takes an argument the contract
            does not have.
    """

    def __init__(
        self,
        name: str,
        plugin: object,
        descriptors: Sequence[Descriptor],
        wrappers: Iterable[object] = (),
    ) -> None:
        self.name = name
        manager = pluggy.PluginManager("cartridge")
        manager.add_hookspecs(HookSpecs)
        for wrapper in wrappers:
            manager.register(wrapper)
        try:
            manager.register(plugin, name)
            manager.check_pending()
        except pluggy.PluginValidationError as exc:
            msg = f"plugin {name} does not follow the hook contract: {exc}"
            raise AbiMismatchError(msg) from exc
        callers = manager.get_hookcallers(plugin) or []
        hooks = {caller.name for caller in callers}
        needed = [*_COMMON, *(hook for one in descriptors for hook in _OF_MODE[one.mode])]
        missing = sorted(set(needed) - hooks)
        if missing:
            msg = f"plugin {name} lacks the hooks {', '.join(missing)}, which its io.mode needs"
            raise AbiMismatchError(msg)
        self.has_cancel = "cartridge_cancel" in hooks
        self._callers = {hook: _caller(manager, hook) for hook in hooks}

    def descriptors(self) -> tuple[Descriptor, ...]:
        """Give what the plugin's own hook says it offers."""
        found = self._call("cartridge_descriptors")
        if not isinstance(found, Sequence) or not all(isinstance(x, Descriptor) for x in found):
            msg = "cartridge_descriptors"
            raise self._broken(msg, found, "a sequence of Descriptor")
        return tuple(found)

    def check_descriptors(self, static: Iterable[Descriptor]) -> None:
        """
        Hold what the plugin's hook says against its static files.

        Raises:
            AbiMismatchError: They differ.
        """
        by_id = {descriptor.id: descriptor for descriptor in static}
        told = {descriptor.id: descriptor for descriptor in self.descriptors()}
        ids = by_id.keys() | told.keys()
        differing = sorted(key for key in ids if by_id.get(key) != told.get(key))
        if differing:
            msg = (
                f"plugin {self.name}: its cartridge_descriptors hook and its descriptors/*.json "
                f"differ for {', '.join(differing)}"
            )
            raise AbiMismatchError(msg)

    def preflight(
        self, cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
    ) -> PreflightReport:
        """Check what only this machine can answer."""
        found = self._call("cartridge_preflight", cartridge_id, pack, options)
        if not isinstance(found, PreflightReport):
            msg = "cartridge_preflight"
            raise self._broken(msg, found, "a PreflightReport")
        return found

    def open(
        self,
        cartridge_id: str,
        pack: Pack | None,
        options: Mapping[str, object],
        context: Context,
    ) -> object:
        """Load a cartridge; give the plugin's handle."""
        handle = self._call("cartridge_open", cartridge_id, pack, options, context)
        if handle is None:
            msg = "cartridge_open"
            raise self._broken(msg, handle, "a handle")
        return handle

    def close(self, handle: object) -> None:
        """Unload a cartridge."""
        self._call("cartridge_close", handle)

    def session_begin(
        self, handle: object, cap: str, parameters: Mapping[str, object], context: Context
    ) -> object:
        """Begin a session; give the plugin's session."""
        session = self._call("cartridge_session_begin", handle, cap, parameters, context)
        if session is None:
            msg = "cartridge_session_begin"
            raise self._broken(msg, session, "a session")
        return session

    def session_end(self, session: object) -> None:
        """End a session."""
        self._call("cartridge_session_end", session)

    def infer(self, session: object, value: object) -> Result:
        """Take one whole input, give one FINAL result."""
        found = self._call("cartridge_infer", session, value)
        if not isinstance(found, Result) or found.kind is not _FINAL:
            msg = "cartridge_infer"
            raise self._broken(msg, found, "a FINAL Result")
        return found

    def push(self, session: object, chunk: object) -> None:
        """Take one chunk."""
        self._call("cartridge_push", session, chunk)

    def pull(self, session: object) -> Result | None:
        """Work, and give the next result, or None."""
        found = self._call("cartridge_pull", session)
        if found is not None and not isinstance(found, Result):
            msg = "cartridge_pull"
            raise self._broken(msg, found, "a Result or None")
        return found

    def flush(self, session: object) -> None:
        """Note the end of the input."""
        self._call("cartridge_flush", session)

    def cancel(self, session: object) -> None:
        """Stop what the context's flag cannot reach, where the plugin has a hook for it."""
        if self.has_cancel:
            self._call("cartridge_cancel", session)

    def _call(self, hook: str, *arguments: object) -> object:
        """Call a hook with its arguments in the order of `HookSpecs`."""
        try:
            return self._callers[hook](*arguments)
        except _ESCAPES as exc:
            if is_interrupt(exc):
                raise
            msg = f"plugin {self.name}: {hook} raised {type(exc).__name__}: {exc}"
            raise BackendError(msg) from exc

    def _broken(self, hook: str, found: object, expected: str) -> BackendError:
        what = found.kind.name if isinstance(found, Result) else type(found).__name__
        return BackendError(f"plugin {self.name}: {hook} gave {what}, and {expected} is expected")


def _caller(manager: pluggy.PluginManager, hook: str) -> Callable[..., object]:
    """
    Give what calls a hook with its arguments in the order of `HookSpecs`.

    It is the plugin's own function where nothing is around it and it takes them in that order:
    pluggy would choose among one, and take 3 µs for it.
    """
    caller: pluggy.HookCaller = getattr(manager.hook, hook)
    names = caller.spec.argnames if caller.spec is not None else ()
    implementations = caller.get_hookimpls()
    if len(implementations) == 1 and implementations[0].argnames == names:
        return implementations[0].function
    return lambda *arguments: caller(**dict(zip(names, arguments, strict=True)))
