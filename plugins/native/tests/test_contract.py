"""The contract of every cartridge, on the sample cartridges in C."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- arrays are what they take
import pytest

from cartridge_core.testing import BatchContract, StreamingContract, registry_of
from cartridge_native import plugin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from cartridge_core.capdefs import Cap
    from cartridge_core.hookspecs import BatchPlugin, StreamingPlugin
    from cartridge_core.registry import Registry
    from cartridge_core.testing.watching import Watch
    from cartridge_native.model import Model
    from cartridge_native.sessions import Session

    _batch: BatchPlugin[Model, Session] = plugin
    _streaming: StreamingPlugin[Model, Session] = plugin

RATE_HZ = 16_000


def noise(seconds: float, seed: int) -> NDArray[np.float32]:
    """Give white noise, float32 in [-0.5, 0.5], shape ``(samples,)``."""
    generator = np.random.default_rng(seed)
    return generator.uniform(-0.5, 0.5, int(seconds * RATE_HZ)).astype(np.float32)


def bursts(*pieces: float) -> NDArray[np.int16]:
    """Give noise and silence by turns, each some seconds long, int16, shape ``(samples,)``."""
    made = [noise(seconds, seed=index) * (index % 2 == 0) for index, seconds in enumerate(pieces)]
    return (np.concatenate(made) * 32767).astype(np.int16)


class TestLogEnergies(BatchContract):
    """The feature extractor, in this process."""

    plugin = plugin
    cartridge_id = "native-log-energies"
    isolation = "inline"

    @pytest.fixture
    def registry(self, watch: Watch, log_energies: Path) -> Iterator[Registry]:
        """Give a registry of this pack alone."""
        packs, wrappers = [log_energies], [watch]
        with registry_of(
            self.plugin, packs=packs, wrappers=wrappers, isolation=self.isolation
        ) as registry:
            yield registry

    def value(self, cap: Cap) -> object:
        """Half a second of noise."""
        return noise(0.5, seed=1)

    def other_value(self, cap: Cap) -> object:
        """Another one, longer."""
        return noise(0.7, seed=2)


class TestEndpointer(StreamingContract):
    """The endpointer, in this process."""

    plugin = plugin
    cartridge_id = "native-endpointer"
    isolation = "inline"

    @pytest.fixture
    def registry(self, watch: Watch, endpointer: Path) -> Iterator[Registry]:
        """Give a registry of this pack alone."""
        packs, wrappers = [endpointer], [watch]
        with registry_of(
            self.plugin, packs=packs, wrappers=wrappers, isolation=self.isolation
        ) as registry:
            yield registry

    def value(self, cap: Cap) -> object:
        """Two bursts, of which the first gets a PARTIAL."""
        return bursts(0.7, 0.4, 0.2)

    def other_value(self, cap: Cap) -> object:
        """One burst."""
        return bursts(0.3, 0.5)

    def chunks(self, cap: Cap, value: object) -> Sequence[object]:
        """Cut it into pieces of 80 ms."""
        assert isinstance(value, np.ndarray)
        step = RATE_HZ * 80 // 1000
        return [value[at : at + step] for at in range(0, len(value), step)]


class TestEndpointerInProcess(TestEndpointer):
    """The same in a process of its own."""

    isolation = "process"
