"""Preflight: what this machine must have, by a machine that is told to it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.descriptor import Backend
from cartridge_core.errors import LoadError
from cartridge_core.pack import Pack
from cartridge_torch import plugin, preflight
from cartridge_torch.options import LoadOptions
from cartridge_torch.preflight import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cartridge_core.descriptor import Descriptor

BARE = Machine(torch="2.13.0", gpu_driver=False)
CPU_BUILD = Machine(torch="2.13.0+cpu", gpu_driver=True)
GPU = Machine(torch="2.13.0", gpu_driver=True)
MAC_13 = Machine(torch="2.13.0", gpu_driver=False, macos=(13, 6))
MAC_14 = Machine(torch="2.13.0", gpu_driver=False, macos=(14, 0))


@pytest.fixture
def descriptor(descriptors: Mapping[str, Descriptor]) -> Descriptor:
    """The descriptor of the text cartridge."""
    return descriptors["torch-text-embedding"]


@pytest.mark.parametrize(
    ("device", "dtype", "machine", "fix"),
    [
        pytest.param("auto", "float32", BARE, None, id="auto"),
        pytest.param("cpu", "float16", BARE, None, id="cpu"),
        pytest.param("cuda", "bfloat16", GPU, None, id="cuda"),
        pytest.param("cuda", "float32", BARE, "install the GPU's driver", id="no-driver"),
        pytest.param("cuda", "float32", CPU_BUILD, "a CUDA build of torch", id="cpu-build"),
        pytest.param("mps", "float32", MAC_13, None, id="mps"),
        pytest.param("mps", "float32", BARE, "device='cpu'", id="no-mps"),
        pytest.param("mps", "bfloat16", MAC_14, None, id="mps-bfloat16"),
        pytest.param("mps", "bfloat16", MAC_13, "dtype='float32'", id="mps-bfloat16-too-old"),
    ],
)
def test_a_device_must_be_there_and_know_the_dtype(
    descriptor: Descriptor, device: str, dtype: str, machine: Machine, fix: str | None
) -> None:
    """A device that is not there, or a dtype it has not, comes with what to do."""
    report = preflight.check(descriptor, None, LoadOptions(device, dtype, threads=1), machine)
    assert report.ok is (fix is None)
    assert all(fix is not None and fix in check.fix for check in report.failures)


def test_error_a_backend_that_is_too_old(descriptor: Descriptor) -> None:
    """The fix is what to type."""
    newer = attrs.evolve(descriptor, backend=Backend("sentence-transformers", "999"))
    report = preflight.check(newer, None, LoadOptions("cpu", "float32", threads=1), BARE)
    (failure,) = report.failures
    assert failure.fix == 'pip install "sentence-transformers>=999"'


def test_error_no_torch(descriptor: Descriptor) -> None:
    """Without torch the fix is to install this plugin."""
    machine = attrs.evolve(BARE, torch=None)
    report = preflight.check(descriptor, None, LoadOptions("cpu", "float32", threads=1), machine)
    assert [check.fix for check in report.failures] == ["pip install cartridge-torch"]


@pytest.mark.parametrize(("dtype", "item_bytes"), [("float32", 4), ("bfloat16", 2)])
def test_memory_is_that_of_the_weights(
    tiny: Path, open_options: dict[str, object], dtype: str, item_bytes: int
) -> None:
    """The numbers in the weights' header times the size of one."""
    from safetensors.torch import load_file

    count = sum(tensor.numel() for tensor in load_file(tiny / "model.safetensors").values())
    report = plugin.cartridge_preflight(
        "torch-text-embedding", Pack.from_path(tiny), {**open_options, "dtype": dtype}
    )
    assert report.ok
    assert report.memory_bytes == count * item_bytes


def test_a_wrong_folder_leaves_the_memory_open(
    tiny: Path, tmp_path: Path, open_options: dict[str, object]
) -> None:
    """It is open that says what is wrong with a folder."""
    folder = shutil.copytree(tiny, tmp_path / "copy")
    (folder / "model.safetensors").write_bytes(b"short")
    pack = Pack.from_path(folder)
    report = plugin.cartridge_preflight("torch-text-embedding", pack, open_options)
    assert (report.ok, report.memory_bytes) == (True, None)


def test_preflight_imports_no_backend(tiny: Path, clip_folder: Path, blip_folder: Path) -> None:
    """Describing and preflight work without torch, the libraries on it, numpy and Pillow."""
    folders = {
        "torch-text-embedding": str(tiny),
        "torch-image-embedding": str(clip_folder),
        "torch-image-captioning": str(blip_folder),
    }
    code = (
        "import sys\n"
        "from cartridge_core.pack import Pack\n"
        "from cartridge_torch import plugin\n"
        "for d in plugin.cartridge_descriptors():\n"
        "    options = {arg.name: arg.default for arg in d.caps[0].open_args}\n"
        f"    pack = Pack.from_path({folders!r}[d.id])\n"
        "    report = plugin.cartridge_preflight(d.id, pack, options)\n"
        "    assert report.ok and report.memory_bytes, report\n"
        "heavy = {'torch', 'sentence_transformers', 'transformers', 'numpy', 'PIL'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


IMAGE, CAPTION = "torch-image-embedding", "torch-image-captioning"


@pytest.mark.parametrize("cartridge_id", [IMAGE, CAPTION])
def test_error_no_pillow(descriptors: Mapping[str, Descriptor], cartridge_id: str) -> None:
    """A cartridge that takes pictures says what to type where none can be read."""
    options, machine = LoadOptions("cpu", "float32", threads=1), attrs.evolve(BARE, pillow=False)
    report = preflight.check(descriptors[cartridge_id], None, options, machine)
    (failure,) = report.failures
    assert failure.fix == 'pip install "cartridge-media[image]"'
    assert preflight.check(descriptors["torch-text-embedding"], None, options, machine).ok


@pytest.mark.parametrize(("dtype", "item_bytes"), [("float32", 4), ("float16", 2)])
def test_memory_of_a_clip_is_that_of_its_weights(
    clip_folder: Path, open_options: dict[str, object], dtype: str, item_bytes: int
) -> None:
    """The numbers in the weights of the module's folder times the size of one."""
    report = plugin.cartridge_preflight(
        IMAGE, Pack.from_path(clip_folder), {**open_options, "dtype": dtype}
    )
    assert report.memory_bytes == 222_913 * item_bytes


def without_processor(folder: Path) -> None:
    """Take the configuration of the image processor away."""
    (folder / "processor_config.json").unlink()


def with_half_a_processor(folder: Path) -> None:
    """Leave nothing of the image processor in the file that has it as a part."""
    (folder / "processor_config.json").write_text('{"processor_class": "CLIPProcessor"}')


def without_tokenizer(folder: Path) -> None:
    """Take the words away."""
    (folder / "tokenizer.json").unlink()


def without_weights(folder: Path) -> None:
    """Take the weights away."""
    (folder / "model.safetensors").unlink()


def another_type(folder: Path) -> None:
    """Let it be a model of another kind."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (without_processor, "lacks the image processor: preprocessor_config.json"),
        (with_half_a_processor, "lacks the image processor"),
        (without_tokenizer, "lacks the tokenizer: tokenizer.json"),
        (without_weights, "the weights are missing"),
        (another_type, "model_type 'bert'"),
    ],
)
@pytest.mark.parametrize("cartridge_id", [IMAGE, CAPTION])
def test_error_files_are_looked_at_before_a_load(
    plain_clip: Path,
    blip_folder: Path,
    tmp_path: Path,
    open_options: dict[str, object],
    cartridge_id: str,
    spoil: Callable[[Path], None],
    cause: str,
) -> None:
    """Preflight names what a folder lacks, as open would."""
    source = plain_clip if cartridge_id == IMAGE else blip_folder
    folder = shutil.copytree(source, tmp_path / "spoilt")
    spoil(folder)
    with pytest.raises(LoadError, match=cause):
        plugin.cartridge_preflight(cartridge_id, Pack.from_path(folder), open_options)
