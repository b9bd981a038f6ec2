"""What evaluates tokens, and remembers them."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import attrs
import numpy as np  # noqa: TID253 -- llama_cpp, which is loaded by now, has imported it

from cartridge_core.errors import BackendError
from cartridge_gguf._llama import C, has_text, llama_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cartridge_gguf._model import Model

__all__ = ["Batch", "Context", "ContextSettings"]

_ABORTED = 2
"""What ``llama_decode`` returns where its abort callback said yes."""

_FLOAT_BYTES = ctypes.sizeof(ctypes.c_float)

_logits_address = ctypes.cast(
    C.llama_get_logits_ith,
    ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32),
)
"""``llama_get_logits_ith``, which gives a number here: a pointer object takes longer to make."""

_vector_address = ctypes.cast(
    C.llama_get_embeddings_seq,
    ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32),
)
"""``llama_get_embeddings_seq``, likewise."""


@attrs.frozen(kw_only=True)
class ContextSettings:
    """What a context is made with."""

    length: int
    """Tokens of each sequence; for embeddings, of all together."""

    sequences: int = 1
    """How many there may be."""

    batch_size: int
    """Tokens of one decode, at most."""

    threads: int

    rope_freq_base: float
    """0 = the model's."""

    rope_freq_scale: float
    """0 = the model's."""

    flash_attention: bool = False
    """Where the model can. Without it, as in llama-cpp-python, what a token's values are does not
    depend on how many are evaluated with it, if only it is not alone."""

    pooling: int | None = None
    """For embeddings, a ``llama_pooling_type``, of which -1 is the model's; None for logits."""


class Batch:
    """
    Tokens for one decode.

    Args:
        size: How many fit.
    """

    def __init__(self, size: int) -> None:
        integers = ctypes.c_int32 * size
        self._tokens, self._positions, self._sequences = integers(), integers(), integers()
        self._outputs = (ctypes.c_int8 * size)()
        self._pointers = (ctypes.POINTER(ctypes.c_int32) * size)()
        step = ctypes.sizeof(ctypes.c_int32)
        for row in range(size):
            sequence = ctypes.c_int32.from_buffer(self._sequences, row * step)
            self._pointers[row] = ctypes.pointer(sequence)
        self.native = C.llama_batch(
            n_tokens=0,
            token=self._tokens,
            pos=self._positions,
            n_seq_id=integers(*[1] * size),
            seq_id=self._pointers,
            logits=self._outputs,
        )

    def clear(self) -> None:
        """Take everything out."""
        self.native.n_tokens = 0

    def add(self, tokens: Sequence[int], position: int, sequence: int, *, outputs: int) -> int:
        """
        Add tokens that follow each other in one sequence.

        Args:
            tokens: At least one, and no more than there is room for.
            position: Of the first one in its sequence.
            sequence: Its number.
            outputs: For how many of them, the last ones, logits or embeddings are kept.

        Returns:
            The row of the last one.
        """
        count = len(tokens)
        first: int = self.native.n_tokens
        end = self.native.n_tokens = first + count
        if count == 1:  # a list for each would take longer than all the rest
            self._tokens[first], self._positions[first] = tokens[0], position
            self._sequences[first], self._outputs[first] = sequence, outputs
            return first
        self._tokens[first:end] = [*tokens]
        self._positions[first:end] = [*range(position, position + count)]
        self._sequences[first:end] = [*[sequence] * count]
        self._outputs[first:end] = [*[0] * (count - outputs), *[1] * outputs]
        return end - 1


class Context:
    """
    A memory of evaluated tokens, and what evaluates more of them.

    Attributes:
        model: Its model.
        pointer: The ``llama_context``.
        batch_size: How many tokens one decode takes at most.
        pooling: How a sequence's vectors become one, a ``llama_pooling_type``.
        has_memory: Whether it remembers; else it takes whole sequences, and has no logits.

    Args:
        model: The model; stays open for longer.
        settings: What it is made with.

    Raises:
        BackendError: There is no memory for it, for one.
    """

    def __init__(self, model: Model, settings: ContextSettings) -> None:
        parameters = C.llama_context_default_params()
        parameters.n_ctx = settings.length * settings.sequences
        # With fewer tokens than sequences the backend would end the process.
        parameters.n_batch = max(settings.batch_size, settings.sequences)
        parameters.n_ubatch = parameters.n_batch
        parameters.n_seq_max = settings.sequences
        parameters.n_threads = parameters.n_threads_batch = settings.threads
        parameters.rope_freq_base = settings.rope_freq_base
        parameters.rope_freq_scale = settings.rope_freq_scale
        parameters.flash_attn_type = (
            C.LLAMA_FLASH_ATTN_TYPE_AUTO
            if settings.flash_attention
            else C.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        if settings.pooling is not None:
            parameters.embeddings = True
            parameters.pooling_type = settings.pooling
            # In shares of one memory, sequences of unequal lengths would be evaluated in parts.
            parameters.kv_unified = True
            parameters.n_ctx = settings.length
        self._stop = ctypes.create_string_buffer(2)
        parameters.abort_callback = has_text
        parameters.abort_callback_data = ctypes.cast(self._stop, ctypes.c_void_p)
        llama_log.take_complaints()
        pointer: int | None = C.llama_init_from_model(model.pointer, parameters)
        if pointer is None:
            msg = (
                f"llama.cpp cannot make a context of {parameters.n_ctx} tokens "
                f"({llama_log.take_complaints()}); try a smaller max_context_length"
            )
            raise BackendError(msg)
        self.model = model
        self.pointer = pointer
        self.batch_size: int = C.llama_n_batch(pointer)
        self.pooling: int = C.llama_pooling_type(pointer)
        self._memory: int | None = C.llama_get_memory(pointer)
        self.has_memory = self._memory is not None
        self._logits: dict[int, NDArray[np.float32]] = {}
        # A model of BERT's kind remembers nothing; llama_decode says so in the log each time.
        self._evaluate = C.llama_decode if self._memory else C.llama_encode

    def decode(self, batch: Batch) -> bool:
        """
        Evaluate a batch.

        Returns:
            Whether it was; else `stop` was called, and a part of it may be in the memory.

        Raises:
            BackendError: The backend failed; a part of the batch may be in the memory.
        """
        status: int = self._evaluate(self.pointer, batch.native)
        if status in {0, _ABORTED}:
            return status == 0
        msg = (
            f"llama.cpp cannot evaluate {batch.native.n_tokens} tokens: status {status} "
            f"({llama_log.take_complaints()})"
        )
        raise BackendError(msg)

    def stop(self) -> None:
        """Have the decode that runs, and every later one, end early; from any thread."""
        self._stop[0] = b"x"

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called, and not taken back."""
        return self._stop[0] != b"\0"

    def go_on(self) -> None:
        """Take `stop` back."""
        self._stop[0] = b"\0"

    def keep(self, sequence: int, count: int) -> int:
        """
        Forget a sequence from some token on.

        Args:
            sequence: Its number.
            count: How many tokens to keep, of those that it has.

        Returns:
            How many were kept: 0 where the model cannot forget a part.
        """
        if count and C.llama_memory_seq_rm(self._memory, sequence, count, -1):
            # A sliding window, or a state, need not have what lies further back.
            first: int = C.llama_memory_seq_pos_min(self._memory, sequence)
            last: int = C.llama_memory_seq_pos_max(self._memory, sequence)
            if (first, last) == (0, count - 1):
                return count
        C.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        return 0

    def forget(self) -> None:
        """Forget all sequences."""
        C.llama_memory_clear(self._memory, False)

    def logits(self, row: int) -> NDArray[np.float32]:
        """
        Give the logits behind a row of the last batch.

        Returns:
            float32, shape ``(tokens,)``; the backend's own memory, good until the next decode,
            and where the sampler reads them: they may be changed.

        Raises:
            BackendError: There are none.
        """
        address = _logits_address(self.pointer, row)
        if address is None:
            msg = f"llama.cpp has no logits to give ({llama_log.take_complaints()})"
            raise BackendError(msg)
        if address not in self._logits:
            memory = (ctypes.c_float * self.model.vocabulary_size).from_address(address)
            self._logits[address] = np.ctypeslib.as_array(memory)
        return self._logits[address]

    def sequence_embedding(self, sequence: int) -> bytes:
        """Give the pooled vector of a sequence that was decoded as a whole; float32."""
        address = _vector_address(self.pointer, sequence)
        if address is None:
            msg = f"llama.cpp has no vector to give ({llama_log.take_complaints()})"
            raise BackendError(msg)
        return ctypes.string_at(address, self.model.embedding_length * _FLOAT_BYTES)

    def close(self) -> None:
        """Free it."""
        C.llama_free(self.pointer)
