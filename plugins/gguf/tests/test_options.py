"""The open arguments, and what automatic threads are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_gguf import machine
from cartridge_gguf.options import LoadOptions

if TYPE_CHECKING:
    from pathlib import Path

GIVEN: dict[str, object] = {
    "max_context_length": 0,
    "batch_size": 512,
    "rope_freq_base": 0,
    "rope_freq_scale": 0.5,
    "threads": 3,
    "gpu_layers": -1,
    "parallel_sequences": 2,
}


def test_options_are_what_the_host_gives() -> None:
    """Every open argument arrives, and a number that may have a fraction is a float."""
    options = LoadOptions.read(GIVEN)
    assert attrs.asdict(options) == GIVEN
    assert isinstance(options.rope_freq_base, float)


def test_threads_are_what_is_asked_for() -> None:
    """Automatic is something only for 0."""
    assert LoadOptions.read(GIVEN).thread_count == 3


def test_automatic_threads_leave_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """One core is left to others, where there is more than one to use."""
    automatic = LoadOptions.read({**GIVEN, "threads": 0})
    assert automatic.thread_count == max(1, machine.usable_cores() - 1)
    if hasattr(os, "sched_setaffinity"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
        assert automatic.thread_count == 1


@pytest.fixture
def eight_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four cores with two threads each, of which the process may use three and a half."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 4, 5, 6, 7}, raising=False)
    for cpu in range(8):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    return tmp_path


def test_hyper_threads_count_once(eight_cpus: Path, tmp_path: Path) -> None:
    """Seven CPUs are four cores."""
    assert machine.usable_cores(eight_cpus, tmp_path / "none") == 4


def test_cpus_without_a_description_count(eight_cpus: Path, tmp_path: Path) -> None:
    """Where the system does not tell which CPUs share a core, each is one."""
    del eight_cpus
    assert machine.usable_cores(tmp_path / "none", tmp_path / "none") == 7


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        pytest.param("max 100000", 4, id="none"),
        pytest.param("250000 100000", 2, id="two-and-a-half"),
        pytest.param("50000 100000", 1, id="half"),
        pytest.param("1600000 100000", 4, id="more-than-there-are"),
        pytest.param("", 4, id="unreadable"),
    ],
)
def test_a_containers_quota_counts(
    eight_cpus: Path, tmp_path: Path, quota: str, cores: int
) -> None:
    """A container that gets the time of two CPUs has two, however many it sees."""
    (tmp_path / "cpu.max").write_text(quota)
    assert machine.usable_cores(eight_cpus, tmp_path) == cores
