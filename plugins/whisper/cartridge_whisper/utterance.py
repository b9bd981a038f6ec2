"""One utterance while it is spoken: the passes over it, and what they agree on."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import attrs

from cartridge_whisper.agreement import Agreement
from cartridge_whisper.segments import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cartridge_whisper.recogniser import Hypothesis
    from cartridge_whisper.segments import Word

__all__ = ["Utterance"]

_LONG = 20 * SAMPLE_RATE_HZ
"""Samples: of a longer sound the beginning is let go of, where its words stand."""

_TOO_LONG = 26 * SAMPLE_RATE_HZ
"""Samples: here it is let go of, whether they stand or not. A model hears 30 s at once."""

_KEPT = 10 * SAMPLE_RATE_HZ
"""Samples that are kept then."""

_KNOWN = 3 * SAMPLE_RATE_HZ
"""Samples that say which language it is; of less, the next pass is asked again."""


@attrs.define
class Utterance:
    """What was made of an utterance so far; times are those in the whole stream."""

    heard: int
    """The sample up to which passes have seen it; at first where it begins."""

    agreement: Agreement = attrs.field(init=False, factory=Agreement)

    settled: list[Word] = attrs.field(init=False, factory=list)
    """Words whose sound was let go of."""

    language: str | None = attrs.field(init=False, default=None)
    """Once it is certain."""

    draft: Sequence[int] = attrs.field(init=False, default=())
    """For the next pass."""

    shown: str = attrs.field(init=False, default="")
    """The text that was shown last."""

    last: Hypothesis | None = attrs.field(init=False, default=None)
    """What the last pass found that was of use."""

    @property
    def words(self) -> list[Word]:
        """All of them."""
        return self.settled + self.agreement.words

    @property
    def committed(self) -> list[Word]:
        """Those that stand."""
        return self.settled + self.agreement.committed

    def hear(self, found: Hypothesis, start: int, end: int) -> None:
        """
        Take what a pass has found.

        Args:
            found: It.
            start: Where its sound began, in samples.
            end: Where it ended.
        """
        if end - start >= _KNOWN:
            self.language = self.language or found.language
        self.last, self.draft = found, found.draft
        offset_s = start / SAMPLE_RATE_HZ
        self.agreement.hear(
            [
                attrs.evolve(word, start_s=word.start_s + offset_s, end_s=word.end_s + offset_s)
                for word in found.words
            ]
        )

    @staticmethod
    def is_too_long(start: int, end: int) -> bool:
        """Say whether a pass cannot wait, as the sound would be too long for a model."""
        return end - start >= _TOO_LONG

    def let_go(self, start: int, end: int) -> int:
        """
        Say where the sound may begin from now on: in the longest pause after a word that stands.

        Args:
            start: Where it begins.
            end: Where it ends.
        """
        if end - start < _LONG:
            return start
        last = end - _KEPT
        first_s, last_s = (start + last) / 2 / SAMPLE_RATE_HZ, last / SAMPLE_RATE_HZ
        is_too_long = self.is_too_long(start, end)
        if is_too_long:
            self.agreement.commit(sum(word.end_s <= last_s for word in self.agreement.tail))
        words, standing = self.agreement.words, len(self.agreement.committed)
        pauses = [
            (round(after.start_s - word.end_s, 1), count)
            for count, (word, after) in enumerate(itertools.pairwise(words), start=1)
            if count <= standing and first_s <= word.end_s <= last_s
        ]
        if pauses:
            _, count = max(pauses)
            last = round((words[count - 1].end_s + words[count].start_s) / 2 * SAMPLE_RATE_HZ)
        elif is_too_long:
            count = sum(word.end_s <= last_s for word in self.agreement.committed)
        else:
            return start
        self.settled += self.agreement.settle(count)
        self.draft = ()
        return last
