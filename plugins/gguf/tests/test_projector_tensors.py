"""A projector whose tensors do not go together is refused before llama.cpp sees it."""

from __future__ import annotations

import subprocess
import sys
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

import cartridge_gguf
from cartridge_core.descriptor import read_descriptors
from cartridge_core.errors import LoadError
from cartridge_core.pack import Pack
from cartridge_gguf import preflight
from cartridge_gguf.files import ModelFiles
from cartridge_gguf.header import Header, read_header
from cartridge_gguf.projector_tensors import check_projector
from cartridge_gguf.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    Alter = Callable[[NDArray[np.floating]], NDArray[np.floating] | None]
    Damage = Callable[..., Path]

KINDS = ["mlp", "gemma3", "qwen2vl_merger"]


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Header]:
    """The headers of a projector of each kind that can be written here."""
    from tiny_models import write_projector

    folder = tmp_path_factory.mktemp("projectors")
    return {
        kind: read_header(write_projector(folder / f"{kind}.gguf", 64, kind=kind)) for kind in KINDS
    }


def changed(header: Header, name: str, shape: tuple[int, ...] | None) -> Header:
    """Give a tensor another shape, or take it out."""
    tensors = [
        attrs.evolve(one, shape=shape) if one.name == name and shape else one
        for one in header.tensors
        if one.name != name or shape
    ]
    return attrs.evolve(header, tensors=tuple(tensors))


def stated(header: Header, **numbers: object) -> Header:
    """Have a header say something else."""
    keys = {f"clip.vision.{key.replace('__', '.')}": value for key, value in numbers.items()}
    return attrs.evolve(header, metadata={**header.metadata, **keys})


@pytest.mark.parametrize("kind", KINDS)
def test_a_projector_that_is_whole(headers: Mapping[str, Header], kind: str) -> None:
    """Nothing is refused of it; nor of another kind's, of which less is known."""
    check_projector(headers[kind])
    other = {**headers[kind].metadata, "clip.projector_type": "unheard-of"}
    check_projector(attrs.evolve(headers[kind], metadata=other))


@pytest.mark.parametrize("kind", KINDS)
def test_error_no_tensor_may_have_another_shape(headers: Mapping[str, Header], kind: str) -> None:
    """On whatever axis; but for what the language model's width decides, which llama.cpp asks."""
    header = headers[kind]
    for tensor in header.tensors:
        for axis, size in enumerate(tensor.shape):
            shape = (*tensor.shape[:axis], size // 2, *tensor.shape[axis + 1 :])
            if (tensor.name, axis) == ("mm.input_projection.weight", 0):
                continue
            with pytest.raises(LoadError, match="it is damaged, make or download it again"):
                check_projector(changed(header, tensor.name, shape))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param("mlp", "v.patch_embd.weight", id="no-patches"),
        pytest.param("mlp", "v.position_embd.weight", id="no-positions"),
        pytest.param("mlp", "v.blk.0.attn_k.weight", id="no-keys"),
        pytest.param("mlp", "mm.0.bias", id="no-bias"),
        pytest.param("mlp", "mm.2.weight", id="no-projection"),
        pytest.param("gemma3", "v.position_embd.weight", id="gemma-no-positions"),
        pytest.param("gemma3", "v.blk.0.attn_q.weight", id="gemma-no-queries"),
        pytest.param("qwen2vl_merger", "v.patch_embd.weight.1", id="qwen-no-second-frame"),
        pytest.param("qwen2vl_merger", "v.blk.0.attn_v.bias", id="qwen-no-bias"),
    ],
)
def test_error_a_tensor_that_is_missing(
    headers: Mapping[str, Header], kind: str, name: str
) -> None:
    """Of those that llama.cpp counts on without asking; it asks for the others by itself."""
    with pytest.raises(LoadError, match=f"it has no tensor {name}, which a {kind} needs"):
        check_projector(changed(headers[kind], name, None))


@pytest.mark.parametrize(
    ("kind", "numbers", "what"),
    [
        pytest.param("mlp", {"attention__head_count": 3}, "attn_q", id="heads"),
        pytest.param("mlp", {"attention__head_count": 0}, "attn_q", id="no-heads"),
        pytest.param("mlp", {"attention__head_count_kv": 1}, "attn_k", id="key-heads"),
        pytest.param("mlp", {"attention__head_dim": 8}, "attn_q", id="head-size"),
        pytest.param("mlp", {"embedding_length": 64}, "attn_q", id="width"),
        pytest.param("mlp", {"image_size": 64}, "position_embd.*needs 65", id="larger-pictures"),
        pytest.param("gemma3", {"image_size": 24}, "position_embd.*needs 9", id="smaller-pictures"),
        pytest.param("gemma3", {"patch_size": 16}, "patch_embd", id="patches"),
        pytest.param("qwen2vl_merger", {"block_count": 1 << 31}, "blocks", id="endless-blocks"),
    ],
)
def test_error_a_header_that_says_something_else(
    headers: Mapping[str, Header], kind: str, numbers: dict[str, int], what: str
) -> None:
    """The numbers of the header and the tensors' shapes have to go together."""
    with pytest.raises(LoadError, match=what):
        check_projector(stated(headers[kind], **numbers))


def test_a_block_that_is_not_computed_may_lack_something(headers: Mapping[str, Header]) -> None:
    """LLaVA takes what the last block but one gives; unless the file says which it takes."""
    header = changed(headers["mlp"], "v.blk.1.attn_q.weight", None)
    check_projector(header)
    with pytest.raises(LoadError, match=r"no tensor v\.blk\.1\.attn_q"):
        check_projector(stated(header, feature_layer=array("i", [2])))


def test_older_files_have_up_and_down_swapped(headers: Mapping[str, Header]) -> None:
    """They go together all the same."""
    header = headers["mlp"]
    swap = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}

    def renamed(tensor: Tensor) -> Tensor:
        block, _, name = tensor.name.rpartition(".blk.")
        number, _, rest = name.partition(".")
        part, _, end = rest.partition(".")
        if not block or part not in swap:
            return tensor
        return attrs.evolve(tensor, name=f"{block}.blk.{number}.{swap[part]}.{end}")

    check_projector(attrs.evolve(header, tensors=tuple(map(renamed, header.tensors))))


def test_kinds_with_two_layer_norms_and_with_one_matrix_for_three() -> None:
    """Yi's projection of LLaVA's kind, and queries, keys and values in one matrix."""
    tensors = {
        "v.patch_embd.weight": (8, 8, 3, 32),
        "v.position_embd.weight": (32, 16),
        "v.blk.0.attn_out.weight": (32, 32),
        "v.blk.0.ffn_up.weight": (32, 64),
        "v.blk.0.ffn_down.weight": (64, 32),
    }
    split = {f"v.blk.0.attn_{part}.weight": (32, 32) for part in "qkv"}
    normed = {
        "mm.0.weight": (32, 48),
        "mm.0.bias": (48,),
        "mm.1.weight": (48,),
        "mm.1.bias": (48,),
        "mm.3.weight": (48, 64),
        "mm.3.bias": (64,),
        "mm.4.weight": (64,),
        "mm.4.bias": (64,),
    }
    fused = {"v.blk.0.attn_qkv.weight": (32, 96), "mm.model.fc.weight": (32 * 9, 64)}
    for kind, more in (("mlp", {**split, **normed}), ("idefics3", fused)):
        header = _described(kind, {**tensors, **more})
        check_projector(header)
        for name in more:
            with pytest.raises(LoadError):
                check_projector(changed(header, name, (7,)))
    with pytest.raises(LoadError, match="scale_factor is 0"):
        check_projector(stated(_described("idefics3", {**tensors, **fused}), **{_SCALE: 0}))


_SCALE = "projector__scale_factor"


def _described(kind: str, shapes: Mapping[str, tuple[int, ...]]) -> Header:
    """Describe a projector without weights: one block of width 32, pictures of 32 by 32."""
    numbers = {
        "embedding_length": 32,
        "block_count": 1,
        "attention.head_count": 2,
        "image_size": 32,
        "patch_size": 8,
        "projector.scale_factor": 3,
    }
    return Header(
        path=None,  # type: ignore[arg-type]
        version=3,
        metadata={
            "clip.vision.projector_type": kind,
            **{f"clip.vision.{key}": number for key, number in numbers.items()},
        },
        tensors=tuple(Tensor(name, shape, 0, 0) for name, shape in shapes.items()),
        file_size=0,
        data_size=0,
    )


@pytest.fixture
def damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Damage:
    """Write a model and its projector, of which one tensor is altered, or left out."""
    import tiny_models

    def run(kind: str, target: str, alter: Alter) -> Path:
        add = tiny_models._Tensors.add

        def altered(tensors: object, name: str, values: NDArray[np.floating]) -> None:
            found = alter(values) if name == target else values
            if found is not None:
                add(tensors, name, found)  # type: ignore[arg-type]

        folder = tmp_path / "model"
        folder.mkdir()
        tiny_models.write_llama(folder / "model.gguf")
        with monkeypatch.context() as patch:
            patch.setattr(tiny_models._Tensors, "add", altered)
            tiny_models.write_projector(folder / "mmproj.gguf", 64, kind=kind)
        return folder

    return run


OPEN = """
import sys
from cartridge_core import LoadError, Registry
with Registry.discover(isolation="inline") as registry:
    try:
        registry.open("gguf-vision", sys.argv[1], threads=1, max_context_length=256)
    except LoadError as exc:
        print(exc)
"""


@pytest.mark.parametrize(
    ("kind", "name", "alter"),
    [
        pytest.param("mlp", "v.blk.0.ffn_down.weight", lambda v: v[:, :-8], id="mlp-matrix"),
        pytest.param("mlp", "v.blk.0.attn_q.weight", lambda _: None, id="mlp-missing"),
        pytest.param("gemma3", "v.position_embd.weight", lambda v: v[:-1], id="gemma-positions"),
        pytest.param("qwen2vl_merger", "mm.0.weight", lambda v: v[:, :32], id="qwen-projection"),
    ],
)
def test_error_the_process_lives_on(damage: Damage, kind: str, name: str, alter: Alter) -> None:
    """Opened in this very process, a damaged projector is an error that names the tensor."""
    ran = subprocess.run(
        [sys.executable, "-c", OPEN, damage(kind, name, alter)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert name in ran.stdout


def test_preflight_says_what_is_not_checked(vision: Path) -> None:
    """Of a kind that is not known here, that a damaged file may end the process."""
    descriptors = read_descriptors(Path(cartridge_gguf.__file__).parent / "descriptors")
    descriptor = next(one for one in descriptors if one.id == "gguf-vision")
    options = {arg.name: arg.default for arg in descriptor.open_args}

    def checks() -> dict[str, str]:
        report = preflight.check(descriptor, Pack.from_path(vision), options, 1 << 60)
        return {check.name: check.required for check in report.checks}

    assert "projector" not in checks()
    of = ModelFiles.of

    def with_another_kind(pack: Pack, *, projector: bool) -> ModelFiles:
        files = of(pack, projector=projector)
        assert files.projector_header is not None
        other = {**files.projector_header.metadata, "clip.projector_type": "new-kind"}
        return attrs.evolve(
            files, projector_header=attrs.evolve(files.projector_header, metadata=other)
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelFiles, "of", with_another_kind)
        assert "'new-kind' those of its encoder's blocks are checked" in checks()["projector"]
