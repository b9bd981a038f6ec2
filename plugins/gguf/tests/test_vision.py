"""Pictures through a registry: what is seen, how it is said, and what is refused."""

from __future__ import annotations

import contextlib
import io
import shutil
import threading
from typing import TYPE_CHECKING, cast

import gguf
import numpy as np  # noqa: TID253 -- an array is a picture
import pytest
from PIL import Image, ImageOps
from tiny_models import write_llama, write_projector

from cartridge_core.context import Context
from cartridge_core.errors import CancelledError, InvalidArgumentError, LoadError, StateError
from cartridge_core.progress import Progress
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing import registry_of
from cartridge_gguf import plugin
from cartridge_gguf.budget import ContextOverflowError
from cartridge_gguf.engine import TextModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from cartridge_core.calls import Call
    from cartridge_core.registry import Registry
    from conftest import Eyes, Noise, OpenEyes

VISION = next(item for item in plugin.cartridge_descriptors() if item.id == "gguf-vision")
CAP = VISION.caps[0]
REQUEST = "cap:describe-image;in=media:image;ml-model;vision"
OPENED = {"threads": 1, "max_context_length": 512}
GREEDY: dict[str, object] = {"temperature": 0, "max_tokens": 24}
RED, BLUE = (np.full((20, 30, 3), colour, np.uint8) for colour in ((255, 0, 0), (0, 0, 255)))
PICTURE_TOKENS = 16


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """A registry of this plugin alone, whose models stay open for all tests."""
    with registry_of(plugin, isolation="inline") as registry:
        yield registry


@pytest.fixture(scope="module")
def eyes(vision: Path, open_eyes: OpenEyes) -> Eyes:
    """The open random model with its projector."""
    return open_eyes(vision)


def png(picture: Image.Image) -> bytes:
    """Write a PNG."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def start(registry: Registry, path: Path, image: object, /, **args: object) -> Call:
    """Start a stream; greedy, unless the arguments say otherwise."""
    stream: Callable[..., Call] = registry.stream
    return stream(REQUEST, image, model_spec=path, **{**OPENED, **GREEDY, **args})


def ask(registry: Registry, path: Path, image: object, /, **args: object) -> Mapping[str, object]:
    """Give the record of a description; it says what the pieces say."""
    results = [e for e in start(registry, path, image, **args) if isinstance(e, Result)]
    *partials, final = results
    assert {result.kind for result in partials} <= {ResultKind.PARTIAL}
    assert final.kind is ResultKind.FINAL
    record = dict(cast("Mapping[str, object]", final.payload))
    assert record["generated_text"] == "".join(cast("str", result.payload) for result in partials)
    assert isinstance(record.pop("generation_time_ms"), int)
    return record


def test_the_cap_is_capdags() -> None:
    """Its URN, and the defaults of CapDAG's own cartridge."""
    assert str(CAP.urn) == (
        'cap:describe-image;gguf;in=media:image;ml-model;out="media:enc=utf-8;ext=txt;'
        'image-description;plain-text";vision'
    )
    defaults = {arg.name: arg.default for arg in CAP.args if arg not in VISION.open_args}
    assert defaults == {
        "image": None,
        "prompt": "Describe this image in detail.",
        "system_prompt": None,
        "max_tokens": 256,
        "overflow": "error",
        "temperature": 0.6,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.05,
        "seed": 42,
        "repeat_penalty": 1.1,
        "stop_sequences": None,
        "model_spec": "hf:ggml-org/moondream2-20250414-GGUF",
    }
    assert (VISION.partial, VISION.isolation) == ("append", "process")


def test_the_text_depends_on_the_picture(registry: Registry, vision: Path) -> None:
    """Red is another text than blue, and red again the same."""
    red, blue, again = (ask(registry, vision, image) for image in (RED, BLUE, RED))
    assert red == again
    assert red["generated_text"] != blue["generated_text"]
    assert red["tokens_generated"] == 24
    assert red["finish_reason"] == "length"


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_decides_the_text(registry: Registry, vision: Path, seed: int) -> None:
    """The same seed gives the same text, another one another."""
    same = [ask(registry, vision, RED, temperature=1, seed=seed) for _ in range(2)]
    assert same[0] == same[1] != ask(registry, vision, RED, temperature=1, seed=3)


def test_a_picture_may_be_a_path_bytes_or_an_array(
    registry: Registry, vision: Path, noise: Noise, tmp_path: Path
) -> None:
    """They are one picture, and one text."""
    content = png(Image.fromarray(noise(1)))
    path = tmp_path / "picture.jpg"  # the content says what it is, not the name
    path.write_bytes(content)
    forms = [str(path), path, content, noise(1)]
    records = [ask(registry, vision, form) for form in forms]
    assert records == [records[0]] * len(forms)


SHAPES = {"1-by-1": (1, 1), "1-by-900": (1, 900), "900-by-1": (900, 1), "777-by-5": (777, 5)}


@pytest.mark.parametrize("folder", ["vision", "turning", "both_ways"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_picture_may_have_any_shape(
    request: pytest.FixtureRequest, registry: Registry, folder: str, shape: tuple[int, int]
) -> None:
    """The smallest and the longest are seen."""
    path = request.getfixturevalue(folder)
    record = ask(registry, path, np.zeros((*shape, 3), np.uint8), max_tokens=2)
    assert record["tokens_generated"] == 2


def marked() -> Image.Image:
    """A photo with a red mark at its top left, and a blue one at its top right."""
    photo = Image.new("RGB", (64, 32), (200, 200, 200))
    photo.paste((255, 0, 0), (0, 0, 16, 8))
    photo.paste((0, 0, 255), (56, 0, 64, 16))
    return photo


CARRIERS: dict[str, tuple[str, dict[str, object]]] = {
    "jpeg": ("JPEG", {"quality": 95}),
    "png": ("PNG", {}),
    "webp": ("WEBP", {"lossless": True}),
    "tiff": ("TIFF", {}),
}


@pytest.mark.parametrize(
    ("orientation", "carrier"),
    [
        pytest.param(value, carrier, id=f"a18-orientation-{value}-{carrier}")
        for value in range(1, 9)
        for carrier in CARRIERS
    ],
)
def test_a_photo_is_seen_upright(eyes: Eyes, orientation: int, carrier: str) -> None:
    """However the camera was held, the text is that of the copy that was turned beforehand."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    form, options = CARRIERS[carrier]
    buffer = io.BytesIO()
    marked().save(buffer, form, exif=exif, **options)
    with Image.open(buffer) as stored:
        upright = ImageOps.exif_transpose(stored).convert("RGB")
        as_it_lies = Image.fromarray(np.array(Image.open(buffer).convert("RGB")))
    seen = eyes.look(buffer.getvalue())
    assert seen == eyes.look(png(upright))
    if orientation != 1 and carrier != "tiff":  # Pillow turns a TIFF by itself
        assert seen != eyes.look(png(as_it_lies))


URLS = [
    "http://127.0.0.1/a.png",
    "https://x/a.png",
    "file:///etc/passwd",
    "data:image/png;base64,A",
]


@pytest.mark.parametrize("url", [*URLS, " HTTP://x/a.png"])
def test_error_a_picture_is_no_url(registry: Registry, vision: Path, url: str) -> None:
    """A text is a path; what looks like a URL is refused, by the host and by the cartridge."""
    with pytest.raises(InvalidArgumentError, match=r"image.* is a URL"):
        ask(registry, vision, url)


@pytest.mark.parametrize("url", [*URLS, " HTTP://x/a.png"])
def test_error_a_picture_is_no_url_inside_either(eyes: Eyes, url: str) -> None:
    """The cartridge does not rely on the host for it."""
    with pytest.raises(InvalidArgumentError, match=r"^image: .* is a URL"):
        eyes.begin(url)


@pytest.mark.parametrize(
    "value",
    [b"", b"no picture", "missing.png", np.zeros((3, 4, 5), np.uint8), None, 7, {}],
    ids=["empty", "text", "missing", "five-channels", "none", "a-number", "a-record"],
)
def test_error_no_picture(registry: Registry, vision: Path, value: object) -> None:
    """What is no picture is refused by the argument's name."""
    with pytest.raises(InvalidArgumentError, match="image") as caught:
        ask(registry, vision, value)
    assert caught.value.arg == "image"


def test_error_a_second_picture(eyes: Eyes) -> None:
    """A session has one."""
    session = eyes.describer.begin(str(CAP.urn), eyes.parameters, Context())
    session.push(RED)
    with pytest.raises(StateError, match="the session has its picture"):
        session.push(BLUE)


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_no_more_than_max_tokens(registry: Registry, vision: Path, limit: int) -> None:
    """0 gives none."""
    record = ask(registry, vision, RED, max_tokens=limit)
    assert record["tokens_generated"] == limit
    assert record["finish_reason"] == "length"
    assert limit or record["generated_text"] == ""


def test_a_stop_string_ends_the_text(registry: Registry, vision: Path) -> None:
    """It is not in the text, nor is anything after it."""
    whole = cast("str", ask(registry, vision, RED)["generated_text"])
    record = ask(registry, vision, RED, stop_sequences=[whole[5:8]])
    assert record["finish_reason"] == "stop"
    assert record["generated_text"] == whole[: whole.index(whole[5:8])]


def test_a_scripted_model_says_its_text(registry: Registry, models: Path, noise: Noise) -> None:
    """To its end."""
    folder = models / "scripted-vision"
    folder.mkdir()
    write_llama(folder / "model.gguf", script=" hello world, this is a tiny model speaking.")
    write_projector(folder / "mmproj.gguf", 64)
    record = ask(registry, folder, noise(3), temperature=0.6)
    assert record["generated_text"] == " hello world, this is a tiny model speaking."
    assert record["finish_reason"] == "stop"


def test_error_picture_prompt_and_answer_do_not_fit(eyes: Eyes) -> None:
    """The text cartridge's error says how much there is, and what the picture takes of it."""
    prompt = cast("int", eyes.look(RED)["prompt_tokens"])
    with pytest.raises(ContextOverflowError) as caught:
        eyes.look(RED, max_tokens=512 - prompt + 1)
    error = caught.value
    assert (error.arg, error.prompt_tokens, error.max_tokens) == (
        "max_tokens",
        prompt,
        513 - prompt,
    )
    assert (error.context_length, error.allowance) == (512, 512 - prompt)
    assert str(error).startswith("max_tokens: prompt and answer do not fit into the context: ")
    assert f"the prompt has {prompt} tokens (16 of them are the picture's)" in str(error)
    assert eyes.look(RED, max_tokens=512 - prompt)["finish_reason"] in {"length", "stop"}


@pytest.mark.parametrize("overflow", ["error", "clamp"])
def test_error_the_prompt_alone_does_not_fit(eyes: Eyes, overflow: str) -> None:
    """Nothing is cut off it."""
    with pytest.raises(ContextOverflowError, match=r"^prompt: the prompt alone does not fit"):
        eyes.look(RED, prompt="dog " * 600, overflow=overflow)


def test_an_answer_may_be_clamped(eyes: Eyes) -> None:
    """It ends with the context."""
    record = eyes.look(RED, max_tokens=100_000, overflow="clamp")
    assert record["finish_reason"] == "length"
    tokens = cast("int", record["prompt_tokens"]) + cast("int", record["tokens_generated"])
    assert tokens == 512


def test_error_a_prompt_without_tokens(registry: Registry, models: Path) -> None:
    """A model without a chat template must be told something after the picture."""
    folder = models / "bare-vision"
    folder.mkdir()
    write_llama(folder / "model.gguf", chat_template=None)
    write_projector(folder / "mmproj.gguf", 64)
    assert ask(registry, folder, RED, prompt="a")["prompt_tokens"] == 1 + PICTURE_TOKENS + 1
    with pytest.raises(InvalidArgumentError, match=r"^prompt: it comes to no token") as caught:
        ask(registry, folder, RED, prompt="")
    assert caught.value.arg == "prompt"


@pytest.mark.parametrize("arg", ["prompt", "system_prompt", "stop_sequences"])
def test_error_half_a_surrogate_pair(registry: Registry, vision: Path, arg: str) -> None:
    """No text that is not Unicode reaches the model."""
    value = "a\ud800" if arg != "stop_sequences" else ["a\ud800"]
    with pytest.raises(InvalidArgumentError, match=f"^{arg}.*: must be Unicode text"):
        ask(registry, vision, RED, **{arg: value})


def test_error_a_template_that_refuses(registry: Registry, models: Path) -> None:
    """What it says is said, of the prompt."""
    folder = models / "refusing-vision"
    folder.mkdir()
    template = "{{ raise_exception('no pictures here') }}"
    write_llama(folder / "model.gguf", chat_template=template)
    write_projector(folder / "mmproj.gguf", 64)
    with pytest.raises(InvalidArgumentError, match=r"^prompt: .*no pictures here") as caught:
        ask(registry, folder, RED)
    assert caught.value.arg == "prompt"


def copy_of(vision: Path, folder: Path, *names: str) -> Path:
    """Copy some of the files."""
    for name in names:
        shutil.copy(vision / name, folder / name)
    return folder


def test_error_a_projector_for_another_model(
    registry: Registry, vision: Path, wide_projector: Path, tmp_path: Path
) -> None:
    """Both widths are named, and both files."""
    folder = copy_of(vision, tmp_path, "model.gguf")
    shutil.copy(wide_projector, folder / "mmproj.gguf")
    with pytest.raises(LoadError, match=r"mmproj\.gguf: .*n_embd = 64.*n_embd = 576"):
        ask(registry, folder, RED)


@pytest.mark.parametrize("has_vision_encoder", [False, None], ids=["said", "not-said"])
def test_error_a_projector_that_cannot_see(
    registry: Registry, vision: Path, tmp_path: Path, has_vision_encoder: bool | None
) -> None:
    """One for sounds alone is no projector for pictures."""
    folder = copy_of(vision, tmp_path, "model.gguf")
    writer = gguf.GGUFWriter(folder / "mmproj.gguf", "clip")
    writer.add_type("mmproj")
    writer.add_clip_has_audio_encoder(True)
    if has_vision_encoder is not None:
        writer.add_clip_has_vision_encoder(has_vision_encoder)
    writer.add_tensor("mm.0.weight", np.zeros((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(LoadError, match=r"mmproj\.gguf.* without a vision encoder"):
        ask(registry, folder, RED)


def test_error_a_projector_of_an_unknown_kind(
    vision: Path, open_eyes: OpenEyes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What llama.cpp complains about is said, and the language model does not stay loaded."""
    folder = copy_of(vision, tmp_path, "model.gguf")
    write_projector(folder / "mmproj.gguf", 64, kind="crystal_ball")
    closed: list[TextModel] = []
    close = TextModel.close

    def note(model: TextModel) -> None:
        closed.append(model)
        close(model)

    monkeypatch.setattr(TextModel, "close", note)
    with pytest.raises(LoadError, match=r"mmproj\.gguf: .*unknown projector type: crystal_ball"):
        open_eyes(folder)
    assert len(closed) == 1


def test_progress_of_a_load_goes_from_0_to_1(vision: Path, open_eyes: OpenEyes) -> None:
    """Once, over the model and its projector."""
    told: list[Progress] = []
    open_eyes(vision, Context(lambda e: told.append(e) if isinstance(e, Progress) else None))
    fractions = [progress.fraction for progress in told]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    assert {"loading model.gguf", "loading mmproj-model.gguf"} <= {item.message for item in told}


@pytest.mark.parametrize("name", ["model.gguf", "mmproj-model.gguf"])
def test_a_load_can_be_cancelled(vision: Path, open_eyes: OpenEyes, name: str) -> None:
    """In the middle of either file."""

    def report(event: object) -> None:
        if isinstance(event, Progress) and event.message == f"loading {name}":
            context.cancel()

    context = Context(report)
    with pytest.raises(CancelledError):
        open_eyes(vision, context)


def test_a_description_can_be_cancelled(registry: Registry, vision: Path, noise: Noise) -> None:
    """Within one token; the next one is as if nothing had been."""
    expected = ask(registry, vision, noise(4))
    call = start(registry, vision, noise(4), max_tokens=400)
    pieces = sum(1 for _ in cancelling(call))
    assert 1 <= pieces <= 1 + 8, "8 may have been on their way"
    assert ask(registry, vision, noise(4)) == expected


def cancelling(call: Call) -> Iterator[object]:
    """Give what a call that is cancelled at its first piece still gives."""
    with contextlib.suppress(CancelledError):
        for event in call:
            if isinstance(event, Result):
                assert event.kind is ResultKind.PARTIAL
                yield event.payload
                call.cancel()
        pytest.fail("the call came to its end")


@pytest.mark.parametrize("sequences", [1, 3], ids=["a-context-each", "one-batch"])
def test_callers_at_once(vision: Path, open_eyes: OpenEyes, noise: Noise, sequences: int) -> None:
    """Each gets the text of its own picture: with a context each, what it would get alone."""
    eyes = open_eyes(vision, parallel_sequences=sequences)
    alone = [eyes.look(noise(seed)) for seed in range(6)]
    found: dict[int, Mapping[str, object]] = {}

    def run(number: int) -> None:
        for seed in (number, number + 3):
            found[seed] = eyes.look(noise(seed))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(6))
    fields = ["generated_text", "prompt_tokens"] if sequences == 1 else ["prompt_tokens"]
    for field in fields:
        assert [found[seed][field] for seed in range(6)] == [record[field] for record in alone]


def test_interleaved_descriptions(eyes: Eyes, noise: Noise) -> None:
    """Read in turn by one thread, they do not mix."""
    seeds = (7, 8, 9)
    alone = [eyes.look(noise(seed)) for seed in seeds]
    sessions = [eyes.begin(noise(seed)) for seed in seeds]
    pieces: list[list[object]] = [[], [], []]
    running = list(enumerate(sessions))
    while running:
        for number, session in list(running):
            result = session.pull()
            if result is None or result.kind is ResultKind.FINAL:
                running.remove((number, session))
            else:
                pieces[number].append(result.payload)
    assert ["".join(map(str, text)) for text in pieces] == [r["generated_text"] for r in alone]


def test_nothing_goes_on_after_the_close(vision: Path, open_eyes: OpenEyes) -> None:
    """A session that was begun says so, and closing again is harmless."""
    eyes = open_eyes(vision)
    fresh, running = eyes.begin(RED), eyes.begin(RED)
    running.pull()
    eyes.describer.close()
    eyes.describer.close()
    for session in (fresh, running):
        with pytest.raises(StateError, match="is closed"):
            session.pull()
        session.end()


def test_smollm2_sees(
    registry: Registry, smollm2: Path, wide_projector: Path, models: Path
) -> None:
    """A real language model goes with a projector of its width, whatever that makes it say."""
    folder = models / "smollm2-vision"
    folder.mkdir()
    shutil.copy(wide_projector, folder / "mmproj.gguf")
    (folder / "model.gguf").symlink_to(smollm2)
    red, blue, again = (ask(registry, folder, image, max_tokens=8) for image in (RED, BLUE, RED))
    assert red == again != blue
    assert red["tokens_generated"]
