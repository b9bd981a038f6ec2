"""Pictures to numbers: what the model's own image processor gives, whoever makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    from cartridge_torch._pixels import Pixels

    Make = Callable[..., CLIPImageProcessorPil]

TOLERANCE = 1e-5
SIZES = [(32, 32), (40, 40), (640, 480), (31, 300), (7, 5), (1, 1), (3, 3), (200, 3), (1, 200)]


def noise(width: int, height: int) -> Image.Image:
    """Make a picture of noise."""
    import numpy as np

    chance = np.random.default_rng(width * 1000 + height)
    return Image.fromarray(chance.integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def make() -> Make:
    """Make image processors that differ from the usual one of CLIP."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    build: Callable[..., CLIPImageProcessorPil] = CLIPImageProcessorPil

    def run(**config: object) -> CLIPImageProcessorPil:
        return build(
            **{"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}, **config}
        )

    return run


def pixels_of(processor: CLIPImageProcessorPil) -> Pixels:
    """Give what does as a processor does."""
    import torch

    from cartridge_torch import _pixels

    return _pixels.pixels_of(processor, torch.device("cpu"))


def is_asked(pixels: Pixels) -> bool:
    """Say whether the processor itself is asked."""
    return type(pixels).__name__ == "_Asked"


def difference(processor: CLIPImageProcessorPil, pictures: list[Image.Image]) -> float:
    """Give the largest difference from what the processor gives."""
    import torch

    pixels = pixels_of(processor)
    found = pixels.numbers(torch.stack([pixels.levels(picture) for picture in pictures]))
    expected: torch.Tensor = processor(pictures, return_tensors="pt")["pixel_values"]
    assert (found.shape, found.dtype) == (expected.shape, torch.float32)
    assert found.is_contiguous()
    return float((found - expected).abs().max())


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({}, id="of-clip"),
        pytest.param({"size": 40, "crop_size": 32}, id="as-the-hub-has-it"),
        pytest.param({"size": {"shortest_edge": 45}}, id="odd-rest"),
        pytest.param({"crop_size": {"height": 20, "width": 29}}, id="oblong"),
        pytest.param({"resample": Image.Resampling.BILINEAR}, id="another-filter"),
        pytest.param({"image_mean": [0.0, 0.5, 1.0], "image_std": [1, 0.5, 2]}, id="other-colours"),
        pytest.param({"image_mean": 0.5, "image_std": 0.25}, id="one-for-all-colours"),
        pytest.param({"rescale_factor": 1 / 127.5}, id="another-white"),
    ],
)
def test_numbers_are_those_of_the_processor(make: Make, config: dict[str, object]) -> None:
    """Pictures of every shape; the processor is not asked."""
    processor = make(**config)
    assert not is_asked(pixels_of(processor))
    assert difference(processor, [noise(*size) for size in SIZES]) < TOLERANCE


@settings(max_examples=60, deadline=None)
@given(size=st.tuples(st.integers(1, 150), st.integers(1, 150)), edge=st.integers(32, 50))
def test_every_size_is_resized_and_cut_as_by_the_processor(
    make: Make, size: tuple[int, int], edge: int
) -> None:
    """To the pixel, whatever is rounded on the way."""
    assert difference(make(size={"shortest_edge": edge}), [noise(*size)]) < TOLERANCE


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"crop_size": {"height": 40, "width": 40}}, id="filled-up-with-black"),
        pytest.param({"size": {"height": 32, "width": 32}}, id="squeezed"),
        pytest.param({"size": {"shortest_edge": 32, "longest_edge": 40}}, id="a-longest-side"),
        pytest.param({"size": {"height": 32, "width": 32}, "do_center_crop": False}, id="not-cut"),
        pytest.param({"do_resize": False}, id="not-resized"),
        pytest.param({"do_rescale": False}, id="not-scaled"),
        pytest.param({"do_normalize": False}, id="not-normalized"),
        pytest.param({"do_pad": True, "pad_size": {"height": 50, "width": 50}}, id="with-a-margin"),
    ],
)
def test_a_processor_that_does_something_else_is_asked(
    make: Make, config: dict[str, object]
) -> None:
    """So its numbers are its own."""
    processor = make(**config)
    assert is_asked(pixels_of(processor))
    assert difference(processor, [noise(40, 33), noise(90, 41)]) == 0


@pytest.mark.parametrize("step", ["resize", "center_crop", "rescale", "normalize"])
def test_a_processor_with_a_step_of_its_own_is_asked(
    make: Make, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Its configuration says nothing of it; the pictures that are tried out do."""
    processor = make()
    usual = getattr(processor, step)
    monkeypatch.setattr(
        processor, step, lambda image, *args, **more: usual(image, *args, **more) / 2
    )
    assert is_asked(pixels_of(processor))
