"""A generation request: its defaults, and which fields go together."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from cartridge_core.errors import InvalidArgumentError
from cartridge_gguf import plugin
from cartridge_gguf.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from cartridge_core.capdefs import Cap

    Read = Callable[..., Request]

USER = {"role": "user", "content": "hi"}
SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.fixture(scope="module")
def caps() -> tuple[Cap, ...]:
    """The caps of gguf-text-generation: free and constrained."""
    descriptors = {descriptor.id: descriptor for descriptor in plugin.cartridge_descriptors()}
    return descriptors["gguf-text-generation"].caps


@pytest.fixture(scope="module")
def read(caps: tuple[Cap, ...]) -> Read:
    """Read a record as a session gets it from the host."""

    def run(record: object, *, is_constrained: bool = False) -> Request:
        main = caps[is_constrained].main
        assert main is not None
        fields = cast("dict[str, object]", main.check(record))
        return Request.read(fields, is_constrained=is_constrained)

    return run


def test_what_a_prompt_alone_asks_for(read: Read) -> None:
    """Everything else has the default that CapDAG's request has."""
    request = read({"prompt": "hi"})
    assert request.prompt == "hi"
    assert request.max_tokens == 512
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.7, 40, 0.9)
    assert (sampling.min_p, sampling.seed, sampling.repeat_penalty) == (0.05, 42, 1.1)
    assert sampling.grammar is None
    assert request.constraint is None
    assert request.stops == ()
    assert not request.is_clamped


def test_a_prompt_is_what_a_user_says(read: Read) -> None:
    """A chat template gets it as a message, the system prompt before it."""
    request = read({"prompt": "hi", "system_prompt": "Be brief."})
    assert request.chat == [SYSTEM, USER]


def test_a_system_prompt_goes_before_the_messages(read: Read) -> None:
    """Messages without a system message of their own get it."""
    request = read({"messages": [USER], "system_prompt": "Be brief."})
    assert request.chat == [SYSTEM, USER]


@pytest.mark.parametrize("blank", ["", " ", "\n\t "], ids=["empty", "space", "other-space"])
def test_a_blank_system_prompt_is_none(read: Read, blank: str) -> None:
    """Nothing is said where there is nothing to say."""
    assert read({"prompt": "hi", "system_prompt": blank}).chat == [USER]


def test_a_constraint_goes_to_the_sampler(read: Read) -> None:
    """The unconstrained cap takes one too."""
    request = read({"prompt": "hi", "grammar": 'root ::= "yes"'})
    assert request.constraint is not None
    assert request.sampling.grammar == request.constraint.grammar


REFUSED = {
    "neither-prompt-nor-messages": ({}, "request.prompt", "neither"),
    "both-prompt-and-messages": ({"prompt": "a", "messages": [USER]}, "request.prompt", "both"),
    "no-messages": ({"messages": []}, "request.messages", "at least 1"),
    "a-message-without-a-role": (
        {"messages": [{"content": "hi"}]},
        "request.messages[0].role",
        "required",
    ),
    "a-message-with-another-field": (
        {"messages": [{**USER, "name": "Ann"}]},
        "request.messages[0].name",
        "no field here",
    ),
    "two-system-prompts": (
        {"messages": [SYSTEM, USER], "system_prompt": "x"},
        "request.system_prompt",
        "absent",
    ),
    "a08-an-empty-stop-string": (
        {"prompt": "a", "stop_sequences": ["x", ""]},
        "request.stop_sequences[1]",
        "at least 1",
    ),
    "a09-less-than-no-tokens": (
        {"prompt": "a", "max_tokens": -1},
        "request.max_tokens",
        "at least 0",
    ),
    "a-model-inside-the-record": (
        {"prompt": "a", "model_spec": "hf:a/b"},
        "request.model_spec",
        "no field here",
    ),
    "a-load-time-value-inside-the-record": (
        {"prompt": "a", "max_context_length": 64},
        "request.max_context_length",
        "no field here",
    ),
    "a-random-seed": ({"prompt": "a", "seed": -1}, "request.seed", "at least 0"),
    "no-number": ({"prompt": "a", "temperature": float("nan")}, "request.temperature", "finite"),
    "a-template-that-writes-nothing": (
        {"prompt": "a", "chat_template": "chatml"},
        "request.chat_template",
        "Jinja",
    ),
    "half-a-surrogate-pair": ({"prompt": "a\ud800"}, "request.prompt", "character 1"),
    "half-a-surrogate-pair-in-a-message": (
        {"messages": [{"role": "user", "content": "\udfff"}]},
        "request.messages[0].content",
        "surrogate",
    ),
    "not-a-record": ("hi", "request", "mapping"),
}


@pytest.mark.parametrize(("record", "arg", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_error_fields_that_do_not_do(read: Read, record: object, arg: str, words: str) -> None:
    """The field is named, and the rule."""
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        read(record)
    assert caught.value.arg == arg
    assert str(caught.value).startswith(arg)


def nested(depth: int, wrap: Callable[[object], object]) -> object:
    """Give a value that stands so deep in others."""
    value: object = {}
    for _ in range(depth):
        value = wrap(value)
    return value


NESTS: dict[str, Callable[[object], object]] = {
    "objects": lambda value: {"not": value},
    "lists": lambda value: {"anyOf": [value]},
    "properties": lambda value: {"properties": {"a": value}},
    "unknown": lambda value: {"a": value},
}


@pytest.mark.parametrize("wrap", NESTS.values(), ids=NESTS.keys())
@pytest.mark.parametrize("name", ["json_schema", "constraint"])
def test_error_a_record_that_nests_without_end(
    read: Read, name: str, wrap: Callable[[object], object]
) -> None:
    """It is refused by name, not by what Python's stack says."""
    schema = nested(20_000, wrap)
    value = schema if name == "json_schema" else {"type": "json_schema", "schema": schema}
    with pytest.raises(InvalidArgumentError, match="nests too deep") as caught:
        read({"prompt": "hi", name: value})
    assert caught.value.arg == "request"


def test_error_the_constrained_cap_needs_a_constraint(read: Read) -> None:
    """It never writes freely."""
    with pytest.raises(InvalidArgumentError, match="none is given") as caught:
        read({"prompt": "hi"}, is_constrained=True)
    assert caught.value.arg == "request.constraint"


@pytest.mark.parametrize("name", ["grammar", "json_schema", "constraint"])
def test_error_a_constraint_of_a_wrong_type(read: Read, name: str) -> None:
    """It is refused by name, by either cap."""
    for is_constrained in (False, True):
        with pytest.raises(InvalidArgumentError, match=f"^request.{name}") as caught:
            read({"prompt": "hi", name: 1}, is_constrained=is_constrained)
        assert caught.value.arg == f"request.{name}"


WRONG = {
    "a-grammar-without-an-end": ({"grammar": 'root ::= "a'}, "request.grammar", "line 1"),
    "an-empty-grammar": ({"grammar": ""}, "request.grammar", "blank"),
    "two-constraints": ({"grammar": "x", "json_schema": {}}, "request.json_schema", "at most one"),
    "a-keyword-that-is-not-enforced": (
        {"json_schema": {"type": "array", "uniqueItems": True}},
        "request.json_schema#/uniqueItems",
        "uniqueItems",
    ),
    "a-kind-that-is-none": ({"constraint": {"type": "xml"}}, "request.constraint.type", "one of"),
    "a-pattern-that-is-none": (
        {"constraint": {"type": "regex", "pattern": "("}},
        "request.constraint.pattern",
        "pattern",
    ),
    "a-tool-without-a-name": (
        {"constraint": {"type": "tool_call", "tools": [{}]}},
        "request.constraint.tools[0].name",
        "name",
    ),
}


@pytest.mark.parametrize(("field", "arg", "words"), WRONG.values(), ids=WRONG.keys())
def test_error_a_constraint_that_cannot_be_kept(
    read: Read, field: dict[str, object], arg: str, words: str
) -> None:
    """It is refused by either cap, by its place in the request."""
    for is_constrained in (False, True):
        with pytest.raises(InvalidArgumentError, match=words) as caught:
            read({"prompt": "hi", **field}, is_constrained=is_constrained)
        assert caught.value.arg == arg
        assert str(caught.value).startswith("request.")
