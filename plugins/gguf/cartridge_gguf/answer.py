"""An answer as it is written: pieces of text, then the record of the whole."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import BackendError
from cartridge_core.results import Result, ResultKind
from cartridge_gguf.budget import allowance
from cartridge_gguf.text import TextAssembler

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from cartridge_core.context import Context
    from cartridge_gguf._projector import Picture
    from cartridge_gguf.constraint import Constraint
    from cartridge_gguf.engine import TextModel
    from cartridge_gguf.request import Request

__all__ = ["Prompt", "write"]

_STEPS = 20
"""How often progress is told in one answer, at most."""


@attrs.frozen
class Prompt:
    """What a model reads before it answers."""

    tokens: Sequence[int]
    pictures: Mapping[int, Picture] = attrs.field(factory=dict)
    """Those whose tokens are among these, by the place of the first."""

    @property
    def picture_tokens(self) -> int:
        """How many of the tokens stand for pictures."""
        return sum(len(picture.tokens) for picture in self.pictures.values())


def write(
    model: TextModel, request: Request, prompt: Prompt, context: Context
) -> Generator[Result]:
    """
    Answer a request.

    Args:
        model: Writes it.
        request: Says how.
        prompt: What the request comes to.
        context: May cancel, and is told the progress.

    Yields:
        PARTIAL pieces of the text, none of them empty; at the end the FINAL record.

    Raises:
        InvalidArgumentError: Prompt and answer do not fit into the model's context.

        BackendError: The backend failed.

        CancelledError: The context was cancelled.

        StateError: The model is closed.
    """
    begun_s = time.monotonic()
    limit = allowance(
        len(prompt.tokens),
        request.max_tokens,
        model.context_length,
        is_clamped=request.is_clamped,
        picture_tokens=prompt.picture_tokens,
    )
    answer = _Answer(model, request, prompt, context, limit, TextAssembler(request.stops))
    with closing(answer.pieces()) as pieces:
        for piece in pieces:
            answer.written.append(piece)
            yield Result(ResultKind.PARTIAL, piece)
    yield Result(ResultKind.FINAL, answer.record(time.monotonic() - begun_s))


@attrs.define
class _Answer:
    """What is known of an answer while it is written."""

    model: TextModel
    request: Request
    prompt: Prompt
    context: Context
    limit: int
    text: TextAssembler
    written: list[str] = attrs.field(init=False, factory=list)
    tokens: int = attrs.field(init=False, default=0)
    finish_reason: str | None = attrs.field(init=False, default=None)

    def pieces(self) -> Generator[str]:
        """Give the text as it is written, none of it empty."""
        generation = self.model.generate(
            self.prompt.tokens,
            self.request.sampling,
            limit=self.limit,
            context=self.context,
            pictures=self.prompt.pictures,
        )
        with closing(generation) as tokens:
            for token in tokens:
                self.tokens += 1
                if piece := self.text.feed(self.model.piece(token)):
                    yield piece
                if self.text.is_stopped:
                    self.finish_reason = "stop"
                    return
                self._tell()
            self.finish_reason = tokens.finish_reason
        if piece := self.text.finish():
            yield piece
        if self.text.is_stopped:
            self.finish_reason = "stop"
        if self.finish_reason == "constraint_satisfied" and self.text.dropped_bytes:
            # llama.cpp takes some bytes for a character that are none in UTF-8.
            msg = (
                f"the model wrote {self.text.dropped_bytes} bytes that are no text, though the "
                "constraint asks for text; ask again, with another seed"
            )
            raise BackendError(msg)

    def _tell(self) -> None:
        """Report every twentieth of the answer; the prompt, which the model reports, counts too."""
        made, before = self.tokens, len(self.prompt.tokens)
        if made * _STEPS // self.limit > (made - 1) * _STEPS // self.limit:
            fraction = (before + made) / (before + self.limit)
            self.context.progress(fraction, f"{made} of at most {self.limit} tokens written")

    def record(self, seconds: float) -> dict[str, object]:
        """Give the record of the whole."""
        text, request = "".join(self.written), self.request
        record: dict[str, object] = {
            "generated_text": text,
            "tokens_generated": self.tokens,
            "prompt_tokens": len(self.prompt.tokens),
            "finish_reason": self.finish_reason,
            "generation_time_ms": round(seconds * 1000),
            "dropped_bytes": self.text.dropped_bytes,
            "truncated_character": self.text.is_cut,
        }
        if request.request_id is not None:
            record["request_id"] = request.request_id
        if request.constraint is not None and self.finish_reason == "constraint_satisfied":
            record |= _parsed(request.constraint, text)
        return record


def _parsed(constraint: Constraint, text: str) -> Mapping[str, object]:
    """Give what a text under a constraint says, where that is more than a text."""
    if constraint.kind == "json_schema":
        return {"value": constraint.parse(text)}
    if constraint.kind == "tool_call":
        return cast("Mapping[str, object]", constraint.parse(text))
    return {}
