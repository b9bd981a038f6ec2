"""Several streams at once over one: what a shared decode batch gives in all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

from benchmarks.llama_texts import BATCH, CONTEXT, INFERENCE, WAYS, greedy
from benchmarks.measuring import QUICK, interleave, ratio, seconds
from benchmarks.rows import Row
from cartridge_core import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.measuring import Effort

__all__ = ["measure_streams"]

_STREAMS = 4
_TOPICS = ("the sea", "a train", "bread", "old houses")


def measure_streams(
    model: Path, tokens: int, threads: int, effort: Effort, *, least: float
) -> Iterator[Row]:
    """Measure answers of so many tokens, with a model and so many threads."""
    tokens = 8 if effort is QUICK else tokens
    for way in WAYS:
        yield Row(
            "gguf",
            f"{_STREAMS} streams, {model.stem}, threads={threads}, {way}",
            measured=ratio(rounds := _rounds(model, tokens, threads, effort, way)),
            budget=least,
            unit="ratio",
            note="their tokens a second, together, over those of one stream",
            samples=rounds,
        )


def _rounds(
    model: Path, tokens: int, threads: int, effort: Effort, way: str
) -> list[tuple[float, ...]]:
    """Time an answer among four, and one alone."""
    with Registry.discover(isolation=way) as registry, ThreadPoolExecutor(_STREAMS) as pool:

        def write(topic: str, parallel: int) -> None:
            chat = [{"role": "user", "content": f"Write a long story about {topic}."}]
            final = registry.call(
                INFERENCE,
                greedy(chat, tokens),
                model_spec=model,
                threads=threads,
                parallel_sequences=parallel,
                max_context_length=CONTEXT,
                batch_size=BATCH,
            )
            written = cast("dict[str, object]", final.payload)["tokens_generated"]
            assert written == tokens  # noqa: S101 -- or the answers are not of one length

        def together() -> float:
            return seconds(lambda: list(pool.map(write, _TOPICS, [_STREAMS] * _STREAMS)))

        def alone() -> float:
            return seconds(lambda: write(_TOPICS[0], 1))

        together()  # loads the model, and reads the prompts
        alone()
        return [(four / _STREAMS, one) for four, one in interleave([together, alone], effort)]
