"""The contract that every cartridge keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cartridge_core.testing import CancellableBatchContract
from cartridge_whisper import plugin

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.capdefs import Cap
    from cartridge_core.hookspecs import BatchPlugin
    from cartridge_whisper.sessions import Handle, Session

    _: BatchPlugin[Handle, Session] = plugin


def sound(seconds: float, seed: int) -> NDArray[np.float32]:
    """Make noise that comes and goes."""
    import numpy as np

    count = round(seconds * 16_000)
    samples = np.random.default_rng(seed).standard_normal(count)
    return (samples * np.where(np.arange(count) // 4_000 % 2, 0.1, 0.01)).astype(np.float32)


class TestTranscription(CancellableBatchContract):
    """On the scripted model."""

    plugin = plugin
    cartridge_id = "whisper-transcription"

    @pytest.fixture
    def model_spec(self, scripted_file: Path) -> Path:
        """Open the scripted model."""
        return scripted_file

    def value(self, cap: Cap) -> object:
        """Give two seconds."""
        del cap
        return sound(2.0, 0)

    def other_value(self, cap: Cap) -> object:
        """Give three other ones, as whole numbers."""
        del cap
        return (sound(3.0, 1) * 32_767).astype("int16")

    def slow_value(self, cap: Cap) -> object:
        """Give two hours."""
        del cap
        import numpy as np

        return np.tile(sound(60.0, 2), 120)
