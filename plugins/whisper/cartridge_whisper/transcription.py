"""A session that makes the text of a whole sound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cartridge_core.results import Result, ResultKind
from cartridge_media.audio import read_audio
from cartridge_whisper.patience import Patience
from cartridge_whisper.records import transcript
from cartridge_whisper.segments import FRAME_SAMPLES, SAMPLE_RATE_HZ
from cartridge_whisper.silence import is_silent
from cartridge_whisper.work import Work

if TYPE_CHECKING:
    from cartridge_core.context import Context
    from cartridge_whisper._whisper import Whisper
    from cartridge_whisper.segments import Segment
    from cartridge_whisper.settings import Settings

__all__ = ["TranscriptionSession"]


@attrs.frozen
class TranscriptionSession:
    """Makes the text of sounds, one after the other."""

    _whisper: Whisper
    _model_name: str
    _settings: Settings
    _context: Context

    def infer(self, value: object) -> Result:
        """
        Transcribe a sound.

        Returns:
            A FINAL result with the record that `cartridge_whisper.records.transcript` makes.

        Raises:
            InvalidArgumentError: It is no sound that can be read, or nothing of it lies in the
                clip.

            BackendError: The model failed.

            CancelledError: The context was cancelled.
        """
        settings, patience = self._settings, Patience(self._context)
        patience.progress(0.0, "reading the sound")
        samples = read_audio(value, rate_hz=settings.hearing.rate_hz, check=patience.ask)
        duration_s = len(samples) / SAMPLE_RATE_HZ
        first, end = settings.clip.frames(len(samples) // FRAME_SAMPLES)
        clip = samples[first * FRAME_SAMPLES : end * FRAME_SAMPLES]
        segments: list[Segment] = []
        if not is_silent(clip, settings.hearing.silence_dbfs):
            least_s = 30.0 if self._must_detect else 0.0
            sound = self._whisper.hear(samples, patience.ask, least_s=least_s)
            if self._must_detect:
                chances = self._whisper.detect(sound, patience.ask)
                settings = settings.with_language(max(chances, key=lambda code: chances[code]))
            segments = Work(self._whisper, settings, samples, sound, patience).run(first, end)
        language = settings.decoding.language if self._whisper.is_multilingual else "en"
        tokenizer = self._whisper.tokenizer(language, settings.decoding.task)
        record = {
            **transcript(segments, tokenizer, duration_s),
            "language": language,
            "duration_s": duration_s,
            "model_name": self._model_name,
        }
        end_s = duration_s if settings.clip.end_s is None else min(duration_s, settings.clip.end_s)
        return Result(ResultKind.FINAL, record, start_s=settings.clip.start_s, end_s=end_s)

    @property
    def _must_detect(self) -> bool:
        return self._settings.decoding.language is None and self._whisper.is_multilingual
