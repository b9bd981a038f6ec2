"""Preflight: what this machine must have, by a machine that is told to it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.descriptor import Backend
from cartridge_core.errors import LoadError
from cartridge_core.pack import Pack
from cartridge_core.testing import registry_of
from cartridge_whisper import plugin, preflight
from cartridge_whisper.preflight import Machine

if TYPE_CHECKING:
    from pathlib import Path

    from cartridge_core.descriptor import Descriptor

WHOLE = Machine(
    versions={"torch": "2.13.0", "soundfile": "0.14", "soxr": "1.1"},
    gpu_driver=False,
    ffmpeg=True,
    vad=True,
)
GPU = attrs.evolve(WHOLE, gpu_driver=True)
CPU_BUILD = attrs.evolve(GPU, versions={**WHOLE.versions, "torch": "2.13.0+cpu"})
OPTIONS: dict[str, object] = {"device": "auto", "threads": 1}


@pytest.mark.parametrize(
    ("device", "machine", "fix"),
    [
        pytest.param("auto", WHOLE, None, id="auto"),
        pytest.param("cpu", CPU_BUILD, None, id="cpu"),
        pytest.param("cuda", GPU, None, id="cuda"),
        pytest.param("cuda", WHOLE, "install the GPU's driver", id="no-driver"),
        pytest.param("cuda", CPU_BUILD, "a CUDA build of torch", id="cpu-build"),
    ],
)
def test_a_device_must_be_there(
    descriptor: Descriptor, device: str, machine: Machine, fix: str | None
) -> None:
    """One that is not comes with what to do."""
    report = preflight.check(descriptor, None, {**OPTIONS, "device": device}, machine)
    assert report.ok is (fix is None)
    assert all(fix is not None and fix in check.fix for check in report.failures)


@pytest.mark.parametrize(
    ("machine", "typed"),
    [
        pytest.param(
            WHOLE,
            "pip install --no-deps openai-whisper && "
            "pip install more-itertools numba tiktoken tqdm",
            id="without-triton",
        ),
        pytest.param(GPU, 'pip install "no-such-whisper>=20250625"', id="with-a-gpu"),
    ],
)
def test_error_whisper_is_not_installed(
    descriptor: Descriptor, machine: Machine, typed: str
) -> None:
    """Preflight says what to type; on a machine without a GPU, so that no triton comes along."""
    lacking = attrs.evolve(descriptor, backend=Backend("no-such-whisper", "20250625"))
    (failure,) = preflight.check(lacking, None, OPTIONS, machine).failures
    assert failure.name == "backend"
    assert failure.fix.startswith(typed)


def test_what_to_type_brings_all_that_whisper_needs() -> None:
    """The command names every requirement of whisper's but triton, torch and numpy."""
    import re
    from importlib import metadata

    needs = {
        re.split(r"[ ;<>=!~\[]", line)[0]
        for line in metadata.requires("openai-whisper") or []
        if "extra ==" not in line
    }
    named = set(preflight._WITHOUT_TRITON.split())
    assert needs - {"triton", "torch", "numpy"} <= named


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("torch", "pip install cartridge-whisper"),
        ("soundfile", 'pip install "cartridge-media[audio]"'),
        ("soxr", 'pip install "cartridge-media[audio]"'),
    ],
)
def test_error_something_else_is_not_installed(descriptor: Descriptor, name: str, fix: str) -> None:
    """So it is with what else is needed."""
    machine = attrs.evolve(WHOLE, versions={**WHOLE.versions, name: None})
    (failure,) = preflight.check(descriptor, None, OPTIONS, machine).failures
    assert failure.fix == fix


def test_what_is_not_needed_is_only_told(descriptor: Descriptor) -> None:
    """Without ffmpeg and the voice detector it works, and the report says what is lacking."""
    machine = attrs.evolve(WHOLE, ffmpeg=False, vad=False)
    report = preflight.check(descriptor, None, OPTIONS, machine)
    assert report.ok
    assert "no M4A" in str(report)
    assert "no vad=True" in str(report)


def test_memory_is_that_of_the_weights(descriptor: Descriptor, scripted_file: Path) -> None:
    """Four bytes for each number."""
    report = preflight.check(descriptor, Pack.from_path(scripted_file), OPTIONS, WHOLE)
    assert report.memory_bytes is not None
    assert report.memory_bytes >= 51_865 * 32 * 4


def test_error_a_wrong_model_is_named_before_a_load(descriptor: Descriptor, tmp_path: Path) -> None:
    """Preflight says of a folder what open would say."""
    with pytest.raises(LoadError, match="it holds no model"):
        preflight.check(descriptor, Pack.from_path(tmp_path), OPTIONS, WHOLE)


def test_found_and_routed_to_without_whisper() -> None:
    """Finding, listing and routing import neither whisper nor torch, and preflight does not."""
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'whisper', 'torch', 'numba', 'onnxruntime'}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from cartridge_core.testing import registry_of\n"
        "from cartridge_whisper import plugin\n"
        "with registry_of(plugin) as registry:\n"
        "    assert registry.route('cap:transcribe').cartridge_id == 'whisper-transcription'\n"
        "    registry.preflight('whisper-transcription')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_error_open_without_whisper_says_what_to_type(scripted_file: Path) -> None:
    """A whisper that cannot be imported is a LoadError with a command."""
    code = (
        "import sys\n"
        "sys.modules['whisper'] = None\n"
        "from cartridge_core.errors import LoadError\n"
        "from cartridge_core.testing import registry_of\n"
        "from cartridge_whisper import plugin\n"
        "with registry_of(plugin) as registry:\n"
        "    try:\n"
        f"        registry.open('whisper-transcription', {str(scripted_file)!r})\n"
        "    except LoadError as error:\n"
        "        assert 'pip install cartridge-whisper' in str(error), error\n"
        "    else:\n"
        "        raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_registry_shows_the_checks() -> None:
    """The report of this machine has a line for each."""
    with registry_of(plugin) as registry:
        report = registry.preflight("whisper-transcription")
    names = {check.name for check in report.checks}
    assert {"torch", "sound", "device", "ffmpeg", "voice detector"} <= names
