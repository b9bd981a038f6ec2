"""How briefly llama.cpp's threads wait for each other by spinning."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cartridge_gguf.spinning import brief_spinning

IMPORT = """
import os
before = dict(os.environ)
from cartridge_gguf import _llama
assert dict(os.environ) == before
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, {"GOMP_SPINCOUNT": "2000", "OMP_WAIT_POLICY": "ACTIVE"}, id="ours"),
        pytest.param({"GOMP_SPINCOUNT": "77"}, {"GOMP_SPINCOUNT": "77"}, id="the-users-count"),
        pytest.param(
            {"OMP_WAIT_POLICY": "passive"}, {"OMP_WAIT_POLICY": "PASSIVE"}, id="the-users-policy"
        ),
    ],
)
def test_the_backends_openmp_spins_briefly(given: dict[str, str], expected: dict[str, str]) -> None:
    """Libgomp itself says what it goes by: ours, unless the user has set something."""
    environ = {name: text for name, text in os.environ.items() if "OMP" not in name}
    ran = subprocess.run(
        [sys.executable, "-c", IMPORT],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**environ, **given, "OMP_DISPLAY_ENV": "VERBOSE"},
    )
    for name, value in expected.items():
        assert f"{name} = '{value}'" in ran.stderr


def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings are there inside the block alone."""
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    before = dict(os.environ)
    with brief_spinning():
        assert os.environ["GOMP_SPINCOUNT"] == "2000"
    assert dict(os.environ) == before
