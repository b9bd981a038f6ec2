"""A typed Python module of a cartridge: a function for each of its caps."""

from __future__ import annotations

import builtins
import hashlib
import json
import re
from typing import TYPE_CHECKING

from cartridge_core.cli.facade_function import BODY_NAMES, FOLLOW, write_function
from cartridge_core.cli.facade_text import function_name, literal
from cartridge_core.cli.facade_types import MEDIUM, Types
from cartridge_core.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cartridge_core.descriptor import Descriptor

__all__ = ["FIRST_WORDS", "digest_of", "write_facade"]

FIRST_WORDS = "# Made by `cartridge facade"

_SOURCES = {
    "": ("os",),
    "collections.abc": ("Callable", "Generator", "Iterable", "Mapping"),
    "typing": ("TYPE_CHECKING", "Literal", "NotRequired", "TypeAlias", "TypedDict", "cast"),
    "cartridge_core": (
        *("BackendError", "Call", "Log", "Progress", "Record", "Registry", "Result"),
    ),
}
"""What a module may import; it imports what of it its text has."""

_ARRAYS = ("if TYPE_CHECKING:", "    import numpy as np", "    from numpy.typing import NDArray")
_MEDIUM = f"    {MEDIUM}: TypeAlias = str | os.PathLike[str] | bytes | NDArray[np.generic]"

_HELPERS = {
    "_strange": """\
def _strange(payload: object, wanted: str) -> BackendError:
    found = type(payload).__name__
    return BackendError(f"{_ID} gave a value of type {found}, and its descriptor says {wanted}")
""",
    "_results": f"""\
def _results(call: Call, on_progress: {FOLLOW}) -> Generator[Result]:
    with call:
        for event in call:
            if isinstance(event, Result):
                yield event
            elif on_progress is not None:
                on_progress(event)
""",
}


def digest_of(descriptor: Descriptor) -> str:
    """Give the SHA-256 of a descriptor, whatever the order of its keys."""
    text = json.dumps(descriptor.to_json(), sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


def write_facade(descriptor: Descriptor) -> str:
    """
    Write the module of a cartridge; the same descriptor gives the same text.

    Nothing that the descriptor says becomes code: its texts are in literals and docstrings alone.

    Raises:
        UnsupportedError: The cartridge declares no cap.
    """
    if not descriptor.caps:
        msg = f"{descriptor.id} declares no cap, so there is no function to write; open it by id"
        raise UnsupportedError(msg)
    types = Types({name for names in _SOURCES.values() for name in names} | BODY_NAMES)
    types.taken |= {MEDIUM, "NDArray", "np", "annotations", "_ID", *_HELPERS}
    functions: dict[str, str] = {}
    for cap in descriptor.caps:
        name = function_name(cap.aliases[0], types.taken | set(dir(builtins)))
        types.taken.add(name)
        functions[name] = "\n".join(write_function(descriptor, cap, name, types))
    parts = [*types.definitions, *functions.values()]
    words = _words("\n".join(parts))
    parts += [text.rstrip() for name, text in _HELPERS.items() if name in words]
    head = "\n".join(_head(descriptor, sorted(functions), _words("\n".join(parts))))
    return "\n\n\n".join([head, *parts]) + "\n"


def _head(descriptor: Descriptor, names: list[str], words: set[str]) -> Iterator[str]:
    yield f"{FIRST_WORDS} {descriptor.id}`: do not edit it, make it anew."
    yield f"# Its descriptor: version {descriptor.version}, {digest_of(descriptor)}"
    yield "# fmt: off"
    yield "# ruff: noqa"
    yield f'"""Typed functions for the caps of the cartridge {descriptor.id}."""'
    yield ""
    yield "from __future__ import annotations"
    yield ""
    if MEDIUM in words:
        words |= {"NDArray", "TypeAlias", "os"}
    if "NDArray" in words:
        words.add("TYPE_CHECKING")
    for source, known in _SOURCES.items():
        used = ", ".join(name for name in known if name in words)
        if source == "cartridge_core":
            yield ""
        if used:
            yield f"from {source} import {used}" if source else f"import {used}"
    yield ""
    if "NDArray" in words:
        yield from _ARRAYS
        yield from ["", _MEDIUM] * (MEDIUM in words)
        yield ""
    yield f"__all__ = [{', '.join(map(literal, names))}]"
    yield ""
    yield f"_ID = {literal(descriptor.id)}"


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))
