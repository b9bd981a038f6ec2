"""
Reading the parts of a cap definition, each held to the rules that concern it alone.

Source: CapDAG, cap definitions; the rules carry its numbers.
"""

from __future__ import annotations

import keyword
import re
from typing import Literal, cast

import attrs

from cartridge_core.capparts import Arg, Output, Scope, Source, SourceKind
from cartridge_core.errors import InvalidArgumentError, UrnError
from cartridge_core.jsondata import as_integer, freeze, refusal
from cartridge_core.jsonfields import Fields
from cartridge_core.modelspec import ModelSpec
from cartridge_core.schema import read_schema
from cartridge_core.urn import MediaUrn

__all__ = ["read_arg", "read_output"]

_SOURCE_KINDS: tuple[SourceKind, ...] = ("stdin", "position", "cli_flag")
_SCOPES: tuple[Scope, ...] = ("open", "session")
_RESERVED_FLAGS = frozenset({"manifest", "--help", "--version", "-v", "-h"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_CONSTANTS = frozenset({"true", "false", "null"})
_RESERVED_NAMES = frozenset(
    {"self", "cap", "value", "mode", "cartridge_id", "pack", "prefer", "on_progress", "trust"}
)
_PART_KEYS = frozenset({"name", "media_urn", "metadata", "is_sequence", "streaming"})
_ARG_KEYS = _PART_KEYS | {"required", "sources", "accepts", "arg_description", "default_value"}
_OUTPUT_KEYS = _PART_KEYS | {"output_description", "optional", "carries"}


def read_arg(value: object, where: str) -> Arg:
    """
    Read one argument.

    Args:
        value: Its definition, a frozen JSON value.
        where: Its place.

    Raises:
        InvalidArgumentError: It breaks a rule.
    """
    fields = Fields(value, where, _ARG_KEYS)
    metadata = Fields(fields.mapping("metadata"), fields.at("metadata"))
    arg = Arg(
        _arg_name(fields),
        fields.block("media_urn", _media),
        required=_required(fields),
        sources=_sources(fields),
        accepts=fields.optional(fields.block, "accepts", _media),
        description=fields.optional(fields.prose, "arg_description"),
        default=fields.data.get("default_value"),
        has_default="default_value" in fields.data,
        is_sequence=fields.flag("is_sequence"),
        streaming=fields.flag("streaming"),
        pack=metadata.flag("pack"),
        scope=metadata.choice("scope", _SCOPES) if "scope" in metadata.data else "session",
        schema=metadata.optional(metadata.block, "schema", read_schema),
        metadata=metadata.data,
    )
    if arg.accepts is not None and arg.stdin is not None:
        rule = "an argument with a stdin source says there what it accepts (CapDAG RULE18)"
        raise refusal(fields.at("accepts"), rule)
    if arg.pack and arg.name != "model_spec":
        raise refusal(fields.at("name"), 'a pack argument is called "model_spec"', arg.name)
    return _with_checked_default(arg, fields) if arg.has_default else arg


def _with_checked_default(arg: Arg, fields: Fields) -> Arg:
    place = fields.at("default_value")
    default = arg.default
    if default is None:
        raise refusal(place, "null is no default; leave it out", default)
    try:
        if not arg.pack:
            checked = arg.check(default)
            same = checked is default
            return arg if same else attrs.evolve(arg, default=freeze(checked, place))
        if not isinstance(default, str):
            raise refusal(place, "the default of a pack argument must be a string", default)
        ModelSpec.parse(default)
    except InvalidArgumentError as exc:
        if (exc.arg or "").startswith(place):
            raise
        msg = f"{place}: breaks its own rule: {exc}"
        raise InvalidArgumentError(msg, arg=place, value=exc.value, rule=exc.rule) from exc
    return arg


def _required(fields: Fields) -> bool:
    fields.value("required")
    return fields.flag("required")


def _arg_name(fields: Fields) -> str:
    name = _name(fields, 17)
    if not name.isidentifier() or keyword.iskeyword(name) or name == "__debug__":
        raise refusal(fields.at("name"), "an argument's name must be a Python identifier", name)
    if name in _RESERVED_NAMES:
        rule = f"is a name of every call and no argument's; taken are {_listed(_RESERVED_NAMES)}"
        raise refusal(fields.at("name"), rule, name)
    return name


def _name(fields: Fields, rule: int) -> str:
    what = "a letter or _, then letters, digits, _ and -, and none of true, false, null"
    name = fields.matching("name", _NAME, f"{what} (CapDAG RULE{rule})")
    if name in _CONSTANTS:
        raise refusal(fields.at("name"), f"must be {what} (CapDAG RULE{rule})", name)
    return name


def _listed(words: frozenset[str]) -> str:
    return ", ".join(sorted(words))


def _media(text: object, where: str) -> MediaUrn:
    if not isinstance(text, str):
        raise refusal(where, "must be a string", text)
    try:
        return MediaUrn.parse(text)
    except UrnError as exc:
        raise refusal(where, f"is no media URN: {exc}") from exc


def _sources(fields: Fields) -> tuple[Source, ...]:
    fields.value("sources")
    sources = tuple(_source(value, where) for value, where in fields.items("sources"))
    kinds = [source.kind for source in sources]
    if not kinds:
        raise refusal(fields.at("sources"), "must name at least one source (CapDAG RULE2)")
    if len(set(kinds)) < len(kinds):
        raise refusal(fields.at("sources"), "names one kind of source twice (CapDAG RULE4)")
    if "position" in kinds and "cli_flag" in kinds:
        rule = "an argument has a position or a cli_flag, not both (CapDAG RULE7)"
        raise refusal(fields.at("sources"), rule)
    return sources


def _source(value: object, where: str) -> Source:
    fields = Fields(value, where)
    kind = next((kind for kind in _SOURCE_KINDS if kind in fields.data), None)
    if kind is None or len(fields.data) != 1:
        rule = "a source is one of stdin, position and cli_flag, and nothing else (CapDAG RULE8)"
        raise refusal(where, rule, fields.data)
    if kind == "stdin":
        fields.block(kind, _media)
        return Source(kind, fields.text(kind))
    if kind == "position":
        position = as_integer(fields.data[kind])
        if position is None or position < 0:
            raise fields.refusal(kind, "must be an integer from 0")
        return Source(kind, position)
    flag = fields.text(kind)
    if flag in _RESERVED_FLAGS:
        rule = f"is reserved, as are {_listed(_RESERVED_FLAGS)} (CapDAG RULE10)"
        raise fields.refusal(kind, rule)
    return Source(kind, flag)


def read_output(value: object, where: str) -> Output:
    """
    Read one output.

    Args:
        value: Its definition, a frozen JSON value.
        where: Its place.

    Raises:
        InvalidArgumentError: It breaks a rule.
    """
    fields = Fields(value, where, _OUTPUT_KEYS)
    carries = fields.optional(fields.choice, "carries", ("input",))
    return Output(
        _name(fields, 19),
        fields.block("media_urn", _media),
        description=fields.prose("output_description"),
        optional=fields.flag("optional"),
        is_sequence=fields.flag("is_sequence"),
        streaming=fields.flag("streaming"),
        carries=cast("Literal['input'] | None", carries),
        metadata=fields.mapping("metadata"),
    )
