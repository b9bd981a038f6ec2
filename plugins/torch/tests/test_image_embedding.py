"""Pictures to vectors: what goes in and what comes out."""

from __future__ import annotations

import io
import threading
from random import Random
from typing import TYPE_CHECKING, cast

import pytest
from coloured_shapes import PAIRS, TRAINED, draw
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from cartridge_core.context import Context
from cartridge_core.errors import InvalidArgumentError
from cartridge_core.progress import Log, Progress
from cartridge_torch import plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.descriptor import Descriptor
    from cartridge_core.records import Record
    from cartridge_torch.image_model import ImageModel
    from cartridge_torch.sessions import Handle

    Embed = Callable[..., Record]
    OpenHandle = Callable[..., Handle]
    Vectors = NDArray[np.float32]
    Picture = NDArray[np.uint8]

TOLERANCE = 1e-5
ID = "torch-image-embedding"


@pytest.fixture(scope="module")
def embed(clip: ImageModel, embed_images_with: Embed) -> Callable[..., Vectors]:
    """Give the vectors of pictures."""

    def run(value: object, *, context: Context | None = None, **parameters: object) -> Vectors:
        found = embed_images_with(clip, value, context=context, **parameters)
        return cast("Vectors", found.vectors)

    return run


def noise(height: int, width: int, seed: int = 0) -> Picture:
    """Make a picture of noise."""
    import numpy as np

    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def difference(a: Vectors, b: Vectors) -> float:
    """Give the largest difference of two arrays."""
    return float(abs(a - b).max())


def as_png(picture: Picture) -> bytes:
    """Give the bytes of a PNG."""
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "PNG")
    return stream.getvalue()


def test_three_pictures_give_three_float32_vectors(
    clip: ImageModel, embed_images_with: Embed
) -> None:
    """N pictures give float32 of shape (N, dimension), of unit length, and the model's name."""
    found = embed_images_with(clip, [noise(40, 40), noise(9, 80), noise(33, 2)])
    vectors = cast("Vectors", found.vectors)
    assert (vectors.shape, vectors.dtype.name) == ((3, 64), "float32")
    assert (vectors**2).sum(axis=1) == pytest.approx(1.0, abs=TOLERANCE)
    assert (found.embedding_dim, found.model_name) == (64, "tiny-clip-shapes")


def test_a_path_bytes_and_an_array_are_the_same_picture(
    embed: Callable[..., Vectors], tmp_path: Path
) -> None:
    """However it is given, alone or in a list or a tuple, a picture gives one row."""
    picture = noise(20, 30)
    path = tmp_path / "picture.png"
    path.write_bytes(as_png(picture))
    expected = embed(picture)
    assert expected.shape == (1, 64)
    forms: list[object] = [path, str(path), as_png(picture), bytearray(as_png(picture))]
    for value in [*forms, memoryview(as_png(picture)), [picture], (picture,)]:
        assert difference(embed(value), expected) == 0
    rows = embed([*forms, picture])
    assert difference(rows, expected.repeat(5, axis=0)) < TOLERANCE


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param({}, id="a21-as-it-is"),
        pytest.param({"normalize": False}, id="a21-not-normalized"),
        pytest.param({"batch_size": 1}, id="a21-one-at-a-time"),
        pytest.param({"batch_size": 10**9}, id="a21-all-at-once"),
    ],
)
def test_no_pictures_give_no_rows_of_the_right_width(
    embed: Callable[..., Vectors], parameters: dict[str, object]
) -> None:
    """`[]` keeps the number of columns and the type."""
    nothings: list[object] = [[], ()]
    for nothing in nothings:
        found = embed(nothing, **parameters)
        assert (found.shape, found.dtype.name) == ((0, 64), "float32")


def photo(orientation: int) -> tuple[bytes, Picture]:
    """
    Make a JPEG with a red mark in its first corner, held as a camera says.

    Returns:
        The file; and its pixels turned upright by plain array operations.
    """
    import numpy as np

    picture = np.full((32, 64, 3), 90, dtype=np.uint8)
    picture[:16, :30] = (220, 20, 20)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "JPEG", quality=95, exif=exif)
    plain = np.asarray(Image.open(stream))
    turned = {
        1: plain,
        2: plain[:, ::-1],
        3: plain[::-1, ::-1],
        4: plain[::-1],
        5: plain.swapaxes(0, 1),
        6: np.rot90(plain, -1),
        7: plain[::-1, ::-1].swapaxes(0, 1),
        8: np.rot90(plain),
    }
    return stream.getvalue(), np.ascontiguousarray(turned[orientation])


@pytest.mark.parametrize("orientation", range(1, 9), ids=lambda number: f"a18-orientation-{number}")
def test_a_photo_is_turned_upright(embed: Callable[..., Vectors], orientation: int) -> None:
    """A photo has the vector of its copy with the rotation baked in."""
    file, upright = photo(orientation)
    assert difference(embed(file), embed(upright)) < TOLERANCE
    sideways = embed(photo(1)[1])
    assert (difference(embed(file), sideways) > 0.01) is (orientation != 1)


@pytest.mark.parametrize(
    ("value", "arg"),
    [
        pytest.param(3, "image", id="number"),
        pytest.param(b"no picture", "image", id="other-bytes"),
        pytest.param("no/such/file.png", "image", id="no-such-file"),
        pytest.param({"image": "x.png"}, "image", id="dict"),
        pytest.param([noise(4, 4), noise(4, 4), noise(4, 4), b""], "image[3]", id="last-of-four"),
        pytest.param([None], "image[0]", id="none-in-a-list"),
        pytest.param([noise(4, 4), [noise(4, 4)]], "image[1]", id="list-in-a-list"),
        pytest.param(noise(4, 4)[None], "image", id="an-array-of-pictures"),
        pytest.param([noise(4, 4), noise(4, 4).astype("int32")], "image[1]", id="signed-samples"),
        pytest.param(as_png(noise(40, 40))[:-900], "image", id="cut-short"),
        pytest.param([noise(1, 501)], "image[0]", id="too-wide"),
        pytest.param(noise(1200, 2), "image", id="too-tall"),
    ],
)
def test_error_what_is_no_picture_is_named(
    embed: Callable[..., Vectors], value: object, arg: str
) -> None:
    """An item that is no picture is named by its index; the model works afterwards."""
    with pytest.raises(InvalidArgumentError) as caught:
        embed(value)
    assert caught.value.arg == arg
    assert str(caught.value).startswith(f"{arg}: ")
    assert len(embed(noise(2, 1000))) == 1


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=st.lists(st.tuples(st.integers(1, 70), st.integers(1, 70)), max_size=9),
    batch_size=st.integers(1, 10),
)
def test_a_vector_does_not_depend_on_its_company(
    embed: Callable[..., Vectors], sizes: list[tuple[int, int]], batch_size: int
) -> None:
    """Each row equals that of its picture alone, in the order of the pictures."""
    pictures = [noise(height, width, seed) for seed, (height, width) in enumerate(sizes)]
    together = embed(pictures, batch_size=batch_size)
    assert len(together) == len(pictures)
    for row, picture in zip(together, pictures, strict=True):
        assert difference(row, embed(picture)[0]) < TOLERANCE


def test_pictures_are_cut_into_passes_without_a_trace(
    clip: ImageModel, embed: Callable[..., Vectors], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the size of a forward pass nor that of a batch changes a vector."""
    pictures = [noise(50, 40, seed) for seed in range(7)]
    expected = embed(pictures)
    monkeypatch.setattr(clip._clip, "_image_pass", 3 * 65)
    monkeypatch.setattr("cartridge_torch.image_model._MOST_PICTURES", 5)
    assert difference(embed(pictures), expected) < TOLERANCE


SIZES = [(32, 32), (40, 40), (480, 640), (31, 300), (7, 5), (1, 1), (3, 3), (3, 200), (200, 1)]


@pytest.fixture(scope="module")
def direct(plain_clip: Path) -> Callable[[list[Picture]], Vectors]:
    """Embed with transformers alone."""
    import torch
    from transformers import CLIPModel
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    model = CLIPModel.from_pretrained(plain_clip)
    model.train(mode=False)
    processor = CLIPImageProcessorPil.from_pretrained(plain_clip)

    def run(pictures: list[Picture]) -> Vectors:
        with torch.inference_mode():
            given = processor([Image.fromarray(one) for one in pictures], return_tensors="pt")
            found = model.get_image_features(pixel_values=given["pixel_values"])
        return cast("Vectors", found.pooler_output.numpy())

    return run


def test_vectors_are_those_of_transformers(
    embed: Callable[..., Vectors], direct: Callable[[list[Picture]], Vectors]
) -> None:
    """Pictures of every shape give what transformers gives, as it gives it."""
    pictures = [noise(height, width, height) for height, width in SIZES]
    assert difference(embed(pictures, normalize=False), direct(pictures)) < TOLERANCE


def test_vectors_are_those_of_sentence_transformers(
    embed: Callable[..., Vectors], clip_folder: Path
) -> None:
    """And what SentenceTransformer.encode gives for the same folder."""
    from sentence_transformers import SentenceTransformer

    pictures = [noise(height, width, height) for height, width in SIZES]
    encoder = SentenceTransformer(str(clip_folder), device="cpu", local_files_only=True)
    given = [Image.fromarray(picture) for picture in pictures]
    expected = encoder.encode(given, normalize_embeddings=True, show_progress_bar=False)
    assert difference(embed(pictures), cast("Vectors", expected)) < TOLERANCE


def test_a_picture_finds_its_caption(
    clip: ImageModel, embed: Callable[..., Vectors], embed_texts_with: Embed
) -> None:
    """Of the 48 captions the nearest is the right one, for 98 pictures of 100."""
    captions = [f"a photo of a {colour} {shape}" for colour, shape in PAIRS]
    texts = cast("Vectors", embed_texts_with(clip, captions).vectors)
    chance = Random(99)  # noqa: S311 -- the same pictures every time
    shown = [(pair, draw(*pair, chance)) for pair in TRAINED for _ in range(10)]
    vectors = embed([as_array(picture) for _, picture in shown], batch_size=64)
    nearest = (vectors @ texts.T).argmax(axis=1)
    right = [PAIRS[found] == pair for found, (pair, _) in zip(nearest, shown, strict=True)]
    assert sum(right) / len(right) >= 0.98


def as_array(picture: Image.Image) -> Picture:
    """Give the samples of a picture."""
    import numpy as np

    return np.asarray(picture)


def test_sessions_in_many_threads_get_what_they_would_get_alone(
    clip: ImageModel, embed: Callable[..., Vectors], embed_texts_with: Embed
) -> None:
    """One model serves many threads at once, pictures and texts of every size."""
    pictures = [[noise(30 + seed, 40, seed)] * (1 + seed % 3) for seed in range(8)]
    texts = [f"{'a photo of ' * index} a red ring" for index in range(8)]
    alone = [embed(one) for one in pictures]
    alone_texts = [cast("Vectors", embed_texts_with(clip, one).vectors) for one in texts]
    worst: list[float] = []

    def work(index: int) -> None:
        for _ in range(4):
            worst.append(difference(embed(pictures[index]), alone[index]))
            found = cast("Vectors", embed_texts_with(clip, [texts[index], ""]).vectors)
            worst.append(difference(found[:1], alone_texts[index]))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(worst) == 64
    assert max(worst) < TOLERANCE


def test_float16_and_bfloat16_give_float32(
    embed: Callable[..., Vectors],
    open_handle: OpenHandle,
    embed_images_with: Embed,
    plain_clip: Path,
) -> None:
    """The vectors are float32 whatever the model computes in, and nearly the same."""
    expected = embed(noise(40, 40))
    for dtype in ("float16", "bfloat16"):
        found = embed_images_with(open_handle(ID, plain_clip, dtype=dtype), noise(40, 40))
        vectors = cast("Vectors", found.vectors)
        assert vectors.dtype.name == "float32"
        assert 0 < difference(vectors, expected) < 0.05


def test_embedding_tells_its_progress(embed: Callable[..., Vectors]) -> None:
    """Every batch reports how many pictures are done."""
    said: list[Progress | Log] = []
    embed([noise(8, 8)] * 5, batch_size=2, context=Context(said.append))
    assert said == [
        Progress(0.4, "2 of 5 embedded"),
        Progress(0.8, "4 of 5 embedded"),
        Progress(1.0, "5 of 5 embedded"),
    ]


def test_dimensions_tells_the_models_own(
    clip: ImageModel, descriptors: Mapping[str, Descriptor]
) -> None:
    """embeddings-dimensions needs no value, and gives an integer."""
    cap = descriptors[ID].caps[2]
    session = plugin.cartridge_session_begin(clip, str(cap.urn), {}, Context())
    assert plugin.cartridge_infer(session, None).payload == 64
