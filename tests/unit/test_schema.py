"""The JSON Schema subset: what it refuses to compile, what it accepts, what it fills in."""

from __future__ import annotations

import copy
import math

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.records import Record
from cartridge_core.schema import Schema

CHAT = {
    "type": "object",
    "description": "A conversation.",
    "properties": {
        "messages": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "role": {"enum": ["system", "user", "assistant"], "default": "user"},
                    "content": {"type": "string", "minLength": 1},
                },
                "required": ["content"],
                "additionalProperties": False,
            },
        },
        "temperature": {"type": "number", "minimum": 0, "maximum": 2, "default": 0.8},
        "stop": {"type": "array", "items": {"type": "string"}, "default": ["</s>"]},
        "max_tokens": {"type": "integer", "exclusiveMinimum": 0},
    },
    "required": ["messages"],
    "additionalProperties": False,
}

UNCOMPILABLE = [
    pytest.param({"oneOf": []}, "$.oneOf", "keyword", id="oneOf"),
    pytest.param({"$ref": "#/x"}, '$["$ref"]', "keyword", id="ref"),
    pytest.param({"format": "uri"}, "$.format", "keyword", id="format"),
    pytest.param({"title": "T"}, "$.title", "keyword", id="title"),
    pytest.param(
        {"items": {"properties": {"a": {"multipleOf": 2}}}},
        "$.items.properties.a.multipleOf",
        "keyword",
        id="deep-keyword",
    ),
    pytest.param(
        {"additionalProperties": {"x": 1}}, "$.additionalProperties.x", "keyword", id="in-others"
    ),
    pytest.param({"type": "int"}, "$.type", "integer", id="unknown-type"),
    pytest.param({"type": []}, "$.type", "at least one", id="no-type"),
    pytest.param({"type": ["null", "null"]}, "$.type", "once", id="type-twice"),
    pytest.param({"type": [{}]}, "$.type", "among", id="type-of-objects"),
    pytest.param({"enum": "abc"}, "$.enum", "array", id="enum-text"),
    pytest.param({"minimum": "1"}, "$.minimum", "number", id="minimum-text"),
    pytest.param({"minimum": True}, "$.minimum", "number", id="minimum-bool"),
    pytest.param({"minLength": -1}, "$.minLength", "from 0", id="negative-length"),
    pytest.param({"maxItems": 1.5}, "$.maxItems", "integer", id="half-item"),
    pytest.param({"pattern": "("}, "$.pattern", "regular expression", id="bad-pattern"),
    pytest.param({"pattern": 1}, "$.pattern", "string", id="pattern-number"),
    pytest.param({"required": "a"}, "$.required", "strings", id="required-text"),
    pytest.param({"required": ["a", "a"]}, "$.required", "once", id="required-twice"),
    pytest.param({"properties": []}, "$.properties", "object", id="properties-array"),
    pytest.param({"properties": {"a b": 1}}, '$.properties["a b"]', "schema", id="no-schema"),
    pytest.param({"description": 1}, "$.description", "string", id="description-number"),
    pytest.param({"const": math.nan}, "$.const", "finite", id="not-a-number"),
    pytest.param({"const": {1, 2}}, "$.const", "JSON", id="no-json"),
    pytest.param([], "$", "object or a boolean", id="array"),
    pytest.param(
        {"properties": {"n": {"type": "integer", "default": "1"}}},
        "$.properties.n.default",
        "integer",
        id="default-breaks-its-rule",
    ),
    pytest.param(
        {"items": {"type": "integer", "default": "1"}},
        "$.items.default",
        "integer",
        id="default-of-items-breaks-its-rule",
    ),
]


@pytest.mark.parametrize(("document", "place", "word"), UNCOMPILABLE)
def test_error_compile_names_the_place(document, place, word):
    """What is no schema of the subset is refused with its JSON path and the reason."""
    with pytest.raises(InvalidArgumentError, match=word) as caught:
        Schema.compile(document, "$")
    assert str(caught.value).startswith(f"{place}: ")


REFUSED = [
    pytest.param({"type": "integer"}, True, "an integer", id="true-is-no-integer"),
    pytest.param({"type": "number"}, False, "a number", id="false-is-no-number"),
    pytest.param({"type": "integer"}, 1.5, "an integer", id="fraction"),
    pytest.param({"type": "number"}, math.nan, "finite", id="nan"),
    pytest.param({"type": "number"}, math.inf, "finite", id="infinity"),
    pytest.param({}, -math.inf, "finite", id="infinity-anywhere"),
    pytest.param({"type": "array"}, (1, 2), "a list", id="a-tuple-is-no-array"),
    pytest.param({"type": "object"}, {1: 2}, "a mapping with str keys", id="keys-are-strings"),
    pytest.param({"properties": {}}, {1: 2}, "must be strings", id="keys-of-properties"),
    pytest.param({"enum": [1, "a"]}, True, 'one of 1, "a"', id="enum-true-is-not-1"),
    pytest.param({"const": 0}, False, "must be 0", id="const-false-is-not-0"),
    pytest.param({"const": [{"a": 1}]}, [{"a": True}], "must be", id="deep-true-is-not-1"),
    pytest.param({"minimum": 0}, -0.1, "at least 0", id="minimum"),
    pytest.param({"maximum": 2}, 2.01, "at most 2", id="maximum"),
    pytest.param({"exclusiveMinimum": 0}, 0, "more than 0", id="exclusive-minimum"),
    pytest.param({"exclusiveMaximum": 1}, 1.0, "less than 1", id="exclusive-maximum"),
    pytest.param({"minLength": 2}, "🦙", "at least 2 characters", id="length-is-code-points"),
    pytest.param({"maxLength": 1}, "ab", "at most 1 characters", id="max-length"),
    pytest.param({"pattern": "^a$"}, "ab", "pattern", id="pattern"),
    pytest.param({"minItems": 1}, [], "at least 1 items", id="min-items"),
    pytest.param({"maxItems": 1}, [1, 2], "at most 1 items", id="max-items"),
    pytest.param({"type": ["string", "null"]}, 1, "a string or null", id="several-types"),
    pytest.param(False, 1, "no value", id="false-schema"),
]


@pytest.mark.parametrize(("document", "value", "words"), REFUSED)
def test_error_value_names_arg_and_rule(document, value, words):
    """A value that breaks its rule is refused with the argument, the value and the rule."""
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        Schema.compile(document, "$").check(value, "knob")
    assert str(caught.value).startswith("knob: ")
    assert caught.value.arg == "knob"
    assert caught.value.rule


PLACES = [
    pytest.param({"messages": [{"content": "a"}, {"content": ""}]}, "request.messages[1].content"),
    pytest.param({"messages": [{"content": "a", "role": "bot"}]}, "request.messages[0].role"),
    pytest.param({"messages": [{"role": "user"}]}, "request.messages[0].content"),
    pytest.param({"messages": [{"content": "a"}], "model_spec": "x"}, "request.model_spec"),
    pytest.param({"messages": [{"content": "a"}], "a b": 1}, 'request["a b"]'),
    pytest.param({}, "request.messages"),
    pytest.param({"messages": [{"content": "a"}], "stop": ["x", 1]}, "request.stop[1]"),
]


@pytest.mark.parametrize(("value", "place"), PLACES)
def test_error_names_the_place_inside_the_value(value, place):
    """The error's ``arg`` is the path to what is wrong, and its message starts with it."""
    with pytest.raises(InvalidArgumentError) as caught:
        Schema.compile(CHAT, "$").check(value, "request")
    assert caught.value.arg == place
    assert str(caught.value).startswith(f"{place}: ")


def test_error_unknown_field_lists_the_known_ones():
    """A field that a closed object does not have is refused with those it has."""
    with pytest.raises(InvalidArgumentError, match="messages, temperature, stop, max_tokens"):
        Schema.compile(CHAT, "$").check({"messages": [{"content": "a"}], "temp": 1}, "request")


def test_error_shows_a_short_value():
    """A long value is shortened in the message and whole in the attribute."""
    with pytest.raises(InvalidArgumentError) as caught:
        Schema.compile({"type": "integer"}, "$").check("x" * 10_000, "n")
    assert len(str(caught.value)) < 200
    assert caught.value.value == "x" * 10_000


@pytest.mark.parametrize("value", [10**5000, b"x" * 10_000_000, object()], ids=type)
def test_error_can_be_shown_for_any_value(value):
    """A value that has no JSON form still gives the one error."""
    with pytest.raises(InvalidArgumentError, match="must be a string"):
        Schema.compile({"type": "string"}, "$").check(value, "n")


def test_defaults_fill_absent_properties_at_every_depth():
    """Absent properties with a default are filled in, inside lists too."""
    checked = Schema.compile(CHAT, "$").check({"messages": [{"content": "hi"}]}, "request")
    assert checked == {
        "messages": [{"content": "hi", "role": "user"}],
        "temperature": 0.8,
        "stop": ["</s>"],
    }


def test_check_never_changes_what_it_is_given():
    """Defaults go into a copy."""
    given_value = {"messages": [{"content": "hi"}]}
    before = copy.deepcopy(given_value)
    Schema.compile(CHAT, "$").check(given_value, "request")
    assert given_value == before


def test_a_filled_default_is_the_callers_own():
    """Changing a filled list does not change the next call's default."""
    schema = Schema.compile(CHAT, "$")
    first = schema.check({"messages": [{"content": "hi"}]}, "request")
    assert isinstance(first, dict)
    first["stop"].append("x")
    second = schema.check({"messages": [{"content": "hi"}]}, "request")
    assert isinstance(second, dict)
    assert second["stop"] == ["</s>"]


def test_a_default_object_is_filled_with_its_own_defaults():
    """The default of a property gets the defaults below it."""
    inner = {"properties": {"b": {"default": 1}}, "default": {}}
    assert Schema.compile({"properties": {"a": inner}}, "$").check({}, "x") == {"a": {"b": 1}}


def test_schema_does_not_follow_later_changes_of_its_document():
    """A compiled schema keeps what it was compiled from."""
    document = {"enum": [["a"]]}
    schema = Schema.compile(document, "$")
    document["enum"][0].append("b")
    assert schema.check(["a"], "x") == ["a"]


def test_whole_float_becomes_an_int_where_an_integer_is_asked_for():
    """1.0 is an integer, and the cartridge gets 1."""
    checked = Schema.compile({"items": {"type": "integer"}}, "$").check([1.0, 2], "n")
    assert checked == [1, 2]
    assert [type(item) for item in checked] == [int, int]


def test_record_is_an_object():
    """A `Record` counts as an object, and comes back as it is where nothing is filled in."""
    record = Record({"max": 1})
    assert Schema.compile({"properties": {"max": {"type": "integer"}}}, "$").check(record, "r") is (
        record
    )


def test_schemas_are_equal_by_content():
    """Two schemas compiled from equal JSON are equal."""
    assert Schema.compile({"enum": [1]}, "a") == Schema.compile({"enum": [1]}, "b")
    assert Schema.compile({"enum": [1]}, "a") != Schema.compile({"enum": [2]}, "a")


KEYS = st.sampled_from(["a", "b", "c d"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.sampled_from([0.0, 1.0, 1.5, -0.5, 1e300])
    | st.text("ab🦙é", max_size=3)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
LIMITS = st.integers(-1, 2) | st.sampled_from([0.5, 1.0])
SIZES = st.integers(0, 3) | st.just(1.0)


def _with_keywords(inner):
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "minimum": LIMITS,
            "maximum": LIMITS,
            "exclusiveMinimum": LIMITS,
            "exclusiveMaximum": LIMITS,
            "minLength": SIZES,
            "maxLength": SIZES,
            "pattern": st.sampled_from(["a", "^b", "🦙$", "^.$", "[^a]"]),
            "items": inner,
            "minItems": SIZES,
            "maxItems": SIZES,
            "properties": st.dictionaries(KEYS, inner, max_size=2),
            "required": st.lists(KEYS, max_size=2, unique=True),
            "additionalProperties": inner,
            "description": st.text(max_size=2),
        },
    )


SCHEMAS = st.recursive(st.booleans() | _with_keywords(st.booleans()), _with_keywords, max_leaves=4)


@settings(max_examples=300, deadline=None)
@given(SCHEMAS, st.lists(VALUES, min_size=1, max_size=6))
@example({"enum": [1]}, [True, 1.0])
@example({"const": {"a": [0]}}, [{"a": [False]}, {"a": [0.0]}])
@example({"pattern": "a"}, ["ba", "b"])
@example({"required": ["a"], "additionalProperties": False}, [{"a": 1}, {}])
def test_accepts_what_jsonschema_accepts(document, values):
    """Draft 2020-12, as the jsonschema package reads it, agrees on every schema and value."""
    jsonschema.Draft202012Validator.check_schema(document)
    reference = jsonschema.Draft202012Validator(document)
    schema = Schema.compile(document, "$")
    for value in values:
        try:
            checked = schema.check(value, "x")
        except InvalidArgumentError:
            assert not reference.is_valid(value), (document, value)
        else:
            assert reference.is_valid(value), (document, value)
            assert checked == value


NOT_SCHEMAS = st.dictionaries(
    st.sampled_from(["type", "enum", "minimum", "minLength", "items", "properties", "required"]),
    VALUES,
    min_size=1,
    max_size=2,
)


@settings(max_examples=300, deadline=None)
@given(NOT_SCHEMAS)
def test_compiles_what_the_metaschema_accepts(document):
    """Whether a document of these keywords is a schema at all is Draft 2020-12's decision."""
    refused = _refusal(lambda: Schema.compile(document, "$"), InvalidArgumentError)
    if refused is not None and "keywords" in str(refused):
        return
    check_schema = jsonschema.Draft202012Validator.check_schema
    reference = _refusal(lambda: check_schema(document), jsonschema.SchemaError)
    assert (refused is None) == (reference is None), document


def _refusal(call, error):
    try:
        call()
    except error as exc:
        return exc
    return None
