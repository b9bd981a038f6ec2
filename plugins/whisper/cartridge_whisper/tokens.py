"""What is needed of whisper's tokenizer, and how a text begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Tokenizer", "beginning"]


class Tokenizer(Protocol):
    """
    Texts to tokens and back, for one language and task.

    Source: openai-whisper, ``whisper.tokenizer.Tokenizer``.
    """

    @property
    def eot(self) -> int:
        """Ends a text; all below are words."""

    @property
    def sot(self) -> int:
        """Begins a transcript."""

    @property
    def sot_prev(self) -> int:
        """Begins the text before it."""

    @property
    def sot_lm(self) -> int:
        """Never said."""

    @property
    def transcribe(self) -> int:
        """Asks for the spoken words."""

    @property
    def translate(self) -> int:
        """Asks for English."""

    @property
    def no_speech(self) -> int:
        """Says that nobody speaks."""

    @property
    def no_timestamps(self) -> int:
        """Asks for a text without times."""

    @property
    def timestamp_begin(self) -> int:
        """Says 0 s; each one above it says 0.02 s more."""

    @property
    def sot_sequence(self) -> tuple[int, ...]:
        """What a transcript begins with: `sot`, the language and the task."""

    @property
    def non_speech_tokens(self) -> tuple[int, ...]:
        """Notes, brackets and the like, which are not said."""

    @property
    def all_language_tokens(self) -> tuple[int, ...]:
        """The languages."""

    @property
    def all_language_codes(self) -> tuple[str, ...]:
        """Their codes, in the same order."""

    def encode(self, text: str) -> list[int]:
        """Give the tokens of a text."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Give the text of tokens; times have none."""

    def split_to_word_tokens(self, tokens: list[int]) -> tuple[list[str], list[list[int]]]:
        """Cut tokens into words."""


def beginning(tokenizer: Tokenizer, prompt: Sequence[int], text_context: int) -> list[int]:
    """
    Give the tokens that a window's text begins with.

    Args:
        tokenizer: The language's and the task's.
        prompt: The text before it; only its end counts, where it is long.
        text_context: How many tokens the model can read.
    """
    if not prompt:
        return list(tokenizer.sot_sequence)
    return [tokenizer.sot_prev, *prompt[-(text_context // 2 - 1) :], *tokenizer.sot_sequence]
