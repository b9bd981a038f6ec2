"""Which token may come next: what whisper forbids, and when it has to say a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import torch  # noqa: TID253 -- one of the private files that import the backend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cartridge_whisper.tokens import Tokenizer

__all__ = ["Rules"]

_LATEST_START = 50
"""The first time said is 1 s at most, as whisper has it; in steps of 0.02 s."""


@attrs.frozen(eq=False)
class Rules:
    """
    The rules of one language and task.

    Source:
        openai-whisper, ``SuppressBlank``, ``SuppressTokens`` and ``ApplyTimestampRules``.
    """

    eot: int
    times: int
    """The token of 0 s; all from here on are times."""

    _never: torch.Tensor
    _not_first: torch.Tensor

    @classmethod
    def of(cls, tokenizer: Tokenizer, device: torch.device) -> Rules:
        """Make the rules of a tokenizer."""
        never = {
            *tokenizer.non_speech_tokens,
            tokenizer.transcribe,
            tokenizer.translate,
            tokenizer.sot,
            tokenizer.sot_prev,
            tokenizer.sot_lm,
            tokenizer.no_speech,
            tokenizer.no_timestamps,
        }
        not_first = [*tokenizer.encode(" "), tokenizer.eot]
        return cls(
            tokenizer.eot,
            tokenizer.timestamp_begin,
            torch.tensor(sorted(never), device=device),
            torch.tensor(not_first, device=device),
        )

    def apply(self, scores: torch.Tensor, said: Sequence[int]) -> None:
        """
        Forbid, in place, what may not come next.

        Args:
            scores: Of every token: (vocabulary,).
            said: The tokens of this window so far.
        """
        forbidden, times = -torch.inf, self.times
        scores.index_fill_(0, self._never, forbidden)
        if not said:
            scores.index_fill_(0, self._not_first, forbidden)
            scores[:times] = forbidden
            scores[times + _LATEST_START + 1 :] = forbidden
            return
        last_is_time = said[-1] >= times
        one_before_is_time = len(said) < 2 or said[-2] >= times
        if last_is_time and one_before_is_time:
            scores[times:] = forbidden  # a pair of times is complete: a word follows
        elif last_is_time:
            scores[: self.eot] = forbidden  # the end of a segment: its pair follows, or the end
        latest = next((token for token in reversed(said) if token >= times), None)
        if latest is not None:
            # Times never go back; and a segment is never empty, so that the work gets on.
            may_repeat = last_is_time and not one_before_is_time
            scores[times : latest + (0 if may_repeat else 1)] = forbidden
        if scores[times:].logsumexp(0) > scores[:times].max():
            scores[:times] = forbidden  # all times together are likelier than any one word
