"""Routes of a registry: its preferences, what a caller may pass, and routes remembered."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from cartridge_core import routing
from cartridge_core.descriptor import IoMode
from cartridge_core.errors import InvalidArgumentError
from cartridge_core.modelspec import FileSpec, ModelSpec
from cartridge_core.urn import CapUrn

if TYPE_CHECKING:
    from collections.abc import Callable

    from cartridge_core.offers import Index
    from cartridge_core.reports import Explanation

__all__ = ["Router", "as_names"]

_MOST_ROUTES = 4096
"""How many routes are remembered."""


class Router:
    """
    Routes requests over what a registry has now.

    Args:
        index: Gives what there is now; a plugin that cannot be activated is lost.
        prefer: Cartridge ids or plugin names; they come after a request's own.
    """

    def __init__(self, index: Callable[[], Index], prefer: Iterable[str]) -> None:
        self._index = index
        self._prefer = as_names(prefer)
        # One value, so that a thread never puts a route beside an index it is not of.
        self._routes: tuple[Index, dict[object, _Known]] = (index(), {})

    def route(
        self,
        cap: str | CapUrn,
        mode: str | IoMode | None = None,
        *,
        usual_mode: IoMode = IoMode.BATCH,
        cartridge_id: str | None = None,
        prefer: Iterable[str] = (),
        model_spec: object = None,
        value: object = None,
    ) -> routing.Route:
        """
        Route a request; one that the main value does not decide is remembered.

        A route for an absolute path is remembered until what is there changes.

        Arguments as the fields of `routing.Request`, as a caller may pass them.

        Raises:
            InvalidArgumentError: One of them is not what it should be.

            NoRouteError: Nothing serves it.

            AmbiguousRouteError: Several serve it equally well.
        """
        index = self._index()
        known_index, routes = self._routes
        if known_index is not index or len(routes) > _MOST_ROUTES:
            routes = {}
            self._routes = (index, routes)
        prefer = as_names(prefer)
        spec = model_spec if model_spec is None or type(model_spec) is str else _path(model_spec)
        key = (cap, mode, usual_mode, cartridge_id, prefer, spec)
        try:
            known = routes.get(key)
        except TypeError:  # something cannot be hashed; it is named below
            known = None
        if known is not None and (known.path is None or _changed_ns(known.path) == known.changed):
            return known.route
        request = self.request(
            cap,
            mode,
            usual_mode=usual_mode,
            cartridge_id=cartridge_id,
            prefer=prefer,
            model_spec=model_spec,
            value=value,
        )
        found = routing.route(index, request)
        # A path that is not absolute means another file in another working folder.
        path = str(spec) if isinstance(request.model_spec, FileSpec) else None
        if not routing.reads_value(index, request) and (path is None or os.path.isabs(path)):
            routes[key] = _Known(found, path, _changed_ns(path) if path else None)
        return found

    def explain(
        self,
        cap: str | CapUrn,
        mode: str | IoMode | None = None,
        *,
        cartridge_id: str | None = None,
        prefer: Iterable[str] = (),
        model_spec: object = None,
    ) -> Explanation:
        """Say of every candidate why `route` takes it or not; arguments and errors as there."""
        request = self.request(
            cap, mode, cartridge_id=cartridge_id, prefer=prefer, model_spec=model_spec
        )
        return routing.explain(self._index(), request)

    def request(
        self,
        cap: str | CapUrn,
        mode: str | IoMode | None = None,
        *,
        usual_mode: IoMode = IoMode.BATCH,
        cartridge_id: str | None = None,
        prefer: Iterable[str] = (),
        model_spec: object = None,
        value: object = None,
    ) -> routing.Request:
        """Make a request of what a caller passed; arguments and errors as for `route`."""
        return routing.Request(
            cap=CapUrn.of(cap),
            mode=_mode(mode),
            usual_mode=usual_mode,
            cartridge_id=cartridge_id,
            prefer=(*as_names(prefer), *self._prefer),
            model_spec=_spec(model_spec),
            value=value,
        )


class _Known(NamedTuple):
    """A route, and for which state of a path it is right."""

    route: routing.Route
    path: str | None
    changed: int | None


def _path(model_spec: object) -> object:
    """Give an absolute path as its text, which means the same; anything else as it is."""
    text = os.fspath(model_spec) if isinstance(model_spec, os.PathLike) else None
    return text if isinstance(text, str) and os.path.isabs(text) else model_spec


def _changed_ns(path: str) -> int | None:
    """Say when a file, or the list of a folder's files, last changed; None where it is not."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def as_names(prefer: object) -> tuple[str, ...]:
    """
    Read preferences; one name alone is taken for what it is, and not for its letters.

    Raises:
        InvalidArgumentError: They are no names.
    """
    if prefer is None or prefer == ():
        return ()
    if isinstance(prefer, str):
        return (prefer,)
    given = tuple(prefer) if isinstance(prefer, Iterable) else (prefer,)
    names = tuple(name for name in given if isinstance(name, str))
    if len(names) < len(given):
        msg = f"prefer is {prefer!r}; a list of cartridge ids or plugin names is expected"
        raise InvalidArgumentError(msg, arg="prefer", value=prefer)
    return names


def _spec(value: object) -> ModelSpec | None:
    if value is None:
        return None
    if isinstance(value, str | os.PathLike):
        return ModelSpec.parse(value)
    msg = f"model_spec is a {type(value).__name__}, and a model spec or a path is expected"
    raise InvalidArgumentError(msg, arg="model_spec", value=value, rule="str or PathLike")


def _mode(mode: str | IoMode | None) -> IoMode | None:
    if mode is None or isinstance(mode, IoMode):
        return mode
    try:
        return IoMode(mode)
    except ValueError:
        msg = f"mode is {mode!r}; it is 'batch' or 'streaming'"
        raise InvalidArgumentError(msg, arg="mode", value=mode) from None
