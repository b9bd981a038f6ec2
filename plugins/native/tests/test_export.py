"""An installed cartridge becomes the pack of a library, or the error says why not."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import attrs
import kettle_site
import pytest

from cartridge_core import Registry
from cartridge_core.__main__ import main
from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import (
    CartridgeError,
    InvalidArgumentError,
    LoadError,
    NoRouteError,
    UnsupportedError,
)
from cartridge_core.pack import Pack
from cartridge_core.testing import BatchEcho, SegmentingEcho, StreamingEcho, registry_of
from cartridge_native import plugin
from cartridge_native._library import Library
from cartridge_native.export import export_library
from cartridge_native.export.describing import describe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ECHO = "cap:echo"


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry of fakes; an export opens none of them."""
    with registry_of(BatchEcho(), StreamingEcho(), SegmentingEcho()) as registry:
        yield registry


def described(registry: Registry, cartridge_id: str, cap: str, **args: object) -> Descriptor:
    route = registry.route(cap, cartridge_id=cartridge_id)
    return Descriptor.from_json(describe(route, args, f"native-{cartridge_id}"))


def test_the_descriptor_says_the_one_cap(registry: Registry) -> None:
    """Its arguments are fixed, so that the input alone is left; of Python there is no word."""
    found = described(registry, "batch-echo-text", ECHO, upper=True)
    base = registry.descriptors["batch-echo-text"]
    assert found.id == "native-batch-echo-text"
    assert [str(cap.urn) for cap in found.caps] == [str(base.caps[0].urn)]
    assert [arg.name for arg in found.caps[0].args] == ["main"]
    assert (found.hooks, found.backend, found.base) == (None, None, None)
    assert found.attributes["serves"] == {
        "cartridge_id": "batch-echo-text",
        "args": {"upper": True},
    }
    assert found.requirements.os_name == sys.platform


@pytest.mark.parametrize(
    ("cartridge_id", "cap", "takes", "gives"),
    [
        pytest.param("batch-echo-text", ECHO, "utf8", "json", id="a-record-is-json"),
        pytest.param("streaming-echo-text", ECHO, "utf8", "utf8", id="a-text-is-utf8"),
        pytest.param("segmenting-echo-bytes", "cap:hear", "bytes", "utf8", id="sound-without-form"),
    ],
)
def test_ports_follow_the_media(
    cartridge_id: str, cap: str, takes: str, gives: str, registry: Registry
) -> None:
    """A cartridge's ports describe its first cap, and of a record a part of it."""
    io = described(registry, cartridge_id, cap).io
    assert (io.input.dtype, io.output.dtype) == (takes, gives)


PORTS: dict[str, list[tuple[str, str] | None]] = {
    "torch-text-embedding": [("utf8", "json"), None],
    "torch-image-embedding": [("bytes", "json"), ("utf8", "json"), None],
    "torch-image-captioning": [("bytes", "utf8")],
    "gguf-embedding": [("utf8", "json"), None],
    "gguf-text-generation": [("json", "json"), ("json", "json")],
    "gguf-inspect": [("json", "json"), ("json", "json")],
    "gguf-vision": [("bytes", "utf8")],
    "whisper-transcription": [("float32", "json"), ("float32", "json")],
    "whisper-streaming-transcription": [("float32", "json")],
    "models-store": [*[("utf8", "json")] * 5, ("json", "json"), ("utf8", "json")],
}
"""What the bytes are, cap by cap; None where the input is the model."""


@pytest.mark.parametrize("cartridge_id", PORTS)
def test_every_installed_cap_can_be_exported(
    cartridge_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but those that take their model as input."""
    monkeypatch.setenv("CARTRIDGE_PLUGINS", "gguf,models,torch,whisper")
    with Registry.discover() as registry:
        caps = registry.descriptors[cartridge_id].caps
        for cap, ports in zip(caps, PORTS[cartridge_id], strict=True):
            if ports is None:
                with pytest.raises(UnsupportedError, match="takes its model as input"):
                    described(registry, cartridge_id, str(cap.urn))
            else:
                io = described(registry, cartridge_id, str(cap.urn)).io
                assert (io.input.dtype, io.output.dtype) == ports


@attrs.frozen(kw_only=True)
class Wrong:
    """An order that cannot be carried out."""

    error: type[CartridgeError]
    words: str
    cartridge_id: str = "batch-echo-text"
    cap: str = ECHO
    id_: str | None = None
    args: dict[str, object] = attrs.field(factory=dict)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(
            Wrong(
                error=NoRouteError,
                words="no-such-one was asked",
                cartridge_id="no-such-one",
            ),
            id="unknown-id",
        ),
        pytest.param(Wrong(error=NoRouteError, words="cap:boil", cap="cap:boil"), id="unknown-cap"),
        pytest.param(
            Wrong(error=InvalidArgumentError, words="Did you mean upper", args={"uper": True}),
            id="unknown-argument",
        ),
        pytest.param(
            Wrong(error=InvalidArgumentError, words="upper", args={"upper": "loud"}),
            id="argument-of-another-type",
        ),
        pytest.param(
            Wrong(error=InvalidArgumentError, words="pass it as the value", args={"main": "tea"}),
            id="the-input",
        ),
        pytest.param(
            Wrong(
                error=InvalidArgumentError,
                words="no argument 'model_spec'",
                args={"model_spec": "/"},
            ),
            id="a-model-where-there-is-none",
        ),
        pytest.param(
            Wrong(error=LoadError, words="does not exist", args={"model_spec": "./no-model"}),
            id="a-model-that-is-not-there",
        ),
        pytest.param(
            Wrong(
                error=InvalidArgumentError, words="of the cartridge itself", id_="batch-echo-text"
            ),
            id="its-own-id",
        ),
        pytest.param(
            Wrong(error=InvalidArgumentError, words="kebab-case", id_="My Echo"), id="no-id"
        ),
    ],
)
def test_error_orders_that_make_no_library(
    wrong: Wrong, registry: Registry, tmp_path: Path
) -> None:
    """Each is refused by name before anything is compiled, and leaves nothing."""
    target = tmp_path / "out"
    with pytest.raises(wrong.error, match=wrong.words):
        export_library(registry, wrong.cartridge_id, wrong.cap, wrong.args, target, id_=wrong.id_)
    assert not target.exists()


def test_a_path_to_a_model_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library runs in another folder; any other model spec stays as it is."""
    monkeypatch.setenv("CARTRIDGE_PLUGINS", "torch")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my model").mkdir()
    (tmp_path / "my model" / "config.json").write_text("{}")
    args = {"model_spec": "./my model"}
    with Registry.discover() as registry:
        cap = "cap:generate-embeddings"
        export_library(registry, "torch-text-embedding", cap, args, tmp_path / "out")
    document = json.loads((tmp_path / "out" / "descriptor.json").read_bytes())
    fixed = document["attributes"]["serves"]["args"]
    assert fixed == {"model_spec": f"file:{tmp_path}/my%20model"}
    assert "memory_mb" not in document["requirements"]


def test_a_pack_is_exported_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is served is the pack where it stands; it takes no model besides."""
    monkeypatch.setenv("CARTRIDGE_PLUGINS", "torch")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    words = ["--base", "torch-text-embedding", "--id", "embedding-mine", "--license", "MIT"]
    pack = tmp_path / "pack"
    assert main(["pack", "new", str(tmp_path / "model"), str(pack), *words]) == 0
    with Registry.discover(packs=[pack]) as registry:
        found = described(registry, "embedding-mine", "cap:generate-embeddings")
    expected = {"cartridge_id": "embedding-mine", "args": {}, "pack": str(pack)}
    assert found.attributes["serves"] == expected
    assert found.base is None


def test_error_a_library_is_not_exported_again(log_energies: Path, tmp_path: Path) -> None:
    """It is one already."""
    with (
        registry_of(plugin, packs=[log_energies]) as registry,
        pytest.raises(UnsupportedError, match="is a library already"),
    ):
        export_library(
            registry, "native-log-energies", "cap:extract-features", {}, tmp_path / "out"
        )


def test_error_a_folder_that_exists_is_kept(registry: Registry, tmp_path: Path) -> None:
    """Nothing is written into it."""
    with pytest.raises(LoadError, match="exists"):
        export_library(registry, "batch-echo-text", ECHO, {}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_error_without_cffi(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an extra, and the error says what to type."""
    monkeypatch.setitem(sys.modules, "cffi", None)
    with pytest.raises(LoadError, match=r"pip install \"cartridge-native\[export\]\""):
        export_library(registry, "batch-echo-text", ECHO, {}, tmp_path / "out")


def test_error_without_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line says what to install."""
    monkeypatch.setitem(sys.modules, "cartridge_native.export", None)
    words = ["export-c", "torch-text-embedding", "--cap", "cap:x", "--out", str(tmp_path / "out")]
    assert main(words) == 14
    assert 'pip install "cartridge-native[export]"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("compiler", "words"),
    [
        pytest.param("false", "failed with 1", id="that-fails"),
        pytest.param("sh -c 'echo no kettle.h >&2; exit 3' --", "no kettle.h", id="that-says-why"),
    ],
)
def test_error_a_compiler(
    compiler: str,
    words: str,
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it says is in the error."""
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(LoadError, match=words):
        export_library(registry, "batch-echo-text", ECHO, {}, tmp_path / "out")


def test_error_without_a_compiler(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that one is needed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LoadError, match="needs a C compiler"):
        export_library(registry, "batch-echo-text", ECHO, {}, tmp_path / "out")


def test_the_library_has_the_descriptor_built_in(
    registry: Registry, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is the pack's to the byte, and to make it prints nothing."""
    export_library(registry, "batch-echo-text", ECHO, {}, tmp_path / "out")
    pack = Pack.from_path(tmp_path / "out")
    built_in = Library(pack.files("runtime")[0]).descriptor_json()
    assert built_in == (pack.root / "descriptor.json").read_bytes()
    assert capfd.readouterr() == ("", "")


def test_the_command_makes_a_pack(site: Path, kettle_echo: Path, tmp_path: Path) -> None:
    """The pack verifies, its library is all it has, and JSON says where that is."""
    said = kettle_site.export(site, "kettle-levels", tmp_path / "out", "--cap", "cap:scale")
    assert said["id"] == "native-kettle-levels"
    assert said["library"] == "artifacts/runtime/libkettle_levels.so"
    assert main(["pack", "verify", str(tmp_path / "out")]) == 0
    pack = Pack.from_path(kettle_echo)
    (library,) = pack.files("runtime")
    assert library.name == "libkettle_echo.so"
    assert sorted(path.name for path in kettle_echo.iterdir()) == [
        "artifacts",
        "descriptor.json",
        "manifest.json",
    ]
    document = json.loads((kettle_echo / "descriptor.json").read_bytes())
    attributes = document["attributes"]
    assert attributes["serves"]["args"] == {"times": 2, "prefix": "hot "}
    (main_arg,) = attributes["caps"][0]["args"]
    assert "is_sequence" not in main_arg
