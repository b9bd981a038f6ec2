"""What every test run shares: in CI a skipped test is a failure, elsewhere it is said last."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter


def _skipped(config: pytest.Config) -> list[pytest.TestReport]:
    reporter: TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    return reporter.stats.get("skipped", []) if reporter else []


def pytest_configure() -> None:
    """Take Ctrl-C also where a shell that ran this in the background had it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a CI run that skipped something."""
    if _skipped(session.config) and os.environ.get("CI") == "true":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say in the very last line what was not tested."""
    count = len(_skipped(config))
    reporter: TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    if count and reporter:
        reporter.write_line(
            f"{count} tests were SKIPPED: see the short summary for what is missing"
        )
