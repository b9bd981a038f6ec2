"""The constraint of a request: which of its fields says it, and what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from grammar_texts import accepts

from cartridge_core.errors import BackendError, InvalidArgumentError
from cartridge_gguf.constraint import Constraint, read
from cartridge_gguf.grammar import Grammar

if TYPE_CHECKING:
    from collections.abc import Mapping

YES = 'root ::= "yes"  # or nothing\n'


def made(fields: Mapping[str, object]) -> Constraint:
    constraint = read(fields)
    assert constraint is not None
    return constraint


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        pytest.param({"grammar": YES}, "grammar", "yes", id="grammar"),
        pytest.param({"constraint": {"type": "grammar", "grammar": YES}}, "grammar", "yes", id="g"),
        pytest.param({"json_schema": {"type": "null"}}, "json_schema", "null", id="schema"),
        pytest.param({"json_schema": '{"type": "null"}'}, "json_schema", "null", id="schema-text"),
        pytest.param({"json_schema": True}, "json_schema", "[1]", id="true"),
        pytest.param(
            {"constraint": {"type": "json_schema", "schema": {"const": 1}, "description": "One."}},
            "json_schema",
            "1",
            id="schema-in-a-record",
        ),
        pytest.param(
            {"constraint": {"type": "json_schema", "json_schema": {"const": 1}}},
            "json_schema",
            "1",
            id="its-other-name",
        ),
        pytest.param(
            {
                "constraint": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"const": 2}, "strict": True},
                }
            },
            "json_schema",
            "2",
            id="openai-wrapping",
        ),
        pytest.param(
            {"constraint": {"type": "regex", "pattern": "[A-Z]{3}-\\d+"}},
            "regex",
            "ABC-12",
            id="regex",
        ),
        pytest.param(
            {"constraint": {"type": "tool_call", "tools": [{"name": "now"}]}},
            "tool_call",
            '{"name":"now","arguments":{}}',
            id="tool-call",
        ),
    ],
)
def test_each_form_is_read(fields: Mapping[str, object], kind: str, text: str) -> None:
    """Every form gives a grammar that has the text, and is checked."""
    constraint = made({"prompt": "?", **fields})
    assert constraint.kind == kind
    rules = Grammar.parse(constraint.grammar).rules
    assert accepts(rules, text)
    assert not accepts(rules, f"{text}!")


def test_a_request_without_any_has_none() -> None:
    """No field, no constraint."""
    assert read({"prompt": "?"}) is None


def test_a_grammar_is_passed_on_as_it_was() -> None:
    """Comments and spaces too."""
    assert made({"grammar": YES}).grammar == YES


@pytest.mark.parametrize(
    ("fields", "text", "value"),
    [
        pytest.param(
            {"json_schema": {}}, '{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}, id="json"
        ),
        pytest.param({"json_schema": {}}, "null", None, id="null"),
        pytest.param({"grammar": YES}, "yes", None, id="grammar"),
        pytest.param({"constraint": {"type": "regex", "pattern": "a"}}, "a", None, id="regex"),
        pytest.param(
            {"constraint": {"type": "tool_call", "tools": [{"name": "now"}]}},
            '{"name": "now", "arguments": {}}',
            {"tool_name": "now", "tool_args": {}},
            id="tool-call",
        ),
    ],
)
def test_the_text_is_parsed(fields: Mapping[str, object], text: str, value: object) -> None:
    """A schema gives the JSON value, tools the call, the others nothing."""
    assert made(fields).parse(text) == value


@pytest.mark.parametrize("text", ['{"a": 1', "", "yes"])
def test_a_text_that_does_not_keep_to_it_is_an_error(text: str) -> None:
    """What a model writes is never taken for parsed when it is not."""
    with pytest.raises(BackendError, match="does not keep to its constraint"):
        made({"json_schema": {}}).parse(text)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"grammar": ""}, "grammar: is blank", id="a01-empty-grammar"),
        pytest.param({"grammar": " \n"}, "grammar: is blank", id="a01-blank-grammar"),
        pytest.param(
            {"constraint": {"type": "grammar", "grammar": ""}},
            "constraint.grammar: is blank",
            id="a01-empty-in-a-record",
        ),
        pytest.param({"constraint": {}}, "constraint.type: must be one of", id="a01-empty-record"),
        pytest.param({"grammar": None}, "grammar: must be a text, found null", id="a01-null"),
        pytest.param({"constraint": None}, "constraint: must be an object", id="null-record"),
        pytest.param({"json_schema": None}, "must be a schema, an object", id="null-schema"),
        pytest.param({"json_schema": "{"}, "json_schema: is not JSON", id="no-json"),
        pytest.param({"json_schema": '{"type":1,"type":2}'}, "stands twice", id="key-twice"),
        pytest.param({"json_schema": {"const": float("nan")}}, "must be a finite", id="nan"),
        pytest.param({"json_schema": {"const": "\ud800"}}, "half of a surrogate", id="half-pair"),
        pytest.param(
            {"grammar": YES, "json_schema": {}}, "grammar and json_schema are given", id="two"
        ),
        pytest.param(
            {"grammar": YES, "constraint": {"type": "grammar", "grammar": YES}},
            "grammar and constraint are given",
            id="the-same-twice",
        ),
        pytest.param({"constraint": {"type": "xml"}}, 'found "xml"', id="unknown-type"),
        pytest.param(
            {"constraint": {"type": "regex"}}, "'regex' must have pattern", id="no-pattern"
        ),
        pytest.param(
            {"constraint": {"type": "regex", "pattern": 7}}, "constraint.pattern: must be", id="7"
        ),
        pytest.param(
            {"constraint": {"type": "regex", "pattern": "a", "flags": "i"}},
            "constraint.flags: is no field",
            id="unknown-field",
        ),
        pytest.param(
            {"constraint": {"type": "json_schema", "schema": {}, "json_schema": {}}},
            "must have schema or json_schema",
            id="two-schemas",
        ),
        pytest.param(
            {"constraint": {"type": "json_schema", "schema": {"minItems": -1}}},
            "constraint.schema#/minItems: must be an integer that is not negative, found -1",
            id="place-in-a-record",
        ),
        pytest.param(
            {"constraint": {"type": "regex", "pattern": "(abc){1,2000}" * 40}},
            "constraint.pattern: it is too large or too ambiguous",
            id="too-large",
        ),
    ],
)
def test_what_cannot_be_enforced_is_an_error(fields: Mapping[str, object], said: str) -> None:
    """Nothing is passed over: a constraint that is not one is named, with its place."""
    with pytest.raises(InvalidArgumentError) as caught:
        read(fields)
    assert said in str(caught.value)


def test_a_schema_that_nests_without_end_is_an_error() -> None:
    """Not a crash of Python's own stack."""
    schema: dict[str, object] = {}
    for _ in range(5_000):
        schema = {"items": schema}
    with pytest.raises(InvalidArgumentError, match="nests too deep"):
        read({"json_schema": schema})
