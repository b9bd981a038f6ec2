"""The cartridge gguf-inspect: its descriptor, its contract, and what its records say."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs
import pytest

import cartridge_gguf
from cartridge_core.context import Context
from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import CancelledError, InvalidArgumentError, LoadError, UnsupportedError
from cartridge_core.pack import Pack
from cartridge_core.testing import BatchContract, registry_of
from cartridge_gguf import plugin
from cartridge_gguf.files import ModelFiles
from cartridge_gguf.inspection import begin, open_files
from cartridge_gguf.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cartridge_core.capdefs import Cap
    from cartridge_core.registry import Registry

    Describe = Callable[..., Path]

FILE = Path(cartridge_gguf.__file__).parent / "descriptors" / "gguf-inspect.json"
DESCRIPTOR = Descriptor.from_json(FILE.read_bytes())
VOCABULARY, INFORMATION = DESCRIPTOR.caps
ASK_VOCABULARY = "cap:gguf;llm;llm-vocab;ml-model"
ASK_INFORMATION = "cap:gguf;llm;llm-model-info;ml-model"


class TestContract(BatchContract):
    """On the tiny model."""

    plugin = plugin
    cartridge_id = "gguf-inspect"

    @pytest.fixture
    def model_spec(self, llama: Path) -> Path:
        """Open the tiny model."""
        return llama

    def value(self, cap: Cap) -> object:
        """Ask for everything."""
        del cap
        return {}


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """A registry of this plugin alone."""
    with registry_of(plugin) as registry:
        yield registry


def ask(path: Path, cap: Cap, context: Context | None = None) -> Mapping[str, object]:
    """Ask the cartridge."""
    files = open_files(Pack.from_path(path))
    record = begin(files, str(cap.urn), context or Context()).infer({}).payload
    return cast("Mapping[str, object]", record)


@pytest.fixture
def describe(tmp_path: Path) -> Describe:
    """Write a file without tensors that has some texts in its metadata."""

    def run(**texts: str) -> Path:
        import gguf

        path = tmp_path / "x.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        for key, value in texts.items():
            writer.add_string(key.replace("__", "."), value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return path

    return run


@pytest.mark.parametrize("cap", json.loads(FILE.read_text())["attributes"]["caps"])
def test_the_capdag_package_accepts_the_caps(cap: dict[str, object]) -> None:
    """Each cap keeps CapDAG's rules, as the package capdag holds them."""
    from capdag.cap.definition import Cap as CapdagCap
    from capdag.cap.validation import validate_cap_definition

    validate_cap_definition(CapdagCap.from_dict(cap))


def test_the_default_model_is_that_of_text_generation() -> None:
    """Who asks about the default model is told about the one that would write."""
    generation = Descriptor.from_json((FILE.parent / "gguf-text-generation.json").read_bytes())
    args = [cap.pack_arg for cap in (*generation.caps, *DESCRIPTOR.caps)]
    assert len({(arg.name, arg.media_urn, arg.default) for arg in args if arg is not None}) == 1


def test_information_is_the_headers(llama: Path) -> None:
    """Every number of the tiny model."""
    from tiny_vocabularies import sentence_pieces

    size = len(sentence_pieces().tokens)
    parameters = 2 * size * 64 + 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64)
    assert ask(llama, INFORMATION) == {
        "architecture": "llama",
        "name": "tiny",
        "vocab_size": size,
        "context_length": 2048,
        "embedding_dim": 64,
        "head_count": 4,
        "layer_count": 2,
        "quantization": "F32",
        "parameter_count": parameters,
        "file_size_bytes": llama.stat().st_size,
        "supports_chat": True,
        "supports_tools": False,
    }


def test_what_the_file_does_not_say_is_left_out(describe: Describe) -> None:
    """There is no null, and no guess."""
    path = describe(general__name="ü")
    assert ask(path, INFORMATION) == {
        "architecture": "llama",
        "name": "ü",
        "file_size_bytes": path.stat().st_size,
        "supports_chat": False,
        "supports_tools": False,
    }


def test_the_quantization_is_what_most_is_in(q8: Path) -> None:
    """The bytes decide, not how many tensors are of a type; norms are float32 in any model."""
    assert ask(q8, INFORMATION)["quantization"] == "Q8_0"
    (header,) = open_files(Pack.from_path(q8)).headers
    norms = tuple(Tensor(f"norm.{place}", (64,), 0, 0) for place in range(100))
    files = ModelFiles(headers=(attrs.evolve(header, tensors=(*header.tensors, *norms)),))
    payload = begin(files, str(INFORMATION.urn), Context()).infer({}).payload
    assert cast("Mapping[str, object]", payload)["quantization"] == "Q8_0"


def test_a_model_in_parts_is_one_model(shards: Sequence[Path], llama: Path) -> None:
    """The sizes are those of all parts together."""
    whole, parts = ask(llama, INFORMATION), ask(shards[0].parent, INFORMATION)
    assert parts["parameter_count"] == whole["parameter_count"]
    assert parts["file_size_bytes"] == sum(path.stat().st_size for path in shards)
    assert ask(shards[1], INFORMATION) == parts


@pytest.mark.parametrize(
    ("templates", "expected"),
    [
        pytest.param({}, (False, False), id="none"),
        pytest.param({"": "{% for m in messages %}{% endfor %}"}, (True, False), id="chat"),
        pytest.param({"": "{%- if tools %}x{% endif %}"}, (True, True), id="tools"),
        pytest.param({"": "{{ tools | tojson }}"}, (True, True), id="tools-written"),
        pytest.param({"": "you have no tools {{ m }} tools"}, (True, False), id="only-a-word"),
        pytest.param({"": "{# tools #}{{ toolset }}"}, (True, False), id="comment"),
        pytest.param({"": "{{ m }}", ".tool_use": "x"}, (True, True), id="a-template-of-its-own"),
        pytest.param({"": "{%" * 200_000}, (True, False), id="hostile"),
    ],
)
def test_what_the_chat_template_can_do(
    describe: Describe, templates: dict[str, str], expected: tuple[bool, bool]
) -> None:
    """Tools are supported where the template's code uses them."""
    path = describe(**{f"tokenizer__chat_template{key}": text for key, text in templates.items()})
    record = ask(path, INFORMATION)
    assert (record["supports_chat"], record["supports_tools"]) == expected


@pytest.mark.parametrize("model", ["llama", "byte_pair", "bert"])
def test_a27_the_vocabulary_survives_json(model: str, request: pytest.FixtureRequest) -> None:
    """Written as JSON and read again, every id is there once, in order, with its bytes."""
    from cartridge_gguf.header import read_header
    from cartridge_gguf.vocabulary import read_tokens

    path: Path = request.getfixturevalue(model)
    record = json.loads(json.dumps(ask(path, VOCABULARY), allow_nan=False))
    tokens = list(read_tokens(read_header(path)))
    assert [entry["id"] for entry in record["vocab"]] == list(range(record["vocab_size"]))
    assert [b64decode(entry["bytes"], validate=True) for entry in record["vocab"]] == [
        token.raw for token in tokens
    ]
    for entry, token in zip(record["vocab"], tokens, strict=True):
        assert entry.get("text") == token.text
        assert entry.get("score") == token.score
        assert (entry["piece"], entry["kind"]) == (token.piece, token.kind)


def test_what_a_token_has_not_is_left_out(llama: Path, byte_pair: Path) -> None:
    """A lone byte has no text, a byte pair no score."""
    entries = cast("list[dict[str, object]]", ask(llama, VOCABULARY)["vocab"])
    assert entries[3 + 0xF7] == {
        "id": 250,
        "bytes": "9w==",
        "piece": "<0xF7>",
        "kind": "byte",
        "score": 0.0,
    }
    entries = cast("list[dict[str, object]]", ask(byte_pair, VOCABULARY)["vocab"])
    assert set(entries[0]) == {"id", "bytes", "piece", "kind", "text"}


def test_through_the_registry(registry: Registry, llama: Path) -> None:
    """Both caps answer a request, with a record and without."""
    for value in (None, {}, {"request_type": "get_info", "request_id": "1", "prompt": ""}):
        record = registry.call(ASK_INFORMATION, value, model_spec=llama).payload
        assert cast("Mapping[str, object]", record)["layer_count"] == 2
    vocabulary = registry.call(ASK_VOCABULARY, {"request_type": "get_vocab"}, model_spec=llama)
    record = cast("Mapping[str, object]", vocabulary.payload)
    assert record["vocab_size"] == len(cast("list[object]", record["vocab"]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("request_type", "get_vocab", id="another-request"),
        pytest.param("model_spec", "hf:a/b", id="a-model-in-the-record"),
        pytest.param("max_tokens", 1, id="not-for-this"),
    ],
)
def test_error_a_request_for_something_else(
    registry: Registry, llama: Path, field: str, value: object
) -> None:
    """It is refused by its name."""
    with pytest.raises(InvalidArgumentError, match=field):
        registry.call(ASK_INFORMATION, {field: value}, model_spec=llama)


def test_error_no_model(registry: Registry, tmp_path: Path) -> None:
    """A file that is none is refused with what it is."""
    path = tmp_path / "model.gguf"
    path.write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(LoadError, match="Git LFS pointer"):
        registry.call(ASK_INFORMATION, None, model_spec=path)


def test_error_no_vocabulary(describe: Describe) -> None:
    """What has no vocabulary can still be asked what it is."""
    with pytest.raises(UnsupportedError, match="no vocabulary"):
        ask(describe(), VOCABULARY)


def test_error_cancelled(llama: Path) -> None:
    """Reading the vocabulary stops where the call is cancelled."""
    context = Context()
    context.cancel()
    with pytest.raises(CancelledError):
        ask(llama, VOCABULARY, context)


def test_inspecting_imports_no_backend(llama: Path) -> None:
    """Neither llama_cpp nor numpy is needed for either cap."""
    code = (
        "import sys\n"
        "from cartridge_core.context import Context\n"
        "from cartridge_core.pack import Pack\n"
        "from cartridge_gguf.inspection import begin, open_files\n"
        f"files = open_files(Pack.from_path({str(llama)!r}))\n"
        f"for cap in {[str(cap.urn) for cap in DESCRIPTOR.caps]!r}:\n"
        "    assert begin(files, cap, Context()).infer({}).payload\n"
        "heavy = {'llama_cpp', 'numpy', 'gguf', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
