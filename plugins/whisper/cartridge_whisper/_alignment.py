"""Where in a window each token is said, by what the decoder listened to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch  # noqa: TID253 -- one of the private files that import the backend
from whisper.timing import median_filter  # noqa: TID253 -- as above

from cartridge_whisper.dtw import first_columns
from cartridge_whisper.words import Alignment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cartridge_whisper._network import Network, Speech
    from cartridge_whisper.tokens import Tokenizer

__all__ = ["align"]

_FILTER_WIDTH = 7


def align(
    network: Network,
    tokenizer: Tokenizer,
    speech: Speech,
    words: Sequence[int],
    frames: int,
    ask: Callable[[], None],
) -> Alignment:
    """
    Find where tokens are said.

    Args:
        network: The model.
        tokenizer: The language's and the task's.
        speech: One window.
        words: The tokens of its words, at least one.
        frames: How many frames of sound the window has.
        ask: Called once a layer; what it raises ends the work.

    Source:
        openai-whisper, ``whisper.timing.find_alignment``.
    """
    start = list(tokenizer.sot_sequence)
    tokens = [*start, tokenizer.no_timestamps, *words, tokenizer.eot]
    read, matches = network.attend(
        torch.tensor(tokens, device=network.device), speech, network.heads, ask
    )
    scores = network.score(read[len(start) : -2])[:, : tokenizer.eot]
    chosen = torch.tensor(list(words), device=network.device)[:, None]
    probabilities = scores.softmax(dim=-1).gather(1, chosen)[:, 0].tolist()
    # On the CPU whatever the device: whisper's filter for GPUs would need triton.
    weights = matches[:, :, : max(1, frames // 2)].cpu().softmax(dim=-1)
    spread, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    weights = median_filter((weights - mean) / spread, _FILTER_WIDTH)
    matrix = weights.mean(dim=0)[len(start) : -1]
    ask()
    return Alignment(first_columns(-matrix.double().numpy()), probabilities)
