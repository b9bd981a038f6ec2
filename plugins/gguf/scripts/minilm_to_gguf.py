"""
Write a BERT embedding model as GGUF, from the folder that sentence-transformers saves.

    python minilm_to_gguf.py FOLDER TARGET.gguf --weights f16

It takes what all-MiniLM-L6-v2 is: BERT with a lower-case word-piece vocabulary and mean pooling,
its weights in float32 safetensors. Anything else is refused. The vectors of the result have no unit
length by themselves, since a GGUF file cannot ask for it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import gguf
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Tensors = Mapping[str, NDArray[np.float32]]

__all__ = ["convert"]

_LAYER = {
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}
_TABLES = {
    "token_embd.weight": "word_embeddings.weight",
    "position_embd.weight": "position_embeddings.weight",
    "token_types.weight": "token_type_embeddings.weight",
    "token_embd_norm.weight": "LayerNorm.weight",
    "token_embd_norm.bias": "LayerNorm.bias",
}
_FLOAT32 = ("position_embd.weight", "token_types.weight")
"""Small tables that llama.cpp's own converter leaves in float32."""
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class _Config(TypedDict):
    """What is read of the model's ``config.json``."""

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float


def convert(folder: Path, target: Path, weights: gguf.GGMLQuantizationType) -> Path:
    """
    Write a model folder as one GGUF file.

    Args:
        folder: What sentence-transformers saves.
        target: The file.
        weights: The type of the matrices: ``F16`` or ``Q8_0``.

    Raises:
        ValueError: The folder holds another kind of model.
    """
    config: _Config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config["model_type"] != "bert":
        msg = f"{folder}: only BERT models can be written; found {config['model_type']}"
        raise ValueError(msg)
    _check_pooling(folder)
    writer = gguf.GGUFWriter(target, "bert")
    writer.add_type("model")
    writer.add_name(folder.name)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{weights.name}"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_token_type_count(config["type_vocab_size"])
    _add_vocabulary(writer, _read_vocabulary(folder))
    for name, values in _tensors(folder, config["num_hidden_layers"]).items():
        if values.ndim < 2 or name in _FLOAT32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, weights), raw_dtype=weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _check_pooling(folder: Path) -> None:
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
    mode = pooling.get("pooling_mode")
    on = [name for name, value in pooling.items() if name.startswith("pooling_mode_") and value]
    if mode != "mean" and on != ["pooling_mode_mean_tokens"]:
        msg = f"{folder}: only mean pooling can be written; found {mode or on}"
        raise ValueError(msg)


def _read_vocabulary(folder: Path) -> Sequence[str]:
    """Give the word pieces by id, in BERT's writing: what goes on a word begins with ##."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    if tokenizer["model"]["type"] != "WordPiece" or not tokenizer["normalizer"]["lowercase"]:
        msg = f"{folder}: only lower-case word pieces can be written, as llama.cpp reads no others"
        raise ValueError(msg)
    places: dict[str, int] = tokenizer["model"]["vocab"]
    return sorted(places, key=places.__getitem__)


def _add_vocabulary(writer: gguf.GGUFWriter, vocabulary: Sequence[str]) -> None:
    kinds = gguf.TokenType
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([_in_gguf_writing(token) for token in vocabulary])
    writer.add_token_types(
        [kinds.CONTROL if token in _SPECIAL else kinds.NORMAL for token in vocabulary]
    )
    padding, unknown, begin, end, mask = (vocabulary.index(token) for token in _SPECIAL)
    writer.add_pad_token_id(padding)
    writer.add_unk_token_id(unknown)
    writer.add_bos_token_id(begin)
    writer.add_eos_token_id(end)
    writer.add_sep_token_id(end)
    writer.add_mask_token_id(mask)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)


def _in_gguf_writing(token: str) -> str:
    """Mark what begins a word, as GGUF does, where BERT marks what goes on one."""
    if token in _SPECIAL:
        return token
    return token[2:] if token.startswith("##") else "\u2581" + token


def _tensors(folder: Path, layers: int) -> Tensors:
    """Give the tensors under GGUF's names."""
    found = _read_safetensors(folder / "model.safetensors")
    names = {name: f"embeddings.{source}" for name, source in _TABLES.items()}
    for layer in range(layers):
        for name, source in _LAYER.items():
            for part in ("weight", "bias"):
                names[f"blk.{layer}.{name}.{part}"] = f"encoder.layer.{layer}.{source}.{part}"
    return {name: found[source] for name, source in names.items()}


def _read_safetensors(file: Path) -> Tensors:
    """
    Read a safetensors file.

    Source:
        https://github.com/huggingface/safetensors: u64 length, JSON header, data.
    """
    data = np.memmap(file, np.uint8, "r")
    start = 8 + int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8:start]))
    header.pop("__metadata__", None)
    found: dict[str, NDArray[np.float32]] = {}
    for name, entry in header.items():
        if entry["dtype"] == "F32":
            first, last = (start + offset for offset in entry["data_offsets"])
            found[name] = np.frombuffer(data[first:last], "<f4").reshape(entry["shape"])
    return found


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--weights", choices=["f16", "q8_0"], default="f16")
    arguments = parser.parse_args()
    weights = gguf.GGMLQuantizationType[arguments.weights.upper()]
    print(convert(arguments.folder, arguments.target, weights))


if __name__ == "__main__":
    main()
