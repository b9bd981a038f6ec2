"""What chooses the next token."""

from __future__ import annotations

import ctypes
import math
from collections import deque
from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- llama_cpp, which is loaded by now, has imported it

from cartridge_core.errors import BackendError, InvalidArgumentError
from cartridge_gguf._llama import C

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cartridge_gguf._context import Context
    from cartridge_gguf._model import Model
    from cartridge_gguf.sampling import Sampling

__all__ = ["Sampler"]

_PENALIZED = 64
"""How many of the last tokens a repeat penalty counts; llama.cpp's own number."""

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""A ``llama_token_data``."""


class Sampler:
    """
    Chooses a text's tokens, one after the other.

    Args:
        model: Whose tokens.
        sampling: How they are chosen.

    Raises:
        InvalidArgumentError: The backend refuses the grammar.
    """

    def __init__(self, model: Model, sampling: Sampling) -> None:
        self._penalty = np.float32(sampling.repeat_penalty)
        self._recent: deque[int] = deque(maxlen=_PENALIZED)
        self._grammar = None if sampling.grammar is None else _compile(model, sampling.grammar)
        # A grammar allows a control token where it allows its spelling, and it has no text.
        controls = [] if self._grammar is None else model.controls
        self._mute = [token for token in controls if not model.is_end(token)]
        self._chain = None if sampling.temperature == 0 else _chain(sampling)

    def sample(self, logits: NDArray[np.float32], place: tuple[Context, int] | None = None) -> int:
        """
        Choose the next token.

        Args:
            logits: One for each token, float32; they may be changed.
            place: The context, and the row of its last batch, that they are the memory of: there
                llama.cpp samples without a copy of them.

        Raises:
            BackendError: The grammar allows none of the model's tokens.
        """
        if self._penalty != 1:
            self._penalize(logits)
        token: int
        if self._chain is None:  # llama.cpp's greedy sampler takes ten times as long
            token = int(logits.argmax())
        elif place is not None:
            token = C.llama_sampler_sample(self._chain, place[0].pointer, place[1])
        else:
            token = self._choose(_candidates(logits))
        if self._grammar is not None:
            # The grammar is asked about one token first: about all of them takes long.
            if not self._allows(token):
                token = self._choose_allowed(logits)
            C.llama_sampler_accept(self._grammar, token)
        self._recent.append(token)
        return token

    def _penalize(self, logits: NDArray[np.float32]) -> None:
        """
        Make the last tokens less likely.

        The numbers are those of llama.cpp's own sampler, which looks up every token there is.
        """
        recent = [*set(self._recent)]
        old = logits[recent]
        logits[recent] = np.where(old > 0, old / self._penalty, old * self._penalty)

    def _allows(self, token: int) -> bool:
        if token in self._mute:
            return False
        candidate = np.array([(token, 1, 0)], dtype=_CANDIDATE)
        C.llama_sampler_apply(self._grammar, ctypes.byref(_array_of(candidate)))
        return bool(candidate["logit"][0] > -math.inf)

    def _choose_allowed(self, logits: NDArray[np.float32]) -> int:
        """Choose among the tokens that the grammar allows."""
        candidates = _candidates(logits)
        candidates["logit"][self._mute] = -math.inf
        C.llama_sampler_apply(self._grammar, ctypes.byref(_array_of(candidates)))
        allowed = candidates[candidates["logit"] > -math.inf]
        if not len(allowed):
            # Whatever token it were told of, the backend would end the process.
            msg = "the grammar asks for a text that the model's vocabulary cannot spell"
            raise BackendError(msg)
        if self._chain is None:
            return int(allowed["id"][allowed["logit"].argmax()])
        return self._choose(allowed)

    def _choose(self, candidates: NDArray[np.void]) -> int:
        array = _array_of(candidates)
        C.llama_sampler_apply(self._chain, ctypes.byref(array))
        token: int = array.data[array.selected].id
        return token

    def close(self) -> None:
        """Free it."""
        for sampler in (self._chain, self._grammar):
            if sampler is not None:
                C.llama_sampler_free(sampler)


def _compile(model: Model, grammar: str) -> ctypes._Pointer[ctypes.Structure]:
    """Compile a grammar; the backend would take an empty one for none."""
    text = grammar.encode()
    if text.strip() and (native := C.llama_sampler_init_grammar(model.vocabulary, text, b"root")):
        pointer: ctypes._Pointer[ctypes.Structure] = native
        return pointer
    rule = "a GBNF grammar with a rule called root"
    msg = f"grammar: llama.cpp refuses it; it must be {rule}"
    raise InvalidArgumentError(msg, arg="grammar", value=grammar, rule=rule)


def _chain(sampling: Sampling) -> ctypes._Pointer[ctypes.Structure]:
    """Make the native samplers, in llama-cpp-python's order."""
    chain: ctypes._Pointer[ctypes.Structure] = C.llama_sampler_chain_init(
        C.llama_sampler_chain_default_params()
    )
    for link in (
        C.llama_sampler_init_top_k(sampling.top_k),
        C.llama_sampler_init_top_p(sampling.top_p, 1),
        C.llama_sampler_init_min_p(sampling.min_p, 1),
        C.llama_sampler_init_temp(sampling.temperature),
        C.llama_sampler_init_dist(sampling.seed),
    ):
        C.llama_sampler_chain_add(chain, link)
    return chain


def _candidates(logits: NDArray[np.float32]) -> NDArray[np.void]:
    """Give every token as a ``llama_token_data``."""
    candidates = np.zeros(len(logits), dtype=_CANDIDATE)
    candidates["id"] = np.arange(len(logits))
    candidates["logit"] = logits
    return candidates


def _array_of(candidates: NDArray[np.void]) -> ctypes.Structure:
    """Give the ``llama_token_data_array`` over some candidates, which must outlive it."""
    data = candidates.ctypes.data_as(ctypes.POINTER(C.llama_token_data))
    array: ctypes.Structure = C.llama_token_data_array(data, len(candidates), -1, False)
    return array
