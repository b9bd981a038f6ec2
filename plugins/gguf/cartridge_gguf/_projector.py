"""A vision projector: it makes of a picture what a language model reads among its tokens."""

from __future__ import annotations

import ctypes
import hashlib
import time
import weakref
from typing import TYPE_CHECKING

from cartridge_core.errors import BackendError, InvalidArgumentError, LoadError
from cartridge_gguf._llama import C, mtmd_cpp, mtmd_log
from cartridge_gguf._model import loading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cartridge_core.context import Context as HostContext
    from cartridge_gguf._context import Context
    from cartridge_gguf._model import Model

__all__ = ["Picture", "Projector"]

_ABORTED = 2
"""What decoding returns where the context's abort callback said yes."""

_STRIDE = 4
"""After how many of its graph's nodes an encoder asks whether to go on: an eighth of a layer."""

_SIGN_OF_LIFE_S = 10.0


class Picture:
    """
    A picture, or one of the tiles that some models cut it into, ready to be encoded.

    Attributes:
        tokens: What stands for it among a prompt's tokens, one for each that it takes of the
            memory. They are negative, so that no text has them, and equal for equal pictures alone.
        positions: How many positions it takes; with M-RoPE fewer than tokens.

    Args:
        projector: What encodes it.
        chunk: The ``mtmd_input_chunk``, which now belongs to this object.
        name: Says what it shows.
        tell: Called now and then while it is encoded.
    """

    def __init__(
        self, projector: Projector, chunk: int, name: bytes, tell: Callable[[], None]
    ) -> None:
        self.chunk = chunk
        self.tell = tell
        self.positions: int = mtmd_cpp.mtmd_input_chunk_get_n_pos(chunk)
        count: int = mtmd_cpp.mtmd_input_chunk_get_n_tokens(chunk)
        first = int.from_bytes(name, "big") << 32
        self.tokens = [-1 - first - place for place in range(count)]
        self._projector = projector
        weakref.finalize(self, mtmd_cpp.mtmd_input_chunk_free, chunk)

    def decode(self, context: Context, position: int, sequence: int) -> bool:
        """
        Encode it, and evaluate that.

        Args:
            context: What remembers it.
            position: Of its beginning in its sequence.
            sequence: The sequence's number.

        Returns:
            Whether it was; else the context was stopped, and a part of it may be in the memory.

        Raises:
            InvalidArgumentError: It does not fit into one batch, as its model wants it.

            BackendError: The backend failed; a part of it may be in the memory.
        """
        return self._projector.decode(self, context, position, sequence)


class _Watch:
    """Decides, between two nodes of the encoder's graph, whether to go on."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self._context: Context | None = None
        self._tell: Callable[[], None] | None = None
        self._told_s = 0.0
        self._seen = 0
        self.callback = C.ggml_backend_sched_eval_callback(self._look)

    def begin(self, context: Context, tell: Callable[[], None]) -> None:
        """Begin to watch an encoding, which a context's stop ends."""
        self.failure = None
        self._context, self._tell = context, tell
        self._told_s = time.monotonic()
        self._seen = 0

    def _look(self, _node: int | None, is_question: bool, _data: int | None) -> bool:
        """Say whether to compute up to this node before all others; and then, whether to go on."""
        if is_question:
            self._seen += 1
            return self._seen % _STRIDE == 0
        try:
            self._show_life()
        except BaseException as exc:  # noqa: BLE001 -- C would drop it; it is raised by `decode`
            self.failure = exc
        is_stopped = self._context is not None and self._context.is_stopped
        return self.failure is None and not is_stopped

    def _show_life(self) -> None:
        if self._tell is not None and time.monotonic() - self._told_s >= _SIGN_OF_LIFE_S:
            self._told_s = time.monotonic()
            self._tell()


class Projector:
    """
    The encoder of a model's pictures.

    Like a context, it takes one call at a time. An encoding that is to end does so between two
    groups of its graph's nodes, of which a layer has about eight; a decode, as any other.

    Args:
        pointer: The ``mtmd_context``, which now belongs to this object.
        watch: What it asks while it encodes.
    """

    def __init__(self, pointer: int, watch: _Watch) -> None:
        self._pointer: int | None = pointer
        self._watch = watch

    @classmethod
    def load(
        cls, path: Path, model: Model, context: HostContext, *, threads: int, on_gpu: bool
    ) -> Projector:
        """
        Load a projector.

        Args:
            path: The file.
            model: The model that it is for.
            context: Is told the progress, and may cancel.
            threads: How many threads encode.
            on_gpu: Whether a GPU encodes, where there is one.

        Raises:
            LoadError: The backend refuses it, or it is for another model.

            CancelledError: The context was cancelled.
        """
        failures, tell = loading(path, context)
        watch = _Watch()
        parameters = mtmd_cpp.mtmd_context_params_default()
        parameters.use_gpu = on_gpu
        parameters.print_timings = False
        parameters.n_threads = threads
        # llama.cpp's choice. Without it an encoder is slower, and takes memory by the square of a
        # picture's size: gigabytes where pictures keep theirs.
        parameters.flash_attn_type = C.LLAMA_FLASH_ATTN_TYPE_AUTO
        parameters.cb_eval = watch.callback
        parameters.progress_callback = mtmd_cpp.mtmd_progress_callback(tell)
        mtmd_log.take_complaints()
        pointer: int | None = mtmd_cpp.mtmd_init_from_file(bytes(path), model.pointer, parameters)
        if pointer is not None and not failures:
            return cls(pointer, watch)
        if pointer is not None:
            mtmd_cpp.mtmd_free(pointer)
        if failures:
            raise failures[0]
        why = mtmd_log.take_complaints()
        msg = f"{path}: llama.cpp cannot load it as this model's projector ({why})"
        raise LoadError(msg)

    def read(
        self, size: tuple[int, int], pixels: bytes, tell: Callable[[], None]
    ) -> list[Picture | list[int]]:
        """
        Bring a picture into the model's size and shape; nothing is encoded yet.

        Args:
            size: Width and height, each at least 1.
            pixels: Three bytes each, RGB, row by row.
            tell: Called now and then while it is encoded.

        Returns:
            The picture, or its tiles, and the tokens that the model wants around them.

        Raises:
            BackendError: The backend refuses it.
        """
        name = hashlib.sha256(b"%d %d " % size + pixels).digest()
        data = ctypes.cast(ctypes.c_char_p(pixels), ctypes.POINTER(ctypes.c_uint8))
        bitmap = mtmd_cpp.mtmd_bitmap_init(*size, data)
        chunks = mtmd_cpp.mtmd_input_chunks_init()
        try:
            # A part is a picture or a text, so that no marker in a text is looked for.
            part = ctypes.pointer(mtmd_cpp.mtmd_input_part(None, bitmap))
            parts = (ctypes.POINTER(mtmd_cpp.mtmd_input_part) * 1)(part)
            mtmd_log.take_complaints()
            status: int = mtmd_cpp.mtmd_tokenize_from_parts(self._pointer, chunks, parts, 1, False)
            if status:
                why = mtmd_log.take_complaints()
                msg = f"llama.cpp cannot prepare a picture of {size[0]} by {size[1]} pixels ({why})"
                raise BackendError(msg)
            count: int = mtmd_cpp.mtmd_input_chunks_size(chunks)
            return [
                self._chunk(
                    mtmd_cpp.mtmd_input_chunks_get(chunks, index), name + b"%d" % index, tell
                )
                for index in range(count)
            ]
        finally:
            mtmd_cpp.mtmd_input_chunks_free(chunks)
            mtmd_cpp.mtmd_bitmap_free(bitmap)

    def _chunk(self, chunk: int, name: bytes, tell: Callable[[], None]) -> Picture | list[int]:
        """Take a chunk out of a list of chunks, which is freed."""
        if mtmd_cpp.mtmd_input_chunk_get_type(chunk) == mtmd_cpp.MTMD_INPUT_CHUNK_TYPE_TEXT:
            count = ctypes.c_size_t()
            tokens: Sequence[int] = mtmd_cpp.mtmd_input_chunk_get_tokens_text(
                chunk, ctypes.byref(count)
            )
            return [*tokens[: count.value]]
        return Picture(self, mtmd_cpp.mtmd_input_chunk_copy(chunk), name, tell)

    def decode(self, picture: Picture, context: Context, position: int, sequence: int) -> bool:
        """Encode and evaluate one of its pictures; see `Picture.decode`."""
        self._check_batch(picture, context)
        self._watch.begin(context, picture.tell)
        mtmd_log.take_complaints()
        status: int = mtmd_cpp.mtmd_encode_chunk(self._pointer, picture.chunk)
        if self._watch.failure is not None:
            raise self._watch.failure
        if context.is_stopped:
            return False
        if status:
            msg = f"llama.cpp cannot encode the picture ({mtmd_log.take_complaints()})"
            raise BackendError(msg)
        status = mtmd_cpp.mtmd_helper_decode_image_chunk(
            self._pointer,
            context.pointer,
            picture.chunk,
            mtmd_cpp.mtmd_get_output_embd(self._pointer),
            position,
            sequence,
            context.batch_size,
            ctypes.byref(C.llama_pos()),
            mtmd_cpp.mtmd_helper_post_decode_callback(),
            None,
        )
        if status in {0, _ABORTED}:
            return status == 0
        msg = (
            f"llama.cpp cannot evaluate a picture of {len(picture.tokens)} tokens: status {status} "
            f"({mtmd_log.take_complaints()})"
        )
        raise BackendError(msg)

    def _check_batch(self, picture: Picture, context: Context) -> None:
        """Refuse what would be cut into batches where each part must see the others."""
        count, size = len(picture.tokens), context.batch_size
        if count <= size or not mtmd_cpp.mtmd_decode_use_non_causal(self._pointer, picture.chunk):
            return
        rule = f"at most {size} tokens, which is one batch"
        msg = (
            f"image: it comes to {count} tokens, and for this model it must be {rule}; give a "
            "smaller picture, or open the model with a larger batch_size"
        )
        raise InvalidArgumentError(msg, arg="image", rule=rule)

    def close(self) -> None:
        """Free it; again is harmless."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            mtmd_cpp.mtmd_free(pointer)
