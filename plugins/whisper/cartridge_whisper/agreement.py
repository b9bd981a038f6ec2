"""
LocalAgreement-2: a word stands as soon as two passes in a row have it.

A word that the model itself doubts waits for more sound, and so do those after it.

Source: Macháček, Dabre, Bojar: "Turning Whisper into Real-Time Transcription System", 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cartridge_whisper.segments import Word

__all__ = ["Agreement"]

_SURE = 0.5
"""The least probability of a word that may stand."""


@attrs.define
class Agreement:
    """What the passes over one sound, which grows, have agreed on."""

    committed: list[Word] = attrs.field(init=False, factory=list)
    """Words that stand; none of them is ever changed or taken back, and more may follow."""

    tail: list[Word] = attrs.field(init=False, factory=list)
    """The words after them, by the last pass."""

    @property
    def words(self) -> list[Word]:
        """All of them."""
        return self.committed + self.tail

    def hear(self, words: Sequence[Word]) -> None:
        """
        Take what a pass has found.

        Args:
            words: In the whole sound: those that stand are found again, or others in their place.
        """
        new = list(words[_place_after(self.committed, words) :])
        agreed = 0
        for word, before in zip(new, self.tail, strict=False):
            if word.text != before.text or word.probability < _SURE:
                break
            agreed += 1
        self._commit(new, agreed)

    def commit(self, count: int) -> None:
        """Have the next words stand, whether or not two passes have agreed on them."""
        self._commit(self.tail, count)

    def _commit(self, words: list[Word], count: int) -> None:
        self.committed += words[:count]
        self.tail = words[count:]

    def settle(self, count: int) -> list[Word]:
        """Take off the first words that stand; passes to come will not have their sound."""
        settled, self.committed = self.committed[:count], self.committed[count:]
        return settled


def _place_after(known: Sequence[Word], words: Sequence[Word]) -> int:
    """
    Find where in a text another one ends that it begins with, more or less.

    Returns:
        How many of the words are the nearest, by edits of whole words, to the known ones; the
        most of them where several are.
    """
    told = [_bare(word) for word in known]
    costs = list(range(len(told) + 1))
    best, place = costs[-1], 0
    for count, word in enumerate(words, start=1):
        bare = _bare(word)
        row = [count]
        for at, other in enumerate(told):
            row.append(min(costs[at + 1] + 1, row[at] + 1, costs[at] + (bare != other)))
        costs = row
        if costs[-1] <= best:
            best, place = costs[-1], count
    return place


def _bare(word: Word) -> str:
    """Give a word without what passes disagree on most: its case and its punctuation."""
    return "".join(letter for letter in word.text.casefold() if letter.isalnum())
