"""A session that says which language is spoken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cartridge_core.results import Result, ResultKind
from cartridge_media.audio import read_audio
from cartridge_whisper.patience import Patience
from cartridge_whisper.segments import FRAME_SAMPLES, SAMPLE_RATE_HZ, WINDOW_FRAMES
from cartridge_whisper.silence import is_silent

if TYPE_CHECKING:
    from cartridge_core.context import Context
    from cartridge_whisper._whisper import Whisper
    from cartridge_whisper.settings import Hearing

__all__ = ["LanguageSession"]


@attrs.frozen
class LanguageSession:
    """Says which language is spoken in sounds, one after the other."""

    _whisper: Whisper
    _model_name: str
    _hearing: Hearing
    _context: Context

    def infer(self, value: object) -> Result:
        """
        Listen to the first 30 s of a sound.

        Returns:
            A FINAL result with ``language`` (a code; None where nobody speaks), ``probability``,
            ``probabilities`` by code, ``has_speech``, ``duration_s`` and ``model_name``.

        Raises:
            InvalidArgumentError: It is no sound that can be read.

            BackendError: The model failed.

            CancelledError: The context was cancelled.
        """
        patience = Patience(self._context)
        samples = read_audio(value, rate_hz=self._hearing.rate_hz, check=patience.ask)
        first = samples[: WINDOW_FRAMES * FRAME_SAMPLES]
        chances: dict[str, float] = {}
        if not is_silent(first, self._hearing.silence_dbfs):
            sound = self._whisper.hear(samples, patience.ask, least_s=30.0)
            chances = self._whisper.detect(sound, patience.ask)
        language = max(chances, key=lambda code: chances[code], default=None)
        record = {
            "language": language,
            "probability": chances[language] if language is not None else 0.0,
            "probabilities": chances,
            "has_speech": bool(chances),
            "duration_s": len(samples) / SAMPLE_RATE_HZ,
            "model_name": self._model_name,
        }
        return Result(ResultKind.FINAL, record)
