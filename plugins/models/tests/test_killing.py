"""Processes that are killed, that come at the same time, and disks that fill up."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loopback import noise

if TYPE_CHECKING:
    from fake_hub import FakeHub
    from loopback import Loopback

    from conftest import Ask

SCRIPTS = Path(__file__).parents[1] / "scripts"
BIG = "model.gguf"


def asking(marker: str, spec: str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPTS / "asking.py"), marker, spec, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def answer(child: subprocess.Popen[str]) -> dict[str, object]:
    said = json.loads(child.communicate(timeout=120)[0])
    assert isinstance(said, dict)
    return said


def blob(hub: FakeHub, folder: Path, name: str = BIG) -> Path:
    return folder / "hub" / "models--acme--tiny" / "blobs" / hub.digest(name)


@pytest.mark.parametrize(
    ("size", "share"),
    [
        pytest.param(200_000_000, 0.6, id="a05-200-MB-at-60"),
        pytest.param(30_000_000, 0.1, id="a05-30-MB-at-10"),
        pytest.param(30_000_000, 0.95, id="a05-30-MB-at-95"),
        pytest.param(3_000_000, 0.5, id="a05-3-MB-at-50"),
    ],
)
def test_a05_killed_download_goes_on(
    ask: Ask, hub: FakeHub, tmp_path: Path, size: int, share: float
) -> None:
    """After kill -9 the next process asks for the rest alone, and the digest is right."""
    hub.content = {BIG: noise(size, 0)}
    hub.hold_at = int(size * share)
    part = Path(f"{blob(hub, tmp_path)}.cartridge")
    with asking("download-model", "acme/tiny") as child:
        assert hub.held.wait(60)
        until = time.monotonic() + 60
        while part.stat().st_size < hub.hold_at and time.monotonic() < until:
            time.sleep(0.01)
        child.kill()
    hub.go.set()
    hub.hold_at = None
    here, before = part.stat().st_size, hub.sent_bytes
    assert ask("model-status", "acme/tiny")["state"] == "paused"
    with asking("download-model", "acme/tiny") as child:
        assert answer(child)["success"] is True
    assert hub.sent_bytes - before == size - here <= (1.05 - share) * size
    assert hashlib.sha256(blob(hub, tmp_path).read_bytes()).hexdigest() == hub.digest(BIG)
    assert [path.name for path in blob(hub, tmp_path).parent.iterdir()] == [hub.digest(BIG)]


def test_eight_processes_make_one_transfer(hub: FakeHub, tmp_path: Path) -> None:
    """Eight that ask for a model at once all get it, and every file is sent once."""
    hub.content = {BIG: noise(4_000_000, 1), "config.json": b"{}"}
    hub.pace_bytes_s = 2_000_000.0
    children = [asking("download-model", "acme/tiny") for _ in range(8)]
    answers = [answer(child) for child in children]
    assert {str(one.get("path")) for one in answers} == {
        str(tmp_path / "hub" / "models--acme--tiny" / "snapshots" / hub.commit)
    }
    assert {one.get("total_bytes") for one in answers} == {4_000_002}
    assert sorted(hub.fetched) == ["config.json", BIG]


def test_two_hundred_kills_never_leave_a_wrong_file(loopback: Loopback, tmp_path: Path) -> None:
    """Whenever a download is killed, what is in the cache is whole and right."""
    data = [noise(100_000, seed) for seed in range(3)]
    names = [hashlib.sha256(one).hexdigest() for one in data]
    loopback.files = {f"/{name}": one for name, one in zip(names, data, strict=True)}
    loopback.pace_bytes_s = 3_000_000.0
    command = [sys.executable, str(SCRIPTS / "killing.py"), "200", str(tmp_path), loopback.url]
    done = subprocess.run([*command, *names], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["killed"] == 200
    assert found["late"] >= 100


def test_error_disk_that_fills_up_leaves_the_cache_sound(
    ask: Ask, hub: FakeHub, tmp_path: Path
) -> None:
    """A disk without room is an error with the way out; what was stored is gone on from."""
    hub.content = {BIG: noise(1_000_000, 2)}
    said = answer(asking("download-model", "acme/tiny", "300000"))
    assert said["error"] == "DownloadError"
    assert "cannot be stored in" in str(said["text"])
    assert "set HF_HOME to another disk" in str(said["text"])
    part = Path(f"{blob(hub, tmp_path)}.cartridge")
    assert part.read_bytes() == hub.content[BIG][:300_000]
    assert ask("model-path", "acme/tiny")["exists"] is False
    before = hub.sent_bytes
    assert answer(asking("download-model", "acme/tiny"))["success"] is True
    assert hub.sent_bytes - before == 700_000


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_error_small_disk_is_told_before_the_first_byte(hub: FakeHub, tmp_path: Path) -> None:
    """On a disk that is too small nothing of the file is asked for."""
    hub.content = {BIG: b"x" * 3_000_000}
    folder = tmp_path / "hub"
    folder.mkdir()
    script = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'
    ask = [sys.executable, str(SCRIPTS / "asking.py"), "download-model", "acme/tiny"]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, str(folder), *ask],
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    said = json.loads(done.stdout)
    assert "it needs 3.0 MB" in said["text"]
    assert "free; make room, or set HF_HOME" in said["text"]
    assert hub.fetched == []
