"""What the weights of a Whisper model are called, in whisper and in the other formats."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Part", "from_ct2", "from_hugging_face"]

_HUGGING_FACE = (
    (r"^model\.", ""),
    (r"\.layers\.", ".blocks."),
    (r"embed_positions\.weight$", "positional_embedding"),
    (r"embed_tokens\.", "token_embedding."),
    (r"^encoder\.layer_norm\.", "encoder.ln_post."),
    (r"^decoder\.layer_norm\.", "decoder.ln."),
    (r"\.self_attn_layer_norm\.", ".attn_ln."),
    (r"\.encoder_attn_layer_norm\.", ".cross_attn_ln."),
    (r"\.final_layer_norm\.", ".mlp_ln."),
    (r"\.self_attn\.", ".attn."),
    (r"\.encoder_attn\.", ".cross_attn."),
    (r"\.q_proj\.", ".query."),
    (r"\.k_proj\.", ".key."),
    (r"\.v_proj\.", ".value."),
    (r"\.out_proj\.", ".out."),
    (r"\.fc1\.", ".mlp.0."),
    (r"\.fc2\.", ".mlp.2."),
)
"""What transformers says, and what whisper says for it; applied in this order."""

_OUTPUT = "proj_out.weight"
"""transformers' name for the token embedding a second time."""


def from_hugging_face(names: Iterable[str]) -> dict[str, str]:
    """Give whisper's name of each of transformers' names."""
    found = {}
    for name in names:
        if name != _OUTPUT:
            new = name
            for pattern, replacement in _HUGGING_FACE:
                new = re.sub(pattern, replacement, new)
            found[name] = new
    return found


@attrs.frozen
class Part:
    """Where a weight of whisper's lies in another format: a piece of an array, cut in rows."""

    source: str
    index: int = 0
    count: int = 1
    """Into how many equal pieces the array is cut; ``index`` is which of them."""


def from_ct2(names: Iterable[str]) -> dict[str, Part]:
    """
    Give for each of whisper's names where CTranslate2 keeps it.

    CTranslate2 joins query, key and value in one array. Whisper's keys have no bias: their piece
    of the joined one is zero and is left out.
    """
    found: dict[str, Part] = {}
    sides = {(name.split("/")[0], name.split("/")[1]) for name in names if "/layer_" in name}
    layers = [(side, layer) for side, layer in sorted(sides) if layer[6:].isdigit()]
    for side, layer in layers:
        block, at = f"{side}.blocks.{layer[6:]}.", f"{side}/{layer}/"
        found.update(_attention(f"{block}attn", f"{at}self_attention", joined=3))
        if side == "decoder":
            found.update(_attention(f"{block}cross_attn", f"{at}attention", joined=2))
        found.update(_affine(f"{block}mlp_ln", f"{at}ffn/layer_norm", "gamma", "beta"))
        found.update(_affine(f"{block}mlp.0", f"{at}ffn/linear_0"))
        found.update(_affine(f"{block}mlp.2", f"{at}ffn/linear_1"))
    for name in ("conv1", "conv2"):
        found.update(_affine(f"encoder.{name}", f"encoder/{name}"))
    found.update(_affine("encoder.ln_post", "encoder/layer_norm", "gamma", "beta"))
    found.update(_affine("decoder.ln", "decoder/layer_norm", "gamma", "beta"))
    for side in ("encoder", "decoder"):
        found[f"{side}.positional_embedding"] = Part(f"{side}/position_encodings/encodings")
    found["decoder.token_embedding.weight"] = Part("decoder/embeddings/weight")
    return found


def _affine(
    name: str, source: str, weight: str = "weight", bias: str = "bias"
) -> Iterator[tuple[str, Part]]:
    yield f"{name}.weight", Part(f"{source}/{weight}")
    yield f"{name}.bias", Part(f"{source}/{bias}")


def _attention(name: str, source: str, *, joined: int) -> Iterator[tuple[str, Part]]:
    """List an attention whose last ``joined`` of query, key and value are one array."""
    yield from _affine(f"{name}_ln", f"{source}/layer_norm", "gamma", "beta")
    linear = 0
    if joined == 2:
        yield from _affine(f"{name}.query", f"{source}/linear_0")
        linear = 1
    for index, what in enumerate(("query", "key", "value")[-joined:]):
        yield f"{name}.{what}.weight", Part(f"{source}/linear_{linear}/weight", index, joined)
        if what != "key":
            yield f"{name}.{what}.bias", Part(f"{source}/linear_{linear}/bias", index, joined)
    yield from _affine(f"{name}.out", f"{source}/linear_{linear + 1}")
