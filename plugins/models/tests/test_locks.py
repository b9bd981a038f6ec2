"""Locks between processes: held by the living, dropped with the dead, waited for within bounds."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from cartridge_core.errors import CancelledError, DownloadError
from cartridge_models.locks import Turn, hold, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOLDING = """
import sys, time
from pathlib import Path
from cartridge_models.locks import hold
with hold(Path(sys.argv[1]), print):
    {inside}
    print("held", flush=True)
    time.sleep(60)
"""
LEAVE_A_CHILD = "import os; child = os.fork(); child or (time.sleep(20), os._exit(0))"


class TakenError(Exception):
    """The lock is not free."""


def no_wait(owner: str) -> None:
    raise TakenError(owner)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "file.lock"


@pytest.fixture
def holder(lock: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Have another process hold the lock."""
    started = []

    def start(inside: str = "") -> subprocess.Popen[str]:
        code = HOLDING.format(inside=inside)
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(lock)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        return child

    yield start
    for child in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def test_a22_owner_that_lives_is_named_and_waited_for(
    lock: Path, holder: Callable[..., subprocess.Popen[str]]
) -> None:
    """While another process has the lock, whoever waits is told which one, and since when."""
    child = holder()
    with pytest.raises(TakenError, match=rf"process {child.pid} on \S+ since \d{{4}}-\d\d-\d\d"):
        with hold(lock, no_wait):
            pytest.fail("two have it")
    owner = owner_of(lock)
    assert owner is not None
    assert f"process {child.pid} " in owner


@pytest.mark.parametrize("inside", ["", LEAVE_A_CHILD], ids=["a22-killed", "a22-left-a-child"])
def test_a22_lock_of_a_killed_process_is_free(
    lock: Path, holder: Callable[..., subprocess.Popen[str]], inside: str
) -> None:
    """A lock goes with its owner, also where a child of the owner still lives."""
    child = holder(inside)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert lock.exists()
    assert owner_of(lock) is None
    with hold(lock, no_wait):
        assert owner_of(lock) is not None
    assert not lock.exists()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("process 999999 on here since 2020-01-01 00:00:00", id="a22-of-the-dead"),
        pytest.param("", id="a22-empty"),
        pytest.param("\0\xff" * 4096, id="a22-garbage"),
        pytest.param(f"process {os.getpid()} on here since now", id="a22-of-a-number-used-again"),
    ],
)
def test_a22_file_without_an_owner_means_nothing(lock: Path, text: str) -> None:
    """That a lock's file exists is no lock, whatever it says."""
    lock.parent.mkdir()
    lock.write_text(text)
    assert owner_of(lock) is None
    with hold(lock, no_wait):
        pass
    assert not lock.exists()


def test_a22_owner_whose_file_says_nothing_is_another_process(
    lock: Path, holder: Callable[..., subprocess.Popen[str]]
) -> None:
    """A lock that is held counts, also where its file was emptied."""
    holder()
    lock.write_bytes(b"\0")
    with pytest.raises(TakenError, match="another process"):
        with hold(lock, no_wait):
            pytest.fail("two have it")


def test_threads_of_one_process_exclude_each_other(lock: Path) -> None:
    """One process's threads take turns as well, and none breaks another's lock by looking."""
    inside, most, errors = 0, 0, []

    def look(owner: str) -> None:
        assert owner_of(lock) in {owner, None}

    def work() -> None:
        nonlocal inside, most
        try:
            for _ in range(5):
                with hold(lock, look):
                    inside += 1
                    most = max(most, inside)
                    time.sleep(0.001)
                    inside -= 1
        except Exception as exc:  # noqa: BLE001 -- shown below
            errors.append(exc)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, errors) == (1, [])


def test_lock_survives_that_somebody_looks(
    lock: Path, holder: Callable[..., subprocess.Popen[str]]
) -> None:
    """A thread that looks who has a lock does not drop it for its own process."""
    with hold(lock, no_wait):
        owner_of(lock)
        code = (
            "import sys; from pathlib import Path; from cartridge_models.locks import owner_of\n"
            "print(owner_of(Path(sys.argv[1])))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(lock)], capture_output=True, text=True, check=True
        )
        assert f"process {os.getpid()} " in done.stdout


def test_wait_ends_when_whoever_waits_wants(
    lock: Path, holder: Callable[..., subprocess.Popen[str]]
) -> None:
    """What is called meanwhile may end it, as a cancellation does."""
    holder()

    def cancelled(owner: str) -> None:
        raise CancelledError(owner)

    with pytest.raises(CancelledError):
        with hold(lock, cancelled):
            pytest.fail("two have it")


def test_a22_wait_lasts_as_long_as_something_comes() -> None:
    """Whoever waits does so while the owner's file grows, and no longer."""
    sizes = iter([1, 2, 3, 4, 4, 4, 4, 4, 4])
    turn = Turn("model x", lambda: next(sizes), 0.1)
    done = []

    def wait() -> None:
        for _ in range(9):
            done.append(turn.wait("process 7"))
            time.sleep(0.04)

    with pytest.raises(DownloadError, match=r"model x: process 7 fetches it, and nothing came"):
        wait()
    assert done[:4] == [1, 2, 3, 4]
    assert len(done) >= 6
