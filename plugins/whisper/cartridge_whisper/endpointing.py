"""Where an utterance begins and ends, by how likely speech is every 32 ms."""

from __future__ import annotations

import enum

import attrs

from cartridge_whisper.voice import STEP_SAMPLES

__all__ = ["Endpointer", "Moment"]

_BEGINS, _ENDS = 0.5, 0.35
"""Speech begins above the one, and is over below the other; silero-vad's own defaults."""

_LEAST_SPEECH = 8
"""Steps, 0.25 s: of less speech there is no utterance; silero-vad's own default."""

_FORGOTTEN = 16
"""Steps, 0.5 s, after which less than that is forgotten."""

_HUSH = 4
"""Steps, 0.13 s, after which a pause may be the end: longer than most pauses between words."""


class Moment(enum.Enum):
    """What a step of sound is to the utterances."""

    SILENCE = enum.auto()
    """Nobody speaks."""

    MAYBE = enum.auto()
    """Somebody may have begun to speak."""

    SPEECH = enum.auto()
    """Somebody speaks."""

    PAUSE = enum.auto()
    """Nobody speaks just now."""

    HUSH = enum.auto()
    """The pause has become so long that it may be the end; said once in a pause."""

    END = enum.auto()
    """The pause has become so long that the utterance is over; silence follows."""


@attrs.define
class Endpointer:
    """Follows the speech in a sound, step by step."""

    _pause_steps: int
    """What ends an utterance."""

    _steps: int = attrs.field(init=False, default=0)
    _speech: int = attrs.field(init=False, default=0)
    """Steps of speech in this utterance, or in what may become one."""

    _quiet: int = attrs.field(init=False, default=0)
    """Steps since the last one of them."""

    @property
    def speech_end(self) -> int:
        """The sample after the last one of speech."""
        return (self._steps - self._quiet) * STEP_SAMPLES

    @property
    def is_speaking(self) -> bool:
        """Whether an utterance has begun that is not over."""
        return self._speech >= _LEAST_SPEECH

    def hear(self, chance: float) -> Moment:
        """
        Take the next step.

        Args:
            chance: How likely it is speech, in [0, 1].
        """
        self._steps += 1
        goes_on = self._speech > 0 and self._quiet == 0
        if chance >= (_ENDS if goes_on else _BEGINS):
            self._speech, self._quiet = self._speech + 1, 0
            return Moment.SPEECH if self.is_speaking else Moment.MAYBE
        self._quiet += 1
        if self.is_speaking:
            if self._quiet >= self._pause_steps:
                self._speech = 0
                return Moment.END
            return Moment.HUSH if self._quiet == _HUSH else Moment.PAUSE
        if self._quiet >= _FORGOTTEN:
            self._speech = 0
        return Moment.MAYBE if self._speech else Moment.SILENCE
