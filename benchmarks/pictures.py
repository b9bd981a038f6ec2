"""Embeddings of pictures against transformers' own classes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, cast

from benchmarks.callers import measure_callers
from benchmarks.measuring import QUICK
from benchmarks.parity import measure_parity, vectors_of
from cartridge_core.tasks import embed_image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.measuring import Effort
    from benchmarks.rows import Row
    from cartridge_core import Registry

    Picture = NDArray[np.uint8]
    Vectors = NDArray[np.float32]
    Embed = Callable[[Sequence[Picture]], Vectors]

__all__ = ["measure_pictures"]

_ID = "torch-image-embedding"
_MODEL = Path(__file__).parents[1] / "plugins" / "torch" / "tests" / "data" / "tiny-clip-shapes"
_BATCH = 32


def measure_pictures(registry: Registry, effort: Effort) -> Iterator[Row]:
    """Embed batches of one to many pictures with a tiny CLIP; then single ones from threads."""
    with _ways(registry) as ways:
        for size in (1, 32) if effort is QUICK else (1, 32, 256):
            yield from measure_parity(f"pictures, {size}", ways, _pictures(size), effort)
        ours, direct = ways["registry.call"], ways["transformers"]
        yield from measure_callers(
            "a picture",
            lambda picture: ours([picture]),
            lambda picture: direct([picture]),
            _pictures(16 if effort is QUICK else 256),
            effort,
        )


@contextlib.contextmanager
def _ways(registry: Registry) -> Iterator[dict[str, Embed]]:
    """Give the ways to embed pictures; last the backend's own."""
    import torch
    from PIL import Image  # noqa: PLC0415 -- comes with cartridge-torch
    from transformers import CLIPModel
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    model = CLIPModel.from_pretrained(_MODEL / "0_CLIPModel", local_files_only=True)
    model.train(mode=False)
    processor = CLIPImageProcessorPil.from_pretrained(_MODEL / "0_CLIPModel")

    def direct(pictures: Sequence[Picture]) -> Vectors:
        parts = []
        with torch.inference_mode():
            for start in range(0, len(pictures), _BATCH):
                images = [Image.fromarray(one) for one in pictures[start : start + _BATCH]]
                given = processor(images, return_tensors="pt")
                found = model.get_image_features(pixel_values=given["pixel_values"])
                parts.append(torch.nn.functional.normalize(found.pooler_output, dim=1))
        return cast("Vectors", torch.cat(parts).numpy())

    def call(pictures: Sequence[Picture]) -> Vectors:
        return embed_image(registry, list(pictures), cartridge_id=_ID, model_spec=_MODEL).vectors

    with registry.open(_ID, _MODEL) as cartridge, cartridge.session() as session:
        yield {
            "open session": lambda pictures: vectors_of(session.infer(list(pictures))),
            "registry.call": call,
            "transformers": direct,
        }


def _pictures(count: int) -> list[Picture]:
    """Give pictures of noise, a little larger than the model takes."""
    import numpy as np

    chance = np.random.default_rng(0)
    return [chance.integers(0, 256, (48, 40, 3), dtype=np.uint8) for _ in range(count)]
