"""From a model spec to a pack on disk: paths at once, everything else by a peer call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cartridge_core.errors import InvalidArgumentError, LoadError
from cartridge_core.modelspec import FileSpec, ModelSpec
from cartridge_core.pack import Pack
from cartridge_core.progress import Log, Phase, Progress

if TYPE_CHECKING:
    from cartridge_core.context import Context
    from cartridge_core.offers import Offer

__all__ = ["Models"]

_DOWNLOAD = 'cap:download-model;in="media:enc=utf-8;model-spec";out="media:enc=utf-8;file-path"'


_MOST_PACKS = 256
"""How many packs are remembered."""


class Models:
    """The model specs a registry has resolved; each is resolved once, while its files stand."""

    def __init__(self) -> None:
        self._packs: dict[str, Pack] = {}

    def find(
        self, offer: Offer, given: Pack | str | os.PathLike[str] | None, context: Context
    ) -> Pack | None:
        """
        Give a cartridge's model: itself for a pack, what is given, or its declared default.

        Args:
            offer: The cartridge.
            given: A pack, a path or a model spec; None takes the declared default.
            context: Takes the progress of a fetch, and answers the peer call.

        Returns:
            The model; None for a cartridge that declares none.

        Raises:
            InvalidArgumentError: The cartridge takes no model, or is one itself, or the model
                spec is malformed.

            LoadError: There is nothing at the path, or it cannot be fetched.

            NoRouteError: No installed cartridge fetches such a model spec.
        """
        model = _given(offer, given)
        if model is None or isinstance(model, Pack):
            return model
        return self._resolve(model, context)

    def peek(self, offer: Offer, given: Pack | str | os.PathLike[str] | None) -> Pack | None:
        """Give the same where it needs no fetch; None where it would."""
        model = _given(offer, given)
        if model is None or isinstance(model, Pack):
            return model
        parsed = ModelSpec.parse(model)
        if isinstance(parsed, FileSpec):
            return Pack.from_path(parsed.path)
        return self._known(str(parsed))

    def _resolve(self, spec: str | os.PathLike[str], context: Context) -> Pack:
        text = os.fspath(spec)
        # A path that is not absolute means another file in another working folder.
        is_fixed = isinstance(spec, str) or os.path.isabs(text)
        pack = self._known(text) if is_fixed else None
        if pack is not None:
            return pack
        parsed = ModelSpec.parse(spec)
        if isinstance(parsed, FileSpec):
            pack = Pack.from_path(parsed.path)
            return self._remember(text, pack) if os.path.isabs(text) else pack
        canonical = str(parsed)
        pack = self._known(canonical) or Pack.from_path(_download(canonical, context))
        self._remember(canonical, pack)
        return self._remember(text, pack)

    def _known(self, text: str) -> Pack | None:
        """Give what a text was resolved to: as it is now, if it is still there."""
        pack = self._packs.get(text)
        if pack is None or pack.is_unchanged():
            return pack
        if not pack.path.exists():
            return None
        return self._remember(text, Pack.from_path(pack.path))

    def _remember(self, text: str, pack: Pack) -> Pack:
        if len(self._packs) >= _MOST_PACKS:
            self._packs.clear()
        self._packs[text] = pack
        return pack


def _given(
    offer: Offer, given: Pack | str | os.PathLike[str] | None
) -> Pack | str | os.PathLike[str] | None:
    if offer.pack is not None:
        if given is not None:
            msg = f"{offer.id} is a pack, its own model: pass no other"
            raise InvalidArgumentError(msg, arg="pack", value=given)
        return offer.pack
    if isinstance(given, Pack) and not given.is_unchanged():
        given = Pack.from_path(given.path)
    arg = offer.descriptor.pack_arg
    if given is None:
        default = None if arg is None else arg.default
        return default if isinstance(default, str) else None
    if not isinstance(given, str | os.PathLike | Pack):
        msg = f"pack is a {type(given).__name__}; a Pack, a path or a model spec is expected"
        raise InvalidArgumentError(msg, arg="pack", value=given)
    if arg is None and offer.descriptor.caps:
        msg = f"{offer.id} takes no model, and {given} was given"
        raise InvalidArgumentError(msg, arg="pack", value=given)
    return given


def _download(spec: str, context: Context) -> str:
    path: object = None
    for event in context.peer.call(_DOWNLOAD, spec):
        if isinstance(event, Progress):
            if event.phase is Phase.INFER:
                context.progress(event.phase.unscale(event.fraction), event.message)
        elif isinstance(event, Log):
            context.log(event.level, event.message)
        elif isinstance(event.payload, Mapping):
            path = event.payload.get("path")
    if not isinstance(path, str):
        msg = f"{spec} was fetched, but the record that came back names no path"
        raise LoadError(msg)
    return path
