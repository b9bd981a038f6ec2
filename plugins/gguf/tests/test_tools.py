"""Calls of tools: the grammar that they are made under, and how they are read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest
from grammar_texts import accepts, derive
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.jsondata import freeze
from cartridge_gguf.grammar import Grammar
from cartridge_gguf.grammar_nodes import write
from cartridge_gguf.tools import definitions, read_call, tool_rules

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from cartridge_gguf.grammar_nodes import Node

WEATHER = {
    "name": "get_weather",
    "description": "What the weather is like.",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"$ref": "#/$defs/name"},
            "unit": {"enum": ["C", "F"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
        },
        "required": ["city"],
        "$defs": {"name": {"type": "string", "maxLength": 20}},
    },
}
NOW = {"type": "function", "function": {"name": "now", "strict": True}}
CLOSE = {"name": "close-it", "parameters": {"properties": {"id": {"$ref": "#/$defs/name"}}}}
CLOSE["parameters"] |= {"$defs": {"name": {"type": "integer"}}}  # type: ignore[operator]


def rules_of(*tools: object) -> Mapping[str, Node]:
    rules = tool_rules(freeze(list(tools), "tools"), "tools")
    return Grammar.parse(write(rules)).rules


ALL = rules_of(WEATHER, NOW, CLOSE)


@pytest.mark.parametrize("tool", [NOW, WEATHER, {"type": "function", "function": WEATHER}])
def test_tools_are_shown_in_one_form(tool: object) -> None:
    """However they were given, a chat template finds a name, a description and parameters."""
    (shown,) = definitions(freeze([tool], "tools"))  # type: ignore[arg-type]
    function = shown["function"]
    assert shown["type"] == "function"
    assert isinstance(function, dict)
    assert function.keys() >= {"name", "description", "parameters"}
    assert json.loads(json.dumps(function))["parameters"]["type"] == "object"


@given(st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_each_call_is_of_a_tool_with_its_arguments(chance: random.Random) -> None:
    """Whatever is made is read as a call, and its arguments fit the tool's own schema."""
    call = read_call(derive(ALL, chance))
    schemas = {
        "get_weather": WEATHER["parameters"],
        "now": {"type": "object", "maxProperties": 0},
        "close-it": CLOSE["parameters"],
    }
    schema = schemas[str(call["tool_name"])]
    assert isinstance(schema, dict)
    jsonschema.Draft202012Validator(schema).validate(call["tool_args"])


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        pytest.param('{"name":"now","arguments":{}}', True, id="compact"),
        pytest.param('{ "name": "now", "arguments": { } }', True, id="spaced"),
        pytest.param('{"name":"now","arguments":{"a":1}}', False, id="no-such-argument"),
        pytest.param('{"name":"then","arguments":{}}', False, id="no-such-tool"),
        pytest.param('{"name":"get_weather","arguments":{"city":"Ulm"}}', True, id="required"),
        pytest.param('{"name":"get_weather","arguments":{}}', False, id="required-missing"),
        pytest.param('{"name":"now"}', False, id="no-arguments"),
    ],
)
def test_calls_of_the_grammar(text: str, fits: bool) -> None:
    """A call names a tool and gives all that it requires."""
    assert accepts(rules_of(WEATHER, NOW), text) == fits


def test_arguments_are_an_object_whatever_the_parameters_say() -> None:
    """A schema that says nothing of types allows no other arguments than an object."""
    rules = rules_of({"name": "any", "parameters": {}})
    assert accepts(rules, '{"name":"any","arguments":{"x":[1]}}')
    assert not accepts(rules, '{"name":"any","arguments":1}')


def test_a_call_is_read() -> None:
    """The name and the arguments come apart."""
    found = read_call('{"name": "get_weather", "arguments": {"city": "Ulm", "days": 2}}')
    assert found == {"tool_name": "get_weather", "tool_args": {"city": "Ulm", "days": 2}}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"name":"a"}', '{"name":"a","arguments":{},"x":1}']
)
def test_what_is_no_call_is_refused(text: str) -> None:
    """A text that is cut off, or no call, is never taken for one."""
    with pytest.raises(ValueError, match=r".+"):
        read_call(text)


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        pytest.param([], "tools: must be a list with at least one tool", id="none"),
        pytest.param({"name": "a"}, "must be a list", id="no-list"),
        pytest.param(["a"], "tools[0]: must be an object", id="no-definition"),
        pytest.param([{}], "tools[0].name: must have 1 to 64", id="no-name"),
        pytest.param([{"name": "a b"}], "tools[0].name: must have 1 to 64", id="bad-name"),
        pytest.param([{"name": "a" * 65}], "must have 1 to 64", id="long-name"),
        pytest.param([{"name": "a"}, {"name": "a"}], "tools[1].name: 'a' is the name", id="twice"),
        pytest.param([{"name": "a", "parameter": {}}], "tools[0].parameter: is no part", id="key"),
        pytest.param([{"type": "code", "function": {"name": "a"}}], "tools[0].type", id="type"),
        pytest.param([{"function": {"name": "a"}, "name": "a"}], "tools[0].name: is no", id="both"),
        pytest.param([{"name": "a", "parameters": True}], "the schema of an object", id="boolean"),
        pytest.param(
            [{"name": "a", "parameters": {"type": "string"}}], "the schema of an object", id="text"
        ),
        pytest.param(
            [{"name": "a", "parameters": {"properties": {"x": {"not": {}}}}}],
            "tools[0].parameters#/properties/x/not: 'not' is not enforced",
            id="keyword",
        ),
        pytest.param(
            [{"name": "a", "parameters": {"properties": {"x": {"$ref": "#"}}, "required": ["x"]}}],
            "tools[0].parameters#: it refers to itself",
            id="endless",
        ),
    ],
)
def test_a_bad_definition_is_named(tools: object, said: str) -> None:
    """The error says which tool, and what about it."""
    with pytest.raises(InvalidArgumentError) as caught:
        tool_rules(freeze(tools, "tools"), "tools")
    assert said in str(caught.value)
