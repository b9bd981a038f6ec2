"""An open model that writes, for any number of callers at once."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Self

from cartridge_core.errors import BackendError, InvalidArgumentError, LoadError
from cartridge_gguf.budget import allowance
from cartridge_gguf.gate import Gate
from cartridge_gguf.lanes import Lanes
from cartridge_gguf.memory import context_length
from cartridge_gguf.patience import Patience
from cartridge_gguf.scheduler import Draft
from cartridge_gguf.tokenizing import tokens_of
from cartridge_gguf.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cartridge_core.context import Context
    from cartridge_gguf._model import Model
    from cartridge_gguf._projector import Picture
    from cartridge_gguf.files import ModelFiles
    from cartridge_gguf.options import LoadOptions
    from cartridge_gguf.sampling import Sampling

__all__ = ["Generation", "TextModel"]


class Generation:
    """
    The tokens of one text, as they are written; `TextModel.generate` makes it.

    It holds a sequence of the model until it is exhausted, closed or garbage.
    """

    def __init__(self, model: TextModel, draft: Draft, context: Context) -> None:
        self._model = model
        self._draft = draft
        self._context = context
        self._patience = Patience(partial(model.check, context), context)

    @property
    def finish_reason(self) -> str | None:
        """``stop``, ``length`` or ``constraint_satisfied`` once it is exhausted."""
        return self._draft.finish_reason

    def __iter__(self) -> Self:
        """Give itself."""
        return self

    def __next__(self) -> int:
        """
        Give the next token.

        Raises:
            CancelledError: The context was cancelled.

            StateError: The model is closed.

            BusyError: The model writes for as many as it may.

            BackendError: The backend failed.
        """
        if self._draft.is_dropped:
            raise StopIteration
        try:
            token = self._model.next_token(self._draft, self._context, self._patience)
        except BaseException:
            self.close()
            raise
        if token is None:
            self.close()
            raise StopIteration
        return token

    def close(self) -> None:
        """Write no more; from any thread."""
        self._draft.is_dropped = True
        if self._draft.stop is not None:
            self._context.forget(self._draft.stop)

    def __del__(self) -> None:
        """Let go of the sequence. This takes no lock: it may happen inside of any other call."""
        self._draft.is_dropped = True


class TextModel:
    """
    A loaded model, with the contexts that texts are written in; every method is for any thread.

    A generation takes a seat at its first token, in a context that is kept for the next one; so a
    prompt that begins as an earlier one is evaluated from where they part. One batch is evaluated
    at a time, whoever it is for, so that threads never compete for cores.

    Attributes:
        files: What was loaded.
        context_length: How many tokens a prompt and its answer have at most.
        chat_template: The model's own.
        bos: The text of the token that begins a sequence; empty where there is none.
        eos: The text of the token that ends a sequence; empty where there is none.
        control_texts: The texts that `tokenize` takes for tokens only where ``special``.

    Args:
        model: The native model, which now belongs to this object.
        files: What was loaded.
        options: How it was loaded.
        length: Tokens of a prompt and its answer, at most.
        sessions: How many texts may be written at once; None leaves it to the caller.
    """

    def __init__(
        self,
        model: Model,
        files: ModelFiles,
        options: LoadOptions,
        *,
        length: int,
        sessions: int | None,
    ) -> None:
        self.files = files
        self.context_length = length
        self.chat_template = model.chat_template
        self.bos = model.bos
        self.eos = model.eos
        self.control_texts = tuple(model.control_texts)
        self._model = model
        self._pieces: list[bytes | None] = [None] * model.vocabulary_size
        self._lanes = Lanes(model, files, options, length=length, sessions=sessions)
        self._turns = Turns()
        self._gate = Gate(f"the model {files.model.name}")

    @classmethod
    def open(
        cls,
        files: ModelFiles,
        options: LoadOptions,
        context: Context,
        *,
        sessions: int | None = None,
    ) -> TextModel:
        """
        Load a model.

        Args:
            files: What to load.
            options: How.
            context: Is told the progress, and may cancel.
            sessions: How many texts may be written at once; None leaves it to the caller.

        Raises:
            LoadError: The backend, or the model, cannot be loaded.

            CancelledError: The context was cancelled.

            InvalidArgumentError: The model cannot do what an option asks for.
        """
        context.progress(0.0, "importing llama-cpp-python")
        try:
            from cartridge_gguf._model import Model  # noqa: PLC0415 -- loads the backend
        except (ImportError, OSError, RuntimeError) as exc:
            msg = f"llama-cpp-python cannot be imported ({exc}); preflight says how to install it"
            raise LoadError(msg) from exc
        context.check_cancelled()
        length = context_length(files, options)
        native = Model.load(files.model, context, gpu_layers=options.gpu_layers)
        model = cls(native, files, options, length=length, sessions=sessions)
        try:
            lane = model._lanes.add()
        except BackendError as exc:
            model.close()
            raise LoadError(str(exc)) from exc
        if native.has_encoder or not lane.context.has_memory:
            model.close()
            what = f"a model of the architecture {files.header.architecture} does not write texts"
            msg = f"{files.model}: {what} with llama.cpp; gguf-embedding may be what it is for"
            raise LoadError(msg)
        return model

    def tokenize(
        self, text: str, *, special: bool, add_bos: bool, context: Context | None = None
    ) -> list[int]:
        """
        Turn a text into tokens; more than `context_length` may be off by a few.

        Args:
            text: The text; no half surrogate pairs.
            special: Whether the text of a control token becomes that token.
            add_bos: Whether the tokens that the model wants around a text are added.
            context: May cancel.

        Raises:
            CancelledError: The context was cancelled.

            StateError: The model is closed.
        """
        check = self._gate.check if context is None else partial(self.check, context)
        begin = partial(self._model.tokenize, special=special, add_bos=add_bos)
        go_on = partial(self._model.tokenize, special=special, add_bos=False)
        with self._gate:
            return tokens_of(text, begin, go_on, self.context_length, check)

    def piece(self, token: int) -> bytes:
        """
        Give a token's bytes, which need not be whole characters; a control token has none.

        Args:
            token: One that `generate` or `tokenize` gave.

        Raises:
            StateError: The model is closed.
        """
        piece = self._pieces[token]
        if piece is None:
            with self._gate:
                piece = self._pieces[token] = self._model.piece(token)
        return piece

    def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        limit: int,
        context: Context,
        pictures: Mapping[int, Picture] | None = None,
    ) -> Generation:
        """
        Write a text; the work begins with the first token.

        Args:
            prompt: What it follows, at least one token.
            sampling: How tokens are chosen.
            limit: How many come at most.
            context: May cancel, and is told how far the prompt is read.
            pictures: Those whose tokens are in the prompt, by the place of the first; the prompt
                does not end with one.

        Raises:
            InvalidArgumentError: There is no prompt, or (`ContextOverflowError`) prompt and limit
                are more than `context_length`.

            StateError: The model is closed.
        """
        self._gate.check()
        if not prompt:
            rule = "at least one token"
            msg = f"prompt: it is empty; the model must be told {rule}"
            raise InvalidArgumentError(msg, arg="prompt", value=[], rule=rule)
        allowance(len(prompt), limit, self.context_length, is_clamped=False)
        draft = Draft([*prompt], limit, sampling, pictures or {})
        if not limit:
            draft.finish_reason = "length"
        return Generation(self, draft, context)

    def next_token(self, draft: Draft, context: Context, patience: Patience) -> int | None:
        """
        Give a draft's next token, None where it is over; `Generation` calls it.

        Raises:
            CancelledError: The context was cancelled.

            StateError: The model is closed.

            BusyError: It writes for as many as it may.

            BackendError: The backend failed.
        """
        with self._gate:
            while True:
                self.check(context)
                with self._turns.turn(patience):
                    if not draft.ready and not draft.is_over:
                        self._work(draft, context)
                    if draft.ready:
                        return draft.ready.popleft()
                    if draft.error is not None:
                        raise draft.error
                    if draft.is_over:
                        return None
                context.log("debug", f"{draft.evaluated} of {len(draft.tokens)} tokens read")

    @contextmanager
    def turn(self, context: Context) -> Iterator[Model]:
        """
        Have the native model to oneself: nobody computes meanwhile, and it stays open.

        Args:
            context: May cancel the wait for it.

        Raises:
            CancelledError: The context was cancelled.

            StateError: The model is closed.
        """
        with self._gate, self._turns.turn(Patience(partial(self.check, context), context)):
            self.check(context)
            yield self._model

    def check(self, context: Context) -> None:
        """
        Say whether to go on.

        Raises:
            CancelledError: The context was cancelled.

            StateError: The model is closed.
        """
        context.check_cancelled()
        self._gate.check()

    def _work(self, draft: Draft, context: Context) -> None:
        """Have a token more, or evaluate a batch, for a draft and whoever shares its lane."""
        if draft.lane is None:
            lane = self._lanes.seat(draft)
            draft.stop = partial(lane.stop, draft)
            context.on_cancel(draft.stop)
            if draft.ready or draft.is_over:  # its prompt was read for another one
                return
        else:
            lane = draft.lane
        lane.begin(draft)
        try:
            # Who cancels or closes stops the context after having said so: it is seen here, or the
            # stop comes after `begin`.
            self.check(context)
            lane.step(draft)
        finally:
            lane.first = None

    def close(self) -> None:
        """Have everything that runs end, wait for it, and free the memory."""
        if not self._gate.close():
            return
        self._lanes.stop()
        self._gate.wait()
        self._lanes.close()
        self._model.close()
