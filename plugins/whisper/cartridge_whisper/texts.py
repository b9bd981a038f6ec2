"""The text of a window, as it was decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from cartridge_whisper.options import Decoding

__all__ = ["Text"]


@attrs.frozen(kw_only=True)
class Text:
    """What one window of sound was decoded to."""

    tokens: tuple[int, ...]
    """Words and times."""

    avg_logprob: float
    no_speech_prob: float
    temperature: float

    compression_ratio: float
    """How much shorter zlib makes it: high where it repeats itself."""

    def is_poor(self, options: Decoding) -> bool:
        """Say whether another temperature should be tried."""
        is_unlikely = self.avg_logprob < options.logprob_threshold
        if is_unlikely and self.no_speech_prob > options.no_speech_threshold:
            return False  # it is silence
        return is_unlikely or self.compression_ratio > options.compression_ratio_threshold

    def is_silence(self, options: Decoding) -> bool:
        """Say whether nobody speaks in the window, as the model hears it."""
        return (
            self.no_speech_prob > options.no_speech_threshold
            and self.avg_logprob <= options.logprob_threshold
        )
