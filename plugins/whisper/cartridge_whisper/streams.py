"""An open model for streams; the handle of the streaming cartridge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import LoadError
from cartridge_whisper.model import SpeechModel, check_language
from cartridge_whisper.streaming import StreamingSession, StreamSettings
from cartridge_whisper.voice import INSTALL, is_installed, weights_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.context import Context
    from cartridge_core.pack import Pack
    from cartridge_whisper._silero import Detector

__all__ = ["StreamModel", "VoiceFollower"]


@attrs.define
class StreamModel:
    """A loaded model and a voice detector, which many sessions may use at once."""

    _model: SpeechModel
    _detector: Detector

    @classmethod
    def open(cls, pack: Pack, options: Mapping[str, object], context: Context) -> StreamModel:
        """
        Load a pack, and the voice detector.

        Raises:
            LoadError: The backend, the model or the detector cannot be loaded.

            CancelledError: The context was cancelled.
        """
        file = weights_file()
        if file is None or not is_installed():
            msg = f"streams need silero-vad and onnxruntime; {INSTALL}"
            raise LoadError(msg)
        model = SpeechModel.open(pack, options, context)
        from cartridge_whisper._silero import Detector  # noqa: PLC0415 -- heavy

        return cls(model, Detector.load(file))

    def begin(
        self, cap: str, parameters: Mapping[str, object], context: Context
    ) -> StreamingSession:
        """
        Begin a stream.

        Raises:
            InvalidArgumentError: The model does not know the language, or cannot translate.
        """
        del cap  # there is one
        whisper, name = self._model.whisper, self._model.name
        settings = StreamSettings.read(parameters)
        check_language(whisper, name, settings.decoding)
        return StreamingSession(whisper, name, VoiceFollower(self._detector), settings, context)

    def close(self) -> None:
        """Let go of the weights."""
        self._model.close()


class VoiceFollower:
    """
    The detector on one sound: it remembers what came before.

    Args:
        detector: The network.
    """

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._state = detector.begin()

    def __call__(self, samples: NDArray[np.float32]) -> float:
        """Say how likely speech is in the next 512 samples."""
        chance, self._state = self._detector.step(samples, self._state)
        return chance
