"""The typed function of one cap."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs

from cartridge_core.cli.facade_text import filled, free_name, literal
from cartridge_core.descriptor import IoMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cartridge_core.capdefs import Arg, Cap
    from cartridge_core.cli.facade_types import Types
    from cartridge_core.descriptor import Descriptor

__all__ = ["BODY_NAMES", "FOLLOW", "write_function"]

FOLLOW = "Callable[[Progress | Log], None] | None"
"""The type of ``on_progress``."""

BODY_NAMES = frozenset(
    {"registry", "payload", "call", "isinstance", "hasattr"}
    | {"bool", "bytes", "float", "int", "list", "str"}
)
"""What the body of a function uses that no parameter may be called, besides the module's names."""

_CHECKS = {
    "Record": ("isinstance(payload, Record)", "a record"),
    "bool": ("isinstance(payload, bool)", "true or false"),
    "bytes": ("isinstance(payload, bytes)", "bytes"),
    "float": ("isinstance(payload, int | float)", "a number"),
    "int": ("isinstance(payload, int)", "an integer"),
    "str": ("isinstance(payload, str)", "a text"),
}
_LIST = ("isinstance(payload, list)", "a list")
_ARRAY = ('hasattr(payload, "__array_interface__")', "an array")


@attrs.frozen
class _Parameter:
    """A parameter of a function."""

    name: str
    arg: Arg
    type: str = attrs.field(kw_only=True)
    default: str = attrs.field(kw_only=True)
    """As source, with the sign before it; empty for what has to be given."""

    def __str__(self) -> str:
        return f"    {self.name}: {self.type}{self.default},"

    def told(self) -> str:
        """Say what it is, and what None means."""
        arg = self.arg
        texts = [arg.description or f"As {arg.media_urn} says."]
        if self.name != arg.name:
            texts.append(f"The descriptor calls it {arg.name}.")
        if self.default == " = None":
            default = json.dumps(arg.default, ensure_ascii=False)
            texts.append(f"None takes {default}." if arg.has_default else "None leaves it out.")
        return " ".join(texts)


def write_function(descriptor: Descriptor, cap: Cap, name: str, types: Types) -> Iterator[str]:
    """
    Write the function of a cap, line by line.

    Args:
        descriptor: Of its cartridge.
        cap: Which one.
        name: What the function is called.
        types: The module's types; those that it needs are added.
    """
    prefix = "".join(part.title() for part in name.split("_"))
    is_stream = descriptor.mode is IoMode.STREAMING
    # A pack is its own model.
    args = [arg for arg in cap.args if not (arg.pack and descriptor.base)]
    made = list(_parameters(args, prefix, types))
    main = [one for one in made if one.arg is cap.main]
    others = [one for one in made if one.arg is not cap.main]
    gives = "Generator[Result]"
    if not is_stream:
        gives = types.of_output(descriptor, cap, f"{prefix}Output")
    yield f"def {name}("
    yield "    registry: Registry,"
    yield from map(str, main)
    yield "    *,"
    yield from map(str, others)
    yield f"    on_progress: {FOLLOW} = None,"
    yield f") -> {gives}:"
    yield from _docstring(cap, [*main, *others], is_stream=is_stream)
    given = [f"        {literal(str(cap.urn))},", *(f"        {one.name}," for one in main)]
    given += ["        cartridge_id=_ID,"]
    given += [] if is_stream else ["        on_progress=on_progress,"]
    given += [f"        {one.arg.name}={one.name}," for one in others]
    if is_stream:
        yield from ["    call = registry.stream(", *given, "    )"]
        yield "    return _results(call, on_progress)"
    elif gives == "None":
        yield from ["    registry.call(", *given, "    )"]
    else:
        yield from ["    payload = registry.call(", *given, "    ).payload"]
        yield from _checked(gives, types)


def _parameters(args: Iterable[Arg], prefix: str, types: Types) -> Iterator[_Parameter]:
    """Make a parameter of each argument; one whose name is used in the body gets an underscore."""
    names: set[str] = set()
    for arg in args:
        part = "".join(word.title() for word in arg.name.split("_"))
        found, default = types.of_arg(arg, f"{prefix}{part}"), ""
        if arg.has_default and not arg.pack and isinstance(arg.default, str | int | float):
            default = f" = {literal(arg.default)}"
        elif arg.has_default or not arg.required:
            found, default = f"{found} | None", " = None"
        name = free_name(arg.name, types.taken | names)
        names.add(name)
        yield _Parameter(name, arg, type=found, default=default)


def _docstring(cap: Cap, parameters: list[_Parameter], *, is_stream: bool) -> Iterator[str]:
    outputs = cap.outputs
    yield '    """'
    yield from filled(
        "", f"{cap.title}: {cap.description}" if cap.description else cap.title, "    "
    )
    yield ""
    yield "    Args:"
    yield "        registry: Where to ask."
    for one in parameters:
        yield from filled(f"{one.name}: ", one.told(), "        ")
    yield "        on_progress: Takes progress and log lines."
    if outputs:
        yield ""
        yield "    Yields:" if is_stream else "    Returns:"
        for output in outputs:
            yield from filled(f"{output.name}: ", output.description, "        ")
    yield ""
    yield "    Raises:"
    yield f"        CartridgeError: As `Registry.{'stream' if is_stream else 'call'}`."
    yield '    """'


def _checked(gives: str, types: Types) -> Iterator[str]:
    """Hold what came against what the descriptor says, and give it."""
    check, returned = _CHECKS.get(gives), "payload"
    if check is None and gives != "object":
        returned = f"cast({literal(gives)}, payload)"
    if gives in types.records or gives.startswith("Mapping["):
        check = _CHECKS["Record"]
    elif gives.startswith("list["):
        check, returned = _LIST, "payload"
    elif gives.startswith("NDArray["):
        check = _ARRAY
    if check is not None:
        condition, words = check
        yield f"    if not {condition}:"
        yield f"        raise _strange(payload, {literal(words)})"
    yield f"    return {returned}"
