"""Embedding texts with a GGUF model."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, cast

from benchmarks.embeddings import texts_of
from benchmarks.llama_texts import WAYS
from benchmarks.measuring import interleave, on_cores, ratio, sampler
from benchmarks.rows import Row
from cartridge_core import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.measuring import Effort

    Vectors = NDArray[np.float32]
    Embed = Callable[[list[str]], Vectors]

__all__ = ["measure_embeddings"]

_CAP = 'cap:generate-embeddings;gguf;in="media:enc=utf-8";out="media:embedding-vector;record"'
_PARITY = 0.98
_CONTEXT = 512


def measure_embeddings(model: Path, threads: int, effort: Effort) -> Iterator[Row]:
    """Measure one text and many, with a model and so many threads."""
    with on_cores(threads), _embedders(model, threads) as embedders:
        for size in (1, 32):
            texts = texts_of(size, 8)
            _check_equal([embed(texts) for embed in embedders])
            rounds = interleave([_turn(embed, texts, effort) for embed in embedders], effort)
            for place, way in enumerate(WAYS):
                yield Row(
                    "gguf",
                    f"embedding {size} short, threads={threads}, {way}",
                    measured=ratio(rounds, place, len(WAYS)),
                    budget=_PARITY,
                    unit="ratio",
                    note="llama_cpp.Llama.embed's time over ours",
                    samples=[(times[place], times[-1]) for times in rounds],
                )


@contextlib.contextmanager
def _embedders(model: Path, threads: int) -> Iterator[list[Embed]]:
    """Give our ways to embed, and last the backend's own."""
    import numpy as np
    from llama_cpp import Llama

    llama = Llama(
        str(model),
        embedding=True,
        n_ctx=_CONTEXT,
        n_batch=_CONTEXT,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
    )

    def direct(texts: list[str]) -> Vectors:
        return np.asarray(llama.embed(texts, normalize=True), np.float32)

    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(llama))
        registries = [stack.enter_context(Registry.discover(isolation=way)) for way in WAYS]
        yield [*(_ours(registry, model, threads) for registry in registries), direct]


def _ours(registry: Registry, model: Path, threads: int) -> Embed:
    def embed(texts: list[str]) -> Vectors:
        found = registry.call(
            _CAP,
            texts,
            model_spec=model,
            threads=threads,
            max_context_length=_CONTEXT,
            batch_size=_CONTEXT,
        )
        return cast("Vectors", cast("dict[str, object]", found.payload)["vectors"])

    return embed


def _turn(embed: Embed, texts: list[str], effort: Effort) -> Callable[[], float]:
    return sampler(lambda: embed(texts), effort)


def _check_equal(found: list[Vectors]) -> None:
    """Make sure that all compute the same; else their times say nothing."""
    *ours, direct = found
    for vectors in ours:
        if vectors.shape != direct.shape or float((vectors * direct).sum(axis=1).min()) < 0.9999:
            msg = "the vectors differ from those of llama_cpp.Llama.embed"
            raise ValueError(msg)
