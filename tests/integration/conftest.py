"""Workers for the tests: processes with plugins of ``worker_plugins``, ended when a test is."""

from __future__ import annotations

import contextlib
import importlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cartridge_core.discovery import Discovered, PluginSource
from cartridge_core.offers import Offer
from cartridge_core.registry import Registry
from cartridge_core.worker import starting

if TYPE_CHECKING:
    from cartridge_core.worker.client import Worker

PLUGINS = Path(__file__).parent / "worker_plugins"
PATIENCE_S = 30.0


@pytest.fixture(autouse=True, scope="module")
def _importable():
    """Have the plugins of ``worker_plugins`` be importable, here and in workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PLUGINS))
        yield


@pytest.fixture(scope="session")
def source_of():
    """Give the source of a plugin that is not installed."""

    def make(module, descriptors):
        name = module.removeprefix("plugin_")
        return PluginSource(
            name,
            f"cartridge-{name}",
            version="1.0.0",
            module=module,
            descriptors=tuple(descriptors),
            load=lambda: importlib.import_module(module),
        )

    return make


@pytest.fixture(scope="module")
def start_worker():
    """Start workers that are ended with the module's tests."""
    started: list[Worker] = []

    def start(source, *, cartridge_id=None, **given):
        own = cartridge_id or source.descriptors[0].id
        worker = starting.start(source, own, source.descriptors, **given)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.end(0.0)


@pytest.fixture(scope="module")
def registry_over(source_of):
    """Give registries over a plugin of ``worker_plugins`` or of a test's own folder."""

    def make(module, descriptors=None, **given):
        if descriptors is None:
            descriptors = importlib.import_module(module).cartridge_descriptors()
        source = source_of(module, descriptors)
        offers = [Offer(one, source.name) for one in descriptors]
        found = Discovered(tuple(offers), {source.name: source}, issues=())
        return stack.enter_context(Registry(found, **given))

    with contextlib.ExitStack() as stack:
        yield make


@pytest.fixture(scope="session")
def eventually():
    """Wait until something is so."""

    def wait(condition, patience_s=PATIENCE_S):
        end_s = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < end_s, f"waited {patience_s:g} s in vain"
            time.sleep(0.005)

    return wait
