"""One model in three formats, and what stands in a model's place."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import LoadError, VerificationError
from cartridge_core.pack import Pack
from cartridge_whisper.files import Format, ModelFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cartridge_whisper._weights import Checkpoint
    from cartridge_whisper.model import SpeechModel
    from conftest import Transcript

    Open = Callable[..., SpeechModel]
    Transcribe = Callable[..., Transcript]


def load(path: Path) -> Checkpoint:
    """Load a model's weights."""
    from cartridge_whisper._weights import load_checkpoint

    return load_checkpoint(ModelFiles.read(Pack.from_path(path)), lambda: None)


@pytest.fixture(scope="module")
def folders(random_file: Path, models: Path) -> dict[str, Path]:
    """The random model in every format."""
    from whisper_formats import write_ct2, write_hugging_face

    return {
        "hugging-face": write_hugging_face(random_file, models / "hugging-face"),
        "hugging-face-in-parts": write_hugging_face(random_file, models / "parts", shards=3),
        "ctranslate2": write_ct2(random_file, models / "ctranslate2"),
    }


@pytest.mark.parametrize("name", ["hugging-face", "hugging-face-in-parts", "ctranslate2"])
def test_every_format_has_the_same_weights(
    random_file: Path, folders: dict[str, Path], name: str
) -> None:
    """Names, sizes and numbers are those of the checkpoint; so is what the folder says of heads."""
    import torch

    expected, found = load(random_file), load(folders[name])
    assert found.dims == expected.dims
    assert found.tensors.keys() == expected.tensors.keys()
    assert all(torch.equal(found.tensors[key], expected.tensors[key]) for key in expected.tensors)
    assert found.heads == ((0, 0), (0, 1))
    assert expected.heads == ((1, 0), (1, 1))


@pytest.mark.parametrize("side", ["audio", "text"])
def test_the_expected_weights_are_whispers_own(side: str) -> None:
    """Names and shapes are those of whisper's model, with other sizes on either side."""
    import attrs
    from whisper.model import ModelDimensions, Whisper

    from cartridge_whisper.dimensions import Dimensions

    sizes = {
        "n_mels": 80,
        "n_audio_ctx": 30,
        "n_audio_state": 16,
        "n_audio_head": 2,
        "n_audio_layer": 1,
        "n_vocab": 51_864,
        "n_text_ctx": 20,
        "n_text_state": 16,
        "n_text_head": 2,
        "n_text_layer": 1,
        f"n_{side}_layer": 3,
    }
    dims = Dimensions(**sizes)
    own = Whisper(ModelDimensions(**attrs.asdict(dims))).state_dict()
    assert dims.shapes() == {name: tuple(tensor.shape) for name, tensor in own.items()}


@pytest.mark.parametrize("name", ["hugging-face", "ctranslate2"])
def test_every_format_says_the_same(
    random_model: SpeechModel,
    folders: dict[str, Path],
    open_model: Open,
    transcribe: Transcribe,
    speech_like: Callable[..., object],
    name: str,
) -> None:
    """Texts and times are the same."""
    model, sound = open_model(folders[name]), speech_like(3.0)
    expected = transcribe(random_model, sound, language="de", temperature=0.0)
    found = transcribe(model, sound, language="de", temperature=0.0)
    assert expected.text
    assert (found.text, found.segments) == (expected.text, expected.segments)


def test_formats_are_told_apart(random_file: Path, folders: dict[str, Path]) -> None:
    """By what lies in a folder, and nothing of it is loaded."""
    paths = [random_file, folders["hugging-face"], folders["ctranslate2"]]
    files = [ModelFiles.read(Pack.from_path(path)) for path in paths]
    assert [one.format for one in files] == list(Format)
    assert [one.name for one in files] == ["random", "hugging-face", "ctranslate2"]


def test_a_folder_with_one_checkpoint_is_that(random_file: Path, tmp_path: Path) -> None:
    """Where there are two, the user has to say which."""
    shutil.copy(random_file, tmp_path / "a.pt")
    assert ModelFiles.read(Pack.from_path(tmp_path)).weights == (tmp_path / "a.pt",)
    shutil.copy(random_file, tmp_path / "b.pt")
    with pytest.raises(LoadError, match=r"several models \(a.pt, b.pt\)"):
        ModelFiles.read(Pack.from_path(tmp_path))


def test_numbers_are_counted_without_loading(random_file: Path, folders: dict[str, Path]) -> None:
    """For the memory that a model will need."""
    count = sum(one.numel() for one in load(random_file).tensors.values())
    for path in [random_file, *folders.values()]:
        found = ModelFiles.read(Pack.from_path(path)).number_count()
        assert abs(found / count - 1) < 0.03


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        pytest.param(b"", "empty", id="empty"),
        pytest.param(b"<!DOCTYPE html><p>Not found", "HTML page", id="html"),
        pytest.param(b"version https://git-lfs.github.com/spec/v1\n", "Git LFS", id="lfs"),
        pytest.param(b"\x80\x04\x95 an old pickle", "no checkpoint", id="pickle"),
    ],
)
def test_error_what_stands_in_a_checkpoints_place(
    tmp_path: Path, content: bytes, cause: str
) -> None:
    """It is named before torch sees it."""
    file = tmp_path / "model.pt"
    file.write_bytes(content)
    with pytest.raises(LoadError, match=cause):
        ModelFiles.read(Pack.from_path(file))


def test_error_half_a_checkpoint(random_file: Path, tmp_path: Path, open_model: Open) -> None:
    """A file that was cut short cannot be loaded, and the message names it."""
    file = tmp_path / "half.pt"
    file.write_bytes(random_file.read_bytes()[:100_000])
    with pytest.raises(LoadError, match=r"half\.pt"):
        open_model(file)


def test_error_code_in_a_checkpoint(tmp_path: Path, open_model: Open) -> None:
    """A pickle that would run code is not loaded."""
    import torch

    torch.save({"dims": {}, "model_state_dict": print}, tmp_path / "code.pt")
    with pytest.raises(LoadError, match=r"code\.pt"):
        open_model(tmp_path / "code.pt")


def test_error_another_file_under_an_official_name(
    random_file: Path, tmp_path: Path, open_model: Open
) -> None:
    """A file that is called after OpenAI's base model has to be it."""
    file = tmp_path / "base.pt"
    shutil.copy(random_file, file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(VerificationError, match=digest):
        open_model(file)


def _without(key: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        del config[key]
        (folder / "config.json").write_text(json.dumps(config))

    return spoil


def _cut(folder: Path) -> None:
    file = next(folder.glob("model.[sb]*"))
    file.write_bytes(file.read_bytes()[:-10])


def _lengthen(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(struct.pack("<Q", 10**9) + file.read_bytes()[8:])


def _another_model(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))


def _another_size(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "decoder_layers": 3}))


@pytest.mark.parametrize(
    ("name", "spoil", "cause"),
    [
        pytest.param("hugging-face", _without("d_model"), "d_model = None", id="no-size"),
        pytest.param("hugging-face", _another_model, "model_type 'bert'", id="another-model"),
        pytest.param("hugging-face", _another_size, "not those of a Whisper", id="another-size"),
        pytest.param("hugging-face", _cut, "cannot load it", id="cut"),
        pytest.param("hugging-face", _lengthen, "cannot load it", id="header"),
        pytest.param("ctranslate2", _cut, "no whole Whisper model", id="ct2-cut"),
    ],
)
def test_error_a_spoilt_folder(
    folders: dict[str, Path],
    tmp_path: Path,
    open_model: Open,
    name: str,
    spoil: Callable[[Path], None],
    cause: str,
) -> None:
    """Its message says what is wrong."""
    folder = shutil.copytree(folders[name], tmp_path / "spoilt")
    spoil(folder)
    with pytest.raises(LoadError, match=cause):
        open_model(folder)


def test_error_quantised_weights(random_file: Path, tmp_path: Path, open_model: Open) -> None:
    """CTranslate2's int8 models are refused, and the message says which to take."""
    from whisper_formats import write_ct2

    folder = write_ct2(random_file, tmp_path / "int8", quantised=True)
    with pytest.raises(LoadError, match="quantised to int8; take the float16"):
        open_model(folder)


def test_error_a_folder_without_a_model(tmp_path: Path) -> None:
    """The message says what is taken."""
    with pytest.raises(LoadError, match=r"a \.pt file of openai-whisper, or a folder"):
        ModelFiles.read(Pack.from_path(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(LoadError, match="a pickle, which can run code"):
        ModelFiles.read(Pack.from_path(tmp_path))


@pytest.mark.integration
def test_tiny_en_is_the_one_that_is_known(tiny_en_folder: Path) -> None:
    """The packaged weights are those of Systran's faster-whisper-tiny.en, with OpenAI's heads."""
    digest = hashlib.sha256((tiny_en_folder / "model.bin").read_bytes()).hexdigest()
    assert digest == "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"
    found = load(tiny_en_folder)
    assert not found.dims.is_multilingual
    assert found.heads == ((1, 0), (2, 0), (2, 5), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4))
