"""
Calls of tools, as models write them: which tools there are, and the call that a text is.

A call is one JSON object, ``{"name": "...", "arguments": {...}}``, with the name of a tool and
arguments that its parameters allow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

from cartridge_core.jsondata import at, refusal, thaw
from cartridge_gguf.grammar_nodes import Node, Series, Text, one_of, optional
from cartridge_gguf.json_containers import member
from cartridge_gguf.json_keywords import Place
from cartridge_gguf.json_schema import SchemaGrammar
from cartridge_gguf.json_strings import encoded

__all__ = ["definitions", "read_call", "tool_rules"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KEYS: Final = ("name", "description", "parameters", "strict")
_NO_PARAMETERS: Final = {"type": "object", "properties": {}, "additionalProperties": False}


def tool_rules(tools: object, arg: str) -> Mapping[str, Node]:
    """
    Make the rules of a grammar for the calls of some tools.

    Args:
        tools: A list of definitions, ``{"name": "...", "description": "...", "parameters": {...}}``
            or ``{"type": "function", "function": {...}}`` around the same. ``parameters`` is the
            JSON Schema of an object; without it a tool takes no arguments. Frozen JSON data.
        arg: The argument that they come from, for errors.

    Raises:
        InvalidArgumentError: There is no tool, two have one name, a definition is malformed, or
            something in a schema cannot be enforced.
    """
    if not isinstance(tools, tuple) or not tools:
        raise refusal(arg, "must be a list with at least one tool", tools)
    grammar = SchemaGrammar()
    calls: dict[str, Node] = {}
    for index, tool in enumerate(tools):
        place = at(arg, index)
        function = _function(tool, place)
        name = _name(function, at(place, "name"))
        if name in calls:
            raise refusal(at(place, "name"), f"{name!r} is the name of another tool too")
        parameters = function.get("parameters", _NO_PARAMETERS)
        calls[name] = _call(name, _parameters(parameters, at(place, "parameters")), grammar)
    before = (Text("{"), grammar.space, encoded("name"), Text(":"), optional(Text(" ")))
    root = Series((*before, one_of(calls.values()), grammar.space, Text("}")))
    return grammar.completed(root, Place.of_document(tools, arg))


def definitions(tools: Sequence[object]) -> Sequence[Mapping[str, object]]:
    """
    Give tools as chat templates are shown them.

    Args:
        tools: Definitions that `tool_rules` takes.

    Source:
        Transformers, "Tool use": ``{"type": "function", "function": {...}}`` each.
    """
    shown = []
    for tool in tools:
        function = cast("dict[str, object]", thaw(_function(tool, "tools")))
        filled = {"description": "", "parameters": thaw(_NO_PARAMETERS), **function}
        shown.append({"type": "function", "function": filled})
    return shown


def _function(tool: object, place: str) -> Mapping[str, object]:
    if isinstance(tool, Mapping) and "function" in tool:
        for key in tool:
            if key not in ("type", "function"):
                raise refusal(at(place, key), "is no part of a tool; they are type and function")
        if tool.get("type", "function") != "function":
            raise refusal(at(place, "type"), 'must be "function"', tool["type"])
        tool = tool["function"]
    if not isinstance(tool, Mapping):
        raise refusal(place, "must be an object, the definition of a tool", tool)
    for key in tool:
        if key not in _KEYS:
            raise refusal(at(place, key), f"is no part of a tool; they are {', '.join(_KEYS)}")
    return tool


def _name(function: Mapping[str, object], place: str) -> str:
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise refusal(place, "must have 1 to 64 letters, digits, '_' or '-'", name)
    return name


def _parameters(schema: object, place: str) -> Place:
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise refusal(place, 'must be the schema of an object, with "type": "object"', schema)
    typed = {**schema, "type": "object"}
    return Place.of_document(typed, place)


def _call(name: str, parameters: Place, grammar: SchemaGrammar) -> Node:
    """Make a call from the tool's name on."""
    arguments = member("arguments", grammar.node([parameters]))
    return Series((encoded(name), Text(","), grammar.space, arguments))


def read_call(text: str) -> Mapping[str, object]:
    """
    Read a call that a model wrote under `tool_rules`.

    Returns:
        ``tool_name``, a str, and ``tool_args``, a dict.

    Raises:
        ValueError: It is none.
    """
    call = json.loads(text)
    if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
        msg = 'a call is {"name": ..., "arguments": {...}}'
        raise ValueError(msg)
    return {"tool_name": call["name"], "tool_args": call["arguments"]}
