"""The contexts that a model's texts are written in, and who gets which seat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cartridge_core.errors import BusyError
from cartridge_core.machine import available_bytes
from cartridge_gguf.memory import writing_bytes
from cartridge_gguf.scheduler import Lane

if TYPE_CHECKING:
    from cartridge_gguf._model import Model
    from cartridge_gguf.files import ModelFiles
    from cartridge_gguf.options import LoadOptions
    from cartridge_gguf.scheduler import Draft

__all__ = ["Lanes"]

_MOST_BATCH = 512
"""Tokens of one decode: more is not quicker on a CPU, and everybody else waits for it."""


class Lanes:
    """
    A model's contexts, which are kept for later texts; for one caller at a time, but for `stop`.

    Attributes:
        lanes: Those that there are.

    Args:
        model: The native model; stays open for longer.
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
        self.lanes: list[Lane] = []
        self._model = model
        self._files = files
        self._options = options
        self._length = length
        self._sessions = sessions

    def add(self) -> Lane:
        """
        Make a context more.

        Raises:
            BackendError: The backend cannot.
        """
        from cartridge_gguf._context import Context, ContextSettings  # noqa: PLC0415 -- llama_cpp

        options = self._options
        settings = ContextSettings(
            length=self._length,
            sequences=options.parallel_sequences,
            # Fewer than one token a sequence, and the backend ends the process.
            batch_size=max(min(options.batch_size, _MOST_BATCH), options.parallel_sequences),
            threads=options.thread_count,
            rope_freq_base=options.rope_freq_base,
            rope_freq_scale=options.rope_freq_scale,
            flash_attention=options.parallel_sequences > 1,
        )
        lane = Lane(Context(self._model, settings), options.parallel_sequences)
        self.lanes.append(lane)
        return lane

    def seat(self, draft: Draft) -> Lane:
        """
        Give a draft the free seat that remembers most of its prompt; where none is free, a new one.

        Raises:
            BusyError: As many texts are written as may be, or as there is memory for.

            BackendError: The backend cannot make a context.

            InvalidArgumentError: The backend refuses the grammar.
        """
        for lane in self.lanes:
            lane.sweep()
        seats = [(lane, seat) for lane in self.lanes for seat in lane.seats]
        free = [(lane, seat) for lane, seat in seats if seat.draft is None]
        if self._sessions is not None and len(seats) - len(free) >= self._sessions:
            msg = f"the model writes {self._sessions} texts already; wait until one of them ends"
            raise BusyError(msg)
        if free:
            lane, seat = max(free, key=lambda found: found[0].common(found[1], draft))
        else:
            self._check_room(len(seats))
            lane = self.add()
            seat = lane.seats[0]
        lane.take(seat, draft)
        return lane

    def _check_room(self, writing: int) -> None:
        """Refuse a context that memory has no room for: the system might end the process."""
        room = None if self._options.gpu_layers else available_bytes()
        needed = writing_bytes(self._files, self._options, self._length)
        if room is not None and needed > room:
            msg = (
                f"the model writes {writing} texts already, and the context for another one takes "
                f"{needed >> 20} MiB, of which {room >> 20} are free; wait until one of them ends, "
                "or open the model with a smaller max_context_length"
            )
            raise BusyError(msg)

    def stop(self) -> None:
        """Have every step that runs end early; from any thread."""
        for lane in [*self.lanes]:
            lane.context.stop()

    def close(self) -> None:
        """Free the contexts."""
        for lane in self.lanes:
            lane.close()
        self.lanes.clear()
