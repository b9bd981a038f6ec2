"""
Errors as plain values, so that they cross between the processes.

A `CartridgeError` arrives as itself, with its attributes; one of a class that only a plugin has as
its nearest base that core has, with its own attributes too. A built-in exception arrives as itself,
every other one as a `BackendError` that names its class. The traceback arrives as a note.
"""

from __future__ import annotations

import builtins
import inspect
import traceback
import typing
from typing import cast

from cartridge_core import errors, reports
from cartridge_core.errors import BackendError, CartridgeError, InvalidArgumentError
from cartridge_core.jsondata import shown
from cartridge_core.packing import MalformedError, pack
from cartridge_core.wire import encode
from cartridge_core.worker.plain import as_plain, from_plain

if typing.TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cartridge_core.packing import Buffer

__all__ = ["encode_error", "unpack_error"]

_MAX_CAUSES = 4
_MAX_TRACE = 20_000
"""Characters of a traceback, the last ones."""


def encode_error(
    kind: str, number: int, before: Sequence[object], error: BaseException, *, trace: bool
) -> list[Buffer]:
    """
    Make a frame that ends with an error.

    Args:
        kind: The frame's.
        number: The frame's.
        before: The frame's other values.
        error: What was raised.
        trace: Whether its traceback goes along.
    """
    packed = _packed(error, _MAX_CAUSES)
    if trace:
        packed["trace"] = "".join(traceback.format_exception(error))[-_MAX_TRACE:]
    try:
        return encode(kind, number, [*before, packed])
    except InvalidArgumentError:
        # Something in it is too large or nests too deep; the words have to do.
        told = BackendError(f"{packed['class']}: {packed['message']}"[:_MAX_TRACE])
        return encode(kind, number, [*before, _packed(told, 0)])


def _packed(error: BaseException, causes: int) -> dict[str, object]:
    kind = type(error)
    packed: dict[str, object] = {"class": _named(kind), "message": _message(error)}
    base = next((one for one in kind.__mro__ if one.__module__ == errors.__name__), None)
    if base is not None:
        packed["base"] = base.__name__
        declared = _fields(base)
        packed["fields"] = {
            name: _crossable(as_plain(getattr(error, name, None))) for name in declared
        }
        packed["more"] = {
            name: _crossable(as_plain(value))
            for name, value in vars(error).items()
            if name not in declared and not name.startswith("_")
        }
    elif _is_builtin(kind):
        packed["args"] = [_crossable(one) for one in _arguments(error)]
    packed["notes"] = [str(note) for note in getattr(error, "__notes__", ())]
    if error.__cause__ is not None and causes:
        packed["cause"] = _packed(error.__cause__, causes - 1)
    return packed


def unpack_error(packed: object, where: str) -> Exception:
    """
    Make an error of what `encode_error` sent.

    Args:
        packed: As it came.
        where: In whose process it was raised, for a person.

    Raises:
        MalformedError: It is not that.
    """
    match packed:
        case {"class": str(name), "message": str(message), "notes": list(notes), **more}:
            error = _made(name, message, cast("Mapping[str, object]", more))
        case _:
            msg = f"an error that is none: {str(packed)[:60]!a}"
            raise MalformedError(msg)
    for note in notes:
        error.add_note(str(note))
    if "trace" in more:
        error.add_note(f"Raised {where}:\n{more['trace']}")
    if "cause" in more:
        error.__cause__ = unpack_error(more["cause"], where)
    return error


def _made(name: str, message: str, more: Mapping[str, object]) -> Exception:
    match more:
        case {"base": str(base), "fields": dict(fields), **rest} if base in errors.__all__:
            error = _made_of_core(base, message, fields)
            own = rest.get("more")
            # What only the plugin's class has: data all the same.
            for key, value in own.items() if isinstance(own, dict) else ():
                if isinstance(key, str) and not hasattr(error, key):
                    setattr(error, key, value)
            return error
        case {"args": list(args)}:
            kind = getattr(builtins, name, None)
            if isinstance(kind, type) and _is_builtin(kind):
                made = _made_of_builtins(kind, args)
                if made is not None:
                    return made
    return BackendError(f"{name}: {message}" if message else name)


def _made_of_core(base: str, message: str, fields: Mapping[str, object]) -> CartridgeError:
    kind = getattr(errors, base)
    if not (isinstance(kind, type) and issubclass(kind, CartridgeError)):
        msg = f"an error of the class {base}, which is none"
        raise MalformedError(msg)
    hints = _fields(kind)
    known = {key: from_plain(hints[key], item) for key, item in fields.items() if key in hints}
    return kind(message, **known)


def _made_of_builtins(kind: type[Exception], args: list[object]) -> Exception | None:
    try:
        return kind(*args)
    except Exception:  # noqa: BLE001 -- who makes it so is not to be trusted
        return None


def _named(kind: type) -> str:
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as exc:  # noqa: BLE001 -- a plugin's own class may do anything
        return f"(its text cannot be had: {type(exc).__name__})"


def _is_builtin(kind: type) -> typing.TypeGuard[type[Exception]]:
    """Say whether an exception can be made again: not a group, nor what ends a loop."""
    is_own = kind.__module__ == "builtins" and issubclass(kind, Exception)
    return is_own and not issubclass(kind, ExceptionGroup | StopIteration | StopAsyncIteration)


def _arguments(error: BaseException) -> tuple[object, ...]:
    if isinstance(error, OSError) and error.filename is not None:
        return (error.errno, error.strerror, error.filename, None, error.filename2)
    return error.args


def _crossable(value: object) -> object:
    """Give a value, or its text where it is nothing that can cross."""
    try:
        pack([value])
    except InvalidArgumentError:
        return shown(value)
    return value


def _fields(kind: type[CartridgeError]) -> Mapping[str, object]:
    """Give the attributes of an error's class and their types, which its `__init__` declares."""
    made = inspect.getattr_static(kind, "__init__")
    if not inspect.isfunction(made):
        return {}
    hints = typing.get_type_hints(made, localns=vars(reports))
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    parameters = inspect.signature(made).parameters.values()
    return {one.name: hints[one.name] for one in parameters if one.kind is keyword_only}
