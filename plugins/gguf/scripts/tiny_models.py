"""
Tiny GGUF files, written in milliseconds, the same every time: for tests and for the demo.

They are real models to llama.cpp, with random weights. A *scripted* one says one fixed text, on any
machine, with any seed: its blocks add nothing, so that each token decides the next one alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
from attrs import frozen
from tiny_vocabularies import END_OF_TURN, Vocabulary, sentence_pieces, word_pieces

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[np.float32]

__all__ = ["CHAT_TEMPLATE", "Shape", "write_bert", "write_llama", "write_projector"]

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@frozen
class Shape:
    """How large a model is; the defaults make a file of half a megabyte."""

    width: int = 64
    layers: int = 2
    heads: int = 4
    key_heads: int = 2
    hidden: int = 128
    context: int = 2048


def write_llama(
    path: Path,
    *,
    vocabulary: Vocabulary | None = None,
    shape: Shape | None = None,
    script: str | None = None,
    endless: bool = False,
    chat_template: str | None = CHAT_TEMPLATE,
    rope_sections: Sequence[int] | None = None,
    weights: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    shards: int = 1,
    seed: int = 0,
) -> list[Path]:
    """
    Write a language model.

    Args:
        path: The file; of several shards, the name without their numbers.
        vocabulary: What it reads and writes; sentence pieces with byte fallback by default.
        shape: How large it is.
        script: What it says, whatever the prompt: after a token that is not in the script it
            begins, after one that is it goes on. No token may occur twice in it.
        endless: The script begins again at its end, instead of ending the text.
        chat_template: The chat template; None leaves it out.
        rope_sections: For M-RoPE, as Qwen2-VL has it: how many of a head's pairs turn with time,
            height and width, and a 0.
        weights: The type of the matrices.
        shards: How many files, at most.
        seed: Decides the weights.

    Returns:
        The files.
    """
    vocabulary, shape = vocabulary or sentence_pieces(), shape or Shape()
    split = 0 if shards == 1 else -(-(3 + 9 * shape.layers) // shards)
    architecture = "llama" if rope_sections is None else "qwen2vl"
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=split)
    writer.add_type("model")
    writer.add_name("tiny")
    writer.add_license("CC0-1.0")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_rope_freq_base(10000.0)
    if rope_sections is not None:
        writer.add_rope_dimension_sections(rope_sections)
    writer.add_vocab_size(len(vocabulary.tokens))
    vocabulary.write(writer)
    writer.add_eot_token_id(vocabulary.index(END_OF_TURN))
    if chat_template is not None:
        writer.add_chat_template(chat_template)

    tensors = _Tensors(writer, seed, weights)
    size = (len(vocabulary.tokens), shape.width)
    if script is None:
        embedding, output = tensors.random(*size, scale=1.0), tensors.random(*size, scale=0.3)
    else:
        embedding, output = _script_tables(vocabulary, shape.width, script, endless=endless)
    tensors.add("token_embd.weight", embedding)
    tensors.add("output_norm.weight", np.ones(shape.width))
    tensors.add("output.weight", output)
    scale = 0.15 if script is None else 0.0
    keys = shape.key_heads * (shape.width // shape.heads)
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        tensors.add(f"{block}.attn_norm.weight", np.ones(shape.width))
        tensors.add(f"{block}.ffn_norm.weight", np.ones(shape.width))
        for name, rows, columns in (
            ("attn_q", shape.width, shape.width),
            ("attn_k", keys, shape.width),
            ("attn_v", keys, shape.width),
            ("attn_output", shape.width, shape.width),
            ("ffn_gate", shape.hidden, shape.width),
            ("ffn_up", shape.hidden, shape.width),
            ("ffn_down", shape.width, shape.hidden),
        ):
            tensors.add(f"{block}.{name}.weight", tensors.random(rows, columns, scale=scale))
    return _finish(writer, path)


def _script_tables(
    vocabulary: Vocabulary, width: int, script: str, *, endless: bool
) -> tuple[Array, Array]:
    """
    Give the tables of a model that says a script.

    The token at a place of the script is embedded along an axis of its own, every other token along
    axis 0; the output table answers each axis with the one token that comes next.
    """
    chain = vocabulary.spell(script)
    if len(set(chain)) < len(chain) or len(chain) >= width:
        msg = f"a script has fewer than {width} tokens, each once: {script!r}"
        raise ValueError(msg)
    size = (len(vocabulary.tokens), width)
    embedding, output = np.zeros(size, np.float32), np.zeros(size, np.float32)
    embedding[:, 0] = 1.0
    output[chain[0], 0] = 3.0
    following = [*chain[1:], chain[0] if endless else vocabulary.end]
    for axis, (token, after) in enumerate(zip(chain, following, strict=True), start=1):
        embedding[token] = 0.0
        embedding[token, axis] = 1.0
        output[after, axis] = 3.0
    return embedding, output


def write_bert(
    path: Path, *, pooling: gguf.PoolingType = gguf.PoolingType.MEAN, seed: int = 0
) -> Path:
    """
    Write an embedding model of two layers: 64 numbers a vector, 128 tokens a text.

    Args:
        path: The file.
        pooling: How token vectors become one.
        seed: Decides the weights.
    """
    vocabulary, shape = word_pieces(), Shape(context=128)
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_type("model")
    writer.add_name("tiny-bert")
    writer.add_license("CC0-1.0")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    writer.add_token_type_count(2)
    vocabulary.write(writer)

    tensors, scale = _Tensors(writer, seed), 0.2
    tensors.add(
        "token_embd.weight", tensors.random(len(vocabulary.tokens), shape.width, scale=scale)
    )
    tensors.add("token_types.weight", tensors.random(2, shape.width, scale=scale))
    tensors.add("position_embd.weight", tensors.random(shape.context, shape.width, scale=scale))
    tensors.norm("token_embd_norm", shape.width)
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensors.linear(f"{block}.{name}", shape.width, shape.width, scale=scale)
        tensors.linear(f"{block}.ffn_up", shape.hidden, shape.width, scale=scale)
        tensors.linear(f"{block}.ffn_down", shape.width, shape.hidden, scale=scale)
        tensors.norm(f"{block}.attn_output_norm", shape.width)
        tensors.norm(f"{block}.layer_output_norm", shape.width)
    return _finish(writer, path)[0]


def write_projector(path: Path, width: int, *, kind: str = "mlp", seed: int = 0) -> Path:
    """
    Write a vision projector: a picture of 32 by 32 pixels becomes 16 tokens.

    Args:
        path: The file.
        width: The embedding length of the language model that it goes with.
        kind: ``mlp`` as LLaVA's; ``gemma3``, whose tokens look at each other both ways; or
            ``qwen2vl_merger`` for M-RoPE, where a picture keeps its shape, and 16 by 16 of its
            pixels become a token.
        seed: Decides the weights.
    """
    side, patch, shape = 32, 8, Shape(width=32, heads=2, hidden=64)
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_name("tiny-projector")
    writer.add_license("CC0-1.0")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(kind)
    writer.add_vision_image_size(side)
    writer.add_vision_patch_size(patch)
    writer.add_vision_embedding_length(shape.width)
    writer.add_vision_feed_forward_length(shape.hidden)
    writer.add_vision_projection_dim(width)
    writer.add_vision_block_count(shape.layers)
    writer.add_vision_head_count(shape.heads)
    writer.add_vision_attention_layernorm_eps(1e-5)
    writer.add_vision_image_mean([0.5, 0.5, 0.5])
    writer.add_vision_image_std([0.5, 0.5, 0.5])
    writer.add_vision_use_gelu(True)
    if kind == "gemma3":
        writer.add_vision_projector_scale_factor(1)

    tensors, scale = _Tensors(writer, seed), 0.2
    tensors.add("v.patch_embd.weight", tensors.random(shape.width, 3, patch, patch, scale=scale))
    places = (side // patch) ** 2
    if kind == "qwen2vl_merger":  # the second frame, which a picture repeats
        second = tensors.random(shape.width, 3, patch, patch, scale=scale)
        tensors.add("v.patch_embd.weight.1", second)
    elif kind == "gemma3":
        tensors.add("v.position_embd.weight", tensors.random(places, shape.width, scale=scale))
    else:
        tensors.add("v.class_embd", tensors.random(shape.width, scale=scale))
        tensors.add("v.position_embd.weight", tensors.random(places + 1, shape.width, scale=scale))
        tensors.norm("v.pre_ln", shape.width)
    tensors.norm("v.post_ln", shape.width)
    for layer in range(shape.layers):
        block = f"v.blk.{layer}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            tensors.linear(f"{block}.{name}", shape.width, shape.width, scale=scale)
        tensors.linear(f"{block}.ffn_up", shape.hidden, shape.width, scale=scale)
        tensors.linear(f"{block}.ffn_down", shape.width, shape.hidden, scale=scale)
        tensors.norm(f"{block}.ln1", shape.width)
        tensors.norm(f"{block}.ln2", shape.width)
    if kind == "gemma3":
        projection = tensors.random(shape.width, width, scale=scale)
        tensors.add("mm.input_projection.weight", projection)
        tensors.add("mm.soft_emb_norm.weight", np.ones(shape.width))
    else:
        seen = 4 * shape.width if kind == "qwen2vl_merger" else shape.width
        hidden = seen if kind == "qwen2vl_merger" else width
        tensors.linear("mm.0", hidden, seen, scale=scale)
        tensors.linear("mm.2", width, hidden, scale=scale)
    return _finish(writer, path)[0]


class _Tensors:
    """Adds tensors to a file, random ones from one seeded source."""

    def __init__(
        self,
        writer: gguf.GGUFWriter,
        seed: int,
        weights: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    ) -> None:
        self._writer = writer
        self._random = np.random.default_rng(seed)
        self._weights = weights
        writer.add_file_type(gguf.LlamaFileType[_FILE_TYPES[weights]])

    def random(self, *size: int, scale: float) -> Array:
        """Draw numbers around zero, float32."""
        return self._random.standard_normal(size, dtype=np.float32) * np.float32(scale)

    def add(self, name: str, values: NDArray[np.floating]) -> None:
        """Add a tensor: a matrix in the type of the weights, anything else as float32."""
        if values.ndim == 2:
            data = gguf.quants.quantize(values, self._weights)
            self._writer.add_tensor(name, data, raw_dtype=self._weights)
        else:
            self._writer.add_tensor(name, values.astype(np.float32))

    def linear(self, name: str, rows: int, columns: int, *, scale: float) -> None:
        """Add a matrix and its bias."""
        self.add(f"{name}.weight", self.random(rows, columns, scale=scale))
        self.add(f"{name}.bias", self.random(rows, scale=scale))

    def norm(self, name: str, width: int) -> None:
        """Add a layer norm that changes nothing after its division."""
        self.add(f"{name}.weight", np.ones(width))
        self.add(f"{name}.bias", np.zeros(width))


_FILE_TYPES = {
    gguf.GGMLQuantizationType.F32: "ALL_F32",
    gguf.GGMLQuantizationType.F16: "MOSTLY_F16",
    gguf.GGMLQuantizationType.Q8_0: "MOSTLY_Q8_0",
}


def _finish(writer: gguf.GGUFWriter, path: Path) -> list[Path]:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    files: Sequence[Path] = writer.format_shard_names(path)
    writer.close()
    return list(files)
