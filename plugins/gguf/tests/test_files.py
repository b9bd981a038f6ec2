"""From a pack to the files that are loaded."""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import LoadError
from cartridge_core.pack import Pack
from cartridge_gguf.files import ModelFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import gguf


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder of a model."""
    path = tmp_path / "folder"
    path.mkdir()
    return path


@pytest.fixture
def parts(shards: Sequence[Path], folder: Path) -> list[Path]:
    """A model of three parts, in a folder of its own."""
    from tiny_models import write_llama

    del shards
    return write_llama(folder / "split.gguf", shards=3)


def find(path: Path, *, projector: bool = False) -> ModelFiles:
    """Find what is loaded from a path."""
    return ModelFiles.of(Pack.from_path(path), projector=projector)


def written(path: Path, architecture: str, fill: Callable[[gguf.GGUFWriter], None]) -> Path:
    """Write a file without tensors."""
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_a_file(llama: Path) -> None:
    """A single file is the model, whatever its name and its neighbours."""
    files = find(llama)
    assert (files.model, files.shards, files.projector) == (llama, (llama,), None)
    assert files.header.architecture == "llama"
    assert files.file_bytes == llama.stat().st_size
    assert 0 < files.weight_bytes < files.file_bytes


def test_a_file_by_another_name(llama: Path, folder: Path) -> None:
    """A file that is named itself needs no ending; a link is as good as the file."""
    link = folder / "blob"
    link.symlink_to(llama)
    assert find(link).model == link


def test_a_folder_with_one_model(llama: Path, folder: Path) -> None:
    """The model is found among other files, and in a folder below."""
    below = folder / "Q8_0"
    below.mkdir()
    shutil.copy(llama, below / "Model.GGUF")
    (folder / "README.md").write_text("# A model")
    (folder / ".hidden.gguf").write_text("<html>")
    assert find(folder).model == below / "Model.GGUF"


def test_a_folder_with_a_projector(vision: Path) -> None:
    """A projector beside the model counts only where it is asked for."""
    assert find(vision).projector is None
    files = find(vision, projector=True)
    assert files.model == vision / "model.gguf"
    assert files.projector == vision / "mmproj-model.gguf"
    assert files.weight_bytes > find(vision).weight_bytes


def test_the_projector_is_told_by_its_header(vision: Path, folder: Path) -> None:
    """The names say nothing."""
    shutil.copy(vision / "model.gguf", folder / "mmproj.gguf")
    shutil.copy(vision / "mmproj-model.gguf", folder / "language.gguf")
    files = find(folder, projector=True)
    assert (files.model.name, files.projector) == ("mmproj.gguf", folder / "language.gguf")


def test_a_model_in_parts(shards: Sequence[Path]) -> None:
    """The parts are found from the folder, from the first and from any other."""
    from tiny_models import write_llama

    whole = write_llama(shards[0].parent.parent / "whole.gguf")[0]
    for path in (shards[0].parent, *shards):
        files = find(path)
        assert files.shards == tuple(shards)
        assert files.model == shards[0]
        assert files.weight_bytes == find(whole).weight_bytes
        assert files.header.name == "tiny"


def test_a_full_pack(llama: Path, folder: Path) -> None:
    """The artifacts with the role model or weights count, wherever they lie."""
    target = folder / "artifacts" / "weights" / "m.gguf"
    target.parent.mkdir(parents=True)
    shutil.copy(llama, target)
    shutil.copy(llama, target.with_name("unlisted.gguf"))
    descriptor = {
        "spec_version": "0.3",
        "id": "a-pack",
        "version": "1.0.0",
        "family": "text-generation",
        "modality": "text",
        "task": "text-generation",
        "io": {"mode": "streaming", "input": {"dtype": "utf8"}, "output": {"dtype": "utf8"}},
        "target": {"hardware": "any", "abi": "any"},
        "performance": {"measured_on": "unmeasured"},
        "execution_mode": "native",
        "license": "MIT",
    }
    artifacts = [{"role": "weights", "path": "artifacts/weights/m.gguf"}]
    (folder / "descriptor.json").write_text(json.dumps(descriptor))
    (folder / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))
    assert find(folder).model == target


def test_error_several_models(llama: Path, bert: Path, folder: Path) -> None:
    """They are named, and what narrows a model spec."""
    shutil.copy(llama, folder / "a-Q8_0.gguf")
    shutil.copy(bert, folder / "b-Q4_0.gguf")
    with pytest.raises(LoadError, match=r"2 models: a-Q8_0.gguf, b-Q4_0.gguf; .*include="):
        find(folder)


def test_error_several_projectors(vision: Path, folder: Path) -> None:
    """They are named where one is asked for, and do not matter else."""
    shutil.copytree(vision, folder, dirs_exist_ok=True)
    shutil.copy(folder / "mmproj-model.gguf", folder / "mmproj-F16.gguf")
    assert find(folder).model == folder / "model.gguf"
    with pytest.raises(LoadError, match=r"2 projectors: mmproj-F16.gguf, mmproj-model.gguf"):
        find(folder, projector=True)


def test_error_no_projector(llama: Path, folder: Path) -> None:
    """A folder without one, or a file by itself, has none."""
    with pytest.raises(LoadError, match="single file; name the folder"):
        find(llama, projector=True)
    shutil.copy(llama, folder)
    with pytest.raises(LoadError, match=r"no projector.*include=\*.gguf"):
        find(folder, projector=True)


@pytest.mark.parametrize(
    ("names", "what"),
    [
        pytest.param([], "it has no files", id="empty"),
        pytest.param(["config.json", "model.safetensors"], "config.json, model.saf", id="other"),
        pytest.param([f"{i}.bin" for i in range(20)], "and 12 more", id="many"),
        pytest.param(["model.gguf.part"], "model.gguf.part", id="unfinished"),
    ],
)
def test_error_no_model_in_a_folder(folder: Path, names: Sequence[str], what: str) -> None:
    """The error lists what is there instead."""
    for name in names:
        (folder / name).write_text("x")
    with pytest.raises(LoadError, match=rf"no \*.gguf file in it.*{re.escape(what)}"):
        find(folder)


def test_error_only_a_projector(vision: Path, folder: Path) -> None:
    """A projector is no model, in a folder or by itself."""
    path = folder / "x.gguf"
    shutil.copy(vision / "mmproj-model.gguf", path)
    with pytest.raises(LoadError, match="no model among"):
        find(folder)
    with pytest.raises(LoadError, match="projector of a vision model"):
        find(path)


@pytest.mark.parametrize(
    ("kind", "what"),
    [("adapter", "an adapter for another model"), ("imatrix", "importance matrix")],
)
def test_error_no_model(folder: Path, kind: str, what: str) -> None:
    """A GGUF file of another kind is told by its header."""
    path = written(folder / "x.gguf", "llama", lambda writer: writer.add_type(kind))
    with pytest.raises(LoadError, match=what):
        find(path)


def test_error_a_vocabulary_alone(folder: Path) -> None:
    """It has no weights to load; it can be asked about."""
    path = written(folder / "v.gguf", "llama", lambda writer: writer.add_token_list(["a", "b"]))
    with pytest.raises(LoadError, match="a vocabulary and no weights"):
        find(path)
    assert ModelFiles.to_inspect(Pack.from_path(path)).header.vocabulary_size == 2


def test_error_no_architecture(folder: Path) -> None:
    """A file that does not say what it is cannot be loaded."""
    path = folder / "x.gguf"
    path.write_bytes(b"GGUF\3\0\0\0" + b"\0" * 16)
    with pytest.raises(LoadError, match=r"general\.architecture"):
        find(path)


@pytest.mark.parametrize(
    "missing", [[0], [1], [2], [0, 2]], ids=["first", "middle", "last", "all-but-one"]
)
def test_error_a_part_is_missing(parts: Sequence[Path], missing: Sequence[int]) -> None:
    """The missing parts are named, whichever is there, and what fetches them."""
    for place in missing:
        parts[place].unlink()
    names = ", ".join(parts[place].name for place in missing)
    left = next(path for path in parts if path.exists())
    for path in (left, left.parent):
        with pytest.raises(LoadError, match=rf"3 parts.*missing: {names};.*include=split-\*"):
            find(path)


def test_error_a_part_is_truncated(parts: Sequence[Path]) -> None:
    """It is the part that is named."""
    os.truncate(parts[2], parts[2].stat().st_size - 32)
    with pytest.raises(LoadError, match=f"{parts[2].name}: it is truncated"):
        find(parts[0])


def test_error_a_part_by_another_name(parts: Sequence[Path]) -> None:
    """A part whose name does not say so keeps llama.cpp from finding the others."""
    renamed = parts[0].rename(parts[0].with_name("model.gguf"))
    with pytest.raises(LoadError, match="one of 3 parts, and its name does not say so"):
        find(renamed)


def test_error_parts_by_each_others_names(parts: Sequence[Path]) -> None:
    """A part that is not the one its name says is named."""
    shutil.copy(parts[1], parts[2])
    with pytest.raises(LoadError, match="part 3 of 3, its content does not"):
        find(parts[0])


def test_error_parts_of_two_models(parts: Sequence[Path], tmp_path: Path) -> None:
    """Parts that do not make up the number of tensors are of different models."""
    from tiny_models import Shape, write_llama

    others = write_llama(tmp_path / "split.gguf", shape=Shape(layers=3), shards=3)
    shutil.copy(others[2], parts[2])
    with pytest.raises(LoadError, match=r"tensors.*not of one model"):
        find(parts[0])


def test_error_a_piece_twice(folder: Path) -> None:
    """The same piece twice, which ends the process in llama.cpp, is a damaged vocabulary."""
    import attrs
    from tiny_models import write_llama
    from tiny_vocabularies import sentence_pieces

    vocabulary = sentence_pieces()
    tokens = [*vocabulary.tokens[:-3], "same", *vocabulary.tokens[-2:]]
    tokens[300] = "same"
    damaged = attrs.evolve(vocabulary, tokens=tokens)
    path = write_llama(folder / "x.gguf", vocabulary=damaged)[0]
    with pytest.raises(LoadError, match="its vocabulary has a piece twice"):
        find(path)
    assert ModelFiles.to_inspect(Pack.from_path(path)).model == path


def test_error_a_byte_among_word_pieces(bert: Path, folder: Path) -> None:
    """A single byte among word pieces, which ends the process too, is a damaged vocabulary."""
    import struct

    data = bytearray(bert.read_bytes())
    key = b"tokenizer.ggml.token_type" + struct.pack("<II", 9, 5)
    place = data.index(key) + len(key) + 8 + 4 * 10
    assert data[place] == 1
    data[place] = 6
    path = folder / "x.gguf"
    path.write_bytes(data)
    with pytest.raises(LoadError, match="word pieces has single bytes"):
        find(path)
