"""Descriptors: strict JSON, upstream's fields, our attributes, what a cartridge's caps share."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import pytest

from cartridge_core.descriptor import Backend, Descriptor, IoMode, Target, read_descriptors
from cartridge_core.errors import InvalidArgumentError, LoadError

PACK = {
    "name": "model_spec",
    "media_urn": "media:enc=utf-8;model-spec",
    "required": False,
    "sources": [{"cli_flag": "--model-spec"}],
    "default_value": "hf:owner/repo",
    "metadata": {"pack": True},
}
DEVICE = {
    "name": "device",
    "media_urn": "media:device;enc=utf-8",
    "required": False,
    "sources": [{"cli_flag": "--device"}],
    "default_value": "auto",
    "metadata": {"scope": "open", "schema": {"enum": ["auto", "cpu"]}},
}


def _cap(word, *args):
    return {
        "urn": f'cap:{word};in="media:enc=utf-8";out="media:enc=utf-8;record"',
        "title": word,
        "aliases": [word],
        "args": [
            {
                "name": "text",
                "media_urn": "media:enc=utf-8",
                "required": True,
                "sources": [{"stdin": "media:enc=utf-8"}, {"position": 0}],
            },
            *args,
        ],
        "outputs": [{"name": "o", "media_urn": "media:enc=utf-8;record", "output_description": ""}],
    }


PLAIN: dict[str, object] = {
    "spec_version": "0.3",
    "id": "echo-text",
    "version": "1.2.3-rc.1+build.5",
    "family": "echo",
    "modality": "text",
    "task": "generation",
    "io": {"mode": "batch", "input": {"dtype": "utf8"}, "output": {"dtype": "utf8"}},
    "target": {"hardware": "any", "abi": "any"},
    "performance": {"measured_on": "unmeasured"},
    "execution_mode": "native",
    "license": "MIT",
}
UNMEASURED = {"unmeasured": True, "harness": "later"}
SPEECH: dict[str, object] = {
    **PLAIN,
    "spec_version": "0.4",
    "id": "tiny-speech",
    "modality": "audio",
    "task": "asr",
    "io": {
        "mode": "streaming",
        "input": {
            "dtype": "float32",
            "shape": [1, None],
            "sample_rate_hz": 16000,
            "chunk_ms": 80,
        },
        "output": {"dtype": "utf8", "output_schema": {"type": "object"}},
    },
    "model": {
        "name": "tiny",
        "variant": "en",
        "params": 37000000,
        "checkpoint": "owner/tiny",
        "upstream": {"source": "https://example.org/tiny", "license": "MIT"},
    },
    "target": {"hardware": "board", "abi": "arm64-v8a", "accelerator": "npu v2"},
    "performance": {"measured_on": "board, 2026-05-01", "rtf": 0.4, "latency_p50_ms": 12},
    "quality": {"wer": 0.08, "dataset": "clean", "measured_on": "board"},
    "requirements": {
        "needs_accelerator": True,
        "driver": {"name": "libnpu.so", "min_version": "2.0", "note": ""},
        "memory_mb": 300,
        "os": {"name": "linux", "min_api": 5},
    },
    "flavors": [{"id": "de", "attributes": {"languages": ["de"]}, "quality": UNMEASURED}],
    "attributes": {"languages": ["en"], "context_window_s": 4, "endpointing": "signal"},
}
FULL: dict[str, object] = {
    **PLAIN,
    "attributes": {
        "abi": "0.1",
        "hooks": 1,
        "isolation": "process",
        "max_concurrent_sessions": 8,
        "formats": ["gguf"],
        "schemes": ["hf", "file"],
        "backend": {"distribution": "llama-cpp-python", "min_version": "0.3"},
        "partial": "append",
        "base": "echo-base",
        "plugin": "echo",
        "device_key": "npu0",
        "load_timeout_s": 30,
        "vendor_note": {"anything": [1, None]},
        "caps": [_cap("echo", PACK, DEVICE), _cap("shout", PACK, DEVICE)],
    },
}


def _changed(document, place, value):
    """Give a copy with one place set; ``...`` takes it away."""
    changed = copy.deepcopy(document)
    target = changed
    for step in place[:-1]:
        target = target[step]
    if value is ...:
        del target[place[-1]]
    else:
        target[place[-1]] = value
    return changed


BAD_JSON = [
    pytest.param("", "is not JSON", id="empty"),
    pytest.param("{'id': 1}", "is not JSON", id="single-quotes"),
    pytest.param('{"a": 1,}', "is not JSON", id="trailing-comma"),
    pytest.param(b"\xef\xbb\xbf{}", "byte order mark", id="byte-order-mark"),
    pytest.param("\ufeff{}", "byte order mark", id="byte-order-mark-in-text"),
    pytest.param("{}".encode("utf-16"), "UTF-8", id="utf-16"),
    pytest.param(b'{"id": "\xff"}', "UTF-8: byte 8", id="not-utf-8"),
    pytest.param(
        '{"io": {"a": [{"x": 1, "x": 1}]}}', r"^\$\.io\.a\[0\]\.x: .*twice", id="key-twice"
    ),
    pytest.param('{"io": {"a": NaN}}', r"^\$\.io\.a: .*finite", id="nan"),
    pytest.param('{"io": [-Infinity]}', r"^\$\.io\[0\]: .*finite", id="infinity"),
    pytest.param('{"io": 1e999}', r"^\$\.io: .*finite", id="overflow"),
    pytest.param(f'{{"io": {"9" * 5000}}}', "is not JSON", id="endless-number"),
    pytest.param('{"io": "\\ud800"}', r"^\$\.io: .*surrogate", id="half-a-surrogate"),
    pytest.param("[" * 100_000, "nests too deep", id="deep"),
    pytest.param("[]", r"^\$: must be an object", id="array"),
    pytest.param('"text"', r"^\$: must be an object", id="text"),
    pytest.param("null", r"^\$: must be an object, found null", id="null"),
]


@pytest.mark.parametrize(("text", "words"), BAD_JSON)
def test_error_text_is_not_strict_json(text, words):
    """Text that is not strict JSON is refused, and the message says what it is about."""
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        Descriptor.from_json(text)
    assert str(caught.value).startswith("$")


REQUIRED = [name for name in PLAIN if name != "attributes"]


@pytest.mark.parametrize("name", REQUIRED)
def test_error_required_field_is_missing(name):
    """Every field that upstream requires must be there."""
    with pytest.raises(InvalidArgumentError, match=rf"^\$\.{name}: is missing"):
        Descriptor.from_json(_changed(PLAIN, [name], ...))


REFUSED: list[tuple[dict[str, object], list[str | int], object, str]] = [
    (PLAIN, ["io", "mode"], "stream", r'must be "batch" or "streaming", found "stream"$'),
    (PLAIN, ["spec_version"], "0.2", '"0.3" or "0.4"'),
    (PLAIN, ["spec_version"], 0.3, '"0.3" or "0.4", found 0.3'),
    (PLAIN, ["id"], "Echo_Text", "kebab-case"),
    (PLAIN, ["id"], "echo-text\n", "kebab-case"),
    (PLAIN, ["family"], "-echo", "kebab-case"),
    (PLAIN, ["version"], "1.0", "semantic version"),
    (PLAIN, ["version"], "01.0.0", "semantic version"),
    (PLAIN, ["modality"], "smell", '"audio"'),
    (PLAIN, ["task"], "", "not empty"),
    (PLAIN, ["execution_mode"], "fast", '"native" or "eager"'),
    (PLAIN, ["license"], None, "string"),
    (PLAIN, ["caps"], [], "is no key here"),
    (PLAIN, ["runtime"], {"name": "ort"}, "is no key here"),
    (PLAIN, ["io", "latency"], 1, "is no key here"),
    (PLAIN, ["io", "input", "type"], "x", "is no key here"),
    (PLAIN, ["io", "input", "dtype"], ..., "is missing"),
    (SPEECH, ["io", "input", "shape", 0], -1, "axis"),
    (SPEECH, ["io", "input", "shape"], 3, "array"),
    (SPEECH, ["io", "input", "sample_rate_hz"], "16k", "integer"),
    (SPEECH, ["io", "input", "chunk_ms"], 0, "above 0"),
    (PLAIN, ["target", "os"], "linux", "is no key here"),
    (PLAIN, ["target", "abi"], ..., "is missing"),
    (PLAIN, ["performance", "rtf"], 0, "above 0"),
    (PLAIN, ["performance", "rtf"], True, "above 0"),
    (PLAIN, ["performance", "promised"], 1, "is no key here"),
    (PLAIN, ["performance", "measured_on"], ..., "is missing"),
    (SPEECH, ["quality"], ..., 'is missing; the task "asr"'),
    (SPEECH, ["quality"], {}, "wer: is missing"),
    (SPEECH, ["quality", "harness"], "both", "is no key here"),
    (SPEECH, ["quality"], {"unmeasured": False, "harness": "x"}, "must be true"),
    (SPEECH, ["quality"], {"unmeasured": True}, "harness: is missing"),
    (SPEECH, ["quality", "wer"], -0.1, "from 0"),
    (SPEECH, ["model", "name"], ..., "is missing"),
    (SPEECH, ["model", "params"], 1.5, "integer"),
    (SPEECH, ["model", "upstream", "url"], "x", "is no key here"),
    (SPEECH, ["requirements", "needs_accelerator"], 1, "true or false"),
    (SPEECH, ["requirements", "gpu"], True, "is no key here"),
    (SPEECH, ["requirements", "os", "version"], "1", "is no key here"),
    (SPEECH, ["requirements", "driver"], "libnpu", "object"),
    (SPEECH, ["flavors"], {}, "array"),
    (SPEECH, ["flavors", 0, "id"], ..., "is missing"),
    (SPEECH, ["flavors", 0, "task"], "asr", "is no key here"),
    (SPEECH, ["flavors", 0, "target"], {}, "hardware: is missing"),
    (SPEECH, ["flavors"], [{"id": "de"}, {"id": "de"}], "twice"),
    (FULL, ["attributes"], [], "object"),
    (FULL, ["attributes", "abi"], 0.1, "string"),
    (FULL, ["attributes", "abi"], "0.1.0", "major.minor"),
    (FULL, ["attributes", "hooks"], "1", "integer"),
    (FULL, ["attributes", "hooks"], True, "integer"),
    (FULL, ["attributes", "isolation"], "thread", '"inline" or "process"'),
    (FULL, ["attributes", "max_concurrent_sessions"], 0, "at least 1"),
    (FULL, ["attributes", "formats"], "gguf", "array"),
    (FULL, ["attributes", "formats"], ["gguf", "gguf"], "twice"),
    (FULL, ["attributes", "schemes"], [1], "string"),
    (FULL, ["attributes", "backend"], "torch", "object"),
    (FULL, ["attributes", "backend", "version"], "1", "is no key here"),
    (FULL, ["attributes", "backend", "distribution"], ..., "is missing"),
    (FULL, ["attributes", "partial"], "merge", '"replace" or "append"'),
    (FULL, ["attributes", "endpointing"], "vad", '"none" or "signal"'),
    (FULL, ["attributes", "base"], "Echo", "kebab-case"),
    (FULL, ["attributes", "plugin"], None, "string"),
    (FULL, ["attributes", "device_key"], 0, "string"),
    (FULL, ["attributes", "load_timeout_s"], 0, "above 0"),
    (FULL, ["attributes", "load_timeout_s"], 10**400, "above 0"),
    (FULL, ["attributes", "caps"], {}, "array"),
    (FULL, ["attributes", "caps", 1, "aliases"], [], "RULE13"),
    (FULL, ["attributes", "caps", 0, "abstract"], True, "abstract"),
]


@pytest.mark.parametrize(
    ("document", "place", "value", "words"),
    REFUSED,
    ids=[f"{'.'.join(map(str, place))}={str(value)[:20]}" for _, place, value, _ in REFUSED],
)
def test_error_field_breaks_its_rule(document, place, value, words):
    """A descriptor that breaks a rule is refused; the message starts with the place."""
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        Descriptor.from_json(_changed(document, place, value))
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    assert str(caught.value).startswith(f"${path}")


CLASHES = [
    pytest.param([_cap("a"), _cap("a")], "twice", id="one-cap-twice"),
    pytest.param(
        [_cap("a"), {**_cap("b"), "aliases": ["b", "a"]}], "'a' is an alias", id="alias-twice"
    ),
    pytest.param([_cap("a", DEVICE), _cap("b")], "open argument 'device'", id="open-arg-missing"),
    pytest.param(
        [_cap("a", DEVICE), _cap("b", {**DEVICE, "default_value": "cpu"})],
        "open argument 'device'",
        id="open-default-differs",
    ),
    pytest.param([_cap("a", DEVICE), _cap("b"), _cap("c", DEVICE)], "device", id="second-of-three"),
    pytest.param(
        [_cap("a", PACK), _cap("b", {**PACK, "default_value": "hf:owner/other"})],
        "pack argument",
        id="pack-default-differs",
    ),
    pytest.param(
        [_cap("a", PACK), _cap("b"), _cap("c", {**PACK, "media_urn": "media:model-spec"})],
        "pack argument",
        id="pack-urn-differs",
    ),
]


@pytest.mark.parametrize(("caps", "words"), CLASHES)
def test_error_caps_of_one_cartridge_disagree(caps, words):
    """Caps that clash, or that would need two loads, are refused."""
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        Descriptor.from_json({**PLAIN, "attributes": {"caps": caps}})
    assert str(caught.value).startswith("$.attributes.caps[")


def test_error_mapping_that_holds_itself():
    """A mapping that never ends is refused like text that nests too deep."""
    attributes: dict[str, object] = {}
    document = {**PLAIN, "attributes": attributes}
    attributes["self"] = document
    with pytest.raises(InvalidArgumentError, match="nests too deep"):
        Descriptor.from_json(document)


def test_error_schema_nests_too_deep():
    """A schema too deep to compile is refused, not a crash."""
    schema: dict[str, object] = {}
    for _ in range(400):
        schema = {"items": schema}
    deep = {**DEVICE, "metadata": {"schema": schema}}
    with pytest.raises(InvalidArgumentError, match="nests too deep"):
        Descriptor.from_json({**PLAIN, "attributes": {"caps": [_cap("a", deep)]}})


def test_error_disagreement_names_both_caps():
    """The message names the two caps and the argument."""
    caps = [_cap("a", DEVICE), _cap("b")]
    with pytest.raises(InvalidArgumentError, match="device") as caught:
        Descriptor.from_json({**PLAIN, "attributes": {"caps": caps}})
    assert "cap:a;" in str(caught.value)
    assert "cap:b;" in str(caught.value)


def test_caps_may_share_a_pack_argument_or_have_none():
    """A cap without a model stands beside caps with one."""
    caps = [_cap("a"), _cap("b", PACK), _cap("c", {**PACK, "arg_description": "The model."})]
    descriptor = Descriptor.from_json({**PLAIN, "attributes": {"caps": caps}})
    assert descriptor.pack_arg == descriptor.caps[1].pack_arg


def test_required_model_input_agrees_with_a_default_elsewhere():
    """A cap about the model itself may leave out the default that its siblings declare."""
    spec = PACK["media_urn"]
    about = {
        **_cap("about"),
        "urn": f'cap:about;in="{spec}";out="media:enc=utf-8;record"',
        "args": [{**PACK, "required": True, "sources": [{"stdin": spec}, {"position": 0}]}],
    }
    del about["args"][0]["default_value"]
    descriptor = Descriptor.from_json({**PLAIN, "attributes": {"caps": [about, _cap("b", PACK)]}})
    assert descriptor.pack_arg is not None
    assert descriptor.pack_arg.default == "hf:owner/repo"


def test_plain_descriptor_has_the_defaults():
    """What attributes leave out has its declared value, and no caps are valid."""
    descriptor = Descriptor.from_json(PLAIN)
    assert descriptor.mode is IoMode.BATCH
    assert descriptor.target == Target("any", "any")
    assert (descriptor.isolation, descriptor.max_concurrent_sessions) == ("inline", 1)
    assert (descriptor.abi, descriptor.hooks, descriptor.backend) == (None, None, None)
    assert (descriptor.formats, descriptor.schemes, descriptor.caps) == ((), (), ())
    assert (descriptor.partial, descriptor.endpointing, descriptor.base) == (None, None, None)
    assert descriptor.load_timeout_s == 600.0
    assert descriptor.requirements.memory_mb is None
    assert (descriptor.pack_arg, descriptor.open_args) == (None, ())


def test_attributes_are_read():
    """Every attribute that core knows is a field."""
    descriptor = Descriptor.from_json(FULL)
    assert (descriptor.abi, descriptor.hooks, descriptor.isolation) == ("0.1", 1, "process")
    assert descriptor.max_concurrent_sessions == 8
    assert (descriptor.formats, descriptor.schemes) == (("gguf",), ("hf", "file"))
    assert descriptor.backend == Backend("llama-cpp-python", "0.3")
    assert (descriptor.partial, descriptor.base) == ("append", "echo-base")
    assert (descriptor.plugin, descriptor.device_key) == ("echo", "npu0")
    assert descriptor.load_timeout_s == 30.0
    assert [cap.title for cap in descriptor.caps] == ["echo", "shout"]
    assert [arg.name for arg in descriptor.open_args] == ["device"]
    note = descriptor.attributes["vendor_note"]
    assert isinstance(note, Mapping)
    assert note["anything"] == (1, None)


def test_upstreams_fields_are_read():
    """A speech descriptor in upstream's form is read whole."""
    descriptor = Descriptor.from_json(SPEECH)
    assert descriptor.mode is IoMode.STREAMING
    assert descriptor.io.input.shape == (1, None)
    assert (descriptor.io.input.sample_rate_hz, descriptor.io.input.chunk_ms) == (16000, 80)
    assert descriptor.requirements.memory_mb == 300
    assert (descriptor.requirements.os_name, descriptor.requirements.driver_name) == (
        "linux",
        "libnpu.so",
    )
    assert descriptor.quality is not None
    assert descriptor.quality["wer"] == 0.08
    assert descriptor.flavors[0]["id"] == "de"
    assert descriptor.endpointing == "signal"


@pytest.mark.parametrize("document", [PLAIN, SPEECH, FULL], ids=["plain", "speech", "full"])
def test_to_json_gives_back_what_was_read(document):
    """Reading and writing keep every key, and the copy is the caller's own."""
    descriptor = Descriptor.from_json(json.dumps(document))
    written = descriptor.to_json()
    assert written == document
    io = written["io"]
    assert isinstance(io, dict)
    io["mode"] = "changed"
    assert descriptor.to_json() == document
    assert Descriptor.from_json(descriptor.to_json()) == descriptor


def test_equality_is_by_content():
    """Key order and the form it came in do not matter; any other value does."""
    text = json.dumps(dict(reversed(FULL.items())))
    assert Descriptor.from_json(text) == Descriptor.from_json(MappingProxyType(FULL))
    assert hash(Descriptor.from_json(text)) == hash(Descriptor.from_json(text.encode()))
    other = _changed(FULL, ["attributes", "vendor_note"], 0)
    assert Descriptor.from_json(other) != Descriptor.from_json(FULL)


def test_descriptor_cannot_be_changed():
    """A descriptor is immutable, its nested attributes too, and keeps no caller's dict."""
    document = copy.deepcopy(FULL)
    descriptor = Descriptor.from_json(document)
    attributes = document["attributes"]
    assert isinstance(attributes, dict)
    attributes["vendor_note"]["anything"].append("x")
    assert descriptor.to_json() == FULL
    with pytest.raises(AttributeError):
        setattr(descriptor, "id", "x")  # noqa: B010 -- it is read-only
    note = cast("dict[str, object]", descriptor.attributes["vendor_note"])
    with pytest.raises(TypeError):
        note["anything"] = 1


def test_repr_says_which_cartridge_it_is():
    """The repr has id, version, mode and caps."""
    text = repr(Descriptor.from_json(FULL))
    assert "echo-text 1.2.3-rc.1+build.5 (batch)" in text
    assert "cap:echo;" in text


def test_folder_is_read_in_order(tmp_path):
    """Only ``*.json`` files are read, sorted by name."""
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(json.dumps({**PLAIN, "id": name}))
    (tmp_path / "readme.txt").write_text("no JSON")
    (tmp_path / "._a.json").write_bytes(b"\x00\x05")
    assert [descriptor.id for descriptor in read_descriptors(tmp_path)] == ["a", "b"]


def test_error_in_a_folder_names_the_file(tmp_path):
    """The message starts with the file's name and the place in it."""
    (tmp_path / "a.json").write_text(json.dumps({**PLAIN, "license": 1}))
    with pytest.raises(InvalidArgumentError, match=r"^a\.json: \$\.license: "):
        read_descriptors(str(tmp_path))


def test_error_folder_is_missing(tmp_path):
    """A folder that is not there is a `LoadError` that names it."""
    with pytest.raises(LoadError, match="no-such-folder"):
        read_descriptors(tmp_path / "no-such-folder")


def test_error_file_cannot_be_read(tmp_path):
    """Something called ``*.json`` that is no file is a `LoadError`."""
    (tmp_path / "a.json").mkdir()
    with pytest.raises(LoadError, match=r"a\.json"):
        read_descriptors(tmp_path)
