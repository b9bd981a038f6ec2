"""An open model that embeds, for any number of callers at once."""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import BackendError, InvalidArgumentError, LoadError
from cartridge_gguf.gate import Gate
from cartridge_gguf.memory import SHARING_TEXTS, context_length
from cartridge_gguf.patience import Patience
from cartridge_gguf.tokenizing import Tokenizer
from cartridge_gguf.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.context import Context
    from cartridge_gguf._context import Batch
    from cartridge_gguf._context import Context as NativeContext
    from cartridge_gguf._model import Model
    from cartridge_gguf.files import ModelFiles
    from cartridge_gguf.options import LoadOptions
    from cartridge_gguf.tokenizing import Tokens

__all__ = ["POOLINGS", "Embedder"]

POOLINGS = {"mean": 1, "cls": 2, "last": 3}
"""
How the vectors of a text's tokens become one, by llama.cpp's numbers.

Source: llama.h, ``enum llama_pooling_type``.
"""

_SHARED_TOKENS = 63
"""
Tokens of a decode that texts share, at most; a longer text has one to itself.

With so few, ggml's flash attention reads the tokens of a text one by one and passes over those of
others, and the other operations take each token for itself: a vector is bit for bit what it is
alone. From 64 on it takes them in tiles (ggml-cpu, ``GGML_FA_TILE_Q``). Without it, where a text
lies in the batch decides how sums are rounded, and half precision inside the model makes 1e-4 of
that. Nor would larger batches be quicker.
"""

_LEAST_TOKENS = 2
"""Of a decode: one alone is computed another way."""

_DECODE_LIMIT_S = 600.0


@attrs.frozen
class _Bench:
    """A native context, and the batch that it is given."""

    native: NativeContext
    batch: Batch


class Embedder:
    """
    A loaded model, with the contexts that vectors are computed in; every method is for any thread.

    One batch is computed at a time, whoever it is for, so that threads never compete for cores.

    Attributes:
        name: What it is called: its file's name without the ending.
        dimension: How many numbers a vector has.
        limit: How many tokens of a text it takes.
        pooling: What its file says of pooling: one of `POOLINGS`, ``rank``, or None.

    Args:
        model: The native model, which now belongs to this object.
        files: What was loaded.
        options: How it was loaded.
        length: Tokens of a text, at most.

    Raises:
        InvalidArgumentError: An option leaves no room for a text.
    """

    def __init__(
        self, model: Model, files: ModelFiles, options: LoadOptions, *, length: int
    ) -> None:
        # A vector comes of a text as a whole: it is computed in one decode.
        self.limit = min(length, options.batch_size)
        self._batch_size = -(-self.limit // SHARING_TEXTS) * SHARING_TEXTS
        self.name = files.model.stem
        self.dimension = model.embedding_length
        self.pooling = _pooling(files)
        self._model = model
        self._options = options
        self._tokenizer = Tokenizer(model, self.limit)
        least = self._tokenizer.around + 1
        if self.limit < least:
            arg = "batch_size" if options.batch_size <= length else "max_context_length"
            rule = f"at least {least}, as a text is computed as a whole"
            msg = f"{arg}: {self.limit} must be {rule}"
            raise InvalidArgumentError(msg, arg=arg, value=self.limit, rule=rule)
        self._benches: dict[str, _Bench] = {}
        self._turns = Turns()
        self._gate = Gate(f"the model {files.model.name}")

    @classmethod
    def open(cls, files: ModelFiles, options: LoadOptions, context: Context) -> Embedder:
        """
        Load a model.

        Args:
            files: What to load.
            options: How.
            context: Is told the progress, and may cancel.

        Raises:
            LoadError: The backend, or the model, cannot be loaded, or the model is of a kind that
                is not supported.

            CancelledError: The context was cancelled.

            InvalidArgumentError: The model cannot do what an option asks for.
        """
        length = context_length(files, options, embeds=True)
        model = _load(files, options, context)
        try:
            embedder = cls(model, files, options, length=length)
            if embedder.pooling in POOLINGS:
                embedder.add_bench(embedder.pooling)
        except BackendError as exc:
            model.close()
            raise LoadError(str(exc)) from exc
        except BaseException:
            model.close()
            raise
        return embedder

    def tokenize(self, text: str, context: Context) -> Tokens:
        """
        Turn a text into tokens, as `Tokenizer.read`.

        Raises:
            CancelledError: The context was cancelled.

            StateError: The model is closed.
        """
        with self._gate:
            return self._tokenizer.read(text, partial(self.check, context))

    def embed(
        self, texts: Sequence[Sequence[int]], pooling: str, context: Context
    ) -> NDArray[np.float32]:
        """
        Compute vectors.

        Args:
            texts: The tokens of each, at least one and at most `limit`.
            pooling: One of `POOLINGS`.
            context: Is told the progress, and may cancel.

        Returns:
            float32, shape ``(texts, dimension)``, in the order of ``texts``, as the model gives
            them.

        Raises:
            BackendError: The backend failed, or gave numbers that are not finite.

            CancelledError: The context was cancelled; the model can be used further.

            StateError: The model is closed.
        """
        import numpy as np

        lengths = [len(ids) for ids in texts]
        vectors = [b""] * len(texts)
        done, tokens, total = 0, 0, sum(lengths)
        check = partial(self.check, context)
        with self._gate:
            for rows in _batches(lengths, room=min(_SHARED_TOKENS, self._batch_size)):
                with self._turns.turn(Patience(check, context)):
                    found = self._compute([texts[row] for row in rows], pooling, context)
                for row, vector in zip(rows, found, strict=True):
                    vectors[row] = vector
                    tokens += lengths[row]
                done += len(rows)
                if done < len(texts):
                    context.progress(tokens / total, f"{done} of {len(texts)} embedded")
        shape = (len(texts), self.dimension)
        # Writable, and made in one go.
        array = np.frombuffer(bytearray().join(vectors), dtype=np.float32).reshape(shape)
        if not math.isfinite(np.add.reduce(array, axis=None)):
            raise _not_finite(np.isfinite(array))
        return array

    def check(self, context: Context) -> None:
        """
        Say whether to go on.

        Raises:
            CancelledError: The context was cancelled.

            StateError: The model is closed.
        """
        context.check_cancelled()
        self._gate.check()

    def close(self) -> None:
        """Have everything that runs end, wait for it, and free the memory."""
        if not self._gate.close():
            return
        for bench in [*self._benches.values()]:
            bench.native.stop()
        self._gate.wait()
        for bench in self._benches.values():
            bench.native.close()
        self._benches.clear()
        self._model.close()

    def _compute(
        self, texts: Sequence[Sequence[int]], pooling: str, context: Context
    ) -> list[bytes]:
        """Compute the vectors of texts that fit into a decode; the caller has the turn."""
        bench = self._benches.get(pooling) or self.add_bench(pooling)
        native, batch = bench.native, bench.batch
        batch.clear()
        for number, ids in enumerate(texts):
            batch.add(ids, 0, number, outputs=len(ids))
        if batch.native.n_tokens < _LEAST_TOKENS:
            batch.add(texts[0], 0, 1, outputs=1)
        native.go_on()
        context.on_cancel(native.stop)
        try:
            while True:
                # Who cancels or closes stops the context after having said so: it is seen here, or
                # the stop comes after `go_on`. One for an earlier call may come late.
                self.check(context)
                native.forget()
                if self._decode(bench, context):
                    return [native.sequence_embedding(number) for number in range(len(texts))]
                native.go_on()
        finally:
            context.forget(native.stop)

    def _decode(self, bench: _Bench, context: Context) -> bool:
        if bench.batch.native.n_tokens <= _SHARED_TOKENS:
            return bench.native.decode(bench.batch)  # over before anybody misses a sign of life
        decode = partial(bench.native.decode, bench.batch)
        return context.run_with_keepalive(decode, limit_s=_DECODE_LIMIT_S)

    def add_bench(self, pooling: str) -> _Bench:
        """Make the context for a kind of pooling; nobody else computes meanwhile."""
        from cartridge_gguf import _context  # noqa: PLC0415 -- loads the backend

        options = self._options
        settings = _context.ContextSettings(
            length=self._batch_size,
            sequences=SHARING_TEXTS,
            batch_size=self._batch_size,
            threads=options.thread_count,
            rope_freq_base=options.rope_freq_base,
            rope_freq_scale=options.rope_freq_scale,
            flash_attention=True,
            pooling=POOLINGS[pooling],
        )
        native = _context.Context(self._model, settings)
        bench = self._benches[pooling] = _Bench(native, _context.Batch(native.batch_size))
        return bench


def _load(files: ModelFiles, options: LoadOptions, context: Context) -> Model:
    context.progress(0.0, "importing llama-cpp-python")
    try:
        from cartridge_gguf._model import Model  # noqa: PLC0415 -- loads the backend
    except (ImportError, OSError, RuntimeError) as exc:
        msg = f"llama-cpp-python cannot be imported ({exc}); preflight says how to install it"
        raise LoadError(msg) from exc
    context.check_cancelled()
    model = Model.load(files.model, context, gpu_layers=options.gpu_layers)
    if model.has_encoder:
        model.close()
        kind = f"of the kind {files.header.architecture}, with an encoder of its own"
        hint = "take one of BERT's kind, or a language model"
        msg = f"model {files.model}: it is {kind}, which is not supported; {hint}"
        raise LoadError(msg)
    return model


def _pooling(files: ModelFiles) -> str | None:
    header = files.header
    found = header.integer(header.key("pooling_type"))
    names = {number: name for name, number in (POOLINGS | {"rank": 4}).items()}
    return None if found is None else names.get(found)


def _batches(lengths: Sequence[int], *, room: int) -> Iterator[list[int]]:
    """Put texts together whose tokens fit: the longest, and the shortest ones beside it."""
    order = deque(sorted(range(len(lengths)), key=lengths.__getitem__))
    while order:
        rows = [order.pop()]
        left = room - lengths[rows[0]]
        while order and lengths[order[0]] <= left and len(rows) < SHARING_TEXTS:
            rows.append(order.popleft())
            left -= lengths[rows[-1]]
        yield rows


def _not_finite(finite: NDArray[np.bool_]) -> BackendError:
    row = int(finite.argmin()) // finite.shape[1]
    return BackendError(
        f"the model's vector for row {row} has numbers that are not finite; its weights are "
        "damaged: download it again"
    )
