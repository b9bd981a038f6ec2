"""
From sound that comes in pieces to utterances: when to listen, and what is due.

All places are samples since the beginning. What happens depends on the sound alone, and not on how
it was cut: the passes over an utterance stand at places that the sound decides. A clock is looked
at for one thing: a pass waits until as much sound has come as the last pass took time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from cartridge_core.results import ResultKind
from cartridge_whisper.endpointing import Endpointer, Moment
from cartridge_whisper.segments import SAMPLE_RATE_HZ
from cartridge_whisper.soundwindow import SoundWindow
from cartridge_whisper.utterance import Utterance
from cartridge_whisper.voice import STEP_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_whisper.recogniser import Hypothesis, Recogniser
    from cartridge_whisper.segments import Word

    Ask = Callable[[], None]
    Voice = Callable[[NDArray[np.float32]], float]

__all__ = ["News", "Stream"]

_LEAD = SAMPLE_RATE_HZ // 2
"""Samples of silence that are kept, for what comes before the detector is certain."""

_BLIP = 2
"""Steps of speech, 64 ms, that are no word: what a pass found in the pause before still holds."""

_PROMPT = 64
"""Tokens of the text before that a pass is shown; reading them takes time."""


@attrs.frozen(kw_only=True)
class News:
    """Something that a stream has to say."""

    kind: ResultKind
    segment: int

    start: int
    """Where the segment begins; with a FINAL and the next one's, they cover the whole sound."""

    end: int
    """Where it ends, or how far it has been heard; of an ENDPOINT, where the speech ended."""

    words: Sequence[Word] = ()
    """Times are those in the whole stream."""

    committed: Sequence[Word] = ()
    """The first of them, which will not change."""

    heard: Hypothesis | None = None
    """What the last pass said; None where nobody spoke."""


class Stream:
    """
    A sound, and what is said in it.

    Args:
        voice: Says how likely speech is in the next 512 samples.
        recogniser: Makes words of sound.
        pause_s: How long a pause ends an utterance.
        step_s: How much sound comes between two passes over an utterance.
        prompt: Tokens that every pass is shown.
        conditions: Whether an utterance is shown the text of those before it.
        clock: Seconds.
    """

    def __init__(
        self,
        voice: Voice,
        recogniser: Recogniser,
        *,
        pause_s: float,
        step_s: float,
        prompt: Sequence[int],
        conditions: bool,
        clock: Callable[[], float],
    ) -> None:
        self._voice = voice
        self._recogniser = recogniser
        self._ends = Endpointer(round(pause_s * SAMPLE_RATE_HZ / STEP_SAMPLES))
        self._step = round(step_s * SAMPLE_RATE_HZ)
        self._first_prompt = list(prompt)
        self._prompt: list[int] = []
        self._conditions = conditions
        self._clock = clock
        self._took = 0
        """Samples that came while the last pass ran, if they come as they are spoken."""

        self._input = SoundWindow()
        self._window = SoundWindow()
        self._utterance: Utterance | None = None
        self._close_at: int | None = None
        """Where the utterance ends, if the pause that has begun is its end."""

        self._closing: Hypothesis | None = None
        """What the pass up to there found."""

        self._resumed = 0
        """Steps of speech since then."""

        self._segment = 0
        self._segment_start = 0
        self._news: deque[News] = deque()
        self._has_ended = self._is_over = False

    def add(self, samples: NDArray[np.float32]) -> None:
        """Let the sound grow; the work is done in `next`."""
        self._input.add(samples)

    def end(self) -> None:
        """Know that nothing follows."""
        self._has_ended = True

    def next(self, ask: Ask) -> News | None:
        """
        Work until there is news.

        Args:
            ask: Called many times a second; what it raises ends the work.

        Returns:
            The news, or None where nothing is left of the sound that came.
        """
        while not self._news and not self._is_over:
            ask()
            samples = self._input.take(STEP_SAMPLES)
            if samples is not None:
                self._window.add(samples)
                self._go_on(self._ends.hear(self._voice(samples)), ask)
            elif self._has_ended:
                self._finish(ask)
                self._is_over = True
            else:
                break
        return self._news.popleft() if self._news else None

    def _go_on(self, moment: Moment, ask: Ask) -> None:
        window = self._window
        if moment is Moment.SILENCE:
            window.drop_before(window.end - _LEAD)
        elif moment is Moment.SPEECH:
            self._resumed += 1
            if self._resumed > _BLIP:
                self._close_at = self._closing = None
            self._utterance = self._utterance or Utterance(window.end)
            if self._is_due(self._utterance):
                self._look(self._utterance, ask)
        elif moment in {Moment.HUSH, Moment.PAUSE} and self._utterance:
            if moment is Moment.HUSH and self._closing is None:
                self._close_at, self._resumed = window.end, 0
            self._prepare(self._utterance, ask)
        elif moment is Moment.END and self._utterance:
            self._close(self._utterance, self._close_at or window.end, ask)

    def _prepare(self, utterance: Utterance, ask: Ask) -> None:
        """Make the last pass while it is not certain yet that this is the end."""
        end = self._close_at
        if end is not None and self._closing is None and self._is_affordable(utterance):
            self._closing = self._pass(utterance, end, ask, is_last=True)
            self._show(utterance)

    def _is_affordable(self, utterance: Utterance) -> bool:
        return self._window.end - utterance.heard >= self._took

    def _is_due(self, utterance: Utterance) -> bool:
        window = self._window
        has_step = window.end - utterance.heard >= self._step
        return (has_step and self._is_affordable(utterance)) or utterance.is_too_long(
            window.start, window.end
        )

    def _pass(self, utterance: Utterance, end: int, ask: Ask, *, is_last: bool) -> Hypothesis:
        """Have the model hear an utterance up to a place."""
        start, began_s = self._window.start, self._clock()
        found = self._recogniser.recognise(
            self._window.read(end),
            self._first_prompt + (self._prompt + _tokens(utterance.settled))[-_PROMPT:],
            ask,
            draft=utterance.draft,
            language=utterance.language,
            is_last=is_last,
        )
        self._took = round((self._clock() - began_s) * SAMPLE_RATE_HZ)
        utterance.heard = self._window.end
        if is_last or not found.is_poor:
            utterance.hear(found, start, end)
        return found

    def _look(self, utterance: Utterance, ask: Ask) -> None:
        """Make a pass over an utterance that goes on."""
        window = self._window
        self._close_at = self._closing = None
        self._pass(utterance, window.end, ask, is_last=False)
        self._show(utterance)
        window.drop_before(utterance.let_go(window.start, window.end))

    def _show(self, utterance: Utterance) -> None:
        words = utterance.words
        text = "".join(word.text for word in words)
        if text != utterance.shown:
            utterance.shown = text
            self._tell(ResultKind.PARTIAL, self._window.end, utterance)

    def _close(self, utterance: Utterance, end: int, ask: Ask) -> None:
        """End an utterance; what nothing is found in was none."""
        if self._closing is None:
            self._closing = self._pass(utterance, end, ask, is_last=True)
        words = utterance.words
        if words:
            self._tell(ResultKind.ENDPOINT, min(self._ends.speech_end, end), None)
            utterance.agreement.commit(len(words))
            self._tell(ResultKind.FINAL, end, utterance)
            is_doubtful = self._closing.is_poor or self._closing.is_guess
            said = [] if is_doubtful or not self._conditions else _tokens(words)
            self._prompt = (self._prompt + said)[-_PROMPT:] if said else []
        self._utterance = self._close_at = self._closing = None
        self._window.drop_before(end if words else self._window.end - _LEAD)

    def _finish(self, ask: Ask) -> None:
        """Hear what is left, and end the utterance that is spoken, if any."""
        import numpy as np

        rest = self._input.take(self._input.end - self._input.start)
        window = self._window
        if rest is not None and len(rest):
            window.add(rest)
            moment = self._ends.hear(self._voice(np.pad(rest, (0, STEP_SAMPLES - len(rest)))))
            self._resumed += moment is Moment.SPEECH
        if self._ends.is_speaking:
            self._utterance = self._utterance or Utterance(window.end)
        if self._utterance:
            if self._resumed:
                self._closing = None  # the last words may have come since
            self._close(self._utterance, window.end, ask)
        if self._segment_start < window.end:
            self._tell(ResultKind.FINAL, window.end, None)

    def _tell(self, kind: ResultKind, end: int, utterance: Utterance | None) -> None:
        news = News(kind=kind, segment=self._segment, start=self._segment_start, end=end)
        if utterance:
            news = attrs.evolve(
                news,
                words=utterance.words,
                committed=utterance.committed,
                heard=utterance.last,
            )
        self._news.append(news)
        if kind is ResultKind.FINAL:
            self._segment, self._segment_start = self._segment + 1, end


def _tokens(words: Sequence[Word]) -> list[int]:
    return [token for word in words for token in word.tokens]
