"""Preflight: what this machine must have, by a machine that is told to it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.descriptor import Backend
from cartridge_core.pack import Pack
from cartridge_torch import plugin, preflight
from cartridge_torch.model import LoadOptions
from cartridge_torch.preflight import Machine

if TYPE_CHECKING:
    from pathlib import Path

    from cartridge_core.descriptor import Descriptor

BARE = Machine(torch="2.13.0", gpu_driver=False)
CPU_BUILD = Machine(torch="2.13.0+cpu", gpu_driver=True)
GPU = Machine(torch="2.13.0", gpu_driver=True)
MAC_13 = Machine(torch="2.13.0", gpu_driver=False, macos=(13, 6))
MAC_14 = Machine(torch="2.13.0", gpu_driver=False, macos=(14, 0))


@pytest.fixture
def descriptor() -> Descriptor:
    """The cartridge's descriptor."""
    return plugin.cartridge_descriptors()[0]


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


def test_preflight_imports_no_backend(tiny: Path) -> None:
    """Describing and preflight work without torch, sentence-transformers and numpy."""
    code = (
        "import sys\n"
        "from cartridge_core.pack import Pack\n"
        "from cartridge_torch import plugin\n"
        "(d,) = plugin.cartridge_descriptors()\n"
        "options = {arg.name: arg.default for arg in d.caps[0].open_args}\n"
        f"report = plugin.cartridge_preflight(d.id, Pack.from_path({str(tiny)!r}), options)\n"
        "assert report.ok and report.memory_bytes, report\n"
        "heavy = {'torch', 'sentence_transformers', 'transformers', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
