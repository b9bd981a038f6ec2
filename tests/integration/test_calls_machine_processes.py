"""The same sequences with every cartridge in a process of its own, and processes that die."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import partial
from pathlib import Path

import hypothesis
import pytest
from hypothesis import stateful
from hypothesis import strategies as st

from cartridge_core.testing.registries import registry_of
from tests.integration.worker_plugins import plugin_moody
from tests.unit import test_calls_machine as inline

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="it counts files there")

ENDS = st.sampled_from(plugin_moody.DEATHS)


def children():
    """Give the processes that this one has started, and that have not been waited for."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that ends meanwhile
            found.update((task / "children").read_text().split())
    return found


class Machine(inline.Machine):
    """Users, and processes that are killed, leave, or send rubbish."""

    def __init__(self):
        self.children = children()
        super().__init__()

    def make_registry(self):
        return registry_of(plugin_moody, isolation="process", limits=inline.LIMITS)

    @stateful.rule(name=inline.CAPS, mood=ENDS)
    def call_that_ends_its_process(self, name, mood):
        call, _ = self.start(name, mood, "")
        self.follow(partial(inline.result, call), None)

    @stateful.rule(name=inline.CAPS, mood=ENDS)
    def load_that_ends_its_process(self, name, mood):
        call, text = self.start(name, "well", mood)
        self.follow(partial(inline.result, call), text)

    def killers(self):
        pids = [one.pid for one in self.registry.loaded() if one.pid is not None]
        return [partial(self.kill, pid) for pid in pids]

    @staticmethod
    def kill(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def look_at_what_is_left(self):
        """What they saw is in their processes."""

    def teardown(self):
        self.threads |= {one for one in inline.threads() if one.name == "cartridge-launcher"}
        super().teardown()
        inline.until(lambda: children() <= self.children)


def test_some_hundred_steps():
    """Fewer, since processes take their time to start."""
    settings = hypothesis.settings(inline.SETTINGS, max_examples=3)
    stateful.run_state_machine_as_test(Machine, settings=settings)
