"""The contract that every cartridge keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- an array is a picture
import pytest

from cartridge_core.testing import CancellableBatchContract, StreamingContract
from cartridge_gguf import plugin

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from cartridge_core.capdefs import Cap
    from cartridge_core.hookspecs import BatchPlugin, StreamingPlugin
    from cartridge_gguf.plugin import Handle, Session

    _batch: BatchPlugin[Handle, Session] = plugin
    _streaming: StreamingPlugin[Handle, Session] = plugin


class TestTextGeneration(StreamingContract):
    """On the random model, which writes until its limit."""

    plugin = plugin
    cartridge_id = "gguf-text-generation"
    varying = ("generation_time_ms",)

    @pytest.fixture
    def model_spec(self, llama: Path) -> Path:
        """Open the random model."""
        return llama

    def value(self, cap: Cap) -> object:
        """Ask for a text; under a grammar where the cap needs one."""
        return self._request(cap, "hello world")

    def other_value(self, cap: Cap) -> object:
        """Ask for another text."""
        return self._request(cap, "this is a cat")

    def _request(self, cap: Cap, prompt: str) -> dict[str, object]:
        request: dict[str, object] = {"prompt": prompt, "max_tokens": 16}
        if "constrained" in cap.urn.tags:
            request["grammar"] = 'root ::= ("yes" | "no" | " cat")+'
        return request


class TestTextEmbedding(CancellableBatchContract):
    """On the random BERT."""

    plugin = plugin
    cartridge_id = "gguf-embedding"

    @pytest.fixture
    def model_spec(self, bert: Path) -> Path:
        """Open the random BERT."""
        return bert

    def slow_value(self, cap: Cap) -> object:
        """Embed thousands of texts."""
        del cap
        return ["the cat is red"] * 20_000


class TestVision(StreamingContract):
    """On the random model with its projector."""

    plugin = plugin
    cartridge_id = "gguf-vision"
    varying = ("generation_time_ms",)

    @pytest.fixture
    def model_spec(self, vision: Path) -> Path:
        """Open the random model with its projector."""
        return vision

    def value(self, cap: Cap) -> object:
        """Look at a red picture."""
        del cap
        return _picture((255, 0, 0))

    def other_value(self, cap: Cap) -> object:
        """Look at a blue one."""
        del cap
        return _picture((0, 0, 255))


def _picture(colour: tuple[int, int, int]) -> NDArray[np.uint8]:
    return np.full((20, 30, 3), colour, np.uint8)
