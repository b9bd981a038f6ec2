"""
From what the decoder heard to tokens: greedy, sampled or by beam search.

Source: openai-whisper, ``whisper.decoding``, whose choices these are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import attrs
import torch  # noqa: TID253 -- one of the private files that import the backend
import torch.nn.functional as F  # noqa: N812, TID253 -- torch's own name for it; as above
from whisper.utils import compression_ratio  # noqa: TID253 -- as above

from cartridge_core.errors import BackendError
from cartridge_whisper.texts import Text
from cartridge_whisper.tokens import beginning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cartridge_whisper._network import Network, Speech, TextState
    from cartridge_whisper._rules import Rules
    from cartridge_whisper.options import Decoding
    from cartridge_whisper.tokens import Tokenizer

__all__ = ["Decoder", "detect_language"]


@attrs.frozen(eq=False, kw_only=True)
class Decoder:
    """Decodes windows; one for a call."""

    network: Network
    tokenizer: Tokenizer
    rules: Rules
    options: Decoding

    random: torch.Generator
    """Of temperatures above 0."""

    ask: Callable[[], None]
    """Called once a layer; what it raises ends the work."""

    draft: Sequence[int] = ()
    """
    What the text of a single window may begin with.

    It is read at once, and not token by token; what is chosen is the same without it.
    """

    def decode(self, speech: Speech, prompt: Sequence[int]) -> list[Text]:
        """
        Decode windows, with the next temperature where a text is poor.

        Args:
            speech: The windows.
            prompt: Tokens of the text before each of them.

        Returns:
            A text for each window.

        Raises:
            BackendError: The model gave numbers that are not finite.
        """
        texts: dict[int, Text] = {}
        left = list(range(speech.count))
        for temperature in self.options.temperature:
            chosen = speech.select(left)
            if temperature == 0 and self.options.beam_size > 1:
                found = self._search(chosen, prompt)
            else:
                found = self._sample(chosen, prompt, temperature)
            texts.update(zip(left, found, strict=True))
            left = [window for window in left if texts[window].is_poor(self.options)]
            if not left:
                break
        return [texts[window] for window in range(speech.count)]

    def _start(
        self, speech: Speech, prompt: Sequence[int], draft: Sequence[int] = ()
    ) -> tuple[TextState, torch.Tensor, list[float]]:
        """
        Read what the texts begin with.

        Returns:
            The state, before the draft; the scores of the next token, and of the one after each of
            the draft: (rows, 1 + draft, vocabulary); and how likely it is that nobody speaks.
        """
        network, tokenizer = self.network, self.tokenizer
        first = beginning(tokenizer, prompt, network.dims.n_text_ctx)
        state = network.begin(speech.count, network.dims.n_text_ctx)
        room = network.dims.n_text_ctx - len(first)
        tokens = torch.tensor([[*first, *draft[:room]]] * speech.count, device=network.device)
        read = network.read(tokens, state, speech, self.ask)
        state.length = len(first)
        # Where speech begins, and from the last token of the beginning on: the table of the
        # vocabulary, which is large, is read once.
        place = first.index(tokenizer.sot)
        wanted = torch.cat([read[:, place : place + 1], read[:, len(first) - 1 :]], dim=1)
        found = network.score(wanted.flatten(0, 1)).view(*wanted.shape[:2], -1)
        at_start, scores = found[:, 0], found[:, 1:]
        silence = at_start.softmax(dim=-1)[:, tokenizer.no_speech].tolist()
        return state, scores, silence

    @property
    def _most(self) -> int:
        """How many tokens a window's text may have."""
        return self.network.dims.n_text_ctx // 2

    def _next(self, last: Sequence[int], state: TextState, speech: Speech) -> torch.Tensor:
        """Read the tokens that were chosen last, one a row; give the scores of the next."""
        tokens = torch.tensor(last, device=self.network.device)[:, None]
        return self.network.score(self.network.read(tokens, state, speech, self.ask)[:, -1])

    def _sample(self, speech: Speech, prompt: Sequence[int], temperature: float) -> list[Text]:
        draft = list(self.draft) if temperature == 0 and speech.count == 1 else []
        state, ahead, silence = self._start(speech, prompt, draft)
        scores = ahead[:, 0]
        said: list[list[int]] = [[] for _ in silence]
        sums = [0.0] * len(said)
        going, heard = list(range(len(said))), speech
        for count in range(self._most):
            ended = []
            for row, window in enumerate(going):
                token, logprob = self._choose(scores[row], said[window], temperature)
                sums[window] += logprob
                if token == self.rules.eot:
                    ended.append(window)
                else:
                    said[window].append(token)
            if ended:
                rows = [row for row, window in enumerate(going) if window not in ended]
                going = [going[row] for row in rows]
                if not going:
                    break
                state.select(rows)
                heard = heard.select(rows)
            if count == self._most - 1 or state.length == self.network.dims.n_text_ctx:
                break
            if draft[count : count + 1] == said[0][-1:] and count + 1 < ahead.shape[1]:
                state.length += 1
                scores = ahead[:, count + 1]
                continue
            draft = []
            scores = self._next([said[window][-1] for window in going], state, heard)
        return [
            self._text(tokens, total, none, temperature)
            for tokens, total, none in zip(said, sums, silence, strict=True)
        ]

    def _choose(
        self, scores: torch.Tensor, said: Sequence[int], temperature: float
    ) -> tuple[int, float]:
        """Choose the next token of a row; give it and how likely it was, as a logarithm."""
        self.rules.apply(scores, said)
        if temperature == 0:
            best, index = scores.max(0)
            token, score = int(index), float(best)
        else:
            warm = scores / temperature
            chances = F.softmax(warm - warm.logsumexp(0), dim=0)
            if not bool(torch.isfinite(chances).all()):
                raise _not_finite()
            drawn = torch.multinomial(chances, 1, replacement=True, generator=self.random)
            token = int(drawn)
            score = float(scores[token])
        logprob = score - float(scores.logsumexp(0))
        if not math.isfinite(logprob):
            raise _not_finite()
        return token, logprob

    def _search(self, speech: Speech, prompt: Sequence[int]) -> list[Text]:
        """Decode by beam search: of each window the likeliest beginnings go on."""
        size = self.options.beam_size
        state, ahead, silence = self._start(speech, prompt)
        scores = ahead[:, 0]
        beams = [_Beam(size, self.rules.eot) for _ in silence]
        going, heard = list(range(len(beams))), speech
        for count in range(self._most):
            kept: list[int] = []
            still = []
            for place, window in enumerate(going):
                beam = beams[window]
                rows = range(place * len(beam.said), (place + 1) * len(beam.said))
                for row, said in zip(rows, beam.said, strict=True):
                    self.rules.apply(scores[row], said)
                sources = beam.go_on(scores[rows.start : rows.stop])
                if not beam.is_done:
                    still.append(place)
                    kept += [rows.start + source for source in sources]
            if not still or count == self._most - 1:
                break
            going, heard = [going[place] for place in still], heard.select(still)
            state.select(kept)
            if state.length == self.network.dims.n_text_ctx:
                break
            last = [said[-1] for window in going for said in beams[window].said]
            scores = self._next(last, state, heard)
        return [
            self._text(*beam.best(), none, 0.0) for beam, none in zip(beams, silence, strict=True)
        ]

    def _text(
        self, tokens: Sequence[int], logprob: float, no_speech_prob: float, temperature: float
    ) -> Text:
        words = self.tokenizer.decode(tokens).strip()
        return Text(
            tokens=tuple(tokens),
            avg_logprob=logprob / (len(tokens) + 1),
            no_speech_prob=no_speech_prob,
            temperature=temperature,
            compression_ratio=float(compression_ratio(words)),
        )


class _Beam:
    """
    The beginnings of one window's text that go on, and those that have ended.

    Args:
        size: How many go on.
        eot: The token that ends a text.
    """

    def __init__(self, size: int, eot: int) -> None:
        self._size = size
        self._eot = eot
        self.said: list[tuple[int, ...]] = [()]
        """What goes on; one, empty, at first."""

        self._sums = torch.zeros(1)
        self._ended: dict[tuple[int, ...], float] = {}

    @property
    def is_done(self) -> bool:
        """Whether enough have ended."""
        return len(self._ended) >= self._size

    def go_on(self, scores: torch.Tensor) -> list[int]:
        """
        Take a step.

        Args:
            scores: Of the next token, for each that goes on: (going, vocabulary).

        Returns:
            For each that goes on now, which of those before it continues.
        """
        logprobs, tokens = F.log_softmax(scores, dim=-1).topk(self._size + 1)
        totals = (self._sums[:, None] + logprobs.cpu()).tolist()
        candidates = {
            (*said, token): (total, source)
            for source, said in enumerate(self.said)
            for token, total in zip(tokens[source].tolist(), totals[source], strict=True)
        }
        going: list[tuple[int, ...]] = []
        for sequence in sorted(candidates, key=lambda one: candidates[one][0], reverse=True):
            if sequence[-1] != self._eot:
                going.append(sequence)
            elif not self.is_done:
                self._ended[sequence[:-1]] = candidates[sequence][0]
            if len(going) == self._size:
                break
        self.said = going
        self._sums = torch.tensor([candidates[sequence][0] for sequence in going])
        if not bool(torch.isfinite(self._sums).any()):
            raise _not_finite()
        return [candidates[sequence][1] for sequence in going]

    def best(self) -> tuple[tuple[int, ...], float]:
        """Give the text that is likeliest for its length, and its logarithm."""
        found = dict(self._ended)
        order = sorted(range(len(self.said)), key=lambda one: float(self._sums[one]), reverse=True)
        for one in order:
            if len(found) >= self._size:
                break
            found[self.said[one]] = float(self._sums[one])
        tokens = max(found, key=lambda one: found[one] / max(1, len(one)))
        return tokens, found[tokens]


def detect_language(
    network: Network, tokenizer: Tokenizer, speech: Speech, ask: Callable[[], None]
) -> dict[str, float]:
    """
    Say how likely each language is.

    Args:
        network: A multilingual one.
        tokenizer: Of any language.
        speech: One window.
        ask: Called once a layer.

    Returns:
        Probabilities by the language's code; they sum to 1.
    """
    state = network.begin(1, 1)
    tokens = torch.tensor([[tokenizer.sot]], device=network.device)
    scores = network.score(network.read(tokens, state, speech, ask)[:, 0])[0]
    languages = list(tokenizer.all_language_tokens)
    chances = cast("list[float]", scores[languages].softmax(dim=0).tolist())
    return dict(zip(tokenizer.all_language_codes, chances, strict=True))


def _not_finite() -> BackendError:
    msg = "the model's scores are not finite numbers; its weights are damaged: download it again"
    return BackendError(msg)
