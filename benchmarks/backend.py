"""Cartridges of `benchmarks.nothing` as objects, for a registry in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from benchmarks.nothing import answer, count
from cartridge_core import Result, ResultKind, hookimpl
from cartridge_core.testing import BatchEcho, StreamingEcho, fake_arg, fake_cap, fake_descriptor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cartridge_core.testing.fakes import FakeSession

__all__ = ["Answering", "AnsweringWithModel", "Counting"]


_KNOBS = (fake_arg("upper", "boolean", default=False), fake_arg("prefix", "string", scope="open"))
_MODEL = {
    "name": "model_spec",
    "media_urn": "media:enc=utf-8;model-spec",
    "required": False,
    "sources": [{"cli_flag": "--model-spec"}],
    "metadata": {"pack": True},
}


class Answering(BatchEcho):
    """Batch; hands over to `answer`."""

    plugin_name = "answering"
    descriptor = fake_descriptor("answering-text", caps=[fake_cap("answer", *_KNOBS)])

    def saw(self, hook: str) -> None:
        """Note nothing."""

    @hookimpl
    def cartridge_infer(self, session: object, value: object) -> Result:
        """Answer."""
        del session
        return Result(ResultKind.FINAL, answer(str(value)))


class AnsweringWithModel(Answering):
    """The same, with a model, of which nothing is read."""

    plugin_name = "modelled"
    descriptor = fake_descriptor("modelled-text", caps=[fake_cap("answer", *_KNOBS, _MODEL)])


class Counting(StreamingEcho):
    """Streaming; gives as many pieces as its input says, and an empty FINAL."""

    plugin_name = "counting"
    descriptor = fake_descriptor(
        "counting-pieces",
        "streaming",
        [fake_cap("count", takes="media:integer;numeric", gives="media:enc=utf-8;piece")],
        partial="append",
    )

    def saw(self, hook: str) -> None:
        """Note nothing."""

    @hookimpl
    def cartridge_push(self, session: FakeSession, chunk: object) -> None:
        """Take the number."""
        session.chunks.append(count(int(str(chunk))))

    @hookimpl
    def cartridge_pull(self, session: FakeSession) -> Result | None:
        """Give the next piece, then FINAL, then None."""
        if not session.chunks:
            return None
        piece = next(cast("Iterator[str]", session.chunks[0]), None)
        if piece is not None:
            return Result(ResultKind.PARTIAL, piece)
        session.chunks.clear()
        return Result(ResultKind.FINAL, "")
