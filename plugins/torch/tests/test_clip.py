"""Loading and stopping a CLIP: folders, versions of transformers, cancel, close."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, cast

import pytest

from cartridge_core.context import Context
from cartridge_core.errors import BackendError, CancelledError, LoadError
from cartridge_core.pack import Pack
from cartridge_core.progress import Log, Progress
from cartridge_torch.image_model import ImageModel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    from cartridge_core.records import Record
    from cartridge_torch.sessions import Handle

    Vectors = NDArray[np.float32]
    Embed = Callable[..., Record]
    OpenHandle = Callable[..., Handle]

ID = "torch-image-embedding"
TOLERANCE = 1e-5


@pytest.fixture
def copy(plain_clip: Path, tmp_path: Path) -> Path:
    """The tiny CLIP's plain folder, to be changed."""
    return shutil.copytree(plain_clip, tmp_path / "copy")


def picture(height: int = 40, width: int = 40, colour: tuple[int, ...] = (220, 20, 20)) -> object:
    """Make a picture of one colour."""
    import numpy as np

    return np.full((height, width, 3), colour, dtype=np.uint8)


@pytest.fixture(scope="module")
def narrow(plain_clip: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random CLIP whose vectors are narrower than its layers."""
    from transformers import CLIPConfig, CLIPModel

    path = shutil.copytree(plain_clip, tmp_path_factory.mktemp("narrow") / "narrow-clip")
    document = json.loads((path / "config.json").read_text())
    for config in (document, document["text_config"], document["vision_config"]):
        config["projection_dim"] = 24
    CLIPModel(CLIPConfig(**document)).save_pretrained(path)
    return path


TEXTS = ["a red square", "", "a red square " * 30]
PICTURES = [(40, 40), (1, 1), (3, 80), (80, 3)]


@pytest.mark.parametrize("style", ["output", "tensor"])
@pytest.mark.parametrize(
    ("texts", "sizes"),
    [
        pytest.param(TEXTS[:1], PICTURES[:1], id="a20-red-square"),
        pytest.param(TEXTS, PICTURES, id="a20-many"),
        pytest.param(TEXTS[1:2], PICTURES[1:2], id="a20-empty-and-one-pixel"),
        pytest.param(TEXTS[2:], PICTURES[2:], id="a20-too-long-and-oblong"),
        pytest.param([], [], id="a20-none"),
    ],
)
def test_features_are_flat_vectors_whatever_transformers_gives(
    narrow: Path,
    open_handle: OpenHandle,
    embed_images_with: Embed,
    embed_texts_with: Embed,
    monkeypatch: pytest.MonkeyPatch,
    style: str,
    texts: list[str],
    sizes: list[tuple[int, int]],
) -> None:
    """Transformers 5 gives an output object, 4 a tensor; both are rows of the dimension."""
    if style == "tensor":
        give_tensors(monkeypatch)
    clip = open_handle(ID, narrow)
    for embed, values in (
        (embed_images_with, [picture(*size) for size in sizes]),
        (embed_texts_with, texts),
    ):
        vectors = cast("Vectors", embed(clip, values).vectors)
        assert (vectors.shape, vectors.dtype.name) == ((len(values), 24), "float32")
        assert vectors.flags.c_contiguous
    assert cast("ImageModel", clip).dimension == 24


def give_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have CLIPModel give what that of transformers 4 does."""
    replace_features(monkeypatch, lambda output: output.pooler_output)


def replace_features(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[BaseModelOutputWithPooling], object]
) -> None:
    """Change what the two methods of CLIPModel give."""
    from transformers import CLIPModel

    for name in ("get_text_features", "get_image_features"):
        method = getattr(CLIPModel, name)

        def changed(self: object, *, _method: object = method, **given: object) -> object:
            feature = cast("Callable[..., BaseModelOutputWithPooling]", _method)
            return change(feature(self, **given))

        monkeypatch.setattr(CLIPModel, name, changed)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda output: None, id="a20-nothing"),
        pytest.param(lambda output: (output.pooler_output,), id="a20-tuple"),
        pytest.param(lambda output: {"embeds": output.pooler_output}, id="a20-dict"),
        pytest.param(lambda output: output.last_hidden_state, id="a20-a-row-for-each-token"),
        pytest.param(lambda output: output.pooler_output[:, :-1], id="a20-too-narrow"),
        pytest.param(lambda output: output.pooler_output[0], id="a20-no-rows"),
    ],
)
def test_error_features_of_an_unknown_type(
    narrow: Path,
    open_handle: OpenHandle,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[BaseModelOutputWithPooling], object],
) -> None:
    """What is no row of the dimension fails once, at load, with the version in the message."""
    import transformers

    replace_features(monkeypatch, change)
    with pytest.raises(LoadError, match=r"get_text_features .* 24 numbers are expected") as caught:
        open_handle(ID, narrow)
    assert transformers.__version__ in str(caught.value)


def same_vectors(one: Handle, two: Handle, embed_images: Embed, embed_texts: Embed) -> bool:
    """Say whether two models give the same vectors for a picture and a text."""
    pairs = [
        (cast("Vectors", embed(one, value).vectors), cast("Vectors", embed(two, value).vectors))
        for embed, value in ((embed_images, picture(40, 31)), (embed_texts, "a red ring"))
    ]
    return all(float(abs(a - b).max()) < TOLERANCE for a, b in pairs)


def as_transformers_saves(folder: Path) -> None:
    """Change nothing."""


def as_sentence_transformers_saves(folder: Path) -> None:
    """Save it anew with sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    for file in folder.iterdir():
        file.unlink()
    model.save(str(folder), create_model_card=False)


def as_the_hub_has_it(folder: Path) -> None:
    """Write the image processor's configuration as the first releases did."""
    document = json.loads((folder / "processor_config.json").read_text())["image_processor"]
    (folder / "processor_config.json").unlink()
    del document["image_processor_type"]
    legacy = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 32, "crop_size": 32}
    (folder / "preprocessor_config.json").write_text(json.dumps({**document, **legacy}))


def in_shards(folder: Path) -> None:
    """Spread the weights over several files."""
    from transformers import CLIPModel

    model = CLIPModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="200KB")


def with_a_tokenizer_of_its_own(folder: Path) -> None:
    """Name a class that lies in the folder; it is not run, and the usual one is taken."""
    document = json.loads((folder / "tokenizer_config.json").read_text())
    document["tokenizer_class"] = "EvilTokenizer"
    document["auto_map"] = {"AutoTokenizer": ["evil.EvilTokenizer", None]}
    (folder / "tokenizer_config.json").write_text(json.dumps(document))
    (folder / "evil.py").write_text("raise SystemExit('this was run')")


@pytest.mark.parametrize(
    "change",
    [
        as_transformers_saves,
        as_sentence_transformers_saves,
        as_the_hub_has_it,
        in_shards,
        with_a_tokenizer_of_its_own,
    ],
)
def test_a_folder_of_every_layout_is_loaded(
    copy: Path,
    clip: ImageModel,
    open_handle: OpenHandle,
    embed_images_with: Embed,
    embed_texts_with: Embed,
    change: Callable[[Path], None],
) -> None:
    """However a CLIP lies in its folder, it gives the same vectors."""
    change(copy)
    assert same_vectors(open_handle(ID, copy), clip, embed_images_with, embed_texts_with)


def test_a_normalize_module_is_kept(
    clip_folder: Path, tmp_path: Path, open_handle: OpenHandle, embed_images_with: Embed
) -> None:
    """A folder that says so gives unit vectors, even without normalize."""
    folder = shutil.copytree(clip_folder, tmp_path / "unit")
    modules = json.loads((folder / "modules.json").read_text())
    normalize = {
        "idx": 1,
        "name": "1",
        "path": "1",
        "type": "sentence_transformers.models.Normalize",
    }
    (folder / "modules.json").write_text(json.dumps([*modules, normalize]))
    for path, is_unit in ((folder, True), (clip_folder, False)):
        found = embed_images_with(open_handle(ID, path), picture(), normalize=False)
        length = float((cast("Vectors", found.vectors) ** 2).sum())
        assert (length == pytest.approx(1.0, abs=TOLERANCE)) is is_unit


def without_a_weight(folder: Path) -> None:
    """Take one tensor out of the weights."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def with_other_sizes(folder: Path) -> None:
    """Let the configuration be that of a wider model."""
    document = json.loads((folder / "config.json").read_text())
    document["projection_dim"] = 16
    (folder / "config.json").write_text(json.dumps(document))


def with_a_pickle(folder: Path) -> None:
    """Put a pickle in the place of the weights."""
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def with_a_processor_of_its_own(folder: Path) -> None:
    """Let the image processor be a class that lies in the folder."""
    (folder / "processor_config.json").unlink()
    document = {
        "image_processor_type": "EvilProcessor",
        "auto_map": {"AutoImageProcessor": "evil.EvilProcessor"},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(document))
    (folder / "evil.py").write_text("raise SystemExit('this was run')")


def of_a_classifier(folder: Path) -> None:
    """Let the weights be those of another class."""
    document = json.loads((folder / "config.json").read_text())
    document["architectures"] = ["CLIPForImageClassification"]
    (folder / "config.json").write_text(json.dumps(document))


def followed_by_a_dense_module(folder: Path) -> None:
    """Put a module behind the CLIP that this cartridge does not know."""
    kinds = {"": "base.modules.transformer.Transformer", "1_Dropout": "models.Dropout"}
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.{kind}"}
        for index, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))


def without_modules(folder: Path) -> None:
    """Let modules.json be an empty list."""
    (folder / "modules.json").write_text("[]")


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        pytest.param(without_a_weight, "visual_projection.weight", id="a-weight-missing"),
        pytest.param(with_other_sizes, "of another shape", id="another-shape"),
        pytest.param(with_a_pickle, "only pickled weights", id="a-pickle"),
        pytest.param(with_a_processor_of_its_own, "EvilProcessor", id="a-processor-of-its-own"),
        pytest.param(of_a_classifier, "those of CLIPForImageClassification", id="a-classifier"),
        pytest.param(followed_by_a_dense_module, "its module Dropout", id="another-module"),
        pytest.param(without_modules, "names no module", id="no-module"),
    ],
)
def test_error_a_wrong_folder_has_its_name(
    copy: Path, open_handle: OpenHandle, spoil: Callable[[Path], None], cause: str
) -> None:
    """What is wrong with a folder is a LoadError that names the folder and the cause."""
    spoil(copy)
    with pytest.raises(LoadError, match=cause) as caught:
        open_handle(ID, copy)
    assert str(copy) in str(caught.value)


def test_error_a_text_model_is_no_clip(tiny: Path, open_handle: OpenHandle) -> None:
    """A model of texts is refused by its kind."""
    with pytest.raises(LoadError, match="model_type 'bert', and 'clip' is needed: a CLIPModel"):
        open_handle(ID, tiny)


def test_error_numbers_that_are_not_finite(
    copy: Path, open_handle: OpenHandle, embed_images_with: Embed
) -> None:
    """A model whose weights are damaged gives a BackendError, not a vector of NaN."""
    from safetensors.torch import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    weights["vision_model.post_layernorm.bias"][:] = float("nan")
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(BackendError, match="row 0 has numbers that are not finite"):
        embed_images_with(open_handle(ID, copy), [picture()])


def test_loading_tells_its_progress(clip_folder: Path, open_handle: OpenHandle) -> None:
    """The weights are counted as they are loaded."""
    said: list[Progress | Log] = []
    open_handle(ID, clip_folder, Context(said.append))
    fractions = [item.fraction for item in said if isinstance(item, Progress)]
    assert len(fractions) > 50
    assert fractions == sorted(fractions)


def test_loading_can_be_cancelled(clip_folder: Path, open_handle: OpenHandle) -> None:
    """A cancel stops the loading of the weights."""
    context = Context(lambda said: context.cancel() if "weights" in said.message else None)
    with pytest.raises(CancelledError):
        open_handle(ID, clip_folder, context)


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


@pytest.mark.parametrize(("is_picture", "layers"), [(True, 3), (False, 2)])
def test_a_cancel_inside_a_forward_pass(
    clip: ImageModel,
    embed_images_with: Embed,
    embed_texts_with: Embed,
    is_picture: bool,
    layers: int,
) -> None:
    """A forward pass asks before each layer, and stops there; the model works afterwards."""
    embed = embed_images_with if is_picture else embed_texts_with
    value = picture() if is_picture else "a red ring"
    asked = CancelledInside(after=1_000)
    embed(clip, value, context=asked)
    assert asked.asked > layers
    for after in range(asked.asked):
        context = CancelledInside(after)
        with pytest.raises(CancelledError):
            embed(clip, value, context=context)
        assert context.asked == after + 1
    assert len(cast("Vectors", embed(clip, value).vectors)) == 1


def test_a_cancel_between_pictures(clip: ImageModel, embed_images_with: Embed) -> None:
    """Pictures are read one after another, and a cancel stops between two."""
    read = CancelledInside(after=5)
    with pytest.raises(CancelledError):
        embed_images_with(clip, [picture()] * 8, context=read)
    assert read.asked == 6


def test_large_layers_are_asked_in_their_parts(
    plain_clip: Path, tmp_path: Path, open_handle: OpenHandle, embed_images_with: Embed
) -> None:
    """A layer that takes long asks inside too, and fewer pictures go through it at a time."""
    from transformers import CLIPConfig, CLIPModel

    folder = shutil.copytree(plain_clip, tmp_path / "large")
    document = json.loads((folder / "config.json").read_text())
    document["vision_config"] |= {"hidden_size": 512, "intermediate_size": 2048}
    CLIPModel(CLIPConfig(**document)).save_pretrained(folder)
    large = open_handle(ID, folder)
    counts = []
    for number in (1, 45):
        asked = CancelledInside(after=100_000)
        embed_images_with(large, [picture()] * number, batch_size=45, context=asked)
        counts.append(asked.asked - number)
    # Of three layers, and of the two large parts of each; 65 patches make a picture, and a
    # million numbers let 3 000 of them through at a time.
    assert counts == [9, 9 * 2]


def test_closing_leaves_no_hook_behind(clip_folder: Path, open_options: dict[str, object]) -> None:
    """After close the backend's modules are as they were."""
    model = ImageModel.open(Pack.from_path(clip_folder), open_options, Context())
    modules = list(model._clip._model.modules())
    assert any(module._forward_pre_hooks for module in modules)
    model.close()
    assert not any(module._forward_pre_hooks for module in modules)


def test_threads_hold_for_the_call_alone(
    clip_folder: Path, open_handle: OpenHandle, embed_images_with: Embed
) -> None:
    """Torch's setting is what `threads` says inside a call, and what it was before after it."""
    import torch

    before = torch.get_num_threads()
    inside: list[int] = []

    class Asking(Context):
        @property
        def cancelled(self) -> bool:
            inside.append(torch.get_num_threads())
            return False

    clip = open_handle(ID, clip_folder, threads=before + 2)
    embed_images_with(clip, picture(), context=Asking())
    assert before + 2 in inside
    assert torch.get_num_threads() == before
