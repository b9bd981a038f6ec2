"""The verb ``facade`` writes a typed module of a descriptor; none of its text becomes code."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cartridge_core.__main__ import main
from cartridge_core.cli.facade_module import write_facade
from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import BackendError, InvalidArgumentError, UnsupportedError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor
from cartridge_core.testing.fakes import BatchEcho, StreamingEcho
from cartridge_core.testing.registries import registry_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from cartridge_core.registry import Registry

ROOT = Path(__file__).parents[2]
REAL = [
    ROOT / "plugins" / plugin / f"cartridge_{plugin}" / "descriptors" / f"{name}.json"
    for plugin, name in (
        ("torch", "torch-text-embedding"),
        ("torch", "torch-image-embedding"),
        ("gguf", "gguf-text-generation"),
        ("whisper", "whisper-transcription"),
        ("whisper", "whisper-streaming-transcription"),
        ("models", "models-store"),
    )
]

HOSTILE = (
    "Ends \"\"\" and \\ goes on\n'''\nimport os; os.abort()\n>>> os.abort()\x00\u202e{os.abort()}"
)
WORDS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["a-b", "str"],
    "properties": {
        "a-b": {"type": ["string", "null"]},
        "str": {"type": "array", "items": {"type": "integer"}},
        "class": {"type": "string", "enum": ["x", HOSTILE]},
        "inner": {
            "type": "object",
            "additionalProperties": False,
            "description": HOSTILE,
            "properties": {"__private": {"type": "number"}},
        },
    },
}
TOLD = {
    "type": "object",
    "description": HOSTILE,
    "required": ["text"],
    "properties": {
        "text": {"type": "string", "description": HOSTILE},
        "scores": {"type": "array", "items": {"type": "number"}},
    },
}


def odd() -> Descriptor:
    """Give a descriptor with everything that is hard to write."""
    many = fake_cap(
        "many",
        fake_arg("registry", "string", HOSTILE),
        fake_arg("payload", "number", -0.5),
        fake_arg("int", "integer", minimum=3),
        fake_arg("isinstance", "boolean", default=True),
        fake_arg("level", "string", "a", enum=["a", HOSTILE]),
        {**fake_arg("steps", "number"), "is_sequence": True, "default_value": [0.0, 1e22]},
        {**fake_arg("needed", "string"), "required": True},
        fake_arg("device", "string", "auto"),
        {
            **fake_arg("request", "string"),
            "media_urn": "media:record;request",
            "metadata": {"schema": WORDS},
            "arg_description": HOSTILE,
        },
    )
    many["title"] = many["cap_description"] = HOSTILE
    many["aliases"] = ["2-Many!"]
    named = fake_cap("named", gives="media:enc=utf-8;told")
    named["aliases"] = ["Result"]
    told = fake_cap("told", takes="media:image", gives="media:record;seen")
    told["outputs"] = [{**dict(told["outputs"][0]), "metadata": {"schema": TOLD}}]  # type: ignore[index]
    told["aliases"] = ["class"]
    silent = fake_cap("silent", gives="media:void")
    silent |= {"outputs": [], "aliases": ["print"]}
    nothing = fake_cap("nothing", takes="media:void", gives="media:integer;numeric")
    nothing["aliases"] = ["???"]
    again = fake_cap("again", gives="media:list;numeric")
    again["aliases"] = ["2 many"]
    return fake_descriptor("odd-one", caps=[many, named, told, silent, nothing, again])


def facade(*words: str, registry: Callable[[], Registry] | None = None) -> tuple[int, str]:
    """Run the verb; give its status, and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main(["facade", *words], registry)
    return status, out.getvalue()


def imported(text: str, folder: Path) -> ModuleType:
    """Import the text of a module."""
    path = folder / "made.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("made", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_modules_are_typed_and_formatted(tmp_path: Path) -> None:
    """Mypy, strict, and ruff's formatter find nothing: real descriptors, and one that is hard."""
    for path in REAL:
        name = f"facade_{path.stem.replace('-', '_')}.py"
        (tmp_path / name).write_text(write_facade(Descriptor.from_json(path.read_bytes())))
    (tmp_path / "facade_odd.py").write_text(write_facade(odd()), encoding="utf-8")
    (tmp_path / "user.py").write_text(USER)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--hide-error-codes"]
    command += ["--no-error-summary", f"--cache-dir={tmp_path / 'cache'}", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    expected = [
        f"user.py:{number}: error: {line.partition('# error: ')[2]}"
        for number, line in enumerate(USER.splitlines(), 1)
        if "# error: " in line
    ]
    found = done.stdout.splitlines()
    assert len(found) == len(expected), done.stdout
    assert all(map(str.startswith, found, expected)), done.stdout
    for width in ("60", "88", "120"):
        command = [sys.executable, "-m", "ruff", "format", "--isolated", "--check", "-q"]
        command += ["--line-length", width, "--no-cache", "--exclude", "user.py", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")


USER = """\
from cartridge_core import Registry
from facade_gguf_text_generation import gguf_generate
from facade_models_store import download_model
from facade_torch_text_embedding import torch_embed, torch_embed_dim
from facade_whisper_transcription import whisper_transcribe


def use(registry: Registry) -> None:
    torch_embed(registry, ["a", "b"], truncation="error", threads=2)
    torch_embed(registry, "a", truncate_dim=None).vectors
    size: int = torch_embed_dim(registry, "./model")
    for result in gguf_generate(registry, {"prompt": "x", "stop_sequences": ["y"]}):
        result.segment + size
    whisper_transcribe(registry, b"x", language="en")
    whisper_transcribe(registry, b"x", language="xx")  # error: Argument "language" to
    gguf_generate(registry, {"prompts": "x"})  # error: Extra key "prompts" for TypedDict
    download_model(registry, 3)  # error: Argument 2 to "download_model" has incompatible type
"""


@pytest.mark.parametrize("path", REAL, ids=[path.stem for path in REAL])
def test_the_same_descriptor_gives_the_same_text(path: Path, tmp_path: Path) -> None:
    """The text is that of the descriptor, whatever the order of its keys; it can be imported."""
    document = json.loads(path.read_bytes())
    text = write_facade(Descriptor.from_json(document))
    assert write_facade(Descriptor.from_json(dict(reversed(document.items())))) == text
    assert write_facade(Descriptor.from_json({**document, "version": "9.9.9"})) != text
    module = imported(text, tmp_path)
    assert len(module.__all__) == len(document["attributes"]["caps"])


def test_names_that_would_clash_get_an_underscore(tmp_path: Path) -> None:
    """Keywords, built-in functions, the module's own names, digits, and nothing at all."""
    module = imported(write_facade(odd()), tmp_path)
    assert module.__all__ == sorted(
        ["cap_2_many", "cap_2_many_", "result", "class_", "print_", "cap"]
    )


class Odd(BatchEcho):
    """Gives back what it was told."""

    plugin_name = "odd"
    descriptor = odd()

    @hookimpl
    def cartridge_infer(self, session, value):
        payloads = {
            "many": {"value": value, **session.parameters, **session.handle.options},
            "named": 7,
            "told": {"text": "seen", "scores": [1.0]},
            "silent": None,
            "nothing": 42,
            "again": [1.5],
        }
        name = next(name for name in payloads if name in re.split("[:;]", session.cap))
        return Result(ResultKind.FINAL, payloads[name])


def test_a_generated_module_calls_its_cartridge(tmp_path: Path) -> None:
    """Arguments arrive under the descriptor's names, defaults and all; what comes is checked."""
    module = imported(write_facade(odd()), tmp_path)
    seen: list[object] = []
    with registry_of(Odd()) as registry:
        record = module.cap_2_many(
            registry, "tea", needed="it", registry_="r", int_=3, on_progress=seen.append
        )
        assert dict(record) == {
            "value": "tea",
            "registry": "r",
            "payload": -0.5,
            "int": 3,
            "isinstance": True,
            "level": "a",
            "steps": [0.0, 1e22],
            "needed": "it",
            "device": "auto",
        }
        assert seen
        assert module.class_(registry, b"x")["text"] == "seen"
        assert module.print_(registry, "x") is None
        assert module.cap(registry) == 42
        assert module.cap_2_many_(registry, "x") == [1.5]
        with pytest.raises(BackendError, match=r"odd-one gave a value of type int, .* a text"):
            module.result(registry, "x")
        with pytest.raises(InvalidArgumentError, match="int: must be at least 3"):
            module.cap_2_many(registry, "tea", needed="it", int_=2)


def test_a_default_is_the_descriptor_s(tmp_path: Path) -> None:
    """Texts with quotes, line ends, backslashes and what cannot be printed arrive unchanged."""
    module = imported(write_facade(odd()), tmp_path)
    with registry_of(Odd()) as registry:
        assert module.cap_2_many(registry, "tea", needed="it")["registry"] == HOSTILE


def test_a_streaming_function_gives_results(tmp_path: Path) -> None:
    """Its iterator gives results alone, takes chunks, and ends the call where it is closed."""
    module = imported(write_facade(StreamingEcho.descriptor), tmp_path)
    with registry_of(StreamingEcho()) as registry:
        results = list(module.echo(registry, iter(["good ", "morning"])))
        assert [one.payload for one in results] == ["good ", "morning", "good morning"]
        begun = module.echo(registry, iter(["a", "b"]))
        next(begun)
        begun.close()
        assert [one.payload for one in begun] == []


ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
PIECES = st.sampled_from(
    ['"""', "'''", "\\", "\n", ">>> os.abort()", "{1/0}", "\x00", "\u2028", '"']
)
TEXT = st.lists(st.one_of(ANY_TEXT, PIECES), max_size=6).map("".join)
KEY = st.one_of(TEXT, st.sampled_from(["str", "int", "class", "__init__", "Mapping", "a b", ""]))
SCHEMA = st.recursive(
    st.one_of(
        st.builds(lambda kind: {"type": kind}, st.sampled_from(["string", "null", "number"])),
        st.builds(lambda texts: {"enum": texts}, st.lists(TEXT, min_size=1, max_size=4)),
    ),
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(
            lambda properties, text, closed: {
                "type": "object",
                "properties": properties,
                "description": text,
                "additionalProperties": not closed,
            },
            st.dictionaries(KEY, inner, max_size=3),
            TEXT,
            st.booleans(),
        ),
    ),
    max_leaves=5,
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(title=TEXT.filter(bool), alias=TEXT.filter(bool), text=TEXT, default=TEXT, schema=SCHEMA)
def test_no_text_of_a_descriptor_becomes_code(
    title: str, alias: str, text: str, default: str, schema: dict[str, object]
) -> None:
    """Whatever its texts are, the module compiles, and has the statements it would have anyway."""
    arg = fake_arg("word", "string", default)
    request = {**fake_arg("request", "string"), "media_urn": "media:record;request"}
    given_schema = {"type": "object", "properties": {"it": schema}, "additionalProperties": False}
    request |= {"metadata": {"schema": given_schema}, "arg_description": text}
    cap = fake_cap("make", {**arg, "arg_description": text}, request)
    cap |= {"title": title, "aliases": [alias], "cap_description": text}
    output = {**dict(cap["outputs"][0]), "output_description": text}  # type: ignore[index]
    cap["outputs"] = [{**output, "metadata": {"schema": given_schema}}]
    made = write_facade(fake_descriptor("odd-one", caps=[cap]))
    tree = ast.parse(made)
    kinds = {ast.Expr, ast.ImportFrom, ast.Import, ast.Assign, ast.AnnAssign}
    assert {type(node) for node in tree.body} <= kinds | {ast.ClassDef, ast.FunctionDef}
    calls = {
        node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    allowed = {"registry.call", "cast", "isinstance", "type", "BackendError", "_strange"}
    assert calls <= allowed | {"TypedDict"}
    exec(compile(tree, "made", "exec"), {"__name__": "made"})  # noqa: S102 -- what is tested
    lines = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert all(one.isprintable() or one == "\n" for one in made)
    assert lines[0].args.kw_defaults[0] is not None
    assert ast.literal_eval(lines[0].args.kw_defaults[0]) == default


def test_error_a_cartridge_without_caps_has_no_functions() -> None:
    """It is opened by its id, and the error says so."""
    document = fake_descriptor("odd-one").to_json()
    del document["attributes"]["caps"]  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedError, match="declares no cap"):
        write_facade(Descriptor.from_json(document))


def test_check_says_whether_a_module_is_current(tmp_path: Path) -> None:
    """It ends with 0 or 1, says which version the file is of, and writes nothing."""
    file = tmp_path / "echo.py"
    words = ("batch-echo-text", "--out", str(file))

    def registry() -> Registry:
        return registry_of(BatchEcho())

    status, said = facade(*words, "--check", registry=registry)
    assert (status, file.exists()) == (1, False)
    assert said.startswith(f"{file} is not there; make it: cartridge facade batch-echo-text")
    assert facade(*words, registry=registry) == (0, f"{file}: batch-echo-text 0.1.0\n")
    text = file.read_text()
    assert text == write_facade(BatchEcho.descriptor)
    assert facade(*words, "--check", registry=registry) == (
        0,
        f"{file} is current: batch-echo-text 0.1.0\n",
    )
    older = text.replace("version 0.1.0", "version 0.0.9")
    file.write_text(older)
    status, said = facade(*words, "--check", registry=registry)
    assert (status, file.read_text()) == (1, older)
    assert "is not current (Its descriptor: version 0.0.9, sha256:" in said
    status, said = facade(*words, "--check", "--json", registry=registry)
    assert (status, json.loads(said)["current"]) == (1, False)
    assert facade(*words, registry=registry)[0] == 0
    assert file.read_text() == text


REFUSED = [
    pytest.param(["no-such", "--out", "made.py"], 12, "no usable cartridge", id="unknown-id"),
    pytest.param(["batch-echo-text"], 2, "--out", id="no-file"),
    pytest.param(["batch-echo-text", "--out", "mine.py"], 11, "did not make it", id="own-file"),
    pytest.param(
        ["batch-echo-text", "--out", "no/made.py"], 2, "cannot be written", id="no-folder"
    ),
    pytest.param(["batch-echo-text", "--out", "pipe"], 2, "pipe is no file", id="pipe"),
    pytest.param(["batch-echo-text", "--out", "pipe", "--check"], 2, "is no file", id="check-pipe"),
]


@pytest.mark.parametrize(("words", "status", "text"), REFUSED)
def test_error_nothing_is_written(
    words: list[str], status: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there stays, and the error says what is wrong."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("import this\n")
    os.mkfifo("pipe")
    found, said = facade(*words, registry=lambda: registry_of(BatchEcho()))
    assert found == status, said
    assert text in said
    assert {path.name for path in tmp_path.iterdir()} == {"mine.py", "pipe"}
    assert Path("mine.py").read_text() == "import this\n"
    assert Path("pipe").is_fifo()
