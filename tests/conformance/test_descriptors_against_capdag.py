"""Every descriptor of this repository as capdag reads it, and the rules side by side."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from capdag.cap.definition import Cap as CapdagCap
from capdag.cap.validation import validate_cap_definition
from capdag.urn.media_urn import MediaUrn

from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import InvalidArgumentError

ROOT = Path(__file__).parents[2]
FILES = sorted(ROOT.glob("plugins/*/cartridge_*/descriptors/*.json"))

EXAMPLE = r"""
{
  "spec_version": "0.3", "id": "torch-text-embedding", "version": "0.1.0",
  "family": "text-embedding", "modality": "text", "task": "embedding",
  "io": {"mode": "batch", "input": {"dtype": "utf8"},
         "output": {"dtype": "float32", "shape": [null, null]}},
  "target": {"hardware": "any", "abi": "any"},
  "performance": {"measured_on": "unmeasured"}, "execution_mode": "native",
  "license": "Apache-2.0", "requirements": {"memory_mb": 600},
  "attributes": {
    "abi": "0.1", "hooks": 1, "isolation": "inline", "max_concurrent_sessions": 64,
    "formats": ["hf-folder"],
    "backend": {"distribution": "sentence-transformers", "min_version": "5.0"},
    "caps": [{
      "urn": "cap:generate-embeddings;in=\"media:enc=utf-8\";ml-model;out=\"media:embedding-vector;enc=utf-8;record\";torch",
      "title": "Text embeddings", "aliases": ["torch-embed"],
      "args": [
        {"name": "text", "media_urn": "media:enc=utf-8", "required": true, "is_sequence": true,
         "sources": [{"stdin": "media:enc=utf-8"}, {"position": 0}],
         "arg_description": "A text, or a list of texts."},
        {"name": "model_spec", "media_urn": "media:enc=utf-8;model-spec;torch", "required": false,
         "sources": [{"cli_flag": "--model-spec"}],
         "default_value": "hf:sentence-transformers/all-MiniLM-L6-v2",
         "arg_description": "The model.", "metadata": {"pack": true}},
        {"name": "normalize", "media_urn": "media:bool;enc=utf-8;normalize", "required": false,
         "sources": [{"cli_flag": "--normalize"}], "default_value": true,
         "arg_description": "Unit length.", "metadata": {"schema": {"type": "boolean"}}}
      ],
      "outputs": [{"media_urn": "media:embedding-vector;enc=utf-8;record", "name": "embeddings",
                   "output_description": "Vectors."}]
    }]
  }
}
"""  # noqa: E501 -- a JSON string cannot be broken

TEXTS = {"example": EXAMPLE} | {
    str(file.relative_to(ROOT)): file.read_text("utf-8") for file in FILES
}


def test_there_are_descriptors_to_compare():
    """The plugins of this repository are found."""
    assert FILES


def _ours(cap):
    args = [
        (
            arg.name,
            str(arg.media_urn),
            arg.required,
            arg.is_sequence,
            arg.streaming,
            str(arg.accepts) if arg.accepts else None,
            [(source.kind, source.value) for source in arg.sources],
            arg is cap.main,
        )
        for arg in cap.args
    ]
    outputs = [
        (out.name, str(out.media_urn), out.optional, out.is_sequence, out.streaming, out.carries)
        for out in cap.outputs
    ]
    return str(cap.urn), cap.title, list(cap.aliases), args, outputs


def _canonical(media_urn):
    return MediaUrn.from_string(media_urn).to_string()


def _theirs(cap):
    args = [
        (
            arg.name,
            _canonical(arg.media_urn),
            arg.required,
            arg.is_sequence,
            arg.streaming,
            _canonical(arg.accepts) if arg.accepts else None,
            [next(iter(source.to_dict().items())) for source in arg.sources],
            arg is cap.main_input_arg(),
        )
        for arg in cap.args
    ]
    outputs = [
        (
            out.name,
            _canonical(out.media_urn),
            out.optional,
            out.is_sequence,
            out.streaming,
            out.carries,
        )
        for out in cap.outputs
    ]
    return cap.urn_string(), cap.title, cap.aliases, args, outputs


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_capdag_reads_the_same_caps(text):
    """Each definition passes capdag's rules, and is the same cap with the same args and outputs."""
    document = json.loads(text)
    descriptor = Descriptor.from_json(text)
    definitions = document["attributes"].get("caps", [])
    for cap, definition in zip(descriptor.caps, definitions, strict=True):
        reference = CapdagCap.from_dict(definition)
        validate_cap_definition(reference)
        assert _ours(cap) == _theirs(reference)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_descriptor_keeps_what_capdag_writes(text):
    """A definition that capdag has read and written again is the same cap to us."""
    descriptor = Descriptor.from_json(text)
    written = descriptor.to_json()
    attributes = written["attributes"]
    assert isinstance(attributes, dict)
    caps = attributes.get("caps", [])
    attributes["caps"] = [CapdagCap.from_dict(cap).to_dict() for cap in caps]
    assert Descriptor.from_json(written).caps == descriptor.caps


def _set(*place_and_value):
    *place, value = place_and_value

    def mutate(cap):
        target = cap
        for step in place[:-1]:
            target = target[step]
        target[place[-1]] = value

    return mutate


def _drop(*place):
    def mutate(cap):
        target = cap
        for step in place[:-1]:
            target = target[step]
        del target[place[-1]]

    return mutate


VECTOR = {"name": "v", "media_urn": "media:v", "output_description": ""}
NO_INPUT = 'cap:in=media:void;out="media:embedding-vector;enc=utf-8;record";x'

MUTATIONS = {
    "RULE1 media URN twice": _set("args", 2, "media_urn", "media:enc=utf-8;model-spec;torch"),
    "RULE2 no sources": _set("args", 2, "sources", []),
    "RULE3 two stdin": _set("args", 2, "sources", [{"stdin": "media:enc=utf-8"}]),
    "RULE4 source twice": _set("args", 2, "sources", [{"cli_flag": "-a"}, {"cli_flag": "-b"}]),
    "RULE5 position twice": _set("args", 2, "sources", [{"position": 0}]),
    "RULE6 position gap": _set("args", 2, "sources", [{"position": 2}]),
    "RULE7 position and flag": _set("args", 2, "sources", [{"position": 1}, {"cli_flag": "-n"}]),
    "RULE8 unknown source": _set("args", 2, "sources", [{"env": "X"}]),
    "RULE9 flag twice": _set("args", 2, "sources", [{"cli_flag": "--model-spec"}]),
    "RULE10 reserved flag": _set("args", 2, "sources", [{"cli_flag": "-h"}]),
    "RULE12 no media URN": _drop("args", 2, "media_urn"),
    "RULE13 no alias": _set("aliases", []),
    "RULE14 side arg streams": _set("args", 2, "streaming", True),
    "RULE15 no stdin": _set("args", 0, "sources", [{"position": 0}]),
    "RULE15 other stdin": _set("args", 0, "sources", [{"stdin": "media:image"}]),
    "RULE15 void with stdin": _set("urn", NO_INPUT),
    "RULE17 no name": _drop("args", 2, "name"),
    "RULE17 name form": _set("args", 2, "name", "1st"),
    "RULE17 name constant": _set("args", 2, "name", "null"),
    "RULE17 name twice": _set("args", 2, "name", "text"),
    "RULE18 accepts and stdin": _set("args", 0, "accepts", "media:enc=utf-8"),
    "RULE19 no output name": _drop("outputs", 0, "name"),
    "RULE19 output name form": _set("outputs", 0, "name", "a.b"),
    "RULE20 output twice": lambda cap: cap["outputs"].append(
        {**VECTOR, "media_urn": "media:record;enc=utf-8;embedding-vector"}
    ),
    "RULE21 no main output": _set("outputs", [VECTOR]),
    "RULE21 void with output": _set("urn", 'cap:in="media:enc=utf-8";out=media:void;x'),
    "RULE22 main output carries": _set("outputs", 0, "carries", "input"),
    "RULE22 carries else": lambda cap: cap["outputs"].append({**VECTOR, "carries": "output"}),
    "unknown arg key": _set("args", 2, "default", True),
    "unknown output key": _set("outputs", 0, "description", ""),
    "unknown dim key": _set("dims", [{"dim": "a", "value": "b", "x": 1}]),
    "no required": _drop("args", 2, "required"),
    "no output description": _drop("outputs", 0, "output_description"),
    "no title": _drop("title"),
}


@pytest.mark.parametrize("mutate", MUTATIONS.values(), ids=MUTATIONS)
def test_error_both_refuse_a_broken_rule(mutate):
    """A definition that breaks one rule is refused by capdag and by us."""
    document = json.loads(EXAMPLE)
    [definition] = document["attributes"]["caps"]
    mutate(definition)
    with pytest.raises(Exception):  # noqa: B017, PT011 -- capdag raises what its parts raise
        validate_cap_definition(CapdagCap.from_dict(copy.deepcopy(definition)))
    with pytest.raises(InvalidArgumentError, match=r"^\$\.attributes\.caps\[0\]"):
        Descriptor.from_json(document)


STRICTER = {
    "RULE8 two kinds in one source": _set(
        "args", 0, "sources", [{"stdin": "media:enc=utf-8", "position": 0}]
    ),
    "unknown cap key": _set("command", "embed"),
    "bad media URN of an arg": _set("args", 2, "media_urn", "media:a b"),
    "negative position": _set("args", 2, "sources", [{"position": -1}, {"position": 1}]),
    "aliases twice": _set("aliases", ["a", "a"]),
}


@pytest.mark.parametrize("mutate", STRICTER.values(), ids=STRICTER)
def test_error_where_capdag_does_not_look(mutate):
    """What capdag's documents forbid and its package lets pass is refused here."""
    document = json.loads(EXAMPLE)
    mutate(document["attributes"]["caps"][0])
    with pytest.raises(InvalidArgumentError, match=r"^\$\.attributes\.caps\[0\]"):
        Descriptor.from_json(document)
