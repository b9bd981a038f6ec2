"""The contract that every streaming cartridge keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cartridge_core.testing import StreamingContract
from cartridge_whisper import plugin

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.capdefs import Cap
    from cartridge_core.hookspecs import StreamingPlugin
    from cartridge_whisper.sessions import Handle, Session

    _: StreamingPlugin[Handle, Session] = plugin


class TestStreamingTranscription(StreamingContract):
    """On the scripted model."""

    plugin = plugin
    cartridge_id = "whisper-streaming-transcription"

    @pytest.fixture
    def model_spec(self, scripted_file: Path) -> Path:
        """Open the scripted model."""
        return scripted_file

    def value(self, cap: Cap) -> NDArray[np.float32]:
        """Give an utterance, a pause and the beginning of another one."""
        del cap
        import numpy as np
        from vowels import silence, voice

        return np.concatenate([voice(1.2), silence(0.7), voice(0.5)])

    def other_value(self, cap: Cap) -> NDArray[np.int16]:
        """Give another one, as whole numbers."""
        del cap
        import numpy as np
        from vowels import voice

        return (voice(1.5, 180.0) * 32_767).astype(np.int16)

    def chunks(self, cap: Cap, value: object) -> Sequence[object]:
        """Cut it into tenths of a second."""
        del cap
        import numpy as np

        assert isinstance(value, np.ndarray)
        return [value[at : at + 1600] for at in range(0, len(value), 1600)]
