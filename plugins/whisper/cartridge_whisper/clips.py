"""The part of a sound that is asked for, and the pieces it is worked on in."""

from __future__ import annotations

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_whisper.segments import FRAMES_PER_SECOND, WINDOW_FRAMES
from cartridge_whisper.windows import Window

__all__ = ["Clip", "Piece"]

_LEAST_STEP = FRAMES_PER_SECOND
_MOST_SHORT_STEPS = 5


@attrs.frozen
class Clip:
    """A range of time, in seconds; what lies beyond the end of the sound does not count."""

    start_s: float
    end_s: float | None

    def frames(self, count: int) -> tuple[int, int]:
        """
        Give the first frame, and the one after the last.

        Args:
            count: How many frames the sound has.

        Raises:
            InvalidArgumentError: None of the sound is in it.
        """
        first = round(self.start_s * FRAMES_PER_SECOND)
        end = count if self.end_s is None else min(round(self.end_s * FRAMES_PER_SECOND), count)
        if first and first >= count:
            rule = f"before the end of the sound, at {count / FRAMES_PER_SECOND:g} s"
            msg = f"clip_start_s: must lie {rule}; found {self.start_s:g}"
            raise InvalidArgumentError(msg, arg="clip_start_s", value=self.start_s, rule=rule)
        if self.end_s is not None and self.end_s <= self.start_s:
            rule = f"after clip_start_s, {self.start_s:g}"
            msg = f"clip_end_s: must lie {rule}; found {self.end_s:g}"
            raise InvalidArgumentError(msg, arg="clip_end_s", value=self.end_s, rule=rule)
        return first, end


@attrs.define
class Piece:
    """A part of a sound that is worked on from its beginning to its end, window by window."""

    first_frame: int
    end_frame: int
    at: int = attrs.field(init=False)
    """Where its next window begins."""

    _short_steps: int = attrs.field(init=False, default=0)

    @at.default
    def _begin(self) -> int:
        return self.first_frame

    @property
    def is_done(self) -> bool:
        """Whether nothing is left of it."""
        return self.at >= self.end_frame

    def window(self, last_speech_s: float) -> Window:
        """Give its next window."""
        return Window(
            self.at, min(WINDOW_FRAMES, self.end_frame - self.at), last_speech_s=last_speech_s
        )

    def move_on(self, window: Window, frames: int) -> bool:
        """
        Go on to the next window.

        A model that has lost its way can say again and again that it understood next to nothing of
        30 s; whisper then works for ever. After a few such steps the rest of a window is left out.

        Args:
            window: The one that was worked on.
            frames: How far its text goes.

        Returns:
            Whether nothing had to be left out.
        """
        is_short = frames < min(_LEAST_STEP, window.frames)
        self._short_steps = self._short_steps + 1 if is_short else 0
        if frames > 0 and self._short_steps <= _MOST_SHORT_STEPS:
            self.at = window.first_frame + frames
            return True
        self.at, self._short_steps = window.end_frame, 0
        return False
