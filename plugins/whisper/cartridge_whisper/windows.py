"""A window of a sound, and what is said in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cartridge_whisper.segments import FRAME_SAMPLES, SAMPLE_RATE_HZ, WINDOW_FRAMES

if TYPE_CHECKING:
    from cartridge_whisper.segments import Segment
    from cartridge_whisper.texts import Text

__all__ = ["Window", "WindowText"]


@attrs.frozen
class Window:
    """A part of a sound that the model sees at once: 30 s at most; frames are 10 ms."""

    first_frame: int
    frames: int = attrs.field(validator=attrs.validators.in_(range(1, WINDOW_FRAMES + 1)))

    last_speech_s: float = attrs.field(default=0.0, kw_only=True)
    """Where the last word before it ended; the times of words make use of it."""

    @property
    def start_s(self) -> float:
        """Where it begins, in seconds."""
        return float(self.first_frame * FRAME_SAMPLES / SAMPLE_RATE_HZ)

    @property
    def end_frame(self) -> int:
        """The frame after its last one."""
        return self.first_frame + self.frames


@attrs.frozen
class WindowText:
    """What is said in a window."""

    text: Text

    segments: tuple[Segment, ...]
    """Times are those in the whole sound; empty where nobody speaks."""

    frames: int
    """How far the text goes: where the next window begins, counted from this one's beginning."""
