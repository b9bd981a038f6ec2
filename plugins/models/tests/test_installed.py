"""Installed distributions with broken metadata do not stand in the way of a model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Ask, RecordingContext, WheelMaker

SPEC = "pkg:pypi/tiny-model@1.0#tiny_model/model"
METADATA = b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"


@pytest.fixture
def info(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this process looks for the distribution's metadata; nothing is there yet."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    folder = tmp_path / "site" / "tiny_model-1.0.dist-info"
    folder.parent.mkdir()
    return folder


def without_metadata(info: Path) -> None:
    info.mkdir()


def a_file(info: Path) -> None:
    info.write_bytes(b"x")


def not_utf8_file(info: Path) -> None:
    info.with_suffix(".egg-info").write_bytes(b"\xff")


def link_loop(info: Path) -> None:
    info.mkdir()
    (info / "METADATA").symlink_to("METADATA")


def record(text: bytes) -> Callable[[Path], None]:
    def write(info: Path) -> None:
        info.mkdir()
        (info / "METADATA").write_bytes(METADATA)
        (info / "RECORD").write_bytes(text)

    return write


@pytest.mark.parametrize(
    "break_it",
    [
        pytest.param(without_metadata, id="no-metadata"),
        pytest.param(a_file, id="a-file-for-the-folder"),
        pytest.param(not_utf8_file, id="egg-info-not-utf-8"),
        pytest.param(link_loop, id="symlink-loop"),
        pytest.param(record(b"\xff\xfe,sha256=a,1\n"), id="record-not-utf-8"),
        pytest.param(record(b"m/x," + b"a" * 200_000 + b",1\n"), id="record-with-a-huge-field"),
    ],
)
def test_broken_distribution_counts_as_not_installed(
    ask: Ask,
    wheels: WheelMaker,
    context: RecordingContext,
    cache: Path,
    info: Path,
    break_it: Callable[[Path], None],
) -> None:
    """Metadata that cannot be read is a warning that names it, and the cache and pip are asked."""
    break_it(info)
    wheels.make()
    assert ask("model-status", SPEC)["state"] == "not_found"
    assert "the installed tiny-model cannot be read" in context.logged("warning")
    assert str(ask("download-model", SPEC)["path"]).startswith(str(cache))


def test_error_record_that_climbs_out(ask: Ask, info: Path, cache: Path) -> None:
    """An installed RECORD that lists a file outside the model's folder is refused."""
    record(b"tiny_model/model/../../../secret,sha256=AAAA,1\n")(info)
    with pytest.raises(VerificationError, match="no plain path"):
        ask("model-status", SPEC)


def test_error_installed_file_that_never_ends(
    ask: Ask, info: Path, cache: Path, tmp_path: Path
) -> None:
    """A pipe in the place of an installed file is refused, not waited for."""
    record(b"tiny_model/model/pipe,sha256=AAAA,1\n")(info)
    (tmp_path / "site" / "tiny_model" / "model").mkdir(parents=True)
    os.mkfifo(tmp_path / "site" / "tiny_model" / "model" / "pipe")
    with pytest.raises(VerificationError, match="tiny_model/model/pipe is no regular file"):
        ask("model-status", SPEC)
