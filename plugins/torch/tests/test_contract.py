"""The contract that every cartridge keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cartridge_core.testing import CancellableBatchContract
from cartridge_torch import plugin

if TYPE_CHECKING:
    from pathlib import Path

    from cartridge_core.capdefs import Cap
    from cartridge_core.hookspecs import BatchPlugin
    from cartridge_torch.model import Model
    from cartridge_torch.session import Session

    _: BatchPlugin[Model, Session] = plugin


class TestTextEmbedding(CancellableBatchContract):
    """On the tiny model."""

    plugin = plugin
    cartridge_id = "torch-text-embedding"

    @pytest.fixture
    def model_spec(self, tiny: Path) -> Path:
        """Open the tiny model."""
        return tiny

    def slow_value(self, cap: Cap) -> object:
        """Embed thousands of texts."""
        del cap
        return ["the cat is red"] * 20_000
