"""Types for what caps take and give: of a JSON Schema, else of a media URN."""

from __future__ import annotations

import json
import keyword
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from cartridge_core.cli.facade_text import filled, free_name, literal, packed
from cartridge_core.errors import InvalidArgumentError
from cartridge_core.jsondata import thaw
from cartridge_core.schema import Schema

if TYPE_CHECKING:
    from cartridge_core.capdefs import Arg, Cap, Output
    from cartridge_core.descriptor import Descriptor
    from cartridge_core.urn import MediaUrn

__all__ = ["MEDIUM", "Types"]

MEDIUM = "MediaInput"
PATH = "str | os.PathLike[str]"

_ANYTHING = "object"
_RECORD = "Mapping[str, object]"
_DEEPEST = 20
"""What nests deeper is an object: Python reads no more than 200 brackets in one another."""

_SHORT = 60
"""Characters of a Literal that stands where it is used."""

_OPAQUE = ("image", "audio", "video")
_OF_MARKERS = {"bool": "bool", "integer": "int", "numeric": "float", "record": _RECORD}
_OF_TYPES = {
    "boolean": "bool",
    "integer": "int",
    "null": "None",
    "number": "float",
    "string": "str",
}
_WORDS = frozenset({"bool", "float", "int", "list", "object", "str"})
"""What types are written with, besides the names of the module."""

_NUMBERS = frozenset(
    {"bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64"}
    | {"uint8", "uint16", "uint32", "uint64"}
)


@attrs.define
class Types:
    """
    The types of one module.

    Args:
        taken: The names that the module has already; those of its classes are added.
    """

    taken: set[str]
    definitions: list[str] = attrs.field(factory=list, init=False)
    """Source of classes and aliases, each after those that it needs."""

    records: set[str] = attrs.field(factory=set, init=False)
    """Which of them are records."""

    _made: dict[str, str] = attrs.field(factory=dict, init=False)
    """What they are called, by what they are made of: what is the same is one type."""

    def of_arg(self, arg: Arg, name: str) -> str:
        """Give the type of what a caller may pass; ``name`` begins the names of its classes."""
        item = self._item(arg, name)
        if arg.is_sequence:
            item = f"{item} | list[{item}]"
        return f"{item} | Iterable[{item}]" if arg.streaming else item

    def _item(self, arg: Arg, name: str) -> str:
        if arg.pack or arg.media_urn.has("file-path") or arg.media_urn.has("model-spec"):
            return PATH
        if arg.schema is not None:
            return self._of_schema(arg.schema.document, name, is_given=True)
        urn = arg.stdin or arg.accepts or arg.media_urn
        return MEDIUM if any(urn.has(marker) for marker in _OPAQUE) else _of_media(urn)

    def of_output(self, descriptor: Descriptor, cap: Cap, name: str) -> str:
        """Give the type of a cap's FINAL payload; ``None`` where it gives nothing."""
        out = cap.urn.out
        main = next((one for one in cap.outputs if one.media_urn.is_equivalent(out)), None)
        if main is None:
            return "None"
        schema = _schema_of(main)
        if schema is not None:
            return self._of_schema(schema, name, is_given=False)
        found = _of_media(out)
        if found == _RECORD:
            return "Record"
        # The ports are those of the first cap.
        dtype = descriptor.io.output.dtype
        if out == descriptor.caps[0].urn.out and dtype in {*_NUMBERS, "bytes"}:
            return "bytes" if dtype == "bytes" else f"NDArray[np.{_scalar(dtype)}]"
        return found

    def _of_schema(self, document: object, name: str, depth: int = 0, *, is_given: bool) -> str:
        if not isinstance(document, Mapping) or depth > _DEEPEST:
            return _ANYTHING
        choices = document.get("enum", (document["const"],) if "const" in document else ())
        if choices and all(one is None or isinstance(one, str | int) for one in choices):
            return self._of_choices(choices, name)
        declared = document.get("type", ())
        kinds = (declared,) if isinstance(declared, str) else declared
        found = [self._of_type(kind, document, name, depth, is_given=is_given) for kind in kinds]
        return " | ".join(dict.fromkeys(found)) or _ANYTHING

    def _of_choices(self, choices: tuple[object, ...], name: str) -> str:
        items = list(dict.fromkeys(map(literal, choices)))
        text = f"Literal[{', '.join(items)}]"
        if len(text) <= _SHORT:
            return text
        if text in self._made:
            return self._made[text]
        alias = self._made[text] = self._claim(name)
        lines = [f"{alias}: TypeAlias = Literal[", *packed(items, "    "), "]"]
        self.definitions.append("\n".join(lines))
        return alias

    def _of_type(
        self, kind: object, document: Mapping[str, object], name: str, depth: int, *, is_given: bool
    ) -> str:
        if kind == "array":
            item = document.get("items")
            return f"list[{self._of_schema(item, f'{name}Item', depth + 1, is_given=is_given)}]"
        if kind != "object":
            return _OF_TYPES[str(kind)]
        properties, others = document.get("properties"), document.get("additionalProperties", True)
        if (
            isinstance(properties, Mapping)
            and properties
            and not (is_given and others is not False)
        ):
            return self._of_properties(properties, document, name, depth, is_given=is_given)
        if isinstance(others, Mapping) and not properties:
            item = self._of_schema(others, f"{name}Item", depth + 1, is_given=is_given)
            return f"Mapping[str, {item}]"
        return _RECORD

    def _of_properties(
        self,
        properties: Mapping[str, object],
        document: Mapping[str, object],
        name: str,
        depth: int,
        *,
        is_given: bool,
    ) -> str:
        """Write a TypedDict; give its name."""
        text = json.dumps([thaw(document), is_given])
        if text in self._made:
            return self._made[text]
        own = self._made[text] = self._claim(name)
        self.records.add(own)
        required = document.get("required", ())
        fields: dict[str, str] = {}
        for key, schema in properties.items():
            part = "".join(word.title() for word in key.split("_") if word.isalnum()) or "Field"
            found = self._of_schema(schema, f"{own}{part}", depth + 1, is_given=is_given)
            is_required = isinstance(required, tuple) and key in required
            fields[key] = found if is_required else f"NotRequired[{found}]"
        if all(_is_plain(key) and key not in self.taken for key in fields):
            told = _docstring(document)
            lines = [f"class {own}(TypedDict):", *told, *[""] * bool(told)]
            for key, found in fields.items():
                lines += [f"    {key}: {found}", *_docstring(properties[key])]
        else:
            rows = [f"        {literal(key)}: {found}," for key, found in fields.items()]
            lines = [f"{own} = TypedDict(", f'    "{own}",', "    {", *rows, "    },", ")"]
        self.definitions.append("\n".join(lines))
        return own

    def _claim(self, name: str) -> str:
        own = free_name(name if name.isascii() else "Type", self.taken)
        self.taken.add(own)
        return own


def _of_media(urn: MediaUrn) -> str:
    """Give the type that a media URN implies, as an argument's rule is."""
    found = next((_OF_MARKERS[marker] for marker in _OF_MARKERS if urn.has(marker)), None)
    if found is None and urn.has("enc") and not any(urn.has(marker) for marker in _OPAQUE):
        found = "str"
    if found is None:
        return _ANYTHING
    return f"list[{found}]" if urn.has("list") else found


def _schema_of(output: Output) -> object:
    """Give the schema that an output's open metadata has, if it is one; None otherwise."""
    document = output.metadata.get("schema")
    try:
        return None if document is None else Schema.compile(document, output.name).document
    except InvalidArgumentError:
        return None


def _scalar(dtype: str) -> str:
    return "bool_" if dtype == "bool" else dtype


def _is_plain(key: str) -> bool:
    """Say whether a key can be a name in a class: not one that means something there."""
    usable = key.isascii() and key.isidentifier() and not keyword.iskeyword(key)
    return usable and not key.startswith("__") and key not in _WORDS


def _docstring(schema: object) -> list[str]:
    text = schema.get("description") if isinstance(schema, Mapping) else None
    if not isinstance(text, str) or not text.split():
        return []
    lines = filled("", text, "    ")
    if len(lines) == 1:
        return [f'    """{lines[0].strip()}"""']
    return ['    """', *lines, '    """']
