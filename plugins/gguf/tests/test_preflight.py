"""Preflight: what this machine must have, and whether the model's files can be loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

import cartridge_gguf
from cartridge_core.descriptor import Backend, Descriptor, read_descriptors
from cartridge_core.errors import InvalidArgumentError, LoadError
from cartridge_core.pack import Pack
from cartridge_gguf import machine, preflight

if TYPE_CHECKING:
    from cartridge_core.reports import PreflightReport

FOLDER = Path(cartridge_gguf.__file__).parent / "descriptors"
PLENTY = 1 << 60


@pytest.fixture(scope="module")
def descriptors() -> dict[str, Descriptor]:
    """The cartridges' descriptors by id."""
    return {item.id: item for item in read_descriptors(FOLDER)}


def check(
    descriptor: Descriptor,
    path: Path | None,
    available: int = PLENTY,
    **changed: object,
) -> PreflightReport:
    """Check with the declared defaults, but for what is changed."""
    options = {arg.name: arg.default for arg in descriptor.open_args}
    pack = None if path is None else Pack.from_path(path)
    return preflight.check(descriptor, pack, {**options, **changed}, available)


@pytest.fixture
def generation(descriptors: dict[str, Descriptor]) -> Descriptor:
    """The descriptor of text generation."""
    return descriptors["gguf-text-generation"]


def test_a_model_that_fits(generation: Descriptor, llama: Path) -> None:
    """Every check is met, and the memory is told."""
    report = check(generation, llama)
    assert report.ok, str(report)
    assert report.memory_bytes is not None
    assert report.memory_bytes > llama.stat().st_size


def test_no_model_leaves_the_memory_open(generation: Descriptor) -> None:
    """Without a pack the machine alone is checked."""
    report = check(generation, None)
    assert (report.ok, report.memory_bytes) == (True, None)


def test_error_too_little_memory(generation: Descriptor, llama: Path) -> None:
    """What is needed and what there is, with what to do."""
    report = check(generation, llama, available=1 << 20)
    (failure,) = report.failures
    assert failure.name == "memory"
    assert "MiB for weights and a context of 512 tokens" in failure.required
    assert failure.found == "1 MiB"
    assert "max_context_length" in failure.fix


def test_an_automatic_context_gives_way(generation: Descriptor, llama: Path) -> None:
    """The length that open would take is the one that is checked."""
    full = check(generation, llama).memory_bytes
    assert full is not None
    report = check(generation, llama, available=full - 1)
    assert report.ok
    assert report.memory_bytes is not None
    assert report.memory_bytes < full
    asked = check(generation, llama, available=full - 1, max_context_length=2048)
    assert [failure.name for failure in asked.failures] == ["memory"]


@pytest.mark.parametrize(
    ("cartridge_id", "sequences", "more"),
    [
        pytest.param("gguf-text-generation", 1, 7, id="one-by-one"),
        pytest.param("gguf-text-generation", 3, 2, id="three-in-a-context"),
        pytest.param("gguf-text-generation", 8, 0, id="all-in-one"),
        pytest.param("gguf-embedding", None, 0, id="embedding"),
    ],
)
def test_what_sessions_take_is_told(
    descriptors: dict[str, Descriptor],
    llama: Path,
    cartridge_id: str,
    sequences: int | None,
    more: int,
) -> None:
    """The report is of what an open model holds; what sessions at the same time add is in words."""
    changed = {} if sequences is None else {"parallel_sequences": sequences}
    report = check(descriptors[cartridge_id], llama, max_context_length=512, **changed)
    memory = next(one for one in report.checks if one.name == "memory")
    tokens = f"{sequences} times 512" if (sequences or 1) > 1 else "512"
    assert f"for weights and a context of {tokens} tokens" in memory.required
    assert ("context more" in memory.required) == (more > 0)
    if more:
        assert memory.required.endswith(f"at the same time need up to {more} of them")


def test_a_state_of_unknown_size_is_told(
    generation: Descriptor, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate does not count it, and says so."""
    from cartridge_gguf.states import States

    assert "not estimated" not in str(check(generation, llama))
    monkeypatch.setattr(States, "of", lambda _: States(2, 2, None))
    assert "the states of its recurrent layers: they are not estimated" in str(
        check(generation, llama)
    )


def test_a_gpu_has_its_own_memory(generation: Descriptor, llama: Path) -> None:
    """Where layers go to a GPU, the machine's memory decides nothing."""
    assert check(generation, llama, available=0, gpu_layers=-1).ok


def test_error_more_threads_than_cpus(generation: Descriptor) -> None:
    """Threads that have no CPU hold up all the others."""
    cpus = len(machine.usable_cpus())
    assert check(generation, None, threads=cpus).ok
    (failure,) = check(generation, None, threads=cpus + 1).failures
    assert failure.name == "threads"
    assert "threads=0" in failure.fix


@pytest.mark.parametrize(
    ("backend", "found"),
    [
        pytest.param(Backend("no-such-llama", "0.3"), "not installed", id="missing"),
        pytest.param(Backend("llama-cpp-python", "999"), "llama-cpp-python", id="too-old"),
    ],
)
def test_error_the_backend(
    generation: Descriptor, llama: Path, backend: Backend, found: str
) -> None:
    """A backend that is missing or too old comes with what to type."""
    report = check(attrs.evolve(generation, backend=backend), llama)
    (failure,) = report.failures
    assert failure.found.startswith(found)
    assert failure.fix == f'pip install "{backend.distribution}>={backend.min_version}"'


def test_inspection_needs_no_backend(descriptors: dict[str, Descriptor], llama: Path) -> None:
    """It takes a header's memory, whatever the model's size."""
    report = check(descriptors["gguf-inspect"], llama, available=0)
    assert report.ok
    assert report.checks == ()
    assert report.memory_bytes is not None
    assert report.memory_bytes < 100_000 < llama.stat().st_size


@pytest.mark.parametrize("cartridge_id", ["gguf-text-generation", "gguf-inspect"])
def test_error_a_file_that_is_no_model(
    descriptors: dict[str, Descriptor], tmp_path: Path, cartridge_id: str
) -> None:
    """Preflight says of a file what open would say."""
    path = tmp_path / "model.gguf"
    path.write_text("<!DOCTYPE html>")
    with pytest.raises(LoadError, match="web page"):
        check(descriptors[cartridge_id], path)


def test_error_more_context_than_trained(generation: Descriptor, llama: Path) -> None:
    """It is refused before anything is loaded."""
    with pytest.raises(InvalidArgumentError, match="max_context_length: 2049"):
        check(generation, llama, max_context_length=2049)


def test_preflight_imports_no_backend(llama: Path) -> None:
    """Neither llama_cpp nor numpy is imported for it."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from cartridge_core.descriptor import read_descriptors\n"
        "from cartridge_core.pack import Pack\n"
        "from cartridge_gguf import preflight\n"
        f"pack = Pack.from_path({str(llama)!r})\n"
        f"for d in read_descriptors(Path({str(FOLDER)!r})):\n"
        "    if d.id == 'gguf-vision':\n"
        "        continue\n"
        "    options = {arg.name: arg.default for arg in d.open_args}\n"
        "    assert preflight.check(d, pack, options).memory_bytes\n"
        "heavy = {'llama_cpp', 'numpy', 'gguf', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
