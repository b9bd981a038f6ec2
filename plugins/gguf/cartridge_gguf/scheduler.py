"""
Texts that are written together: which tokens go into the next batch, and what comes out of it.

A `Lane` is a native context with seats; a `Draft` has one of them while it is written. A lane with
one seat evaluates one text at a time, in such portions that the text is bit for bit what it would
be in a fresh context. In a lane with several seats all drafts go through one batch, for which the
weights are read once; what the numbers are then depends, in the last bits, on the company.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_gguf._context import Context
    from cartridge_gguf._model import Model
    from cartridge_gguf._projector import Picture
    from cartridge_gguf._sampler import Sampler
    from cartridge_gguf.sampling import Sampling

__all__ = ["Draft", "Lane", "Seat"]

_AHEAD = 2
"""
Tokens that a draft may be ahead of its reader. With 1, readers that take turns in another order
each time, or are late now and then, would often leave a draft out of a batch.
"""


@attrs.define(eq=False)
class Draft:
    """A text that is being written."""

    tokens: list[int]
    """The prompt, and what came after it."""

    limit: int
    """How many tokens may still come."""

    sampling: Sampling
    pictures: Mapping[int, Picture] = attrs.field(factory=dict)
    """By the place of its first token; after the last one comes a text."""

    prompt: int = attrs.field(
        init=False, default=attrs.Factory(lambda draft: len(draft.tokens), takes_self=True)
    )
    """How many of the tokens are the prompt's."""

    lane: Lane | None = attrs.field(init=False, default=None)
    """Where it has a seat, or had one."""

    stop: Callable[[], None] | None = attrs.field(init=False, default=None)
    """Ends a step that is for this draft."""

    evaluated: int = attrs.field(init=False, default=0)
    """How many of the tokens."""

    ready: deque[int] = attrs.field(init=False, factory=deque)
    """Tokens that have come and were not fetched."""

    finish_reason: str | None = attrs.field(init=False, default=None)
    error: BackendError | None = attrs.field(init=False, default=None)
    is_dropped: bool = attrs.field(init=False, default=False)
    """Nobody fetches any more; set from any thread."""

    @property
    def is_over(self) -> bool:
        """Whether no more tokens come."""
        return self.is_dropped or self.finish_reason is not None or self.error is not None

    def position(self, place: int) -> int:
        """Give the position of a token, which is its place unless pictures come before it."""
        if not self.pictures:
            return place
        saved = (
            len(picture.tokens) - picture.positions
            for start, picture in self.pictures.items()
            if start < place
        )
        return place - sum(saved)

    def part(self, place: int) -> tuple[int, int]:
        """Give the beginning and the end of the picture, or of the text, that a token is in."""
        begin, end = 0, len(self.tokens)
        for start, picture in self.pictures.items():
            for edge in (start, start + len(picture.tokens)):
                if edge <= place:
                    begin = max(begin, edge)
                else:
                    end = min(end, edge)
        return begin, end

    def write(
        self,
        sampler: Sampler,
        model: Model,
        logits: NDArray[np.float32],
        place: tuple[Context, int] | None = None,
    ) -> None:
        """Choose the next token; see `Sampler.sample`."""
        try:
            token = sampler.sample(logits, place)
        except BackendError as exc:
            self.error = exc  # raised by its own reader: whoever computes may be another's
            return
        if model.is_end(token):
            # A grammar allows an end only where its text is complete.
            is_constrained = self.sampling.grammar is not None
            self.finish_reason = "constraint_satisfied" if is_constrained else "stop"
            return
        self.tokens.append(token)
        self.ready.append(token)
        self.limit -= 1
        if not self.limit:
            self.finish_reason = "length"


@attrs.define(eq=False)
class Seat:
    """One of a lane's sequences."""

    number: int
    memory: list[int] = attrs.field(init=False, factory=list)
    """The tokens that the context remembers."""

    reusable: int = attrs.field(init=False, default=0)
    """How many of them, from the first on, another text may build upon."""

    read: int = attrs.field(init=False, default=0)
    """How many tokens the last prompt had that was read to its end; 0 where it is forgotten."""

    answer: NDArray[np.float32] | None = attrs.field(init=False, default=None)
    """The logits behind that prompt: who asks the same again need not evaluate anything of it."""

    draft: Draft | None = attrs.field(init=False, default=None)
    sampler: Sampler | None = attrs.field(init=False, default=None)
    """The draft's."""


@attrs.define
class _Portion:
    """A draft's part of a batch."""

    seat: Seat
    draft: Draft
    tokens: Sequence[int]
    row: int | None
    """Of the draft's last token; None where more of the draft follows."""


class Lane:
    """
    A context, and the drafts in it.

    Attributes:
        first: Whom a step is for, while there is one.

    Args:
        context: The native context, which now belongs to this object.
        seats: How many sequences it has.
    """

    def __init__(self, context: Context, seats: int) -> None:
        from cartridge_gguf._context import Batch  # noqa: PLC0415 -- loads the backend

        self.context = context
        self.first: Draft | None = None
        self.seats = [Seat(number) for number in range(seats)]
        self._batch = Batch(context.batch_size)
        self._is_shared = seats > 1

    def sweep(self) -> None:
        """Free the seats of drafts that are over."""
        for seat in self.seats:
            if seat.draft is not None and seat.draft.is_over:
                self._free(seat)

    def common(self, seat: Seat, draft: Draft) -> int:
        """Say how many of a draft's first tokens a free seat need not evaluate."""
        count = 0
        for old, new in zip(seat.memory[: seat.reusable], draft.tokens, strict=False):
            if old != new:
                break
            count += 1
        if count == len(draft.tokens):
            if count == seat.read:
                return count
            count -= 1  # what follows the last one has to be computed
        is_begun = count != draft.part(count)[0] and count % self.context.batch_size
        is_alone = self._end(count, draft) == count + 1
        if is_begun and is_alone and not self._is_shared:
            return count - 1  # in a fresh context it would not be alone
        return count

    def take(self, seat: Seat, draft: Draft) -> None:
        """
        Give a free seat to a draft.

        Raises:
            InvalidArgumentError: The backend refuses the grammar.
        """
        from cartridge_gguf._sampler import Sampler  # noqa: PLC0415 -- loads the backend

        seat.sampler = Sampler(self.context.model, draft.sampling)
        seat.draft, draft.lane = draft, self
        self._forget(seat, draft, self.common(seat, draft))
        if seat.answer is not None and seat.read == len(seat.memory) == len(draft.tokens):
            draft.evaluated = seat.read
            draft.write(seat.sampler, self.context.model, seat.answer.copy())

    def begin(self, first: Draft) -> None:
        """Take an earlier `stop` back: a step for this draft comes."""
        self.first = first
        self.context.go_on()

    def stop(self, draft: Draft) -> None:
        """Have the step that runs end early if it is for this draft; from any thread."""
        if self.first is draft:
            self.context.stop()

    def step(self, first: Draft) -> bool:
        """
        Evaluate a batch: of every draft one token, or a portion of its prompt; or a picture.

        A draft that is ahead of its reader waits. One that has come to a picture waits until it is
        the first.

        Args:
            first: Comes first; it has a seat here, and no token is ready.

        Returns:
            Whether it was; else the context was told to stop, and nothing has changed.

        Raises:
            BackendError: The backend failed; nothing has changed.
        """
        seat = next(seat for seat in self.seats if seat.draft is first)
        start = len(seat.memory)
        picture = first.pictures.get(start)
        if picture is None:
            portions = self._fill(first)
        else:
            portions = [_Portion(seat, first, picture.tokens, None)]
        is_done = False
        try:
            if picture is None:
                is_done = self.context.decode(self._batch)
            else:
                is_done = picture.decode(self.context, first.position(start), seat.number)
        finally:
            if not is_done:
                for portion in portions:
                    self._forget(portion.seat, portion.draft, len(portion.seat.memory))
        if is_done:
            for portion in portions:
                self._remember(portion)
        return is_done

    def close(self) -> None:
        """Free the context, and what its drafts hold."""
        for seat in self.seats:
            self._free(seat)
        self.context.close()

    def _fill(self, first: Draft) -> list[_Portion]:
        """Fill the batch."""
        self._batch.clear()
        portions = []
        for number, end in sorted(self._ends(first).items()):
            # In the seats' order: else llama.cpp would evaluate them one by one.
            seat = self.seats[number]
            draft, start = seat.draft, len(seat.memory)
            if draft is not None:
                tokens, is_last = draft.tokens[start:end], end == len(draft.tokens)
                position = draft.position(start)
                row = self._batch.add(tokens, position, number, outputs=int(is_last))
                portions.append(_Portion(seat, draft, tokens, row if is_last else None))
        return portions

    def _ends(self, first: Draft) -> dict[int, int]:
        """Say, by seat, up to which token to evaluate: single tokens have room before prompts."""
        if not self._is_shared:
            return {0: self._end(len(self.seats[0].memory), first)}
        waiting = [
            (len(seat.memory) + 1 < len(draft.tokens), draft is not first, seat.number, draft)
            for seat in self.seats
            if (draft := seat.draft) is not None and len(draft.ready) < _AHEAD and not draft.is_over
        ]
        room = self.context.batch_size
        ends = {}
        for _, _, number, draft in sorted(waiting, key=lambda entry: entry[:3]):
            start = len(self.seats[number].memory)
            end = min(self._end(start, draft), start + room)
            if end > start and start not in draft.pictures:
                ends[number] = end
                room -= end - start
        return ends

    def _end(self, start: int, draft: Draft) -> int:
        """Say where a portion of a text ends; alone, at the same places wherever it starts."""
        size = self.context.batch_size
        end = start + size if self._is_shared else (start // size + 1) * size
        return min(end, draft.part(start)[1])

    def _remember(self, portion: _Portion) -> None:
        """Note what was evaluated, and go on with the text."""
        seat = portion.seat
        is_reusable = len(portion.tokens) > 1 or self._is_shared
        if is_reusable and seat.reusable == len(seat.memory):
            seat.reusable += len(portion.tokens)
        seat.memory.extend(portion.tokens)
        portion.draft.evaluated = len(seat.memory)
        if portion.row is not None and seat.sampler is not None:
            logits = self.context.logits(portion.row)
            if len(portion.draft.tokens) == portion.draft.prompt:
                seat.read, seat.answer = portion.draft.prompt, logits.copy()
            portion.draft.write(
                seat.sampler, self.context.model, logits, (self.context, portion.row)
            )

    def _forget(self, seat: Seat, draft: Draft, count: int) -> None:
        """Have the context remember so many of a draft's tokens, or none where it cannot."""
        position = draft.position(count)
        kept = count if self.context.keep(seat.number, position) == position else 0
        del seat.memory[kept:]
        seat.reusable = min(seat.reusable, kept)
        if kept < seat.read:
            seat.read, seat.answer = 0, None

    def _free(self, seat: Seat) -> None:
        """Take the draft out; what the context remembers stays for the next one."""
        if seat.sampler is not None:
            seat.sampler.close()
        seat.draft = seat.sampler = None
