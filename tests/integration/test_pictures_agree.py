"""Odd pictures through every plugin that sees: the same pixels reach each backend."""

from __future__ import annotations

import ctypes
import io
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np  # noqa: TID253 -- arrays are what is compared
import pytest
from PIL import Image

from cartridge_core.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch
    from numpy.typing import NDArray

    from cartridge_core.context import Context

    Pixels = NDArray[np.uint8]
    See = Callable[[object], Pixels]

pytestmark = pytest.mark.integration

pytest.importorskip("cartridge_gguf")
pytest.importorskip("cartridge_torch")

TINY = Path(__file__).parents[2] / "plugins" / "torch" / "tests" / "data"
EMBED, DESCRIBE = "cap:generate-image-embeddings;in=media:image", "cap:describe-image"


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """A registry of what is installed, all in this process."""
    with Registry.discover(isolation="inline") as registry:
        yield registry


@pytest.fixture(scope="module")
def gguf_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random GGUF model that sees."""
    from tiny_models import write_llama, write_projector

    folder = tmp_path_factory.mktemp("vision")
    write_llama(folder / "model.gguf")
    write_projector(folder / "mmproj-model.gguf", 64)
    return folder


@pytest.fixture
def seen_by_llama(registry: Registry, gguf_folder: Path, monkeypatch: pytest.MonkeyPatch) -> See:
    """Give what llama.cpp is given of a picture."""
    from llama_cpp import mtmd_cpp

    seen: list[Pixels] = []
    init = mtmd_cpp.mtmd_bitmap_init

    def capture(width: int, height: int, data: object) -> object:
        samples = ctypes.string_at(cast("ctypes.c_char_p", data), width * height * 3)
        seen.append(np.frombuffer(samples, np.uint8).reshape(height, width, 3))
        return init(width, height, data)

    def see(picture: object) -> Pixels:
        registry.call(DESCRIBE, picture, model_spec=gguf_folder, max_tokens=0)
        return seen.pop()

    monkeypatch.setattr(mtmd_cpp, "mtmd_bitmap_init", capture)
    return see


@pytest.fixture
def seen_by_clip(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> See:
    """Give what a CLIP is given of a picture."""
    from cartridge_torch._clip import Clip

    seen: list[Pixels] = []
    prepare = Clip.levels

    def capture(self: Clip, picture: Image.Image, context: Context) -> torch.Tensor:
        seen.append(np.asarray(picture))
        return prepare(self, picture, context)

    def see(picture: object) -> Pixels:
        registry.call(EMBED, picture, model_spec=TINY / "tiny-clip-shapes")
        return seen.pop()

    monkeypatch.setattr(Clip, "levels", capture)
    return see


@pytest.fixture
def seen_by_blip(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> See:
    """Give what transformers' BLIP is given of a picture."""
    from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

    seen: list[Pixels] = []
    process: Callable[..., object] = BlipImageProcessorPil.__call__

    def capture(
        self: BlipImageProcessorPil, images: Sequence[Image.Image], **options: object
    ) -> object:
        seen.extend(np.asarray(image) for image in images)
        return process(self, images, **options)

    def see(picture: object) -> Pixels:
        registry.call(DESCRIBE, picture, model_spec=TINY / "tiny-blip-shapes", max_tokens=0)
        return seen.pop()

    monkeypatch.setattr(BlipImageProcessorPil, "__call__", capture)
    return see


PHOTO: Pixels = np.full((32, 64, 3), 90, np.uint8)
PHOTO[:9, :13] = (220, 20, 20)
PHOTO[20:, 50:] = (10, 200, 30)

# How the pixels of a file have to be turned, by the EXIF orientation that it has.
TURNED: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.swapaxes(0, 1),
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: stored[::-1, ::-1].swapaxes(0, 1),
    8: np.rot90,
}

RED: Pixels = np.full((40, 40, 3), (255, 0, 0), np.uint8)
GREY: Pixels = np.arange(40 * 36, dtype=np.uint32).reshape(40, 36).astype(np.uint8)
DEEP = (np.arange(40 * 36, dtype=np.uint16) * 45).reshape(40, 36)
VEIL = np.dstack([RED, np.full((40, 40), 128, np.uint8)])


def written(samples: NDArray[np.generic] | Image.Image, form: str, **options: object) -> bytes:
    """Write a file."""
    image = samples if isinstance(samples, Image.Image) else Image.fromarray(samples)
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def held(orientation: int, form: str, **options: object) -> bytes:
    """Write the photo as a camera does that was held so."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return written(PHOTO, form, exif=exif, **options)


def three(grey: NDArray[np.generic]) -> Pixels:
    """Give grey as RGB."""
    return np.repeat(grey[..., None], 3, axis=2).astype(np.uint8)


def indexed() -> bytes:
    """Write a GIF of three columns: red, one that is transparent, black."""
    image = Image.new("P", (36, 40))
    image.putpalette([255, 0, 0, 0, 0, 255, 0, 0, 0])
    image.putdata([column // 12 for _ in range(40) for column in range(36)])
    return written(image, "GIF", transparency=1, optimize=False)


ODD: dict[str, tuple[object, Pixels]] = {
    **{
        f"a18-orientation-{number}": (held(number, "PNG"), turn(PHOTO))
        for number, turn in TURNED.items()
    },
    "a18-orientation-6-webp": (held(6, "WEBP", lossless=True), TURNED[6](PHOTO)),
    "a18-orientation-8-tiff": (held(8, "TIFF"), TURNED[8](PHOTO)),
    "a20-red-array": (RED, RED),
    "a20-red-png": (written(RED, "PNG"), RED),
    "a20-red-float": (RED.astype(np.float64) / 255, RED),
    "a20-red-half-transparent": (written(VEIL, "PNG"), RED | np.uint8(127)),
    "a20-red-array-with-alpha": (VEIL, RED | np.uint8(127)),
    "a20-red-cmyk": (written(Image.new("CMYK", (40, 40), (0, 255, 255, 0)), "TIFF"), RED),
    "a20-red-animated": (
        written(RED, "GIF", save_all=True, append_images=[Image.new("RGB", (40, 40), "blue")]),
        RED,
    ),
    "grey-png": (written(GREY, "PNG"), three(GREY)),
    "grey-array": (GREY, three(GREY)),
    "grey-array-of-one-channel": (GREY[..., None], three(GREY)),
    "16-bit-png": (written(DEEP, "PNG"), three(DEEP >> 8)),
    "16-bit-tiff": (written(DEEP, "TIFF"), three(DEEP >> 8)),
    "16-bit-array": (DEEP, three(DEEP >> 8)),
    "1-bit-array": (GREY > 128, three(np.where(GREY > 128, 255, 0))),
    "transparent-colour-gif": (
        indexed(),
        np.repeat([[(255, 0, 0)] * 12 + [(255, 255, 255)] * 12 + [(0, 0, 0)] * 12], 40, axis=0),
    ),
    "bmp": (written(PHOTO, "BMP"), PHOTO),
}


@pytest.mark.parametrize(("given", "pixels"), ODD.values(), ids=ODD)
@pytest.mark.parametrize("by", ["seen_by_llama", "seen_by_clip", "seen_by_blip"])
def test_every_backend_is_given_the_same_upright_pixels(
    request: pytest.FixtureRequest, by: str, given: object, pixels: Pixels
) -> None:
    """They are those that a person would see, sample by sample."""
    see: See = request.getfixturevalue(by)
    found = see(given)
    assert found.dtype == np.uint8
    assert np.array_equal(found, pixels)


def test_a_photo_of_a_phone_is_the_same_to_all(request: pytest.FixtureRequest) -> None:
    """A JPEG has one decoding; it is upright, and within what its compression blurs."""
    photo = held(6, "JPEG", quality=95, subsampling=0)
    ways = ("seen_by_llama", "seen_by_clip", "seen_by_blip")
    found = [cast("See", request.getfixturevalue(way))(photo) for way in ways]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    assert np.abs(found[0].astype(int) - TURNED[6](PHOTO)).max() < 40
