"""
The contract over a cartridge that has no test class, told rule by rule to another process.

A pytest plugin for ``cartridge conform``, and the test class that it runs. The file of
``--conform`` says, as JSON, which cartridge and what to try it with; one JSON object a line goes
to the descriptor ``--conform-line``: ``begin`` and ``end`` of every rule, and ``over``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from cartridge_core.testing.batch import CancellableBatchContract
from cartridge_core.testing.registries import registry_of
from cartridge_core.testing.streaming import StreamingContract
from cartridge_core.testing.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from cartridge_core.capdefs import Cap
    from cartridge_core.registry import Registry
    from cartridge_core.testing.watching import Watch

__all__ = ["contract_of", "pytest_addoption", "pytest_configure"]

_LONGEST = 1000
"""Characters that are told of what is wrong."""


class _Given(Subject):
    """What a file says of a cartridge, where a test class of its own would say it."""

    packs: tuple[str, ...]
    model: str | None
    values: Mapping[str, Mapping[str, object]]
    """By cap URN: ``value``, ``other`` and ``slow``, each as `_loaded` takes it."""

    arguments: Mapping[str, dict[str, object]]
    """The session's, by cap URN."""

    @pytest.fixture
    def model_spec(self) -> str | None:
        """Give the model's path."""
        return self.model

    @pytest.fixture
    def registry(self, watch: Watch) -> Iterator[Registry]:
        """Give a registry of the plugin, and of the pack where it is one."""
        with registry_of(self.plugin, packs=self.packs, wrappers=[watch]) as registry:
            yield registry

    def value(self, cap: Cap) -> object:
        """Give the value that was found for the cap."""
        return _loaded(self.values[str(cap.urn)]["value"])

    def other_value(self, cap: Cap) -> object:
        """Give another one, which may be the same."""
        return _loaded(self.values[str(cap.urn)]["other"])

    def slow_value(self, cap: Cap) -> object:
        """Give one that takes seconds; where there is none the rule is left out."""
        return _loaded(self.values[str(cap.urn)]["slow"])

    def parameters(self, cap: Cap) -> dict[str, object]:
        """Give the arguments that were given for the cap, else what it requires."""
        given = self.arguments.get(str(cap.urn))
        return super().parameters(cap) if given is None else given


def _loaded(given: object) -> object:
    """Give a value: ``{"json": value}``, or ``{"bytes": path}`` or ``{"npy": path}`` of a file."""
    assert isinstance(given, dict)  # noqa: S101 -- written by the other process
    kind, what = next(iter(given.items()))
    if kind == "json":
        return what
    if kind == "bytes":
        return Path(what).read_bytes()
    import numpy as np

    array: object = np.load(what, allow_pickle=False)
    return array


def contract_of(file: str) -> type[Subject]:
    """Make the test class of the cartridge that a file names."""
    given = json.loads(Path(file).read_text("utf-8"))
    contract = CancellableBatchContract if given["mode"] == "batch" else StreamingContract
    members = {name: given[name] for name in ("plugin", "cartridge_id", "model", "values")}
    members |= {"arguments": given["arguments"], "packs": tuple(given["packs"])}
    members["varying"] = tuple(given["varying"])
    return type("TestConform", (_Given, contract), members)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the two options of the other process."""
    parser.addoption("--conform", help="A file that says what to run.")
    parser.addoption("--conform-line", type=int, help="Where to tell it.")


def pytest_configure(config: pytest.Config) -> None:
    """Tell what happens, where there is somebody to tell it to."""
    line = cast("int | None", config.getoption("--conform-line"))
    if line is not None:
        os.set_inheritable(line, False)
        file = cast("str", config.getoption("--conform"))
        config.pluginmanager.register(_Telling(line, json.loads(Path(file).read_text("utf-8"))))


class _Telling:
    """Runs the rules that are left, and tells of each."""

    def __init__(self, line: int, given: Mapping[str, object]) -> None:
        self._line = line
        self._over = cast("list[str]", given["over"])
        self._left_out = cast("dict[str, str]", given["not_applicable"])
        self._found: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what was tried already, and what does not apply."""
        items[:] = [item for item in items if _rule(item) not in self._over]
        for item in items:
            if _rule(item) in self._left_out:
                item.add_marker(pytest.mark.skip(reason=self._left_out[_rule(item)]))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Tell that a rule begins, and what came of it."""
        self._found = {"verdict": "pass"}
        doc = " ".join((getattr(item, "obj", item).__doc__ or "").replace("``", "`").split())
        self._tell(event="begin", rule=_rule(item), text=doc)
        done = yield
        self._tell(event="end", **self._found)
        return done

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep what is wrong; what was wrong first stays."""
        report = yield
        if call.excinfo is not None and self._found["verdict"] != "fail":
            why = _why(call.excinfo.value)[:_LONGEST]
            verdict = "not applicable" if report.skipped else "fail"
            self._found = {"verdict": verdict, "detail": why, "trace": report.longreprtext}
        return report

    def pytest_sessionfinish(self) -> None:
        """Tell that there is no more."""
        self._tell(event="over")

    def _tell(self, **event: str) -> None:
        os.write(self._line, json.dumps(event).encode() + b"\n")


def _rule(item: pytest.Item) -> str:
    return item.name.removeprefix("test_")


def _why(error: BaseException) -> str:
    """Say what is wrong: a test's own words, or what a cartridge raised."""
    if isinstance(error, pytest.fail.Exception | pytest.skip.Exception):
        return str(error.msg)
    if isinstance(error, AssertionError):
        return str(error).partition("\nassert ")[0]
    return f"{type(error).__name__}: {error}"
