"""The contract that every cartridge keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cartridge_core.testing import CancellableBatchContract, StreamingContract
from cartridge_torch import plugin

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.capdefs import Cap
    from cartridge_core.hookspecs import BatchPlugin, StreamingPlugin
    from cartridge_torch.sessions import Handle, Session

    _: BatchPlugin[Handle, Session] = plugin
    __: StreamingPlugin[Handle, Session] = plugin


def picture(seed: int) -> NDArray[np.uint8]:
    """Make a picture of noise."""
    import numpy as np

    return np.random.default_rng(seed).integers(0, 256, (40, 30, 3), dtype=np.uint8)


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


class TestImageEmbedding(CancellableBatchContract):
    """On the tiny CLIP."""

    plugin = plugin
    cartridge_id = "torch-image-embedding"

    @pytest.fixture
    def model_spec(self, clip_folder: Path) -> Path:
        """Open the tiny CLIP."""
        return clip_folder

    def value(self, cap: Cap) -> object:
        """Give a picture where one is taken, else what the declaration says."""
        return picture(0) if cap.urn.in_.has("image") else super().value(cap)

    def other_value(self, cap: Cap) -> object:
        """Give another one."""
        return picture(1) if cap.urn.in_.has("image") else super().other_value(cap)

    def slow_value(self, cap: Cap) -> object:
        """Embed thousands of pictures."""
        del cap
        return [picture(0)] * 20_000


class TestImageCaptioning(StreamingContract):
    """On the tiny BLIP."""

    plugin = plugin
    cartridge_id = "torch-image-captioning"
    varying = ("generation_time_ms",)

    @pytest.fixture
    def model_spec(self, blip_folder: Path) -> Path:
        """Open the tiny BLIP."""
        return blip_folder

    def value(self, cap: Cap) -> object:
        """Give a picture."""
        del cap
        return picture(0)

    def other_value(self, cap: Cap) -> object:
        """Give another picture."""
        del cap
        return picture(1)[:, :, 0] // 16
