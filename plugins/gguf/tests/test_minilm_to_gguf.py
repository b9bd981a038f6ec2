"""A sentence-transformers folder becomes a GGUF file that gives the same vectors."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import gguf
import numpy as np  # noqa: TID253 -- the package gguf imports it too
import pytest
from minilm_to_gguf import convert

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

F16, Q8_0 = gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.Q8_0
WIDTH, HIDDEN, CONTEXT = 32, 64, 16
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "##s", "a"]
DENSE = {
    "attention.self.query": (WIDTH, WIDTH),
    "attention.self.key": (WIDTH, WIDTH),
    "attention.self.value": (WIDTH, WIDTH),
    "attention.output.dense": (WIDTH, WIDTH),
    "intermediate.dense": (HIDDEN, WIDTH),
    "output.dense": (WIDTH, HIDDEN),
}


def tensors() -> dict[str, Vectors]:
    """Give the weights of a BERT of one layer."""
    sizes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), WIDTH),
        "embeddings.position_embeddings.weight": (CONTEXT, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
    }
    for name, size in DENSE.items():
        sizes[f"encoder.layer.0.{name}.weight"] = size
        sizes[f"encoder.layer.0.{name}.bias"] = size[:1]
    for name in ("attention.output.LayerNorm", "output.LayerNorm"):
        sizes[f"encoder.layer.0.{name}.weight"] = (WIDTH,)
        sizes[f"encoder.layer.0.{name}.bias"] = (WIDTH,)
    source = np.random.default_rng(0)
    return {name: source.standard_normal(size, np.float32) for name, size in sizes.items()}


def write_safetensors(file: Path, arrays: dict[str, Vectors]) -> None:
    """Write weights, and what the reader has to leave out."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in arrays.items():
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    header["embeddings.position_ids"] = {"dtype": "I64", "shape": [0], "data_offsets": [0, 0]}
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as sentence-transformers saves it."""
    path = tmp_path / "tiny-bert"
    (path / "1_Pooling").mkdir(parents=True)
    config = {
        "model_type": "bert",
        "hidden_size": WIDTH,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": HIDDEN,
        "max_position_embeddings": CONTEXT,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }
    vocabulary = {token: place for place, token in enumerate(VOCABULARY)}
    tokenizer = {
        "model": {"type": "WordPiece", "vocab": vocabulary},
        "normalizer": {"lowercase": True},
    }
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean"}))
    write_safetensors(path / "model.safetensors", tensors())
    return path


def edit(file: Path, **changes: object) -> None:
    """Change values of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(("weights", "tolerance"), [(F16, 2e-3), (Q8_0, 2e-2)])
def test_every_tensor_is_written_under_its_name(
    folder: Path, tmp_path: Path, weights: gguf.GGMLQuantizationType, tolerance: float
) -> None:
    found = gguf.GGUFReader(convert(folder, tmp_path / "tiny.gguf", weights))
    written = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        for tensor in found.tensors
    }
    given = tensors()
    assert len(written) == len(given)
    pairs = {
        "token_embd.weight": "embeddings.word_embeddings.weight",
        "token_embd_norm.bias": "embeddings.LayerNorm.bias",
        "blk.0.attn_q.weight": "encoder.layer.0.attention.self.query.weight",
        "blk.0.attn_output_norm.weight": "encoder.layer.0.attention.output.LayerNorm.weight",
        "blk.0.ffn_down.bias": "encoder.layer.0.output.dense.bias",
    }
    for name, source in pairs.items():
        np.testing.assert_allclose(written[name], given[source], atol=tolerance)


def test_matrices_alone_are_made_smaller(folder: Path, tmp_path: Path) -> None:
    """Biases, norms and the two small tables stay float32."""
    found = gguf.GGUFReader(convert(folder, tmp_path / "tiny.gguf", Q8_0))
    small = {tensor.name for tensor in found.tensors if tensor.tensor_type == Q8_0}
    dense = {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"}
    assert small == {"token_embd.weight", *(f"blk.0.{name}.weight" for name in dense)}


def test_pieces_are_written_as_gguf_writes_them(folder: Path, tmp_path: Path) -> None:
    found = gguf.GGUFReader(convert(folder, tmp_path / "tiny.gguf", F16))
    field = found.get_field("tokenizer.ggml.tokens")
    assert field is not None
    assert field.contents()[4:] == ["[MASK]", "▁hello", "▁world", "s", "▁a"]


@pytest.mark.parametrize(
    ("file", "changes", "why"),
    [
        ("config.json", {"model_type": "roberta"}, "only BERT models .* found roberta"),
        ("config.json", {"model_type": "llama"}, "only BERT models .* found llama"),
        ("1_Pooling/config.json", {"pooling_mode": "cls"}, "only mean pooling .* found cls"),
        (
            "1_Pooling/config.json",
            {"pooling_mode": None, "pooling_mode_max_tokens": True},
            "only mean pooling .* found .'pooling_mode_max_tokens'",
        ),
        ("tokenizer.json", {"normalizer": {"lowercase": False}}, "only lower-case word pieces"),
        ("tokenizer.json", {"model": {"type": "BPE", "vocab": {}}}, "only lower-case word pieces"),
    ],
)
def test_another_kind_of_model_is_refused(
    folder: Path, tmp_path: Path, file: str, changes: dict[str, object], why: str
) -> None:
    edit(folder / file, **changes)
    with pytest.raises(ValueError, match=why):
        convert(folder, tmp_path / "tiny.gguf", F16)
    assert not (tmp_path / "tiny.gguf").exists()


@pytest.fixture(scope="module")
def expected(minilm_folder: Path) -> Vectors:
    """The vectors of torch."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(minilm_folder), device="cpu", local_files_only=True)
    return np.asarray(model.encode(SENTENCES, normalize_embeddings=True, show_progress_bar=False))


@pytest.mark.integration
@pytest.mark.parametrize(("weights", "least"), [(F16, 0.9999), (Q8_0, 0.999)])
def test_real_minilm_gives_the_vectors_of_torch(
    minilm_folder: Path,
    tmp_path: Path,
    expected: Vectors,
    weights: gguf.GGMLQuantizationType,
    least: float,
) -> None:
    """By cosine."""
    import llama_cpp

    file = convert(minilm_folder, tmp_path / "minilm.gguf", weights)
    model = llama_cpp.Llama(str(file), embedding=True, n_ctx=512, n_threads=1, verbose=False)
    found = np.asarray(model.embed(SENTENCES, normalize=True))
    model.close()
    assert float(np.sum(found * expected, axis=1).min()) >= least


SUBJECTS = ["The old cat", "My neighbour's bank", "Dr. O'Neill (59)"]
OBJECTS = ["was late because of snow", "reads the café's menu", "sells 3.5% of Zürich!"]
SENTENCES = [f"{a} {b}." for a in SUBJECTS for b in OBJECTS]
