"""Digests of a pack's files are remembered while nothing changed, and in no other case."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from cartridge_core import digests
from cartridge_core.digests import Digests

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MANIFEST = f"sha256:{'0' * 64}"
OTHER = f"sha256:{'1' * 64}"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pack's folder with one file, written a minute ago; nothing is remembered."""
    monkeypatch.setenv("CARTRIDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "_here", {})
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 60 * 10**9)
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"weights")
    return folder


def ask(root: Path, manifest: str = MANIFEST, *, fresh: bool = False) -> tuple[str, int, int]:
    """Give the file's digest, and the bytes that were hashed and remembered for it."""
    known = Digests(root, manifest, fresh)
    digest = known.of("a.bin", (root / "a.bin").stat())
    known.keep()
    return digest, known.hashed_bytes, known.remembered_bytes


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be another process."""
    monkeypatch.setattr(digests, "_here", {})


def cache(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "cache" / "digests").iterdir()
    return file


RIGHT = f"sha256:{hashlib.sha256(b'weights').hexdigest()}"


def test_a_file_is_hashed_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, and in the next."""
    assert ask(root) == (RIGHT, 7, 0)
    assert ask(root) == (RIGHT, 0, 7)
    forget(monkeypatch)
    assert ask(root) == (RIGHT, 0, 7)


def test_another_process_remembers(root: Path) -> None:
    """A real one, with a clock of its own."""
    ask(root)
    code = (
        "import sys; from pathlib import Path; from cartridge_core.digests import Digests\n"
        "root = Path(sys.argv[1]); known = Digests(root, sys.argv[2])\n"
        "print(known.of('a.bin', (root / 'a.bin').stat()), known.remembered_bytes)"
    )
    command = [sys.executable, "-c", code, str(root), MANIFEST]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == f"{RIGHT} 7\n"


class StopError(Exception):
    """Raised by one who has had enough."""


@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_error_hashing_ends_when_its_caller_is_cancelled(root: Path, chunks: int) -> None:
    """Between two pieces, however large the file is; nothing is remembered of it."""
    (root / "a.bin").write_bytes(bytes(8 * digests._CHUNK_BYTES))
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked == chunks:
            raise StopError

    known = Digests(root, MANIFEST, check_cancelled=check)
    with pytest.raises(StopError):
        known.of("a.bin", (root / "a.bin").stat())
    assert asked == chunks
    assert ask(root)[1] == 8 * digests._CHUNK_BYTES


def test_fresh_hashes_again(root: Path) -> None:
    """Who asks for it gets the bytes as they are."""
    ask(root)
    assert ask(root, fresh=True) == (RIGHT, 7, 0)


def test_another_manifest_has_its_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was hashed for one manifest does not count for the next."""
    ask(root)
    assert ask(root, OTHER)[1] == 7
    forget(monkeypatch)
    assert ask(root, MANIFEST)[1] == 7


def test_a_file_just_written_is_hashed_each_time(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a tick of its clock, the file system shows no change."""
    monkeypatch.undo()
    monkeypatch.setenv("CARTRIDGE_CACHE", str(tmp_path / "cache"))
    (root / "a.bin").write_bytes(b"Weights")
    assert ask(root)[1] == ask(root)[1] == 7
    assert not (tmp_path / "cache").exists()


def rewritten(file: Path) -> None:
    file.write_bytes(b"WEIGHTS")


def set_back(file: Path) -> None:
    seen = file.stat()
    rewritten(file)
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def replaced(file: Path) -> None:
    seen = file.stat()
    rewritten(file.with_name("other"))
    os.utime(file.with_name("other"), ns=(seen.st_atime_ns, seen.st_mtime_ns))
    file.with_name("other").replace(file)


@pytest.mark.parametrize("alter", [rewritten, set_back, replaced])
@pytest.mark.parametrize("elsewhere", [True, False], ids=["other-process", "here"])
def test_a_file_that_changed_is_hashed(
    root: Path, monkeypatch: pytest.MonkeyPatch, alter: Callable[[Path], None], elsewhere: bool
) -> None:
    """The size is the same, and the time may be; the system's own time of change is not."""
    ask(root)
    time.sleep(0.02)  # more than a tick of the file system's clock
    alter(root / "a.bin")
    if elsewhere:
        forget(monkeypatch)
    digest, hashed, _ = ask(root)
    assert (digest, hashed) == (f"sha256:{hashlib.sha256(b'WEIGHTS').hexdigest()}", 7)


def forge(file: Path, root: Path, **changes: object) -> None:
    """Write into the cache that the file has another digest."""
    document = json.loads(file.read_text())
    document["files"]["a.bin"][5] = f"sha256:{'f' * 64}"
    file.write_text(json.dumps({**document, **changes}))


def test_what_others_may_write_is_not_read(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache counts only while nobody else can have written it."""
    ask(root)
    file = cache(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    forge(file, root)
    for mode in (0o620, 0o602):
        file.chmod(mode)
        forget(monkeypatch)
        assert ask(root)[:2] == (RIGHT, 7)
        forge(file, root)
    file.chmod(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    forget(monkeypatch)
    assert ask(root)[:2] == (RIGHT, 7)


ODD = [
    pytest.param("", id="empty"),
    pytest.param("{", id="no-json"),
    pytest.param("[]", id="no-object"),
    pytest.param('{"files": {}, "files": {}}', id="key-twice"),
    pytest.param("\udce4", id="no-text"),
]


@pytest.mark.parametrize("text", ODD)
def test_a_damaged_cache_is_made_anew(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """What cannot be read is not believed, and no error."""
    ask(root)
    cache(tmp_path).write_bytes(os.fsencode(text))
    forget(monkeypatch)
    assert ask(root)[:2] == (RIGHT, 7)
    forget(monkeypatch)
    assert ask(root)[1] == 0


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param([], id="short"),
        pytest.param("x", id="text"),
        pytest.param([1, 2, 3, 4, "5", RIGHT], id="text-in-it"),
        pytest.param([1, 2, 3, 4, 5, "sha256:x"], id="no-digest"),
        pytest.param([1, 2, 3, 4, 5, 6], id="number"),
    ],
)
def test_an_odd_entry_is_not_believed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: object
) -> None:
    """One entry of another form, and none of them counts."""
    ask(root)
    forge(cache(tmp_path), root, files={"a.bin": entry})
    forget(monkeypatch)
    assert ask(root)[:2] == (RIGHT, 7)


def test_a_cache_that_cannot_be_written_costs_time_only(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the folder's place: everything works, and this process remembers."""
    (tmp_path / "cache").write_text("")
    assert ask(root)[1] == 7
    assert ask(root)[1] == 0
    forget(monkeypatch)
    assert ask(root)[1] == 7
