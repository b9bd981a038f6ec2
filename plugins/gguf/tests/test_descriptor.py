"""The descriptors, the rules of CapDAG and each other agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cartridge_gguf
from cartridge_core.errors import InvalidArgumentError
from cartridge_gguf import plugin

if TYPE_CHECKING:
    from cartridge_core.capdefs import Arg, Cap

FOLDER = Path(cartridge_gguf.__file__).parent / "descriptors"
DOCUMENTS = [json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))]
CAPS = [cap for document in DOCUMENTS for cap in document["attributes"]["caps"]]
DESCRIPTORS = {descriptor.id: descriptor for descriptor in plugin.cartridge_descriptors()}
EMBEDDING, GENERATION = DESCRIPTORS["gguf-embedding"], DESCRIPTORS["gguf-text-generation"]


@pytest.mark.parametrize("document", CAPS, ids=lambda cap: cap["title"])
def test_the_capdag_package_accepts_the_caps(document: dict[str, object]) -> None:
    """Each cap keeps CapDAG's rules, as the package capdag holds them."""
    from capdag.cap.definition import Cap as CapdagCap
    from capdag.cap.validation import validate_cap_definition

    validate_cap_definition(CapdagCap.from_dict(document))


def test_each_cartridge_can_be_opened() -> None:
    """The plugin knows an opener for every descriptor, and no other one."""
    assert plugin.OPENERS.keys() == DESCRIPTORS.keys()


def test_cartridges_that_load_weights_open_alike() -> None:
    """What is learnt of an argument for one cartridge is right for all that have it."""
    loading = [descriptor for descriptor in DESCRIPTORS.values() if descriptor.open_args]
    assert GENERATION in loading
    rules = {arg.name: _rule(arg) for arg in GENERATION.open_args}
    for descriptor in loading:
        found = {arg.name: _rule(arg) for arg in descriptor.open_args}
        # The texts of one call share a decode by themselves, and those of several never do.
        left_out = {"parallel_sequences"} if descriptor is EMBEDDING else set[str]()
        assert found == {name: rules[name] for name in rules.keys() - left_out}, descriptor.id


def _rule(arg: Arg) -> tuple[object, ...]:
    return (str(arg.media_urn), arg.sources, arg.default, arg.schema)


def test_the_embedding_caps_are_capdags() -> None:
    """Their URNs are those that a CapDAG host asks for."""
    spec = "media:embeddings;enc=utf-8;gguf;model-spec;tokenizer-embedded-gguf"
    vectors, dimension = (
        "media:embedding-vector;enc=utf-8;record",
        "media:integer;model-dim;numeric",
    )
    assert [str(cap.urn) for cap in EMBEDDING.caps] == [
        f'cap:generate-embeddings;gguf;in="media:enc=utf-8";ml-model;out="{vectors}"',
        f'cap:embeddings-dimensions;gguf;in="{spec}";ml-model;out="{dimension}"',
    ]
    embeddings, dimensions = EMBEDDING.caps
    assert embeddings.open_args == dimensions.open_args
    assert dimensions.main == dimensions.pack_arg


def test_the_text_caps_are_capdags() -> None:
    """Their URNs are those that a CapDAG host asks for."""
    record, stream = (
        "media:fmt=json;llm-generation-request;record",
        "media:fmt=ndjson;llm-text-stream",
    )
    assert [str(cap.urn) for cap in GENERATION.caps] == [
        f'cap:gguf;in="{record}";llm;llm-inference;ml-model;out="{stream}"',
        f'cap:constrained;gguf;in="{record}";llm;llm-inference-constrained;ml-model;out="{stream}"',
    ]
    assert GENERATION.partial == "append"
    assert GENERATION.isolation == "process"


def test_both_text_caps_take_the_same_request() -> None:
    """A request goes from one to the other as it is."""
    free, constrained = (_main(cap) for cap in GENERATION.caps)
    assert free.schema == constrained.schema


def test_a_request_may_say_a_prompt_alone() -> None:
    """What it leaves out is filled in."""
    filled = _main(GENERATION.caps[0]).check({"prompt": "hi"})
    assert filled == {
        "prompt": "hi",
        "max_tokens": 512,
        "overflow": "error",
        "temperature": 0.7,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.05,
        "seed": 42,
        "repeat_penalty": 1.1,
    }


@pytest.mark.parametrize("value", [2**31, 10**400], ids=["more-than-32-bits", "401-digits"])
@pytest.mark.parametrize("arg", GENERATION.open_args, ids=lambda arg: arg.name)
def test_error_a_number_too_large(arg: Arg, value: int) -> None:
    """A number that no library takes is refused by its name, however large."""
    with pytest.raises(InvalidArgumentError, match=f"^{arg.name}: must be at most") as caught:
        arg.check(value * 1000)
    assert caught.value.arg == arg.name


@pytest.mark.parametrize(
    "field", ["max_tokens", "seed", "top_k", "temperature", "repeat_penalty", "top_p", "min_p"]
)
def test_error_a_field_too_large(field: str) -> None:
    """So is one of a request."""
    with pytest.raises(InvalidArgumentError, match=f"^request.{field}: must be at most"):
        _main(GENERATION.caps[0]).check({"prompt": "hi", field: 10**400})


def _main(cap: Cap) -> Arg:
    assert cap.main is not None
    return cap.main
