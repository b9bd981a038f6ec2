"""What a context of a model with recurrent or windowed layers takes; against llama.cpp itself."""

from __future__ import annotations

import json
import subprocess
import sys
from array import array
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.pack import Pack
from cartridge_gguf.files import ModelFiles
from cartridge_gguf.header import Header
from cartridge_gguf.memory import estimate
from cartridge_gguf.options import LoadOptions
from cartridge_gguf.states import States
from cartridge_gguf.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Shapes = Mapping[str, Sequence[int]]

WIDTH, HIDDEN, LAYERS, HEAD, INNER, STATE = 64, 128, 4, 32, 128, 16
NATIVE = """
import ctypes, json, re, sys
import llama_cpp as C

@C.llama_log_callback
def log(level, text, _):
    lines.append(text.decode())

lines = []
C.llama_log_set(log, ctypes.c_void_p())
path, length, sequences = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
model = C.llama_model_load_from_file(path.encode(), C.llama_model_default_params())
params = C.llama_context_default_params()
params.n_ctx, params.n_seq_max = length * sequences, sequences
assert C.llama_init_from_model(model, params)
found = re.findall(r"(?:KV|RS) buffer size = *([0-9.]+) MiB", "".join(lines))
print(json.dumps(sum(map(float, found)) * 2**20))
"""
NORM = {"attn_norm.weight": [WIDTH]}
PERCEPTRON = {
    "ffn_norm.weight": [WIDTH],
    "ffn_gate.weight": [HIDDEN, WIDTH],
    "ffn_up.weight": [HIDDEN, WIDTH],
    "ffn_down.weight": [WIDTH, HIDDEN],
}
ATTENTION = {
    **NORM,
    "attn_q.weight": [WIDTH, WIDTH],
    "attn_k.weight": [HEAD, WIDTH],
    "attn_v.weight": [HEAD, WIDTH],
    "attn_output.weight": [WIDTH, WIDTH],
    "attn_q_norm.weight": [HEAD],
    "attn_k_norm.weight": [HEAD],
}
MAMBA = {
    **NORM,
    "ssm_in.weight": [2 * INNER, WIDTH],
    "ssm_conv1d.weight": [INNER, 4],
    "ssm_conv1d.bias": [INNER],
    "ssm_x.weight": [4 + 2 * STATE, INNER],
    "ssm_dt.weight": [INNER, 4],
    "ssm_dt.bias": [INNER],
    "ssm_a": [INNER, STATE],
    "ssm_d": [INNER],
    "ssm_out.weight": [WIDTH, INNER],
}
SHORT = {
    **NORM,
    **PERCEPTRON,
    "shortconv.conv.weight": [WIDTH, 3],
    "shortconv.in_proj.weight": [3 * WIDTH, WIDTH],
    "shortconv.out_proj.weight": [WIDTH, WIDTH],
}
WINDOWED = {
    **ATTENTION,
    **PERCEPTRON,
    "post_attention_norm.weight": [WIDTH],
    "post_ffw_norm.weight": [WIDTH],
}


@attrs.frozen
class Kind:
    """A kind of model."""

    architecture: str
    layers: Sequence[Shapes]
    numbers: Mapping[str, int]
    key_heads: int | Sequence[int]
    last_norm: str = "output_norm.weight"


KINDS = {
    "mamba": Kind(
        "mamba",
        [MAMBA] * LAYERS,
        {
            "ssm.conv_kernel": 4,
            "ssm.inner_size": INNER,
            "ssm.state_size": STATE,
            "ssm.time_step_rank": 4,
            "attention.head_count": 0,
        },
        0,
    ),
    "hybrid": Kind(
        "lfm2",
        [SHORT, SHORT, {**ATTENTION, **PERCEPTRON}, SHORT],
        {"shortconv.l_cache": 3, "attention.head_count": 2},
        [0, 0, 1, 0],
        "token_embd_norm.weight",
    ),
    "windowed": Kind(
        "gemma3",
        [WINDOWED] * LAYERS,
        {
            "attention.sliding_window": 32,
            "attention.head_count": 2,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
        },
        1,
    ),
}


def write(path: Path, kind: Kind) -> Path:
    """Write a model of a kind, with random weights."""
    import gguf
    import numpy as np
    from tiny_vocabularies import sentence_pieces

    vocabulary = sentence_pieces()
    writer = gguf.GGUFWriter(path, kind.architecture)
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count_kv(kind.key_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, number in kind.numbers.items():
        writer.add_uint32(f"{kind.architecture}.{key}", number)
    vocabulary.write(writer)
    shapes = {
        "token_embd.weight": [len(vocabulary.tokens), WIDTH],
        kind.last_norm: [WIDTH],
        **{
            f"blk.{layer}.{name}": shape
            for layer, tensors in enumerate(kind.layers)
            for name, shape in tensors.items()
        },
    }
    for name, shape in shapes.items():
        writer.add_tensor(name, np.full(shape, 0.1, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def options(length: int, sequences: int) -> LoadOptions:
    """Ask for a context."""
    return LoadOptions(
        max_context_length=length,
        batch_size=1,
        rope_freq_base=0.0,
        rope_freq_scale=0.0,
        threads=1,
        gpu_layers=0,
        parallel_sequences=sequences,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_memory_of_a_context_is_what_llama_cpp_takes(tmp_path: Path, kind: str) -> None:
    """States and keys: of three more sequences, and of a longer context."""
    path = write(tmp_path / "x.gguf", KINDS[kind])
    files = ModelFiles.of(Pack.from_path(path), projector=False)

    def native(length: int, sequences: int) -> float:
        ran = subprocess.run(
            [sys.executable, "-c", NATIVE, path, str(length), str(sequences)],
            check=True,
            capture_output=True,
            timeout=60,
        )
        found: float = json.loads(ran.stdout)
        return found

    one = estimate(files, options(4096, 1))
    assert one.is_whole
    for length, sequences in ((4096, 4), (8192, 1)):
        more = estimate(files, options(length, sequences)).nbytes - one.nbytes
        # llama.cpp logs hundredths of a MiB.
        grown = native(length, sequences) - native(4096, 1)
        assert more == pytest.approx(grown, abs=0.011 * 2**20)
    assert estimate(files, options(4096, 4)).nbytes > one.nbytes


def described(names: Sequence[str], **metadata: object) -> ModelFiles:
    """Describe a model by its tensors' names."""
    header = Header(
        path=None,  # type: ignore[arg-type]
        version=3,
        metadata={
            "general.architecture": "x",
            "x.embedding_length": 100,
            "x.block_count": 3,
            "x.attention.head_count": 5,
            **{f"x.{key.replace('__', '.')}": value for key, value in metadata.items()},
        },
        tensors=tuple(Tensor(name, (1,), 0, 0) for name in names),
        file_size=0,
        data_size=0,
    )
    return ModelFiles(headers=(header,))


@pytest.mark.parametrize(
    ("names", "metadata", "layers", "without_keys", "numbers"),
    [
        pytest.param(["blk.0.attn_k.weight"], {}, 0, 0, None, id="none"),
        pytest.param(
            ["blk.0.time_mix_w1.weight", "blk.1.time_mix_w1.weight"],
            {"wkv__head_size": 64},
            2,
            2,
            100 * (2 + 64),
            id="rwkv",
        ),
        pytest.param(
            ["blk.0.time_mix_w1.weight"],
            {"wkv__head_size": 64, "token_shift_count": 1},
            1,
            1,
            100 * (1 + 64),
            id="rwkv-one-shift",
        ),
        pytest.param(
            ["blk.0.ssm_a", "blk.0.attn_k.weight", "blk.1.ssm_a"],
            {"ssm__conv_kernel": 4, "ssm__inner_size": 30, "ssm__state_size": 7}
            | {"ssm__group_count": 2},
            2,
            1,
            3 * (30 + 2 * 2 * 7) + 7 * 30,
            id="both-in-a-layer",
        ),
        pytest.param(
            ["blk.2.ssm_conv1d_q.weight"],
            {"kda__head_dim": 8, "ssm__conv_kernel": 4},
            1,
            1,
            3 * 3 * 5 * 8 + 5 * 8 * 8,
            id="kda",
        ),
        pytest.param(["blk.2.ssm_new.weight"], {}, 1, 1, None, id="unheard-of"),
    ],
)
def test_states_by_the_header(
    names: Sequence[str],
    metadata: dict[str, int],
    layers: int,
    without_keys: int,
    numbers: int | None,
) -> None:
    """How many layers keep one, and how large it is; or that the header does not say."""
    states = States.of(described(names, **metadata))
    assert (states.layers, states.without_keys) == (layers, without_keys)
    assert states.layer_bytes == (None if numbers is None else 4 * numbers)
    assert states.is_known == (numbers is not None or not layers)


def test_recurrent_layers_keep_no_keys() -> None:
    """Where the header gives one number for all layers, too."""
    plain, hybrid = (
        described([f"blk.{layer}.{name}" for layer in range(3)], attention__head_count_kv=1)
        for name in ("attn_k.weight", "ssm_a")
    )
    lengths = options(512, 1), options(1024, 1)
    grown = [
        estimate(files, lengths[1]).nbytes - estimate(files, lengths[0]).nbytes
        for files in (plain, hybrid)
    ]
    assert grown == [512 * 3 * 2 * 20 * 2, 0]


def test_layers_that_are_told_one_by_one() -> None:
    """An array of heads with keys says itself which layers have none."""
    files = described(["blk.0.ssm_a"], attention__head_count_kv=array("i", [0, 1, 1]))
    lengths = options(512, 1), options(1024, 1)
    grown = estimate(files, lengths[1]).nbytes - estimate(files, lengths[0]).nbytes
    assert grown == 512 * 2 * 2 * 20 * 2
