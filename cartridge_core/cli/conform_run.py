"""Run the contract in a process of its own, and take what it tells of every rule."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["Rule", "Verdict", "environment", "run_contract"]

_READ_BYTES = 1 << 16
_END_S = 10.0
"""How long a process that is done may take to end."""

_LOOK_S = 0.05
"""How often to see whether a process has ended."""

_LAST_WORDS = 600
"""Characters of what it printed that are told where it died."""

_TEST_FILE = """\
from cartridge_core.testing.conforming import contract_of

TestConform = contract_of({file!r})
"""


class Verdict(enum.StrEnum):
    """What came of a rule."""

    PASS = "pass"  # noqa: S105 -- no password
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"


@attrs.frozen
class Rule:
    """A rule of the contract, and what came of it."""

    rule: str
    """The name of its test in the contract suite, without ``test_``."""

    verdict: Verdict
    text: str = attrs.field(kw_only=True)

    detail: str = attrs.field(default="", kw_only=True)
    """What is wrong, or why it does not apply."""

    trace: str = attrs.field(default="", kw_only=True, repr=False)


def run_contract(given: Mapping[str, object], scratch: Path, limit_s: float) -> Iterator[Rule]:
    """
    Run the contract; a process that dies or hangs fails the rule it was at, and the rest goes on.

    Args:
        given: Which cartridge, and what to try it with, as `cartridge_core.testing.conforming`
            takes it.
        scratch: An empty folder.
        limit_s: How long one rule may take.

    Raises:
        InternalError: The process died, and at no rule.
    """
    test = scratch / "test_conform.py"
    test.write_text(_TEST_FILE.format(file=str(scratch / "given.json")), "utf-8")
    (scratch / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (scratch / "temporary").mkdir()
    over: list[str] = []
    while True:
        document = json.dumps({**given, "over": over})
        (scratch / "given.json").write_text(document, "utf-8")
        running, how = None, ""
        with _started(scratch) as (process, line):
            try:
                for event in _events(process, line, limit_s):
                    if event["event"] == "begin":
                        running = event
                    elif event["event"] == "end" and running is not None:
                        yield _rule(running, event)
                        over.append(running["rule"])
                        running = None
                    elif event["event"] == "over" and running is None:
                        _wait(process)
                        return
            except TimeoutError:
                how = f"was ended: nothing came of it within {limit_s:g} s"
            else:
                how = "" if _wait(process) else "closed the line"
        how = how or _how_ended(process.returncode)
        words = _last_words(scratch / "output")
        if running is None:
            msg = f"the contract suite did not come to its end: its process {how}{words}"
            raise InternalError(msg)
        yield _rule(running, {"verdict": "fail", "detail": f"its process {how}{words}"})
        over.append(running["rule"])


def _rule(begun: Mapping[str, str], ended: Mapping[str, str]) -> Rule:
    return Rule(
        begun["rule"],
        Verdict(ended["verdict"]),
        text=begun["text"],
        detail=ended.get("detail", ""),
        trace=ended.get("trace", ""),
    )


@contextlib.contextmanager
def _started(scratch: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a process for the rules that are left; give it, and the end of the line to read."""
    theirs: int | None
    line, theirs = os.pipe()
    command = [sys.executable, "-P", "-m", "pytest", "-p", "cartridge_core.testing.conforming"]
    command += ["--conform", str(scratch / "given.json"), "--conform-line", str(theirs)]
    command += ["-p", "no:cacheprovider", "--noconftest", "--import-mode=importlib", "-q"]
    command += ["-c", str(scratch / "pytest.ini"), str(scratch / "test_conform.py")]
    try:
        with (scratch / "output").open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 -- this Python, and files of ours
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs,),
                # One that is ended leaves its temporary files to whoever made the folder.
                env={**environment(), "TMPDIR": str(scratch / "temporary")},
                # With whatever it starts, so that nothing is left of it.
                process_group=0,
            )
        os.close(theirs)
        theirs = None
        try:
            yield process, line
        finally:
            _end(process)
    finally:
        os.close(line)
        if theirs is not None:
            os.close(theirs)


def environment() -> dict[str, str]:
    """Give the environment of a process that imports what can be imported here, and no more."""
    inherited = {key: text for key, text in os.environ.items() if key[:7] != "PYTEST_"}
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**inherited, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def _events(
    process: subprocess.Popen[bytes], line: int, limit_s: float
) -> Iterator[dict[str, str]]:
    """
    Give what comes over the line, until it is closed or the process has ended.

    Raises:
        TimeoutError: Nothing came for so long.
    """
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(line, selectors.EVENT_READ)
        since_s = time.monotonic()
        while True:
            # Before the look at the line, which its last words are on. What it forked may hold it.
            has_ended = _has_ended(process)
            if not selector.select(_LOOK_S):
                if has_ended:
                    return
                if time.monotonic() - since_s >= limit_s:
                    raise TimeoutError
                continue
            data = os.read(line, _READ_BYTES)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            yield from map(json.loads, whole)
            since_s = time.monotonic()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Say whether a process has ended; it is not reaped, so its number stays that of its group."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, how) is not None


def _wait(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the end of a process that is done; say whether it came."""
    until_s = time.monotonic() + _END_S
    while not _has_ended(process):
        if time.monotonic() >= until_s:
            return False
        time.sleep(_LOOK_S)
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, and what it started, which may outlive it."""
    # macOS has the second for a group of which all have ended.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _how_ended(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"


def _last_words(output: Path) -> str:
    """Give the last of what a process printed, to be put behind how it ended."""
    words = output.read_bytes().decode(errors="replace").strip()[-_LAST_WORDS:]
    return f"; it printed last:\n{words}" if words else ""
