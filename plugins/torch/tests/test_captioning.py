"""Pictures to captions: the words as they come, and the record of the whole."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, cast

import pytest
from coloured_shapes import PAIRS, TRAINED, draw

from cartridge_core.context import Context
from cartridge_core.errors import (
    CancelledError,
    InvalidArgumentError,
    LoadError,
    StateError,
)
from cartridge_core.progress import Log, Progress
from cartridge_core.results import Result, ResultKind
from cartridge_media.images import read_image
from cartridge_torch import plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    from cartridge_core.descriptor import Descriptor
    from cartridge_torch.captioner import Captioner
    from cartridge_torch.sessions import Handle

    Describe = Callable[..., list[Result]]
    OpenHandle = Callable[..., Handle]

ID = "torch-image-captioning"


def shown(colour: str = "red", shape: str = "circle", seed: int = 1) -> Image:
    """Draw a picture."""
    return draw(colour, shape, Random(seed))  # noqa: S311 -- the same picture every time


def samples(picture: Image) -> object:
    """Give the samples of a picture."""
    import numpy as np

    return np.asarray(picture)


def record(results: list[Result]) -> Mapping[str, object]:
    """Give the record at the end, and see that it is the only one."""
    *partials, final = results
    assert final.kind is ResultKind.FINAL
    assert {partial.kind for partial in partials} <= {ResultKind.PARTIAL}
    assert {result.segment for result in results} == {0}
    return cast("Mapping[str, object]", final.payload)


def test_the_words_come_one_after_another(describe: Describe) -> None:
    """Each PARTIAL is a word more; joined, they are the text of the record."""
    results = describe(samples(shown()))
    found = record(results)
    pieces = [result.payload for result in results[:-1]]
    assert pieces == ["a", " red", " circle", " on", " a", " gray", " background"]
    assert {key: item for key, item in found.items() if key != "generation_time_ms"} == {
        "generated_text": "a red circle on a gray background",
        "tokens_generated": 7,
        "prompt_tokens": 1,
        "finish_reason": "stop",
        "model_name": "tiny-blip-shapes",
    }
    assert cast("int", found["generation_time_ms"]) >= 0


def test_a_prompt_begins_the_caption(describe: Describe) -> None:
    """It is a part of the text, and of what comes first; and it is counted by itself."""
    results = describe(samples(shown()), prompt="a photo of")
    found = record(results)
    assert [result.payload for result in results[:-1]] == ["a photo of", " a", " red", " circle"]
    assert found["generated_text"] == "a photo of a red circle"
    assert (found["prompt_tokens"], found["tokens_generated"]) == (4, 3)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        pytest.param(0, "", id="none"),
        pytest.param(1, "a", id="one"),
        pytest.param(2, "a red", id="two"),
        pytest.param(7, "a red circle on a gray background", id="all-but-the-end"),
    ],
)
def test_no_more_than_max_tokens_are_written(describe: Describe, limit: int, text: str) -> None:
    """A caption that is cut there ends for its length."""
    results = describe(samples(shown()), max_tokens=limit)
    found = record(results)
    assert (found["generated_text"], found["tokens_generated"]) == (text, limit)
    assert found["finish_reason"] == "length"
    assert "".join(str(result.payload) for result in results[:-1]) == text


def test_the_end_of_a_caption_needs_a_token(describe: Describe) -> None:
    """Eight tokens are seven words and the end."""
    assert record(describe(samples(shown()), max_tokens=8))["finish_reason"] == "stop"


WORDS = "red circle " * 16
"""32 words; the model has room for as many tokens, the first of its own among them."""


@pytest.mark.parametrize(
    ("prompt", "most"),
    [
        pytest.param(WORDS.split(maxsplit=1)[1], 1, id="all-room-but-one-taken"),
        pytest.param(" ".join(WORDS.split()[:30]), 2, id="room-for-two"),
    ],
)
def test_a_caption_ends_where_the_model_has_no_more_room(
    describe: Describe, prompt: str, most: int
) -> None:
    """What is written about fits into the model, whatever max_tokens says."""
    found = record(describe(samples(shown()), prompt=prompt, max_tokens=1_000))
    assert cast("int", found["tokens_generated"]) <= most


def test_error_a_prompt_that_is_too_long(describe: Describe) -> None:
    """It names its tokens and the limit."""
    with pytest.raises(InvalidArgumentError, match=r"prompt: it has 33 tokens, .* at most 32"):
        describe(samples(shown()), prompt=WORDS)


def test_error_a_prompt_that_is_no_unicode(describe: Describe) -> None:
    """Half of a surrogate pair is refused."""
    with pytest.raises(InvalidArgumentError, match="prompt: U\\+D800 at character 1"):
        describe(samples(shown()), prompt="a\ud800")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(3, id="number"),
        pytest.param(b"no picture", id="other-bytes"),
        pytest.param("no/such/file.png", id="no-such-file"),
        pytest.param([], id="list"),
    ],
)
def test_error_what_is_no_picture(describe: Describe, value: object) -> None:
    """It is refused by its name; the model works afterwards."""
    with pytest.raises(InvalidArgumentError) as caught:
        describe(value)
    assert caught.value.arg == "image"
    assert record(describe(samples(shown())))["finish_reason"] == "stop"


@pytest.fixture(scope="module")
def direct(blip_folder: Path) -> Callable[..., list[str]]:
    """Describe pictures with transformers alone."""
    import torch
    from transformers import AutoTokenizer, BlipForConditionalGeneration
    from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

    model = BlipForConditionalGeneration.from_pretrained(blip_folder)
    model.train(mode=False)
    processor = BlipImageProcessorPil.from_pretrained(blip_folder)
    tokenizer = AutoTokenizer.from_pretrained(blip_folder)

    generate: Callable[..., torch.Tensor] = model.generate

    def run(pictures: list[Image], prompt: str | None = None, **given: object) -> list[str]:
        options = dict(given)
        if prompt is not None:
            options |= tokenizer(
                [prompt] * len(pictures), return_tensors="pt", return_token_type_ids=False
            )
        with torch.inference_mode():
            pixels = processor(pictures, return_tensors="pt")["pixel_values"]
            found = generate(pixel_values=pixels, do_sample=False, num_beams=1, **options)
        return [str(tokenizer.decode(one, skip_special_tokens=True)) for one in found]

    return run


@pytest.mark.parametrize("prompt", [None, "a photo of", "an image on a blue", "star"])
def test_captions_are_those_of_transformers(
    describe: Describe, direct: Callable[..., list[str]], prompt: str | None
) -> None:
    """Greedy captions are word for word what transformers generates, prompts included."""
    pictures = [shown(colour, shape, index) for index, (colour, shape) in enumerate(PAIRS[::4])]
    given = {} if prompt is None else {"prompt": prompt}
    expected = direct(pictures, prompt, max_new_tokens=12)
    for picture, text in zip(pictures, expected, strict=True):
        found = record(describe(samples(picture), max_tokens=12, **given))
        assert found["generated_text"] == text


def test_captions_name_colours_and_shapes(describe: Describe) -> None:
    """Of trained pairs every colour is right, and the shape too for 85 pictures of 100."""
    chance = Random(7)  # noqa: S311 -- the same pictures every time
    colours = shapes = 0
    pairs = [pair for pair in TRAINED for _ in range(2)]
    for colour, shape in pairs:
        text = str(record(describe(samples(draw(colour, shape, chance))))["generated_text"])
        colours += colour in text
        shapes += f"{colour} {shape}" in text
    assert colours == len(pairs)
    assert shapes / len(pairs) >= 0.85


@pytest.mark.parametrize("orientation", range(1, 9), ids=lambda number: f"a18-orientation-{number}")
def test_a_photo_is_turned_upright(blip: Captioner, orientation: int) -> None:
    """What the model sees of a photo is what it sees of its copy with the rotation baked in."""
    import io

    import numpy as np
    from PIL import Image

    picture = np.full((32, 64, 3), 90, dtype=np.uint8)
    picture[:12, :12] = (220, 20, 20)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "JPEG", quality=95, exif=exif)
    turns: dict[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
        1: lambda x: x,
        2: lambda x: x[:, ::-1],
        3: lambda x: x[::-1, ::-1],
        4: lambda x: x[::-1],
        5: lambda x: x.swapaxes(0, 1),
        6: lambda x: np.rot90(x, -1),
        7: lambda x: x[::-1, ::-1].swapaxes(0, 1),
        8: np.rot90,
    }
    lying = np.asarray(Image.open(stream))
    upright = np.ascontiguousarray(turns[orientation](lying))
    seen = see(blip, stream.getvalue())
    assert difference(seen, see(blip, upright)) < 1e-5
    assert (difference(seen, see(blip, lying)) > 0.1) is (orientation != 1)


def see(blip: Captioner, value: object) -> NDArray[np.float32]:
    """Give what the model makes of a picture before it writes."""
    seen = blip._blip.look(read_image(value), Context())
    return cast("NDArray[np.float32]", seen.picture.numpy())


def difference(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Give the largest difference of two arrays."""
    return float(abs(a - b).max())


def test_captions_in_many_threads_are_what_they_would_be_alone(describe: Describe) -> None:
    """One model writes many captions at once."""
    pictures = [samples(shown(colour, shape)) for colour, shape in TRAINED[:8]]
    alone = [record(describe(picture))["generated_text"] for picture in pictures]
    found: dict[int, list[object]] = {index: [] for index in range(8)}

    def work(index: int) -> None:
        for _ in range(3):
            found[index].append(record(describe(pictures[index]))["generated_text"])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {index: [text] * 3 for index, text in enumerate(alone)}
    assert len(set(alone)) > 4


def test_two_captions_may_be_pulled_by_turns_and_from_any_thread(
    blip: Captioner, descriptors: Mapping[str, Descriptor]
) -> None:
    """Nothing of a session belongs to the thread that pulls."""
    cap = str(descriptors[ID].caps[0].urn)
    sessions = [
        plugin.cartridge_session_begin(blip, cap, {"max_tokens": 20}, Context()) for _ in range(2)
    ]
    for session, colour in zip(sessions, ("red", "blue"), strict=True):
        plugin.cartridge_push(session, samples(shown(colour)))
        assert plugin.cartridge_pull(session) is None
        plugin.cartridge_flush(session)
    texts = ["", ""]
    for turn in range(14):
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(plugin.cartridge_pull, sessions[turn % 2]).result()
        assert result is not None
        texts[turn % 2] += str(result.payload)
    assert texts == [f"a {colour} circle on a gray background" for colour in ("red", "blue")]


def test_error_a_second_picture(blip: Captioner, descriptors: Mapping[str, Descriptor]) -> None:
    """A session is one picture's."""
    cap = str(descriptors[ID].caps[0].urn)
    session = plugin.cartridge_session_begin(blip, cap, {"max_tokens": 20}, Context())
    plugin.cartridge_push(session, samples(shown()))
    with pytest.raises(StateError, match="another session"):
        plugin.cartridge_push(session, samples(shown()))


def test_writing_tells_its_progress(describe: Describe) -> None:
    """First the look at the picture, then every token."""
    said: list[Progress | Log] = []
    describe(samples(shown()), max_tokens=3, context=Context(said.append))
    assert said == [
        Progress(0.0, "looking at the picture"),
        Progress(0.25, "0 of at most 3 tokens written"),
        Progress(0.5, "1 of at most 3 tokens written"),
        Progress(0.75, "2 of at most 3 tokens written"),
    ]


class CancelledInside(Context):
    """Is cancelled once it has been asked so many times."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.asked = 0
        self.after = after

    @property
    def cancelled(self) -> bool:
        """Count, and say yes after enough questions."""
        self.asked += 1
        return self.asked > self.after


def test_a_cancel_stops_inside_the_encoder_and_at_every_token(describe: Describe) -> None:
    """Each of the three layers of the encoder asks, and each token and layer of the decoder."""
    asked = CancelledInside(after=1_000)
    describe(samples(shown()), max_tokens=2, context=asked)
    assert asked.asked == 3 + 2 * (1 + 2)
    for after in range(asked.asked):
        context = CancelledInside(after)
        with pytest.raises(CancelledError):
            describe(samples(shown()), max_tokens=2, context=context)
        assert context.asked == after + 1
    assert record(describe(samples(shown())))["finish_reason"] == "stop"


def test_float16_and_bfloat16_write_too(
    open_handle: OpenHandle, describe_with: Describe, blip_folder: Path
) -> None:
    """The model may compute in less."""
    for dtype in ("float16", "bfloat16"):
        narrow = open_handle(ID, blip_folder, dtype=dtype)
        text = record(describe_with(narrow, samples(shown())))["generated_text"]
        assert text == "a red circle on a gray background"


@pytest.mark.parametrize(
    ("name", "value", "cause"),
    [
        pytest.param("model_type", "clip", "model_type 'clip', and 'blip' is needed", id="clip"),
        pytest.param(
            "architectures",
            ["BlipForQuestionAnswering"],
            "those of BlipForQuestionAnswering, and BlipForConditionalGeneration",
            id="of-a-model-that-answers",
        ),
    ],
)
def test_error_another_kind_of_model(
    blip_folder: Path,
    tmp_path: Path,
    open_handle: OpenHandle,
    name: str,
    value: object,
    cause: str,
) -> None:
    """Only a BLIP that writes captions is taken."""
    folder = shutil.copytree(blip_folder, tmp_path / "other")
    document = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**document, name: value}))
    with pytest.raises(LoadError, match=cause):
        open_handle(ID, folder)


def test_error_scores_that_are_not_finite(
    blip_folder: Path, tmp_path: Path, open_handle: OpenHandle
) -> None:
    """A model whose weights are damaged does not write at random: it is refused at load."""
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(blip_folder, tmp_path / "damaged")
    weights = load_file(folder / "model.safetensors")
    weights["text_decoder.cls.predictions.bias"][:] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(LoadError, match="scores have numbers that are not finite"):
        open_handle(ID, folder)
