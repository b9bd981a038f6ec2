"""
The work on one sound: from window to window, as whisper goes.

Source: openai-whisper, ``whisper.transcribe``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cartridge_whisper.pieces import cut_into_pieces
from cartridge_whisper.segments import FRAME_SAMPLES, FRAMES_PER_SECOND, end_of
from cartridge_whisper.silence import is_silent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_whisper._whisper import Sound, Whisper
    from cartridge_whisper.clips import Piece
    from cartridge_whisper.patience import Patience
    from cartridge_whisper.segments import Segment
    from cartridge_whisper.settings import Settings
    from cartridge_whisper.windows import Window, WindowText

__all__ = ["Work"]

_HOT = 0.5
"""Text of a higher temperature is a guess, and is not shown to the windows after it."""

_log = logging.getLogger("cartridge.whisper")


class Work:
    """
    Makes the text of one sound.

    Args:
        whisper: The model.
        settings: How; the language is known.
        samples: The sound.
        sound: The same, as the model sees it.
        patience: Takes the progress, and says whether to go on.
    """

    def __init__(
        self,
        whisper: Whisper,
        settings: Settings,
        samples: NDArray[np.float32],
        sound: Sound,
        patience: Patience,
    ) -> None:
        self._whisper = whisper
        self._settings = settings
        self._samples = samples
        self._sound = sound
        self._patience = patience
        self._random = whisper.random(settings.seed)
        decoding = settings.decoding
        tokenizer = whisper.tokenizer(decoding.language, decoding.task)
        prompt = settings.initial_prompt
        self._prompt = tokenizer.encode(f" {prompt.strip()}") if prompt.strip() else []
        self._last_speech_s = 0.0

    def run(self, first_frame: int, end_frame: int) -> list[Segment]:
        """
        Work through a part of the sound.

        Returns:
            What is said in it, in order; nothing is empty.
        """
        pieces = cut_into_pieces(
            self._samples, first_frame, end_frame, self._settings, self._patience.ask
        )
        by_piece: list[list[Segment]] = [[] for _ in pieces]
        while left := [n for n, piece in enumerate(pieces) if not piece.is_done]:
            self._tell(pieces)
            batch = [
                (n, window)
                for n in left[: self._settings.batch_windows]
                if (window := self._next_window(pieces[n])) is not None
            ]
            if batch:
                texts = self._decode([window for _, window in batch])
                for (n, window), text in zip(batch, texts, strict=True):
                    self._move_on(pieces[n], window, text)
                    by_piece[n] += self._keep(text)
        return [segment for segments in by_piece for segment in segments]

    def _tell(self, pieces: Sequence[Piece]) -> None:
        whole = sum(piece.end_frame - piece.first_frame for piece in pieces)
        done = sum(min(piece.at, piece.end_frame) - piece.first_frame for piece in pieces)
        done_s, whole_s = done / FRAMES_PER_SECOND, whole / FRAMES_PER_SECOND
        self._patience.progress(done / whole, f"{done_s:.1f} of {whole_s:.1f} s done")

    def _next_window(self, piece: Piece) -> Window | None:
        """Give a piece's next window; where that is silent go past it, and give none."""
        window = piece.window(self._last_speech_s)
        samples = self._samples[
            window.first_frame * FRAME_SAMPLES : window.end_frame * FRAME_SAMPLES
        ]
        if is_silent(samples, self._settings.hearing.silence_dbfs):
            piece.move_on(window, window.frames)
            return None
        return window

    def _decode(self, windows: Sequence[Window]) -> list[WindowText]:
        return self._whisper.decode(
            self._sound,
            windows,
            self._settings.decoding,
            self._random,
            self._patience.ask,
            prompt=self._prompt,
        )

    def _move_on(self, piece: Piece, window: Window, text: WindowText) -> None:
        if not piece.move_on(window, text.frames):
            _log.warning(
                "from %.1f s on the model understands next to nothing; up to %.1f s is left out",
                window.first_frame / FRAMES_PER_SECOND,
                window.end_frame / FRAMES_PER_SECOND,
            )

    def _keep(self, text: WindowText) -> list[Segment]:
        """Take what a window's text is worth, and note it for the windows after it."""
        settings = self._settings
        if not text.segments:
            return []
        if settings.decoding.word_timestamps:
            self._last_speech_s = end_of(text.segments)
        kept = [one for one in text.segments if one.text.strip() and one.start_s != one.end_s]
        if settings.batch_windows > 1:
            return kept  # windows of one batch know nothing of one another
        if settings.conditions and text.text.temperature <= _HOT:
            self._prompt += [token for one in kept for token in one.tokens]
            del self._prompt[: -self._whisper.text_context]
        else:
            self._prompt = []
        return kept
