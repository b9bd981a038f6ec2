"""Sort a caller's arguments into what they are for: the model, the load, the session."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import InvalidArgumentError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from cartridge_core.capdefs import Arg, Cap
    from cartridge_core.descriptor import Descriptor

__all__ = ["Arguments", "bind", "bind_options", "bind_parameters", "check_main"]


@attrs.define
class Arguments:
    """The arguments of one call, checked and with declared defaults filled in."""

    options: Mapping[str, object]
    """For `cartridge_open`: the arguments with ``metadata.scope`` ``open``."""

    parameters: Mapping[str, object] = attrs.field(kw_only=True)
    """For `cartridge_session_begin`: the others."""

    model_spec: str | os.PathLike[str] | None = attrs.field(kw_only=True)
    """The ``pack`` argument as given, or its default; None for a cap without one."""


def bind(cap: Cap, given: Mapping[str, object], value: object = None) -> Arguments:
    """
    Check arguments against what a cap declares, and split them.

    An argument given as None counts as not given.

    Args:
        cap: The cap whose arguments they are.
        given: Arguments by name, without the main one.
        value: The main argument; it is the model spec where the main argument has
            ``metadata.pack``.

    Raises:
        InvalidArgumentError: A name is not declared, a required argument is missing, or a value
            breaks its rule.
    """
    pack = cap.pack_arg
    rest = dict(given)
    spec: object = None
    if pack is not None:
        if pack is cap.main and value is not None:
            spec = rest.get(pack.name)
            if spec is not None and spec is not value:
                msg = f"{pack.name} is the main argument of {cap.urn}: it was given twice"
                raise InvalidArgumentError(msg, arg=pack.name, value=spec)
            rest[pack.name] = value
        spec = _take(cap, (pack,), rest).get(pack.name)
    options = _take(cap, cap.open_args, rest)
    parameters = _take(cap, cap.session_args, rest)
    for name, item in rest.items():
        if item is not None:
            raise _undeclared(cap, name, item)
    model_spec = cast("str | os.PathLike[str] | None", spec)
    return Arguments(options, parameters=parameters, model_spec=model_spec)


def bind_parameters(cap: Cap, given: Mapping[str, object]) -> dict[str, object]:
    """
    Check the arguments of a session on an open cartridge.

    Raises:
        InvalidArgumentError: A name is not one of the cap's session arguments, a required one is
            missing, or a value breaks its rule.
    """
    rest = {name: item for name, item in given.items() if item is not None}
    parameters = _take(cap, cap.session_args, rest)
    for name in rest:
        if name in {arg.name for arg in cap.open_args} or (cap.pack_arg and name == "model_spec"):
            msg = f"{name} of {cap.urn} takes effect at open: pass it there"
            raise InvalidArgumentError(msg, arg=name, value=rest[name])
        raise _undeclared(cap, name, rest[name])
    return parameters


def bind_options(descriptor: Descriptor, given: Mapping[str, object]) -> dict[str, object]:
    """
    Check the arguments of an open; all caps of a cartridge declare the same ones.

    Raises:
        InvalidArgumentError: A name is not declared, or a value breaks its rule.
    """
    rest = {name: item for name, item in given.items() if item is not None}
    declared = descriptor.open_args
    options = _take(descriptor.caps[0], declared, rest) if descriptor.caps else {}
    for name in rest:
        takes = ", ".join(arg.name for arg in declared) or "none"
        msg = f"{descriptor.id} has no open argument {name!r}; its open arguments: {takes}"
        raise InvalidArgumentError(msg, arg=name, value=rest[name], rule="declared")
    return options


def check_main(cap: Cap, value: object) -> object:
    """
    Check the main value of a call; give what the cartridge gets.

    Raises:
        InvalidArgumentError: It breaks the rule of the main argument, or the cap takes none.
    """
    main = cap.main
    if main is None or main.pack:
        if value is not None:
            what = "no input" if main is None else "its model as `model_spec`"
            msg = f"{cap.urn} takes {what}, and a value of type {type(value).__name__} was given"
            raise InvalidArgumentError(msg, arg="value", value=value, rule="None")
        return None
    if value is None:
        if main.required:
            msg = f"{cap.urn} needs {main.name}, and None was given"
            raise InvalidArgumentError(msg, arg=main.name, value=None, rule="required")
        return main.default if main.has_default else None
    return main.check(value)


def _take(cap: Cap, args: Iterable[Arg], rest: dict[str, object]) -> dict[str, object]:
    taken: dict[str, object] = {}
    for arg in args:
        value = rest.pop(arg.name, None)
        if value is not None:
            taken[arg.name] = arg.check(value)
        elif arg.has_default:
            taken[arg.name] = arg.default
        elif arg.required:
            raise _missing(cap, arg)
    return taken


def _missing(cap: Cap, arg: Arg) -> InvalidArgumentError:
    msg = f"{cap.urn} needs the argument {arg.name}: {arg.description or 'it has no default'}"
    return InvalidArgumentError(msg, arg=arg.name, rule="required")


def _undeclared(cap: Cap, name: str, value: object) -> InvalidArgumentError:
    main = cap.main
    if main is not None and name == main.name:
        msg = f"{name} is the main argument of {cap.urn}: pass it as the value"
        return InvalidArgumentError(msg, arg=name, value=value)
    declared = sorted(arg.name for arg in cap.args if arg is not main or arg.pack)
    import difflib  # noqa: PLC0415 -- only an error needs it

    close = difflib.get_close_matches(name, declared, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    takes = ", ".join(declared) or "none"
    msg = f"{cap.urn} has no argument {name!r}.{hint} Its arguments: {takes}"
    return InvalidArgumentError(msg, arg=name, value=value, rule="declared")
