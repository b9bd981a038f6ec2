"""The newest accepted versions: kept whole, only ever higher, and by several processes at once."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.errors import VerificationError
from cartridge_core.floors import floors_file, raise_floor, read_floors
from cartridge_core.signatures import TrustStore
from cartridge_core.versions import SEMVER, precedence

if TYPE_CHECKING:
    from pathlib import Path

KIND = "cartridge"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where a trust store is."""
    file = tmp_path / "trust.json"
    file.write_text('{"schema_version": "1", "keys": []}')
    return file


def test_a_floor_only_rises(store: Path) -> None:
    """An older version changes nothing, a newer one does; ids and kinds are their own."""
    for version in ("1.2.0", "1.10.0", "1.10.0", "1.10.0-rc.1", "1.9.9"):
        raise_floor(store, KIND, "a", version)
    raise_floor(store, "weights-update", "a", "0.1.0")
    raise_floor(store, KIND, "b", "0.2.0")
    assert read_floors(store) == {
        "cartridge": {"a": "1.10.0", "b": "0.2.0"},
        "weights-update": {"a": "0.1.0"},
    }


def test_it_stands_beside_the_trust_store(store: Path) -> None:
    """``trust.json`` has ``trust.versions.json``, and nothing else is left there."""
    raise_floor(store, KIND, "a", "1.0.0")
    assert floors_file(store).name == "trust.versions.json"
    names = sorted(path.name for path in store.parent.iterdir())
    assert names == ["trust.json", "trust.versions.json"]


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_who_may_read_the_store_may_read_the_floors(store: Path, mode: int) -> None:
    """A store that several users share has floors that they share."""
    store.chmod(mode)
    raise_floor(store, KIND, "a", "1.0.0")
    assert floors_file(store).stat().st_mode & 0o777 == mode


def _raise_many(store: Path, start: int) -> None:
    for number in range(start, start + 12):
        raise_floor(store, KIND, f"id-{start}", f"1.{number}.0")
        raise_floor(store, KIND, "shared", f"1.{number}.0")


def test_processes_that_raise_at_once_lose_nothing(store: Path) -> None:
    """Reading and replacing is one step for everybody else."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_raise_many, args=(store, n)) for n in (0, 100)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert read_floors(store)[KIND] == {
        "id-0": "1.11.0",
        "id-100": "1.111.0",
        "shared": "1.111.0",
    }


MALFORMED = [
    pytest.param("{", "is not JSON", id="no-json"),
    pytest.param('{"schema_version": "1"}', "cartridge: is missing", id="no-kind"),
    pytest.param('{"schema_version": "2"}', 'must be "1"', id="other-schema"),
    pytest.param(
        '{"schema_version": "1", "cartridge": {"a": "1"}, "weights-update": {}}',
        "cartridge.a: must be a semantic version",
        id="no-version",
    ),
    pytest.param(
        '{"schema_version": "1", "cartridge": {}, "weights-update": {}, "x": 1}',
        "x: is no key here",
        id="other-key",
    ),
]


@pytest.mark.parametrize(("text", "words"), MALFORMED)
def test_error_malformed_file(store: Path, text: str, words: str) -> None:
    """What cannot be read is no floor of zero: everything is refused until it is put right."""
    floors_file(store).write_text(text)
    for use in (read_floors, TrustStore.read, lambda file: raise_floor(file, KIND, "a", "1.0.0")):
        with pytest.raises(VerificationError, match=words):
            use(store)


def test_floors_outlive_the_trust_store(store: Path) -> None:
    """A trust store that was removed takes no floor with it."""
    raise_floor(store, KIND, "a", "1.0.0")
    store.unlink()
    assert TrustStore.read(store).accepted[KIND] == {"a": "1.0.0"}


def test_a_folder_that_cannot_be_written_is_logged(
    store: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine's own trust store may be read-only: what was accepted before still counts."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    raise_floor(store, KIND, "a", "1.0.0")
    monkeypatch.setattr(os, "replace", refuse)
    with caplog.at_level(logging.WARNING, "cartridge.packs"):
        raise_floor(store, KIND, "a", "1.1.0")
    assert "a 1.1.0 was accepted could not be kept" in caplog.text
    assert read_floors(store)[KIND] == {"a": "1.0.0"}
    assert len(list(store.parent.iterdir())) == 2


ORDERED = [
    *("1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2"),
    *("1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1", "1.2.0", "1.10.0", "2.0.0", "10.0.0"),
    f"{'9' * 5000}.0.0",
]


def test_precedence_is_that_of_semantic_versions() -> None:
    """The order of Semantic Versioning 2.0.0, 11; numbers may be as long as they like."""
    assert sorted([*ORDERED[7:], *ORDERED[:7]], key=precedence) == ORDERED
    assert len({precedence(version) for version in ORDERED}) == len(ORDERED)
    assert precedence("1.0.0+a") == precedence("1.0.0+b-1") == precedence("1.0.0")


@settings(max_examples=40, deadline=None)
@given(st.from_regex(SEMVER, fullmatch=True), st.from_regex(SEMVER, fullmatch=True))
def test_any_two_versions_can_be_compared(one: str, other: str) -> None:
    """Each is older than the other, newer or equal; no comparison crashes."""
    a, b = precedence(one), precedence(other)
    assert [a < b, a == b, a > b].count(True) == 1


def test_the_file_is_json_for_people(store: Path) -> None:
    """A person may look at it, and correct it."""
    raise_floor(store, KIND, "b", "1.0.0")
    raise_floor(store, KIND, "a", "1.0.0")
    document = json.loads(floors_file(store).read_text())
    assert list(document[KIND]) == ["a", "b"]
