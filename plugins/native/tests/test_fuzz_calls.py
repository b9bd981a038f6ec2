"""
The samples in C under AddressSanitizer, UndefinedBehaviorSanitizer and valgrind: clean.

Both are driven by the example host and by calls in random orders (``fuzz_calls.c``), which
themselves are built with the same flags.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import attrs
import native_host
import numpy as np  # noqa: TID253 -- arrays are what they take
import pytest
from native_packs import library_of
from wav_files import wav_of

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import MakePack

SAMPLES = ["log_energies", "endpointer"]
REACHED = {
    "log_energies": ([0, -1, -2, -6, -8], ["FINAL"]),
    "endpointer": ([0, -1, -2, -6, -7, -8], ["PARTIAL", "FINAL", "ENDPOINT"]),
}
"""The statuses and kinds that random calls must have seen, or they tested little."""

VALGRIND = [
    "valgrind",
    "--quiet",
    "--error-exitcode=9",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite,indirect,possible",
]


@attrs.frozen
class Bench:
    """The programs, and how to run one over a sample."""

    host: Path
    fuzz: Path
    packs: dict[str, Path]
    before: tuple[str, ...] = ()

    def run(self, program: Path, name: str, *words: str) -> str:
        """Run a program on a sample; it has to end well and to say nothing of faults."""
        command = [*self.before, str(program), str(library_of(self.packs[name])), *words]
        done = subprocess.run(
            command,
            capture_output=True,
            check=False,
            text=True,
            timeout=200,
            # The faults of a build are to be seen whatever the variables of this process say.
            env={key: value for key, value in os.environ.items() if "SAN_OPTIONS" not in key},
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


@pytest.fixture(scope="module")
def sanitized(make_native_pack: MakePack, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Everything built with ASan and UBSan."""
    folder, flags = tmp_path_factory.mktemp("sanitized"), native_host.SANITIZED
    return Bench(
        native_host.build_host(folder, *flags),
        native_host.build_fuzz(folder, *flags),
        {name: make_native_pack(name, folder / name, *flags) for name in SAMPLES},
    )


@pytest.fixture(scope="module")
def watched(
    host: Path,
    log_energies: Path,
    endpointer: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Bench:
    """Everything as it is, under valgrind."""
    if shutil.which("valgrind") is None:
        pytest.skip("memory checks: apt-get install valgrind")
    fuzz = native_host.build_fuzz(tmp_path_factory.mktemp("plain"), "-g", "-O1")
    packs = {"log_energies": log_energies, "endpointer": endpointer}
    return Bench(host, fuzz, packs, tuple(VALGRIND))


@pytest.fixture(params=["sanitizers", "valgrind"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Both by turns."""
    found = request.getfixturevalue({"sanitizers": "sanitized"}.get(request.param, "watched"))
    assert isinstance(found, Bench)
    return found


@pytest.mark.parametrize("name", SAMPLES)
def test_a_run_of_the_host_has_no_fault(name: str, bench: Bench, tmp_path: Path) -> None:
    """Sound, one sample, and nothing: results come and go back, and all is closed."""
    noise = np.random.default_rng(0).integers(-9000, 9000, 24_000, np.int16)
    noise[12_000:18_000] = 0
    for samples in (noise, noise[:1]):
        (tmp_path / "it.wav").write_bytes(wav_of(samples.tobytes()))
        bench.run(bench.host, name, "--pcm", str(tmp_path / "it.wav"), "--chunk-ms", "130")
    bench.run(bench.host, name)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_run_of_the_host_that_fails_has_no_fault(name: str, sanitized: Bench) -> None:
    """Three bytes are no whole samples of one, and the other takes them; all is closed."""
    command = [str(sanitized.host), str(library_of(sanitized.packs[name])), "--text", "tea"]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
    named = "ctg_host: ctg_infer: CTG_E_INVALID_ARG (-1): the input ends inside a sample\n"
    expected = (1, named) if name == "log_energies" else (0, "")
    assert (done.returncode, done.stderr) == expected


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", SAMPLES)
def test_calls_in_any_order_have_the_statuses_of_the_header(
    name: str, seed: int, bench: Bench
) -> None:
    """Thousands of calls, right and wrong, cancels from other threads among them."""
    steps = 800 if bench.before else 4000
    told = bench.run(bench.fuzz, name, str(bench.packs[name]), str(seed), str(steps))
    seen = json.loads(told)
    statuses = [-number for number, count in enumerate(seen["statuses"]) if count]
    kinds = ["PARTIAL", "FINAL", "ENDPOINT"]
    reached = [kind for kind, count in zip(kinds, seen["kinds"], strict=True) if count]
    assert (statuses, reached) == REACHED[name]
    assert sum(seen["statuses"]) > steps
