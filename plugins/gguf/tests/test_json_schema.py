"""JSON Schema as a grammar: nothing that the schema forbids, and nothing passed over."""

from __future__ import annotations

import datetime
import json
import uuid
from typing import TYPE_CHECKING

import jsonschema
import pytest
from grammar_texts import accepts, derive
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.jsondata import freeze
from cartridge_gguf.constraint import read
from cartridge_gguf.grammar import Grammar
from cartridge_gguf.grammar_nodes import write
from cartridge_gguf.json_keywords import Place
from cartridge_gguf.json_schema import schema_rules

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from cartridge_gguf.grammar_nodes import Node

TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["value", "next"],
            "additionalProperties": False,
        }
    },
}
SHAPES = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "circle"}, "radius": {"type": "number", "minimum": 0}},
            "required": ["kind", "radius"],
        },
        {
            "type": "object",
            "properties": {"kind": {"const": "box"}, "sides": {"type": "array", "minItems": 2}},
            "required": ["kind"],
        },
        {"type": ["string", "null"]},
    ],
    "discriminator": {"propertyName": "kind"},
}
OPEN = {
    "type": "object",
    "properties": {"ab": {"type": "integer"}, "a": {"type": "boolean"}, 'q"\\': {"type": "null"}},
    "additionalProperties": {"type": "string", "maxLength": 2},
    "required": ["z", "a"],
}
SCHEMAS = [
    {},
    True,
    {"type": "null"},
    {"type": "boolean"},
    {"type": "integer"},
    {"type": "number"},
    {"type": "string"},
    {"type": "array"},
    {"type": "object"},
    {"type": ["string", "integer", "null"]},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "maxLength": 0},
    {"type": "string", "pattern": "^[a-z]{2,3}-\\d+$"},
    {"type": "string", "pattern": 'a"\\\\b|^\\s|\\n$'},
    {"type": "string", "pattern": "x"},
    {"type": "string", "format": "date"},
    {"type": "integer", "minimum": -3, "maximum": 12},
    {"type": "integer", "exclusiveMinimum": 0},
    {"type": "integer", "minimum": 0.5, "exclusiveMaximum": 3.0},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "exclusiveMinimum": -0.1, "exclusiveMaximum": 0.1},
    {"type": "number", "maximum": -1e-9},
    {"enum": ["a", 1, 1.0, None, {"x": [1, "é"]}, "\u2028\u007f"]},
    {"enum": ["a", 1, None], "type": ["string", "null"]},
    {"enum": [1, 2, 3], "const": 2},
    {"const": 'quo"te\\\n'},
    {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
    {"type": "array", "items": False},
    {"type": "array", "maxItems": 0},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
    {"type": "array", "prefixItems": [{"type": "null"}] * 3, "minItems": 2, "maxItems": 2},
    {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"type": "string"}],
        "items": {"type": "null"},
        "minItems": 3,
        "maxItems": 5,
    },
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {"a": False, "b": True}, "additionalProperties": True},
    {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"]},
    {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}},
    {"type": "object", "required": ["x"]},
    {"properties": {"a": {"type": "null"}}},
    {"minLength": 3},
    {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]},
    {"anyOf": [{"minimum": 5}, {"maximum": -5}], "type": "integer"},
    {"oneOf": [{"type": "integer"}, {"type": "string"}, {"const": None}]},
    {"oneOf": [{"enum": [1, 2]}, {"const": 3}, {"const": True}]},
    {"allOf": [{"type": "integer", "minimum": 2}, {"maximum": 4}], "minimum": 3},
    {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"a": {"minimum": 3}, "b": {"type": "null"}}},
        ]
    },
    {"allOf": [{"type": ["integer", "string"]}, {"type": ["string", "null"]}]},
    {"allOf": [{"enum": [1, 2, 3]}, {"enum": [3, 2, 4]}]},
    {"$ref": "#/$defs/a~1b", "minimum": 2, "$defs": {"a/b": {"type": "integer", "maximum": 9}}},
    {"type": "array", "prefixItems": [{"type": "null"}, {"$ref": "#/prefixItems/0"}]},
    {"type": "object", "properties": {"again": {"$ref": "#"}}},
    TREE,
    SHAPES,
    OPEN,
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.org/s",
        "$comment": "said",
        "title": "T",
        "description": "D",
        "default": 3,
        "examples": [1],
        "deprecated": True,
        "readOnly": True,
        "type": "integer",
    },
]


def rules_of(schema: object) -> Mapping[str, Node]:
    """Make a schema's rules, through the text that llama.cpp would get."""
    return Grammar.parse(write(schema_rules(place_of(schema)))).rules


def place_of(schema: object) -> Place:
    return Place.of_document(freeze(schema, "json_schema"), "json_schema")


def refused(schema: object) -> InvalidArgumentError:
    with pytest.raises(InvalidArgumentError) as caught:
        schema_rules(place_of(schema))
    return caught.value


def valid(value: object, schema: bool | Mapping[str, object]) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:60])
@given(st.randoms(use_true_random=False))
@settings(max_examples=8, deadline=None)
def test_what_is_made_is_valid(schema: Mapping[str, object], chance: random.Random) -> None:
    """Every text of the grammar is JSON that the schema allows."""
    assert valid(json.loads(derive(rules_of(schema), chance)), schema)


VALUES = [None, True, False, 0, 1, 2, -3, 7.5, "", "a", "ab", "x\n", [], [1], [1, "a"], [None, 2]]
VALUES += [{}, {"a": 1}, {"b": "x"}, {"a": None, "b": 2}, {"a": {"a": 1}, "b": [1]}]  # type: ignore[list-item]


def schemas(depth: int = 2) -> st.SearchStrategy[dict[str, object]]:
    """Make schemas of the keywords that are enforced, sensible or not."""
    inner = schemas(depth - 1) if depth else st.just({})
    small = st.integers(0, 3)
    names = st.sampled_from(["a", "b", "c"])
    types = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
    keywords: dict[str, st.SearchStrategy[object]] = {
        "type": types | st.lists(types, min_size=1, max_size=3, unique=True),
        "enum": st.lists(st.sampled_from(VALUES), min_size=1, max_size=4),
        "const": st.sampled_from(VALUES),
        "minLength": small,
        "maxLength": small,
        "pattern": st.sampled_from(["a", "^a", "b$", "^[ab]*$", "^x|y$"]),
        "minimum": st.integers(-9, 9) | st.sampled_from([0.5, -1.25]),
        "maximum": st.integers(-9, 9) | st.sampled_from([0.5, 7.125]),
        "exclusiveMinimum": st.integers(-9, 9),
        "exclusiveMaximum": st.integers(-9, 9),
        "minItems": small,
        "maxItems": small,
        "items": inner | st.booleans(),
        "prefixItems": st.lists(inner, min_size=1, max_size=2),
        "properties": st.dictionaries(names, inner | st.booleans(), max_size=3),
        "required": st.lists(names, max_size=2),
        "additionalProperties": inner | st.booleans(),
        "anyOf": st.lists(inner, min_size=1, max_size=2),
        "oneOf": st.lists(inner, min_size=1, max_size=2),
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "$ref": st.sampled_from(["#", "#/$defs/a"]),
    }
    some = st.lists(st.sampled_from(list(keywords)), max_size=3, unique=True)
    return some.flatmap(lambda keys: st.fixed_dictionaries({key: keywords[key] for key in keys}))


@given(schemas(), schemas(1), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_any_schema_is_refused_or_kept(
    schema: dict[str, object], definition: dict[str, object], chance: random.Random
) -> None:
    """Whatever keywords come together: an error, or texts that are valid."""
    schema["$defs"] = {"a": definition}
    try:
        constraint = read({"json_schema": schema})
    except InvalidArgumentError:
        return
    assert constraint is not None
    rules = Grammar.parse(constraint.grammar).rules
    for _ in range(3):
        text = derive(rules, chance, depth=8)
        assert valid(json.loads(text), schema), text


@pytest.mark.parametrize(
    ("schema", "fits", "fits_not"),
    [
        pytest.param(
            {}, ['{"a": [1, "b", null]}', "-1.5e3", " 1"[1:]], ["", "{,}", "01"], id="any"
        ),
        pytest.param(
            {"type": "string"}, ['"é\\n\\u00e9"', '"\\ud83e\\udd99"'], ['"\n"'], id="text"
        ),
        pytest.param({"type": "string"}, ['"🦙"'], ['"\\ud83e"', '"\\ud83e\\u0041"'], id="halves"),
        pytest.param(
            {"type": "string"}, ['"\\""', '"\\/"'], ['"\\x"', '"\x7f"', '"\0"'], id="signs"
        ),
        pytest.param(
            {"type": "string", "maxLength": 2}, ['"🦙🦙"', '"\\n\\\\"'], ['"abc"'], id="lengths"
        ),
        pytest.param(TREE, ['{"value":1,"next":null}'], ['{"value":1}'], id="tree"),
        pytest.param(
            TREE,
            ['{"value":1,"children":[{"value":2,"next":null}],"next":{"value":3,"next":null}}'],
            ['{"value":1,"children":[null],"next":null}', '{"next":null,"value":1}'],
            id="recursion",
        ),
        pytest.param(
            {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"]},
            ['{"b":1}', '{"a":1,"b":2}', '{"b":1,"c":2}', '{"a":1, "b":2,\n  "c":3\n}'],
            ["{}", '{"a":1,"c":2}', '{"b":1,"a":2}', '{"b":1,}', '{"b":1,"d":2}'],
            id="optional-properties",
        ),
        pytest.param(
            {"type": "object", "properties": {"a": {}, "b": {}}},
            ["{}", "{ }", '{"a":1}', '{"b":1}', '{"a":1,"b":1}'],
            ["{,}", '{"a":1"b":1}', "{  }"],
            id="all-optional",
        ),
        pytest.param(
            OPEN,
            ['{"a":true,"z":""}', '{"ab":1,"a":true,"z":"","b":"x","abc":"y","":"z"}'],
            ['{"a":true,"z":"","a":"x"}', '{"a":true,"z":"","\\u0061b":"x"}', '{"a":true}'],
            id="other-properties",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
            ["[1]", "[ 1, 2 ]", "[\n\t1,\n\t2\n]"],
            ["[]", "[1,2,3]", "[1,]", "[,1]", "[1  ,2]"],
            id="items",
        ),
        pytest.param(
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
            ["[]", "[1]", '[1,"a"]'],
            ['["a"]', '[1,"a",2]'],
            id="prefix",
        ),
        pytest.param(SHAPES, ['{"kind":"box"}', "null", '""'], ['{"kind":"circle"}'], id="shapes"),
        pytest.param(
            {"enum": [{"b": 1, "a": [2, 3]}]}, ['{"b": 1, "a": [2, 3]}'], ["{}"], id="enum"
        ),
        pytest.param(
            {"type": "string", "pattern": "b"}, ['"b"', '"abc"', '"\\nb"'], ['"a"'], id="in"
        ),
        pytest.param({"type": "string", "pattern": "^b$"}, ['"b"'], ['"ab"', '"bc"'], id="whole"),
        pytest.param(
            {"type": "string", "pattern": '^"\\\\$'}, ['"\\"\\\\"'], ['""\\"'], id="quote"
        ),
        pytest.param(
            {"type": "string", "pattern": "^\\s$"}, ['"\\t"', '" "'], ['"\t"'], id="space"
        ),
    ],
)
def test_what_is_valid_can_be_made(schema: object, fits: list[str], fits_not: list[str]) -> None:
    """The grammar has the documents that people write, and none that is invalid."""
    rules = rules_of(schema)
    assert [each for each in fits if not accepts(rules, each)] == []
    assert [each for each in fits_not if accepts(rules, each)] == []


def test_space_comes_to_an_end() -> None:
    """Between two parts stand one space, or one line end and at most 20 spaces or tabs."""
    rules = rules_of({"type": "array", "items": {"const": 1}})
    assert accepts(rules, "[\n" + " " * 20 + "1,\n" + " \t" * 10 + "1 ]")
    assert not accepts(rules, "[\n" + " " * 21 + "1]")
    assert not accepts(rules, "[\n\n1]")
    assert not accepts(rules, "[1] ")


@pytest.mark.parametrize(
    ("format_", "understand"),
    [
        ("date", datetime.date.fromisoformat),
        ("time", datetime.time.fromisoformat),
        ("date-time", datetime.datetime.fromisoformat),
        ("uuid", uuid.UUID),
    ],
)
@given(st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_formats_are_kept(
    format_: str, understand: Callable[[str], object], chance: random.Random
) -> None:
    """Python reads every date, time and UUID that is made."""
    made = json.loads(derive(rules_of({"type": "string", "format": format_}), chance))
    assert understand(made) is not None


@pytest.mark.parametrize(
    ("format_", "text", "fits"),
    [
        ("date", "2024-02-29", True),
        ("date", "2023-02-29", False),
        ("date", "2000-02-29", True),
        ("date", "1900-02-29", False),
        ("date", "2023-04-31", False),
        ("date", "0000-01-01", False),
        ("time", "23:59:59.123456+05:30", True),
        ("time", "24:00:00Z", False),
        ("time", "12:00:00", False),
        ("date-time", "2024-12-31T00:00:00Z", True),
        ("date-time", "2024-12-31 00:00:00Z", False),
        ("uuid", "01234567-89ab-CDEF-0123-456789abcdef", True),
        ("uuid", "0123456789abcdef0123456789abcdef", False),
    ],
)
def test_formats_are_those_of_the_standard(format_: str, text: str, fits: bool) -> None:
    """RFC 3339's, and UUIDs with dashes."""
    rules = rules_of({"type": "string", "format": format_})
    assert accepts(rules, json.dumps(text)) == fits


@pytest.mark.parametrize(
    ("schema", "place", "said"),
    [
        pytest.param(
            {"properties": {"a/b~": {"items": {"multipleOf": 2}}}},
            "/properties/a~1b~0/items/multipleOf",
            "'multipleOf' is not enforced",
            id="multiple-of",
        ),
        *(
            pytest.param({key: {}}, f"/{key}", f"{key!r} is not enforced", id=key)
            for key in (
                "not",
                "if",
                "then",
                "else",
                "contains",
                "uniqueItems",
                "patternProperties",
                "propertyNames",
                "minProperties",
                "maxProperties",
                "dependentRequired",
                "dependentSchemas",
                "unevaluatedProperties",
                "contentEncoding",
                "$dynamicRef",
                "additionalItems",
                "typo",
            )
        ),
        pytest.param({"nullable": True}, "/nullable", '"null"', id="nullable"),
        pytest.param({"format": "email"}, "/format", "date, time, date-time, uuid", id="format"),
        pytest.param({"pattern": "(?=a)"}, "/pattern", "looking ahead", id="pattern"),
        pytest.param({"pattern": "^\\x01$"}, "/pattern", "control characters", id="control"),
        pytest.param({"pattern": "a", "maxLength": 3}, "/maxLength", "beside", id="both"),
        pytest.param({"pattern": "a", "format": "date"}, "/format", "beside", id="two-patterns"),
        pytest.param({"maxLength": 2001}, "/maxLength", "more than 2000", id="too-long"),
        pytest.param({"minItems": 2001}, "/minItems", "more than 2000", id="too-many"),
        pytest.param({"type": "text"}, "/type", "must be among null, boolean", id="type"),
        pytest.param({"type": []}, "/type", "must be among", id="no-type"),
        pytest.param({"enum": []}, "/enum", "not empty", id="empty-enum"),
        pytest.param({"enum": ["a"], "minLength": 1}, "/minLength", "beside 'enum'", id="enum-and"),
        pytest.param({"minLength": -1}, "/minLength", "not negative", id="negative"),
        pytest.param({"minimum": "1"}, "/minimum", "must be a number", id="text-for-number"),
        pytest.param({"exclusiveMinimum": True}, "/exclusiveMinimum", "must be a number", id="old"),
        pytest.param({"items": [{}]}, "/items", "prefixItems", id="old-items"),
        pytest.param({"required": "a"}, "/required", "array of strings", id="required"),
        pytest.param({"properties": []}, "/properties", "must be an object", id="properties"),
        pytest.param({"properties": {"a": 1}}, "/properties/a", "must be a schema", id="no-schema"),
        pytest.param(
            {"properties": {}, "required": ["a"], "additionalProperties": False},
            "/required",
            "'a' is required",
            id="required-and-forbidden",
        ),
        pytest.param(
            {"properties": {"a": False}, "required": ["a"]}, "", "nothing fits", id="required-false"
        ),
        pytest.param(False, "", "nothing may stand here", id="false"),
        pytest.param({"items": False, "minItems": 1}, "", "nothing fits", id="no-items"),
        pytest.param({"minimum": 2, "maximum": 1}, "", "nothing fits", id="crossed-bounds"),
        pytest.param({"minLength": 2, "maxLength": 1}, "", "nothing fits", id="crossed-lengths"),
        pytest.param(
            {"type": "string", "enum": [1]}, "", "nothing fits", id="enum-of-another-type"
        ),
        pytest.param({"type": "number", "minimum": 1e12}, "", "nothing fits", id="too-large"),
        pytest.param(
            {"oneOf": [{"type": "integer"}, {"type": "number"}]}, "/oneOf", "both 0 and 1", id="one"
        ),
        pytest.param(
            {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, "/oneOf", "fit both", id="one-of"
        ),
        pytest.param(
            {"type": "integer", "oneOf": [{"minimum": 1}, {"maximum": 5}]},
            "/oneOf",
            "fit both",
            id="one-of-beside-more",
        ),
        pytest.param(
            {"oneOf": [{"properties": {"a": {}}}, {"type": "string"}]},
            "/oneOf",
            "fit both",
            id="one-of-untyped",
        ),
        pytest.param(
            {
                "allOf": [
                    {"properties": {"a": {}}, "additionalProperties": False},
                    {"properties": {"b": {}}},
                ]
            },
            "/allOf/0/additionalProperties",
            "properties of another schema (b)",
            id="closed-and-more",
        ),
        pytest.param(
            {"allOf": [{"pattern": "a"}, {"pattern": "b"}]},
            "/allOf/1/pattern",
            "two different 'pattern'",
            id="two-of-one",
        ),
        pytest.param(
            {"allOf": [{"items": {}}, {"prefixItems": [{}]}]},
            "/allOf/0/items",
            "cannot be combined",
            id="items-of-two",
        ),
        pytest.param({"$ref": "other.json"}, "/$ref", "inside the schema", id="other-file"),
        pytest.param({"$ref": "#/$defs/a"}, "/$ref", "nothing at the place", id="no-such-place"),
        pytest.param({"$ref": "#anchor"}, "/$ref", "inside the schema", id="anchor"),
        pytest.param({"$ref": "#"}, "", "refers to itself", id="itself"),
        pytest.param({"anyOf": [{"$ref": "#"}, {}]}, "", "refers to itself", id="itself-or-other"),
        pytest.param(
            {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
            "",
            "refers to itself",
            id="endless",
        ),
        pytest.param(
            {
                "properties": {"x": {"$ref": "#/$defs/a"}},
                "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1}},
            },
            "/$defs/a",
            "refers to itself",
            id="endless-inside",
        ),
        pytest.param(
            {"allOf": [{"$ref": "#"}], "minimum": 1},
            "/allOf/0",
            "more than 32 deep",
            id="itself-combined",
        ),
        pytest.param(
            {"allOf": [{"anyOf": [{"minimum": n} for n in range(9)]}] * 3},
            "/allOf/2",
            "more than 256 alternatives",
            id="many-alternatives",
        ),
    ],
)
def test_what_cannot_be_enforced_is_named(schema: object, place: str, said: str) -> None:
    """The error has the keyword's place as a JSON pointer, and says what to do."""
    error = refused(schema)
    assert str(error).startswith(f"json_schema#{place}: ")
    assert said in str(error)
    assert error.arg == f"json_schema#{place}"


def test_a_large_schema_is_no_trouble() -> None:
    """Many properties, half of them required, in a list of objects."""
    properties = {f"property_{n}": {"type": "string", "maxLength": 100} for n in range(60)}
    item = {"type": "object", "properties": properties, "required": list(properties)[::2]}
    rules = rules_of({"type": "array", "items": item, "maxItems": 50})
    whole = json.dumps(dict.fromkeys(properties, "x"), separators=(",", ":"))
    assert accepts(rules, f"[{whole}]")
