"""What a stream needs of a model that makes words of sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_whisper.segments import Word

__all__ = ["Hypothesis", "Recogniser"]


@attrs.frozen(kw_only=True)
class Hypothesis:
    """What one pass over a sound has found."""

    words: Sequence[Word]
    """Times count from where the sound begins; empty where nobody speaks."""

    language: str | None
    """A code; None where the model does not say."""

    draft: Sequence[int] = ()
    """What the next pass over the same sound, grown, is given as its draft."""

    avg_logprob: float = 0.0
    no_speech_prob: float = 0.0

    is_poor: bool = False
    """Whether it is not worth to be shown: it repeats itself, or is unlikely."""

    is_guess: bool = False
    """Whether much of it was drawn at random; a guess is not shown to the passes after it."""


class Recogniser(Protocol):
    """Makes words of sound; what it gives depends on its arguments alone."""

    def recognise(
        self,
        samples: NDArray[np.float32],
        prompt: Sequence[int],
        ask: Callable[[], None],
        *,
        draft: Sequence[int],
        language: str | None,
        is_last: bool,
    ) -> Hypothesis:
        """
        Make words of a sound.

        Args:
            samples: Mono, 16 kHz; 30 s at most.
            prompt: The text before it, in the tokens of `Word`.
            ask: Called many times a second; what it raises ends the work.
            draft: What the pass before this one found, if it began at the same place; it saves
                time, and changes nothing.
            language: What is spoken; None where that is not known yet.
            is_last: Whether it is worth to try again where the text is poor: the last pass over
                this sound, and not one of many over what will have grown soon.
        """
