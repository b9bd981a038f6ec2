"""How long a context may be, and what a model takes; the estimate against llama.cpp itself."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.pack import Pack
from cartridge_gguf.files import ModelFiles
from cartridge_gguf.header import Header
from cartridge_gguf.memory import context_length, estimate
from cartridge_gguf.options import LoadOptions
from cartridge_gguf.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Describe = Callable[..., ModelFiles]

PLAIN = LoadOptions(
    max_context_length=0,
    batch_size=512,
    rope_freq_base=0.0,
    rope_freq_scale=0.0,
    threads=1,
    gpu_layers=0,
    parallel_sequences=1,
)
PLENTY = 1 << 60
NATIVE = """
import ctypes, json, re, sys
import llama_cpp as C

def held():
    with open("/proc/self/status") as lines:
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Rss"))

@C.llama_log_callback
def log(level, text, _):
    lines.append(text.decode())

lines = []
C.llama_log_set(log, ctypes.c_void_p())
path, length = sys.argv[1], int(sys.argv[2])
before = held()
model = C.llama_model_load_from_file(path.encode(), C.llama_model_default_params())
params = C.llama_context_default_params()
params.n_ctx = length
params.n_batch = params.n_ubatch = 512
params.n_threads = params.n_threads_batch = 1
context = C.llama_init_from_model(model, params)
tokens = (C.llama_token * 512)(*(300 + place % 100 for place in range(512)))
assert C.llama_decode(context, C.llama_batch_get_one(tokens, 512)) == 0
found = re.findall(r"KV buffer size = *([0-9.]+) MiB", "".join(lines))
print(json.dumps({"held": held() - before, "cache": sum(map(float, found)) * 2**20}))
"""


def files_of(path: Path) -> ModelFiles:
    """Look at a model file."""
    return ModelFiles.of(Pack.from_path(path), projector=False)


@pytest.fixture
def describe(tmp_path: Path) -> Describe:
    """Describe a model without weights: 8 layers of 8 heads of 64, but for what is changed."""

    def run(**metadata: object) -> ModelFiles:
        plain: dict[str, object] = {
            "context_length": 32768,
            "embedding_length": 512,
            "block_count": 8,
            "attention.head_count": 8,
        }
        changed = {key.replace("__", "."): value for key, value in metadata.items()}
        header = Header(
            path=tmp_path / "x.gguf",
            version=3,
            metadata={"general.architecture": "x"}
            | {f"x.{key}": value for key, value in {**plain, **changed}.items()},
            tensors=(),
            file_size=0,
            data_size=0,
        )
        return ModelFiles(headers=(header,))

    return run


def cache(files: ModelFiles, length: int = 1024) -> int:
    """Give the bytes that so many more tokens of context take."""
    one, two = (attrs.evolve(PLAIN, max_context_length=count) for count in (512, 512 + length))
    return estimate(files, two).nbytes - estimate(files, one).nbytes


@pytest.mark.skipif(sys.platform != "linux", reason="measures by /proc")
def test_the_estimate_is_what_llama_cpp_takes(tmp_path: Path) -> None:
    """A real model's weights, cache and computing, measured in a process, within a tenth."""
    from tiny_models import Shape, write_llama

    shape = Shape(width=512, layers=4, heads=8, key_heads=4, hidden=1536, context=4096)
    path = write_llama(tmp_path / "x.gguf", shape=shape)[0]
    files, length = files_of(path), 2000
    run = subprocess.run(
        [sys.executable, "-c", NATIVE, path, str(length)],
        check=True,
        capture_output=True,
        env={"GGML_NO_BACKTRACE": "1"},
    )
    native = json.loads(run.stdout)
    guess = estimate(files, attrs.evolve(PLAIN, max_context_length=length)).nbytes
    assert guess == pytest.approx(native["held"], rel=0.1)
    # llama.cpp rounds 2000 up to 2048; that many more take as much again.
    assert cache(files, 2048) == native["cache"]
    assert guess == estimate(files, attrs.evolve(PLAIN, max_context_length=2048)).nbytes


@pytest.mark.parametrize(
    ("metadata", "numbers"),
    [
        pytest.param({}, 8 * 8 * 128, id="plain"),
        pytest.param({"attention__head_count_kv": 2}, 8 * 2 * 128, id="grouped"),
        pytest.param({"attention__key_length": 256}, 8 * 8 * (256 + 64), id="long-keys"),
        pytest.param({"attention__value_length": 16}, 8 * 8 * (64 + 16), id="short-values"),
        pytest.param({"attention__causal": False}, 0, id="encoder"),
        pytest.param({"attention__head_count": 0}, 0, id="recurrent"),
        pytest.param({"block_count": 0}, 0, id="no-layers"),
    ],
)
def test_the_cache_is_keys_and_values(
    describe: Describe, metadata: dict[str, object], numbers: int
) -> None:
    """Two bytes a number, in every layer, for every head that has keys of its own."""
    assert cache(describe(**metadata)) == 1024 * numbers * 2


def test_layers_may_differ(describe: Describe) -> None:
    """A hybrid model keeps keys in some of its layers."""
    from array import array

    files = describe(attention__head_count_kv=array("i", [0, 0, 0, 2] * 2))
    assert cache(files) == 1024 * 4 * 128 * 2


def test_every_sequence_has_its_context(describe: Describe) -> None:
    """With several sequences each has the whole length."""
    files, options = describe(), attrs.evolve(PLAIN, max_context_length=1024, batch_size=1)
    four = attrs.evolve(options, parallel_sequences=4)
    assert (
        estimate(files, four).nbytes - estimate(files, options).nbytes == 3 * 1024 * 8 * 8 * 128 * 2
    )


def test_a_large_batch_is_computed_in_parts(describe: Describe) -> None:
    """A batch takes memory to compute in, up to 512 tokens."""
    sizes = [
        estimate(describe(), attrs.evolve(PLAIN, max_context_length=4096, batch_size=size)).nbytes
        for size in (64, 512, 2048)
    ]
    assert sizes[0] < sizes[1] == sizes[2]


@pytest.mark.parametrize(
    ("trained", "length"), [(32768, 8192), (8192, 8192), (2048, 2048), (100, 100)]
)
def test_an_automatic_length(describe: Describe, trained: int, length: int) -> None:
    """It is what the model was trained on, at most 8192."""
    assert context_length(describe(context_length=trained), PLAIN, PLENTY) == length


def test_an_automatic_length_fits_into_memory(describe: Describe) -> None:
    """It is halved until it fits, and not further; 512 is the least."""
    files = describe()
    for length in (8192, 4096, 1024, 512):
        needed = estimate(files, attrs.evolve(PLAIN, max_context_length=length)).nbytes
        assert context_length(files, PLAIN, needed) == length
        assert estimate(files, PLAIN, needed).nbytes == needed
        assert context_length(files, PLAIN, needed - 1) == max(512, length // 2)
    assert context_length(describe(context_length=600), PLAIN, 0) == 512
    assert context_length(describe(context_length=300), PLAIN, 0) == 300


def test_a_length_that_is_asked_for_is_taken(describe: Describe) -> None:
    """Memory does not change it; preflight says where it does not fit."""
    options = attrs.evolve(PLAIN, max_context_length=20000)
    assert context_length(describe(), options, 0) == 20000


@pytest.mark.parametrize(
    "scaling",
    [
        pytest.param(attrs.evolve(PLAIN, rope_freq_scale=0.5), id="scale"),
        pytest.param(attrs.evolve(PLAIN, rope_freq_base=1e6), id="base"),
    ],
)
def test_more_than_trained_needs_scaling(describe: Describe, scaling: LoadOptions) -> None:
    """With RoPE scaling, an argument's or the file's, more than trained is allowed."""
    asked = attrs.evolve(PLAIN, max_context_length=32769)
    assert context_length(describe(), attrs.evolve(scaling, max_context_length=32769)) == 32769
    assert context_length(describe(rope__scaling__type="yarn"), asked) == 32769
    for files in (describe(), describe(rope__scaling__type="none")):
        with pytest.raises(InvalidArgumentError, match=r"at most 32768.*rope_freq_scale") as caught:
            context_length(files, asked)
        assert (caught.value.arg, caught.value.value) == ("max_context_length", 32769)


def test_error_more_than_a_table_of_positions(describe: Describe) -> None:
    """What has a table of positions, as BERT, ends where the table does."""
    (header,) = describe().headers
    table = Tensor("position_embd.weight", (512, 32768), 0, 0)
    files = ModelFiles(headers=(attrs.evolve(header, tensors=(table,)),))
    options = attrs.evolve(PLAIN, max_context_length=32769, rope_freq_scale=0.5)
    with pytest.raises(
        InvalidArgumentError, match=r"at most 32768, what the model was trained on$"
    ):
        context_length(files, options)
