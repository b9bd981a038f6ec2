"""A child process: its lines, its status, and its end when the work is cancelled."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from cartridge_core.context import Context
from cartridge_core.errors import CancelledError
from cartridge_models import _child

if TYPE_CHECKING:
    from pathlib import Path


def run(code: str, context: Context, lines: list[str], errors: list[str]) -> int:
    return _child.run(
        [sys.executable, "-c", code],
        env=dict(os.environ),
        context=context,
        on_output=lines.append,
        on_error=errors.append,
    )


def test_lines_come_apart_and_in_order() -> None:
    """Standard output and standard error are read by line, each for itself."""
    lines: list[str] = []
    errors: list[str] = []
    code = "import sys; print('a\\nb'); print('e', file=sys.stderr); sys.exit(3)"
    assert run(code, Context(), lines, errors) == 3
    assert (lines, errors) == (["a", "b"], ["e"])


def test_redrawn_bar_is_lines() -> None:
    """A bar that is drawn over itself comes as lines, one each time it is drawn."""
    errors: list[str] = []
    run("import sys; sys.stderr.write('\\r10%\\r20%')", Context(), [], errors)
    assert errors == ["", "10%", "20%"]


def test_child_has_no_standard_input() -> None:
    """A child that asks a question gets no answer from this process's terminal."""
    lines: list[str] = []
    run("import sys; print(repr(sys.stdin.read()))", Context(), lines, [])
    assert lines == ["''"]


@pytest.mark.parametrize(
    "deaf",
    [
        pytest.param("", id="ends-when-asked"),
        pytest.param("signal.signal(signal.SIGTERM, signal.SIG_IGN);", id="is-killed"),
    ],
)
def test_error_cancelled_child_has_ended(deaf: str, tmp_path: Path) -> None:
    """Cancelling ends the child, also one that ignores being asked."""
    context = Context()
    pids: list[str] = []

    def take(line: str) -> None:
        pids.append(line)
        context.cancel()

    code = f"import os, signal, time; {deaf} print(os.getpid(), flush=True); time.sleep(60)"
    with pytest.raises(CancelledError):
        _child.run(
            [sys.executable, "-c", code],
            env=dict(os.environ),
            context=context,
            on_output=take,
            on_error=pids.append,
        )
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids[0]), 0)


def test_no_thread_is_left() -> None:
    """Nothing of a child stays behind in this process."""
    before = threading.active_count()
    run("print('x')", Context(), [], [])
    assert threading.active_count() == before
