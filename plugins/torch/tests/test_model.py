"""Loading and closing: wrong folders by name, progress, cancel, threads."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.context import Context
from cartridge_core.errors import BackendError, CancelledError, InvalidArgumentError, LoadError
from cartridge_core.pack import Pack
from cartridge_core.progress import Log, Progress
from cartridge_torch import plugin
from cartridge_torch.folder import ModelFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from cartridge_core.records import Record
    from cartridge_torch.model import Model

    Embed = Callable[..., Record]
    EmbedWith = Callable[..., Record]
    Open = Callable[..., Model]


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
    pack = Pack.from_path(tiny)
    model = plugin.cartridge_open("torch-text-embedding", pack, open_options, Context())
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
