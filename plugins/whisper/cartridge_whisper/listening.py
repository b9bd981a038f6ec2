"""A Whisper model as the recogniser of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cartridge_whisper.recogniser import Hypothesis
from cartridge_whisper.segments import FRAME_SAMPLES, FRAMES_PER_SECOND
from cartridge_whisper.windows import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_whisper._whisper import Whisper
    from cartridge_whisper.options import Decoding

__all__ = ["WhisperRecogniser"]

_HOT = 0.5
"""Text of a higher temperature is a guess."""


@attrs.frozen
class WhisperRecogniser:
    """
    Makes words of at most 30 s of sound.

    Args:
        whisper: The model.
        decoding: How; where it names no language, that is detected.
        context_s: How much the encoder hears at least.
        seed: Of temperatures above 0.
    """

    _whisper: Whisper
    _decoding: Decoding
    _context_s: float
    _seed: int

    def recognise(
        self,
        samples: NDArray[np.float32],
        prompt: Sequence[int],
        ask: Callable[[], None],
        *,
        draft: Sequence[int],
        language: str | None,
        is_last: bool,
    ) -> Hypothesis:
        """
        Make words of a sound; a pass that is not the last tries one temperature alone.

        Raises:
            BackendError: The model failed.
        """
        whisper, decoding = self._whisper, self._decoding
        language = decoding.language or language
        if len(samples) < FRAME_SAMPLES:
            return Hypothesis(words=(), language=language)
        detects = language is None and whisper.is_multilingual
        sound = whisper.hear(samples, ask, least_s=30.0 if detects else 0.0)
        if detects:
            chances = whisper.detect(sound, ask)
            language = max(chances, key=lambda code: chances[code])
        options = attrs.evolve(
            decoding,
            language=language,
            temperature=decoding.temperature if is_last else decoding.temperature[:1],
            word_timestamps=True,
        )
        window = Window(0, sound.frames)
        (found,) = whisper.decode(
            sound,
            [window],
            options,
            whisper.random(self._seed),
            ask,
            prompt=prompt,
            draft=draft,
            to_the_end=True,
            least_frames=round(self._context_s * FRAMES_PER_SECOND),
        )
        return Hypothesis(
            words=[word for segment in found.segments for word in segment.words],
            language=language if whisper.is_multilingual else "en",
            draft=found.text.tokens,
            avg_logprob=found.text.avg_logprob,
            no_speech_prob=found.text.no_speech_prob,
            is_poor=found.text.is_poor(options),
            is_guess=found.text.temperature > _HOT,
        )
