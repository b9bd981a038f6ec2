"""A loaded model: weights and vocabulary."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING

from cartridge_core.errors import LoadError
from cartridge_gguf._llama import C, llama_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cartridge_core.context import Context

__all__ = ["Model", "loading"]

_UNKNOWN = 1 << 0
_CONTROL = 1 << 3
"""Bits of ``llama_token_attr``: what `tokenize` reads as a token only where ``special``."""

_PIECE_BYTES = 64
"""Of a token, at first try."""


def loading(
    path: Path, context: Context
) -> tuple[list[BaseException], Callable[[float, int | None], bool]]:
    """
    Make what llama.cpp calls while it loads a file.

    Args:
        path: The file.
        context: Is told the progress, and may cancel.

    Returns:
        What went wrong, to be raised after the load, and the function; it says whether to go on.
    """
    failures: list[BaseException] = []

    def tell(fraction: float, _data: int | None) -> bool:
        try:
            context.check_cancelled()
            context.progress(fraction, f"loading {path.name}")
        except BaseException as exc:  # noqa: BLE001 -- C would drop it; the caller raises it
            failures.append(exc)
        return not failures

    return failures, tell


class Model:
    """
    Weights and vocabulary.

    Attributes:
        pointer: The ``llama_model``.
        vocabulary: Its ``llama_vocab``.
        vocabulary_size: How many tokens there are.
        embedding_length: How many numbers one of its vectors has.

    Args:
        pointer: The ``llama_model``, which now belongs to this object.
    """

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer
        self.vocabulary: int = C.llama_model_get_vocab(pointer)
        self.vocabulary_size: int = C.llama_vocab_n_tokens(self.vocabulary)
        self.embedding_length: int = C.llama_model_n_embd_out(pointer)
        self._is_end: dict[int, bool] = {}

    @classmethod
    def load(
        cls, path: Path, context: Context, *, gpu_layers: int, vocabulary_only: bool = False
    ) -> Model:
        """
        Load a model; the weights are mapped into memory.

        Args:
            path: The file; of several, the first.
            context: Is told the progress, and may cancel.
            gpu_layers: How many layers go to a GPU; -1 = all.
            vocabulary_only: Whether the weights are left out.

        Raises:
            LoadError: The backend refuses it.

            CancelledError: The context was cancelled.
        """
        failures, tell = loading(path, context)
        parameters = C.llama_model_default_params()
        parameters.n_gpu_layers = gpu_layers
        parameters.vocab_only = vocabulary_only
        parameters.progress_callback = C.llama_progress_callback(tell)
        llama_log.take_complaints()
        pointer: int | None = C.llama_model_load_from_file(bytes(path), parameters)
        if pointer is None or failures:
            if pointer is not None:
                C.llama_model_free(pointer)
            if failures:
                raise failures[0]
            msg = f"{path}: llama.cpp cannot load it ({llama_log.take_complaints()})"
            raise LoadError(msg)
        model = cls(pointer)
        if C.llama_vocab_type(model.vocabulary) == C.LLAMA_VOCAB_TYPE_NONE:
            model.close()  # llama.cpp ends the process at its first text
            msg = f"{path}: the model has no vocabulary, so that it cannot read texts"
            raise LoadError(msg)
        return model

    def tokenize(self, text: str, *, special: bool, add_bos: bool) -> list[int]:
        """
        Turn a text into tokens.

        Args:
            text: The text; no half surrogate pairs.
            special: Whether the text of a control token becomes that token.
            add_bos: Whether the tokens that the model wants around a text are added.
        """
        data = text.encode()
        room = len(data) + 2
        while True:
            tokens = (ctypes.c_int32 * room)()
            count: int = C.llama_tokenize(
                self.vocabulary, data, len(data), tokens, room, add_bos, special
            )
            if count >= 0:
                return tokens[:count]
            room = -count

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """
        Give a token's bytes, which need not be whole characters.

        Args:
            token: Its id.
            special: Whether control tokens have their text; else they have none.
        """
        room = _PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(room)
            size: int = C.llama_token_to_piece(self.vocabulary, token, buffer, room, 0, special)
            if size >= 0:
                return buffer.raw[:size]
            room = -size

    def spelling(self, token: int) -> str:
        """Give a token as the vocabulary spells it; empty for -1, which is no token."""
        if token < 0:
            return ""
        text: bytes = C.llama_vocab_get_text(self.vocabulary, token)
        return text.decode("utf-8", "replace")

    @property
    def bos(self) -> str:
        """The token that begins a sequence; empty where the model has none."""
        return self.spelling(C.llama_vocab_bos(self.vocabulary))

    @property
    def eos(self) -> str:
        """The token that ends a sequence; empty where the model has none."""
        return self.spelling(C.llama_vocab_eos(self.vocabulary))

    @property
    def control_texts(self) -> list[str]:
        """The texts that `tokenize` reads as tokens only where ``special``."""
        return [text for token in self.controls if (text := self.spelling(token))]

    @functools.cached_property
    def controls(self) -> list[int]:
        """The tokens that are no text, those that end one included."""
        attributes, vocabulary = C.llama_vocab_get_attr, self.vocabulary
        return [
            token
            for token in range(self.vocabulary_size)
            if attributes(vocabulary, token) & (_UNKNOWN | _CONTROL)
        ]

    @property
    def chat_template(self) -> str | None:
        """The chat template that the file carries."""
        template: bytes | None = C.llama_model_chat_template(self.pointer, None)
        return None if template is None else template.decode("utf-8", "replace")

    @property
    def has_encoder(self) -> bool:
        """Whether it reads with an encoder that a decoder may follow, as T5; BERT has none such."""
        answer: bool = C.llama_model_has_encoder(self.pointer)
        return answer

    def is_end(self, token: int) -> bool:
        """Say whether a token ends a text."""
        if token not in self._is_end:
            self._is_end[token] = C.llama_vocab_is_eog(self.vocabulary, token)
        return self._is_end[token]

    def close(self) -> None:
        """Free it."""
        C.llama_model_free(self.pointer)
