"""What core finds out about a machine by itself, and what it makes of that."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cartridge_core import preflight
from cartridge_core.descriptor import Descriptor
from cartridge_core.errors import PreflightError
from cartridge_core.hookspecs import hookimpl
from cartridge_core.machine import (
    available_bytes,
    driver_version,
    free_disk_bytes,
    list_accelerators,
)
from cartridge_core.preflight import core_checks, disk_check
from cartridge_core.reports import Check, PreflightReport
from cartridge_core.testing.descriptors import fake_cap, fake_descriptor
from cartridge_core.testing.fakes import BatchEcho
from cartridge_core.testing.registries import registry_of

if TYPE_CHECKING:
    from collections.abc import Mapping

MIB = 1 << 20
GIB = 1 << 30


def machine(root: Path, files: Mapping[str, object]) -> Path:
    """Write what Linux would show under ``/``."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(str(text))
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 4194304 kB\n"}
TOP = "sys/fs/cgroup"


def limit(folder: str, most: object, taken: int, cached: int = 0) -> dict[str, object]:
    """Give a control group of version 2."""
    stat = f"anon 1\ninactive_file {cached}\nactive_file 9\n"
    return {
        f"{folder}/memory.max": most,
        f"{folder}/memory.current": taken,
        f"{folder}/memory.stat": stat,
    }


OLD = {
    f"{TOP}/memory/memory.limit_in_bytes": GIB,
    f"{TOP}/memory/memory.usage_in_bytes": GIB // 2,
    f"{TOP}/memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {MIB}\n",
}
MEMORY = [
    pytest.param({}, 4 * GIB, id="no-group"),
    pytest.param(limit(TOP, "max", 5), 4 * GIB, id="no-limit"),
    pytest.param(limit(TOP, GIB, GIB // 4), GIB * 3 // 4, id="container"),
    pytest.param(limit(TOP, GIB, GIB, MIB), MIB, id="read-from-files-comes-back"),
    pytest.param(limit(TOP, GIB, 2 * GIB), 0, id="over-its-limit"),
    pytest.param(limit(TOP, 8 * GIB, 0), 4 * GIB, id="limit-above-the-machine"),
    pytest.param(
        {"proc/self/cgroup": "0::/a/b\n", **limit(f"{TOP}/a/b", GIB, 0)}, GIB, id="own-group"
    ),
    pytest.param(
        {"proc/self/cgroup": "0::/a/b\n", **limit(f"{TOP}/a", MIB, 0)}, MIB, id="group-above"
    ),
    pytest.param(
        {"proc/self/cgroup": "0::/../../x\n", **limit(f"{TOP}/x", MIB, 0)}, MIB, id="climbing-path"
    ),
    pytest.param({"proc/self/cgroup": "odd\n:\n0::\n"}, 4 * GIB, id="odd-groups"),
    pytest.param(OLD, GIB // 2 + MIB, id="version-1"),
    pytest.param(
        {
            "proc/self/cgroup": "5:cpu:/c\n4:memory:/m\n",
            f"{TOP}/memory/m/memory.limit_in_bytes": MIB,
            f"{TOP}/memory/m/memory.usage_in_bytes": 1,
            f"{TOP}/memory/c/memory.limit_in_bytes": 1,
            f"{TOP}/memory/c/memory.usage_in_bytes": 1,
        },
        MIB - 1,
        id="version-1-own-group",
    ),
]


@pytest.mark.parametrize(("files", "left"), MEMORY)
def test_free_memory_is_bounded_by_control_groups(
    tmp_path: Path, files: Mapping[str, object], left: int
) -> None:
    """A container, or a service with a limit, has less than the machine."""
    assert available_bytes(machine(tmp_path, {**MEMINFO, **files})) == left


@pytest.mark.parametrize("text", ["", "MemAvailable:", "MemAvailable: x kB"])
def test_a_system_that_does_not_say_its_memory(tmp_path: Path, text: str) -> None:
    """None, and no check is made of it."""
    assert available_bytes(machine(tmp_path, {"proc/meminfo": text})) is None


def test_this_machine_has_memory_and_disk() -> None:
    """On Linux both are told; a folder that does not exist yet is on its parent's disk."""
    free = available_bytes()
    assert free is None or free > 0
    assert (free_disk_bytes(Path("/no/such/folder")) or 0) > 0


ACCELERATORS = [
    pytest.param([], [], id="none"),
    pytest.param(["dev/nvidiactl"], ["cuda"], id="nvidia"),
    pytest.param(["proc/driver/nvidia/version"], ["cuda"], id="nvidia-without-nodes"),
    pytest.param(["dev/dxg"], ["cuda"], id="wsl"),
    pytest.param(["dev/kfd"], ["rocm"], id="amd"),
    pytest.param(["dev/accel/accel0", "dev/kfd"], ["rocm", "npu"], id="two"),
    pytest.param(["dev/galcore"], ["npu"], id="vendor-s-npu"),
    pytest.param(["dev/dri/renderD128"], ["gpu"], id="some-gpu"),
]


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has one of its own")
@pytest.mark.parametrize(("files", "found"), ACCELERATORS)
def test_accelerators_are_found_by_what_their_drivers_show(
    tmp_path: Path, files: list[str], found: list[str]
) -> None:
    """No program is started for it."""
    root = machine(tmp_path, dict.fromkeys(files, ""))
    assert list(list_accelerators(root)) == found


NVIDIA = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
DRIVERS = [
    pytest.param("nvidia", {"sys/module/nvidia/version": "580.95.05\n"}, "580.95.05", id="module"),
    pytest.param("nvidia", {"proc/driver/nvidia/version": NVIDIA}, "580.95.05", id="proc"),
    pytest.param("amdgpu", {"sys/module/amdgpu/refcnt": "1"}, "", id="no-version"),
    pytest.param("vip-npu", {"sys/module/vip_npu/version": "1.7.1"}, "1.7.1", id="hyphen"),
    pytest.param("other", {"sys/module/nvidia/version": "1"}, None, id="not-there"),
    pytest.param("../../proc", {"proc/version": "1.0"}, None, id="no-module-name"),
    pytest.param("", {"sys/module/version": "1.0"}, None, id="empty-name"),
]


@pytest.mark.parametrize(("name", "files", "version"), DRIVERS)
def test_a_driver_s_version_is_read_from_the_kernel(
    tmp_path: Path, name: str, files: Mapping[str, object], version: str | None
) -> None:
    """A name that comes from a descriptor leads nowhere else."""
    assert driver_version(name, machine(tmp_path, files)) == version


def needing(**changes: object) -> Descriptor:
    """Give a descriptor with other blocks."""
    return Descriptor.from_json({**fake_descriptor("fake-one").to_json(), **changes})


def only(descriptor: Descriptor) -> Check:
    (check,) = core_checks(descriptor)
    return check


def test_nothing_needed_is_no_check() -> None:
    """What a descriptor does not ask for is not looked at."""
    assert core_checks(fake_descriptor("fake-one")) == ()


@pytest.mark.parametrize(
    ("changes", "ok"),
    [
        ({"target": {"hardware": "any", "abi": platform.machine()}}, True),
        ({"target": {"hardware": "any", "abi": "sparc"}}, False),
        ({"requirements": {"os": {"name": sys.platform}}}, True),
        ({"requirements": {"os": {"name": "plan9"}}}, False),
        ({"requirements": {"os": {"name": sys.platform, "min_api": 26}}}, False),
        ({"requirements": {"os": {"min_api": 26}}}, False),
    ],
    ids=["abi", "other-abi", "system", "other-system", "api-level", "api-level-alone"],
)
def test_platform(changes: Mapping[str, object], ok: bool) -> None:
    """What is built for another machine is told before a load, with what was found."""
    check = only(needing(**changes))
    assert (check.name, check.ok) == ("platform", ok)
    assert check.found.startswith(f"{sys.platform} {platform.machine()}")
    assert check.fix


ACCELERATED = [
    pytest.param(None, (), False, id="none"),
    pytest.param(None, ("cuda",), True, id="any"),
    pytest.param("cuda", ("rocm",), False, id="another"),
    pytest.param("cuda", ("rocm", "cuda"), True, id="one-of-two"),
    pytest.param("GPU", ("rocm",), True, id="some-gpu"),
    pytest.param("gpu", ("npu",), False, id="npu-is-no-gpu"),
    pytest.param("vulkan", ("gpu",), True, id="render-node"),
    pytest.param("npu", ("gpu", "cuda"), False, id="gpu-is-no-npu"),
]


@pytest.mark.parametrize(("wanted", "there", "ok"), ACCELERATED)
def test_accelerator(monkeypatch, wanted: str | None, there: tuple[str, ...], ok: bool) -> None:
    """Its presence is checked where the descriptor needs one."""
    monkeypatch.setattr(preflight, "list_accelerators", lambda: there)
    target = {"hardware": "any", "abi": "any"}
    if wanted is not None:
        target["accelerator"] = wanted
    check = only(needing(target=target, requirements={"needs_accelerator": True}))
    assert (check.name, check.ok) == ("accelerator", ok)
    assert check.found == (", ".join(there) or "none")


@pytest.mark.parametrize("there", [(), ("npu",)])
def test_an_accelerator_that_core_does_not_know(monkeypatch, there: tuple[str, ...]) -> None:
    """Its driver and its plugin have to find it: core has nothing to say."""
    monkeypatch.setattr(preflight, "list_accelerators", lambda: there)
    target = {"hardware": "a311d", "abi": "any", "accelerator": "vip9000"}
    assert core_checks(needing(target=target, requirements={"needs_accelerator": True})) == ()


DRIVEN = [
    pytest.param({"name": "npu"}, "1.0", True, "npu 1.0", id="any-version"),
    pytest.param({"name": "npu"}, "", True, "does not say", id="silent"),
    pytest.param({"name": "npu"}, None, False, "not loaded", id="missing"),
    pytest.param({"name": "npu", "min_version": "1.7.1"}, "1.7.1", True, "1.7.1", id="just"),
    pytest.param({"name": "npu", "min_version": "1.7.1"}, "1.10", True, "1.10", id="newer"),
    pytest.param({"name": "npu", "min_version": "1.7.1"}, "1.7", False, "npu 1.7", id="older"),
    pytest.param({"name": "npu", "min_version": "1.7.1"}, "", False, "does not say", id="unknown"),
]


@pytest.mark.parametrize(("driver", "version", "ok", "found"), DRIVEN)
def test_driver(monkeypatch, driver: dict[str, str], version: str, ok: bool, found: str) -> None:
    """A driver's presence and version; one that does not say its version meets no minimum."""
    monkeypatch.setattr(preflight, "driver_version", lambda _: version)
    check = only(needing(requirements={"driver": {**driver, "note": "ask the vendor"}}))
    assert (check.name, check.ok) == ("driver", ok)
    assert found in check.found
    assert check.fix == "ask the vendor"


class Needing(BatchEcho):
    """Says that it needs memory, and may say more."""

    plugin_name = "needing"
    descriptor = fake_descriptor("needing-text")

    def __init__(self, report: PreflightReport) -> None:
        super().__init__()
        self.report = report

    @hookimpl
    def cartridge_preflight(
        self, cartridge_id: str, pack: object, options: object
    ) -> PreflightReport:
        return self.report


def memory_of(report: PreflightReport) -> list[tuple[bool, str, str]]:
    """Preflight a plugin; give its checks of memory."""
    with registry_of(Needing(report)) as registry:
        checks = registry.preflight("needing-text").checks
    return [(one.ok, one.required, one.found) for one in checks if one.name == "memory"]


@pytest.mark.parametrize(("needed", "ok"), [(GIB, True), (GIB + 1, False)])
def test_the_estimate_is_compared_with_what_is_free(monkeypatch, needed: int, ok: bool) -> None:
    """A plugin says how much, core says whether there is as much."""
    monkeypatch.setattr(preflight, "available_bytes", lambda: GIB)
    monkeypatch.setattr(preflight, "list_accelerators", lambda: ())
    (check,) = memory_of(PreflightReport(memory_bytes=needed))
    assert check == (ok, f"{1024 if ok else 1025} MB", "1024 MB")


def test_error_a_model_that_does_not_fit_is_not_opened(monkeypatch) -> None:
    """The same comparison comes before every load."""
    monkeypatch.setattr(preflight, "available_bytes", lambda: GIB)
    monkeypatch.setattr(preflight, "list_accelerators", lambda: ())
    plugin = Needing(PreflightReport(memory_bytes=2 * GIB))
    with registry_of(plugin) as registry:
        with pytest.raises(PreflightError, match="memory: needs 2048 MB; found 1024 MB; close"):
            registry.call("cap:echo", "tea")
    assert "open" not in plugin.calls


def test_a_plugin_that_compares_has_the_last_word(monkeypatch) -> None:
    """It knows what goes elsewhere."""
    monkeypatch.setattr(preflight, "available_bytes", lambda: 0)
    report = PreflightReport((Check("memory", ok=True),), memory_bytes=GIB)
    assert memory_of(report) == [(True, "", "")]


@pytest.mark.parametrize(
    ("there", "ok"), [("cuda", True), ("npu", True), ("gpu", False), ("mps", False)]
)
def test_an_accelerator_may_take_the_model(monkeypatch, there: str, ok: bool) -> None:
    """One with a memory of its own, which is not what core sees: then nothing is refused."""
    monkeypatch.setattr(preflight, "available_bytes", lambda: MIB)
    monkeypatch.setattr(preflight, "list_accelerators", lambda: (there,))
    found = "1 MB, and an accelerator" if ok else "1 MB"
    assert memory_of(PreflightReport(memory_bytes=GIB)) == [(ok, "1024 MB", found)]


@pytest.mark.parametrize("needed", [None, 0])
def test_no_estimate_is_no_check(monkeypatch, needed: int | None) -> None:
    """A plugin that cannot tell is not taken to need something."""
    monkeypatch.setattr(preflight, "available_bytes", lambda: 0)
    assert memory_of(PreflightReport(memory_bytes=needed)) == []


MODEL = {
    "name": "model_spec",
    "media_urn": "media:enc=utf-8;model-spec",
    "required": False,
    "sources": [{"cli_flag": "--model-spec"}],
    "default_value": "hf:a/b",
    "metadata": {"pack": True},
}


def test_room_for_a_model_that_is_yet_to_come(monkeypatch, tmp_path: Path) -> None:
    """The disk is looked at where a model must be fetched, and only there."""
    monkeypatch.setenv("CARTRIDGE_CACHE", str(tmp_path / "deep" / "cache"))
    document = fake_descriptor("needing-text", caps=[fake_cap("echo", MODEL)]).to_json()
    descriptor = Descriptor.from_json({**document, "requirements": {"memory_mb": 100}})
    monkeypatch.setattr(preflight, "free_disk_bytes", lambda _: 99 * MIB)
    check = disk_check(descriptor)
    assert check is not None
    assert (check.ok, check.found) == (False, f"99 MB in {tmp_path / 'deep' / 'cache'}")

    plugin = Needing(PreflightReport())
    plugin.descriptor = descriptor
    (tmp_path / "model.bin").touch()
    with registry_of(plugin) as registry:
        asked = [
            [check.name for check in registry.preflight("needing-text", model).checks]
            for model in (None, tmp_path / "model.bin")
        ]
    assert asked == [["memory", "disk"], ["memory"]]


def test_no_backend_is_imported_and_no_program_started() -> None:
    """What core answers costs no heavy import, and no ``nvidia-smi``."""
    code = (
        "import sys\n"
        "def audit(event, args):\n"
        "    assert event not in {'subprocess.Popen', 'os.system', 'os.exec'}, event\n"
        "sys.addaudithook(audit)\n"
        "from cartridge_core.machine import *\n"
        "available_bytes(), list_accelerators(), driver_version('nvidia')\n"
        "heavy = {'numpy', 'torch', 'ctypes'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
