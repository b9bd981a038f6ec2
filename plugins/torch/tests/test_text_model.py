"""Loading and closing: wrong folders by name, progress, cancel, threads."""

from __future__ import annotations

import json
import os
import shutil
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs
import pytest

from cartridge_core.context import Context
from cartridge_core.errors import BackendError, CancelledError, InvalidArgumentError, LoadError
from cartridge_core.pack import Pack
from cartridge_core.progress import Log, Progress
from cartridge_torch import plugin
from cartridge_torch.folder import ModelFolder
from cartridge_torch.text_model import TextModel
from cartridge_torch.tokenizing import CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.records import Record

    Embed = Callable[..., Record]
    EmbedWith = Callable[..., Record]
    Open = Callable[..., TextModel]


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 90868376\n"
HTML = "<!DOCTYPE html>\n<html><body>Not found</body></html>"


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    """The tiny model's folder, to be spoilt."""
    return shutil.copytree(tiny, tmp_path / "spoilt")


def empty(folder: Path) -> None:
    """Leave nothing in the folder."""
    shutil.rmtree(folder)
    folder.mkdir()


def without_config(folder: Path) -> None:
    """Take config.json away."""
    (folder / "config.json").unlink()


def plain_without_config(folder: Path) -> None:
    """Leave the weights alone."""
    for file in folder.glob("*.json"):
        file.unlink()


def html_config(folder: Path) -> None:
    """Put an error page in the place of config.json."""
    (folder / "config.json").write_text(HTML)


def html_weights(folder: Path) -> None:
    """Put an error page in the place of the weights."""
    (folder / "model.safetensors").write_text(HTML)


def lfs_weights(folder: Path) -> None:
    """Put a Git LFS pointer in the place of the weights."""
    (folder / "model.safetensors").write_text(LFS)


def lfs_tokenizer(folder: Path) -> None:
    """Put a Git LFS pointer in the place of the tokenizer."""
    (folder / "tokenizer.json").write_text(LFS)


def short_weights(folder: Path) -> None:
    """Cut the weights short."""
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-100])


def short_header(folder: Path) -> None:
    """Cut the weights short inside their header."""
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:40])


def no_bytes_of_weights(folder: Path) -> None:
    """Leave an empty file of weights."""
    (folder / "model.safetensors").write_bytes(b"")


def pickles(folder: Path) -> None:
    """Put a pickle in the place of the weights."""
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def without_weights(folder: Path) -> None:
    """Take the weights away."""
    (folder / "model.safetensors").unlink()


def broken_json(folder: Path) -> None:
    """Cut config.json short."""
    (folder / "config.json").write_text('{"hidden_size": 32,')


def list_as_config(folder: Path) -> None:
    """Let config.json be JSON, and no object."""
    (folder / "config.json").write_text("[]")


def object_as_modules(folder: Path) -> None:
    """Let modules.json be JSON, and no list."""
    (folder / "modules.json").write_text("{}")


def own_code(folder: Path) -> None:
    """Let a module be a class that lies in the folder."""
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "evil.Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "evil.py").write_text("raise SystemExit('this was run')")


def module_elsewhere(folder: Path) -> None:
    """Let a module lie outside of the folder."""
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = "../1_Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))


def unknown_architecture(folder: Path) -> None:
    """Name an architecture that transformers does not know."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "nonesuch"}))


def without_tokenizer(folder: Path) -> None:
    """Take every file of the tokenizer away."""
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()


DEEP = "[" * 200_000 + "]" * 200_000


def deep_config(folder: Path) -> None:
    """Nest config.json deeper than Python reads."""
    (folder / "config.json").write_text(DEEP)


def deep_modules(folder: Path) -> None:
    """Nest modules.json deeper than Python reads."""
    (folder / "modules.json").write_text(DEEP)


def header(folder: Path, text: str) -> None:
    """Give the weights another header."""
    data = struct.pack("<Q", len(text)) + text.encode()
    (folder / "model.safetensors").write_bytes(data)


def deep_header(folder: Path) -> None:
    """Nest the weights' header deeper than Python reads."""
    header(folder, DEEP)


def endless_offset(folder: Path) -> None:
    """Let a tensor end at infinity."""
    header(folder, '{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1e999]}}')


def text_in_a_shape(folder: Path) -> None:
    """Let a tensor's size be no number."""
    header(folder, '{"a": {"dtype": "F32", "shape": ["x", 2], "data_offsets": [0, 0]}}')


def set_modules(folder: Path, *modules: tuple[str, str]) -> None:
    """Write modules.json from folders and classes of sentence-transformers."""
    items = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.{kind}"}
        for index, (path, kind) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(items))


def module_with_a_long_name(folder: Path) -> None:
    """Give a module's folder a name that no file system takes."""
    set_modules(folder, ("a" * 5000, "models.Transformer"))


def module_with_a_nul(folder: Path) -> None:
    """Give a module's folder a name with a NUL."""
    set_modules(folder, ("a\0", "models.Transformer"))


def unknown_module(folder: Path) -> None:
    """Name something of sentence-transformers that is no module."""
    set_modules(folder, ("", "util.http_get"))


def pipe_as_config(folder: Path) -> None:
    """Put a pipe in the place of config.json, that nobody ever writes into."""
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


def pipe_as_tokenizer(folder: Path) -> None:
    """Put a pipe where only the libraries would read."""
    (folder / "tokenizer.json").unlink()
    os.mkfifo(folder / "tokenizer.json")


def device_as_modules(folder: Path) -> None:
    """Let modules.json be a device."""
    (folder / "modules.json").unlink()
    (folder / "modules.json").symlink_to("/dev/zero")


def pickled_dense(folder: Path) -> None:
    """Add a module whose weights are a pickle, with safetensors of another name beside it."""
    from safetensors.torch import save_file
    from torch import save, zeros

    dense = folder / "9_Dense"
    dense.mkdir()
    config = {"in_features": 32, "out_features": 8, "bias": True}
    (dense / "config.json").write_text(json.dumps(config))
    save({"linear.weight": zeros(8, 32), "linear.bias": zeros(8)}, dense / "pytorch_model.bin")
    save_file({"x": zeros(1)}, dense / "decoy.safetensors")
    pooling = ("1_Pooling", "models.Pooling")
    set_modules(folder, ("", "models.Transformer"), pooling, ("9_Dense", "models.Dense"))


def pickled_child(folder: Path) -> None:
    """Put the module with the pickle below a router."""
    pickled_dense(folder)
    set_modules(folder, ("", "base.modules.router.Router"))
    types = {"9_Dense": "sentence_transformers.models.Dense"}
    (folder / "router_config.json").write_text(json.dumps({"types": types}))


def own_code_below_a_router(folder: Path) -> None:
    """Let a router's child be a class that lies in the folder."""
    set_modules(folder, ("", "models.Asym"))
    (folder / "config.json").write_text(json.dumps({"types": {"query_0": "evil.Pooling"}}))


def endless_router(folder: Path) -> None:
    """Let a router be its own child."""
    set_modules(folder, ("", "models.Router"))
    types = {"": "sentence_transformers.models.Router"}
    (folder / "router_config.json").write_text(json.dumps({"types": types}))


def pickled_shards(folder: Path) -> None:
    """Let the index of the weights name a pickle."""
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    index = {"metadata": {}, "weight_map": {"embeddings": "pytorch_model.bin"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def adapter(folder: Path) -> None:
    """Name the one pickle that transformers takes although safetensors are asked for."""
    (folder / "adapter_model.bin").write_bytes(b"pickle")


def weights_of_another_name(folder: Path) -> None:
    """Let config.json say what the weights are called."""
    config = json.loads((folder / "config.json").read_text())
    config["transformers_weights"] = "adapter_model.bin"
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        pytest.param(empty, "the folder is empty", id="empty-folder"),
        pytest.param(without_config, "no config.json", id="no-config"),
        pytest.param(plain_without_config, "no config.json", id="weights-alone"),
        pytest.param(html_config, "config.json is an HTML page", id="html-as-config"),
        pytest.param(html_weights, "model.safetensors is an HTML page", id="html-as-weights"),
        pytest.param(lfs_weights, "model.safetensors is a Git LFS pointer", id="lfs-weights"),
        pytest.param(lfs_tokenizer, "tokenizer.json is a Git LFS pointer", id="lfs-tokenizer"),
        pytest.param(short_weights, "its header promises", id="weights-cut-short"),
        pytest.param(short_header, "its header is cut short", id="header-cut-short"),
        pytest.param(no_bytes_of_weights, "its header is cut short", id="empty-weights"),
        pytest.param(pickles, "only pickled weights", id="pickles-alone"),
        pytest.param(without_weights, "the weights are missing", id="no-weights"),
        pytest.param(broken_json, "config.json is no JSON", id="config-cut-short"),
        pytest.param(list_as_config, "config.json is no JSON object", id="list-as-config"),
        pytest.param(object_as_modules, "modules.json is no JSON list", id="object-as-modules"),
        pytest.param(own_code, "'evil.Pooling' is code of its own", id="code-of-its-own"),
        pytest.param(module_elsewhere, "outside of the folder", id="module-elsewhere"),
        pytest.param(unknown_architecture, "nonesuch", id="unknown-architecture"),
        pytest.param(without_tokenizer, "no tokenizer", id="no-tokenizer"),
        pytest.param(deep_config, "config.json is nested too deeply", id="deep-config"),
        pytest.param(deep_modules, "modules.json is nested too deeply", id="deep-modules"),
        pytest.param(deep_header, "model.safetensors: .* malformed", id="deep-header"),
        pytest.param(endless_offset, "malformed .tensor 'a' has no proper", id="endless-offset"),
        pytest.param(text_in_a_shape, "malformed .tensor 'a' has no proper", id="text-in-a-shape"),
        pytest.param(module_with_a_long_name, "modules.json names 'aaa.*too long", id="long-name"),
        pytest.param(module_with_a_nul, "modules.json names 'a.*null byte", id="nul-in-a-name"),
        pytest.param(unknown_module, "http_get' is not known", id="unknown-module"),
        pytest.param(pipe_as_config, "config.json is a pipe", id="pipe-as-config"),
        pytest.param(pipe_as_tokenizer, "tokenizer.json is a pipe", id="pipe-as-tokenizer"),
        pytest.param(device_as_modules, "modules.json is a .*device", id="device-as-modules"),
        pytest.param(pickled_dense, "9_Dense/model.safetensors, only pickled", id="pickled-dense"),
        pytest.param(pickled_child, "9_Dense/model.safetensors, only pickled", id="pickled-child"),
        pytest.param(own_code_below_a_router, "'evil.Pooling' is code", id="code-below-a-router"),
        pytest.param(endless_router, "nested more than 8 deep", id="endless-router"),
        pytest.param(pickled_shards, "'pytorch_model.bin' is no safetensors", id="pickled-shards"),
        pytest.param(adapter, "adapter_model.bin belongs to an adapter", id="adapter"),
        pytest.param(weights_of_another_name, "transformers_weights", id="weights-by-config"),
    ],
)
def test_error_a_wrong_folder_has_its_name(
    copy: Path, open_model: Open, spoil: Callable[[Path], None], cause: str
) -> None:
    """What is wrong with a folder is a LoadError that names the folder and the cause."""
    spoil(copy)
    with pytest.raises(LoadError, match=cause) as caught:
        open_model(copy)
    assert str(copy) in str(caught.value)


@pytest.mark.parametrize("spoil", [deep_config, endless_offset, module_with_a_long_name])
def test_preflight_of_a_malformed_folder_leaves_the_memory_open(
    copy: Path, open_options: dict[str, object], spoil: Callable[[Path], None]
) -> None:
    """Preflight raises nothing over a folder that open refuses."""
    spoil(copy)
    pack = Pack.from_path(copy)
    assert plugin.cartridge_preflight("torch-text-embedding", pack, open_options).ok


def test_weights_in_shards_are_loaded(
    plain: Path, tmp_path: Path, open_model: Open, embed_with: EmbedWith
) -> None:
    """An index and its safetensors files give what one file gives, and count as much."""
    from transformers import AutoModel, AutoTokenizer

    AutoModel.from_pretrained(plain).save_pretrained(tmp_path, max_shard_size="20KB")
    AutoTokenizer.from_pretrained(plain).save_pretrained(tmp_path)
    whole, parts = (ModelFolder.read(Pack.from_path(path)) for path in (plain, tmp_path))
    assert len(parts.weights) > 1
    assert parts.memory_bytes(4) == whole.memory_bytes(4)
    expected, found = (
        cast("NDArray[np.float32]", embed_with(open_model(path), "the cat").vectors)
        for path in (plain, tmp_path)
    )
    assert (found == expected).all()


def test_a_router_and_a_dense_module_are_loaded(
    plain: Path, tmp_path: Path, open_model: Open
) -> None:
    """Modules below a router are found where sentence-transformers saves them."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as st

    ways = {
        way: [st.Transformer(str(plain)), st.Pooling(32, "mean"), st.Dense(32, 8)]
        for way in ("query", "document")
    }
    router = st.Router.for_query_document(ways["query"], ways["document"])
    SentenceTransformer(modules=[router], device="cpu").save(str(tmp_path), create_model_card=False)
    assert len(ModelFolder.read(Pack.from_path(tmp_path)).weights) == 4
    assert open_model(tmp_path).dimension == 8


def test_error_a_file_instead_of_a_folder(tiny: Path, open_model: Open) -> None:
    """A file of weights is not the model's folder."""
    with pytest.raises(LoadError, match="it is a file, not a folder"):
        open_model(tiny / "model.safetensors")


def test_error_no_pack(open_options: dict[str, object]) -> None:
    """There is nothing to open without a pack."""
    with pytest.raises(InvalidArgumentError, match="needs a model"):
        plugin.cartridge_open("torch-text-embedding", None, open_options, Context())


def test_error_a_device_that_is_not_there(tiny: Path, open_model: Open) -> None:
    """A device that torch does not find is a LoadError, not another device."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(LoadError, match=r"device='cuda': torch .* finds none here"):
        open_model(tiny, device="cuda")


def test_error_numbers_that_are_not_finite(
    copy: Path, open_model: Open, embed_with: EmbedWith
) -> None:
    """A model whose weights are damaged gives a BackendError, not a vector of NaN."""
    from safetensors.torch import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    weights["embeddings.LayerNorm.bias"][:] = float("nan")
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(BackendError, match="row 0 has numbers that are not finite"):
        embed_with(open_model(copy), "the cat")


def test_error_of_the_backend_is_wrapped_once(
    copy: Path, open_model: Open, embed_with: EmbedWith
) -> None:
    """What the backend raises is the cause of a BackendError."""
    broken = open_model(copy)
    broken._encoder._model.tokenizer.model_max_length = 80
    with pytest.raises(BackendError, match="the model failed: ") as caught:
        embed_with(broken, "cat " * 70)
    assert isinstance(caught.value.__cause__, (IndexError, RuntimeError))


def test_loading_tells_its_progress(tiny: Path, open_model: Open) -> None:
    """The weights are counted as they are loaded."""
    said: list[Progress | Log] = []
    open_model(tiny, Context(said.append))
    fractions = [item.fraction for item in said if isinstance(item, Progress)]
    assert len(fractions) > 10
    assert fractions == sorted(fractions)


def test_loading_can_be_cancelled(tiny: Path, open_model: Open) -> None:
    """A cancel stops the loading of the weights, and the next load works."""
    context = Context(lambda said: context.cancel() if "weights" in said.message else None)
    with pytest.raises(CancelledError):
        open_model(tiny, context)
    assert open_model(tiny).dimension == 32


def test_embedding_tells_its_progress(embed: Embed) -> None:
    """Every batch reports how many texts are done."""
    said: list[Progress | Log] = []
    embed(["cat"] * 5, batch_size=2, context=Context(said.append))
    assert said == [
        Progress(0.4, "2 of 5 embedded"),
        Progress(0.8, "4 of 5 embedded"),
        Progress(1.0, "5 of 5 embedded"),
    ]


def test_a_cancel_between_batches(embed: Embed) -> None:
    """A cancel after the first batch stops before the second; the model works afterwards."""
    said: list[Progress | Log] = []

    def report(item: Progress | Log) -> None:
        said.append(item)
        context.cancel()

    context = Context(report)
    with pytest.raises(CancelledError):
        embed(["cat"] * 4, batch_size=1, context=context)
    assert len(said) == 1
    assert not embed("cat").truncated


LAYERS = 2
"""Of the tiny model."""


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


def test_a_cancel_inside_a_forward_pass(embed: Embed) -> None:
    """A forward pass asks before each layer, and stops there; the model works afterwards."""
    asked = CancelledInside(after=1_000)
    embed("the cat", context=asked)
    context = CancelledInside(after=asked.asked - 1)
    with pytest.raises(CancelledError):
        embed("the cat", context=context)
    assert context.asked == asked.asked >= LAYERS
    assert not embed("the cat").truncated


def test_a_cancel_while_a_long_text_is_tokenized(embed: Embed) -> None:
    """A text of many thousand words is counted in steps, and a cancel stops between two."""
    long = "the cat is red " * 30_000
    asked = CancelledInside(after=1_000)
    embed(long, context=asked)
    assert asked.asked > len(long) // CHARACTERS
    context = CancelledInside(after=5)
    with pytest.raises(CancelledError):
        embed(long, context=context)
    assert context.asked == 6


def test_a_cancel_while_a_long_text_is_cut_into_chunks(
    embed: Embed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words are searched in steps, and a cancel stops between two."""
    stop = pytest.fail
    monkeypatch.setattr(TextModel, "embed", lambda *_, **__: stop("too late"))
    with pytest.raises(CancelledError):
        embed("cat " * 70_000, chunk_size=40_000, context=CancelledInside(after=1))


def test_a_large_batch_is_taken_in_steps(embed: Embed) -> None:
    """However many texts a batch may have, no more are tokenized than go through at a time."""
    said: list[Progress | Log] = []
    texts = ["the cat is red " * 10] * 600
    embed(texts, batch_size=20_000, context=Context(said.append))
    assert len(said) == 1 + len(texts) // (1024 * 4 // 150)


def test_a_cancel_reaches_its_own_thread_alone(embed: Embed) -> None:
    """While one session is cancelled again and again, another is left in peace."""
    stop = threading.Event()
    cancelled = []

    def work() -> None:
        while not stop.is_set():
            try:
                embed("the cat", context=CancelledInside(after=LAYERS - 1))
            except CancelledError:
                cancelled.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(50):
            embed(["the cat", "a dog"])
    finally:
        stop.set()
        thread.join()
    assert cancelled


def test_closing_leaves_no_hook_behind(tiny: Path, open_options: dict[str, object]) -> None:
    """After close the backend's modules are as they were."""
    model = TextModel.open(Pack.from_path(tiny), open_options, Context())
    modules = list(model._encoder._model.modules())
    assert any(module._forward_pre_hooks for module in modules)
    plugin.cartridge_close(model)
    assert not any(module._forward_pre_hooks for module in modules)


def test_threads_hold_for_the_call_alone(
    tiny: Path, open_model: Open, embed_with: EmbedWith
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

    model = open_model(tiny, threads=before + 2)
    embed_with(model, "cat", context=Asking())
    assert before + 2 in inside
    assert torch.get_num_threads() == before


def test_no_threads_leave_torchs_setting(
    tiny: Path, open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """threads=0 never touches torch's setting."""
    import torch

    monkeypatch.setattr(torch, "set_num_threads", lambda count: pytest.fail(f"set to {count}"))
    assert open_model(tiny, threads=0).dimension == 32


def test_the_hubs_name_of_a_model_in_the_hubs_cache() -> None:
    """A snapshot's name is the repository's, not the commit's."""
    path = Path("/cache/models--some-body--all-MiniLM/snapshots/1110a243")
    assert ModelFolder(path, ()).name == "some-body/all-MiniLM"
    assert attrs.evolve(ModelFolder(path, ()), path=Path("/models/mine")).name == "mine"
