"""
Whether the tensors of a vision projector go together, by its header.

llama.cpp takes their shapes as they come, and where two do not fit, or one is missing that it
counts on, it ends the process. Of every kind of projector the blocks of its encoder are checked,
and the biases; of the kinds in `CHECKED_KINDS` everything that llama.cpp counts on.

Source:
    llama.cpp, ``tools/mtmd``: ``clip_model_loader::load_tensors``, and the graphs of llava, siglip
    and qwen2vl.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cartridge_gguf.header import refused

if TYPE_CHECKING:
    from cartridge_core.errors import LoadError
    from cartridge_gguf.header import Header

__all__ = ["CHECKED_KINDS", "check_projector", "kind_of"]

_LLAVA = "mlp"
_GEMMA, _IDEFICS = "gemma3", "idefics3"
_QWEN = frozenset({"qwen2vl_merger", "qwen2.5vl_merger"})

CHECKED_KINDS = frozenset({_LLAVA, _GEMMA, _IDEFICS}) | _QWEN

_LAYERS = "clip.vision.feature_layer"

_MERGED = 4
"""Patches of Qwen's that become one token."""

_LEAST_SCALE = 2
"""Patches that become one token along a side, in Idefics 3."""


def kind_of(projector: Header) -> str:
    """Give what llama.cpp calls a projector's kind; empty where the file does not say."""
    keys = ("clip.projector_type", "clip.vision.projector_type")
    return next((kind for key in keys if (kind := projector.text(key))), "")


def check_projector(projector: Header) -> None:
    """
    Refuse a projector for which llama.cpp would end the process.

    Raises:
        LoadError: A tensor is missing, or does not go with the others or with what the header says.
    """
    check = _Check(projector)
    check.biases()
    check.blocks()
    if check.kind in CHECKED_KINDS:
        check.begins()
        check.ends()


class _Check:
    """
    One projector.

    Args:
        header: Its.
    """

    def __init__(self, header: Header) -> None:
        self._header = header
        self._shapes = {tensor.name: tensor.shape or (1,) for tensor in header.tensors}
        self.kind = kind_of(header)
        self._width = self._number("embedding_length")

    def biases(self) -> None:
        """Check that each bias goes with its weights, whose last axis it is added along."""
        for name, shape in self._shapes.items():
            weights = self._shapes.get(f"{name.removesuffix('.bias')}.weight")
            if weights is not None and name.endswith(".bias") and name.startswith(("v.", "mm.")):
                self._expect(name, math.prod(shape), weights[-1], "numbers")

    def blocks(self) -> None:
        """Check the blocks of the encoder."""
        count = self._number("block_count")
        if count > len(self._shapes):
            raise _damaged(
                self._header, f"it says {count} blocks, and has {len(self._shapes)} tensors"
            )
        # Of LLaVA's kind the last block is not computed, unless the file says which layers are.
        has_layers = self._header.integers(_LAYERS) is not None
        used = count - 1 if self.kind == _LLAVA and not has_layers else count
        for number in range(count):
            block = f"v.blk.{number}"
            for name in ("attn_q", "attn_k", "attn_v", "attn_qkv", "ffn_gate", "ln1", "ln2"):
                self._takes(f"{block}.{name}.weight", self._width)
            self._gives(f"{block}.attn_out.weight", self._width)
            up, down = f"{block}.ffn_up.weight", f"{block}.ffn_down.weight"
            if self._axis(down, 0) == self._width:
                up, down = down, up  # older files have the two by each other's names
            self._takes(up, self._width)
            self._gives(down, self._width)
            if self.kind in CHECKED_KINDS:
                self._takes(down, self._axis(up, 1))
                self._attention(block, is_used=number < used)

    def begins(self) -> None:
        """Check how a picture becomes the encoder's input."""
        side, patch = self._number("image_size"), self._number("patch_size")
        patches = (side // patch) ** 2 if patch else 0
        names = ["v.patch_embd.weight", *(["v.patch_embd.weight.1"] if self.kind in _QWEN else [])]
        for name in names:
            self._has(name)
            for axis, size in enumerate((patch, patch, 3, self._width)):
                self._expect(name, self._axis(name, axis), size, f"on axis {axis}")
        for name in ("v.pre_ln.weight", "v.post_ln.weight", "v.class_embd"):
            self._takes(name, self._width)
        if self.kind in _QWEN:
            for name in ("v.patch_embd.bias", "v.class_embd"):
                if name in self._shapes:
                    raise _damaged(
                        self._header, f"it has a tensor {name}, which a {self.kind} has not"
                    )
            return
        self._has("v.position_embd.weight")
        self._takes("v.position_embd.weight", self._width)
        rows = self._axis("v.position_embd.weight", 1) or 0
        wanted = patches + (1 if self.kind == _LLAVA and "v.class_embd" in self._shapes else 0)
        if rows < wanted or (rows > wanted and self.kind != _LLAVA):
            what = f"its tensor v.position_embd.weight has {rows} rows, and a picture of {side} by"
            raise _damaged(self._header, f"{what} {side} pixels needs {wanted}")

    def ends(self) -> None:
        """Check how the encoder's output becomes tokens of the language model."""
        if self.kind == _LLAVA:
            layers = self._header.integers(_LAYERS) or (0,)
            self._linear("mm.0", self._width * len(set(layers)))
            is_normed = "mm.3.weight" in self._shapes
            last, norms = ("mm.3", ("mm.1", "mm.4")) if is_normed else ("mm.2", ())
            self._linear(last, self._axis("mm.0.weight", 1))
            for norm, layer in zip(norms, ("mm.0", "mm.3"), strict=False):
                self._has(f"{norm}.weight", f"{norm}.bias")
                self._takes(f"{norm}.weight", self._axis(f"{layer}.weight", 1))
        elif self.kind == _GEMMA:
            self._has("mm.soft_emb_norm.weight", "mm.input_projection.weight")
            self._takes("mm.soft_emb_norm.weight", self._width)
            self._gives("mm.input_projection.weight", self._width)
        elif self.kind == _IDEFICS:
            scale = self._number("projector.scale_factor")
            if scale < _LEAST_SCALE:
                raise _damaged(self._header, f"its clip.vision.projector.scale_factor is {scale}")
            self._has("mm.model.fc.weight")
            self._takes("mm.model.fc.weight", self._width * scale**2)
        else:
            self._linear("mm.0", self._width * _MERGED)
            self._linear("mm.2", self._axis("mm.0.weight", 1))

    def _attention(self, block: str, *, is_used: bool) -> None:
        """Check that queries, keys and values are cut into heads as the header says."""
        heads = self._number("attention.head_count")
        size = self._number("attention.head_dim") or (self._width // heads if heads else 0)
        key_heads = self._number("attention.head_count_kv") or heads
        has_one = self.kind in {_GEMMA, _IDEFICS} and f"{block}.attn_qkv.weight" in self._shapes
        if has_one:
            self._gives(f"{block}.attn_qkv.weight", (heads + 2 * key_heads) * size)
        else:
            parts = [f"{block}.{name}" for name in ("attn_q", "attn_k", "attn_v")]
            if is_used:
                self._has(*(f"{part}.weight" for part in parts))
            if self.kind in _QWEN:
                self._has(*(f"{part}.bias" for part in parts))
            for part, count in zip(parts, (heads, key_heads, key_heads), strict=True):
                self._gives(f"{part}.weight", count * size)
        self._takes(f"{block}.attn_out.weight", heads * size)

    def _linear(self, name: str, size: int | None) -> None:
        """Check a matrix with a bias."""
        self._has(f"{name}.weight", f"{name}.bias")
        self._takes(f"{name}.weight", size)

    def _takes(self, name: str, size: int | None) -> None:
        self._expect(name, self._axis(name, 0), size, "numbers in a row")

    def _gives(self, name: str, size: int | None) -> None:
        self._expect(name, self._axis(name, 1), size, "rows")

    def _expect(self, name: str, found: int | None, wanted: int | None, what: str) -> None:
        if None not in {found, wanted} and found != wanted:
            what = f"its tensor {name} has {found} {what}"
            raise _damaged(self._header, f"{what}, where {wanted} go with the rest")

    def _has(self, *names: str) -> None:
        for name in names:
            if name not in self._shapes:
                raise _damaged(self._header, f"it has no tensor {name}, which a {self.kind} needs")

    def _axis(self, name: str, axis: int) -> int | None:
        """Give a tensor's size along an axis; None where it is not there."""
        shape = self._shapes.get(name)
        return None if shape is None else (*shape, 1, 1, 1, 1)[axis]

    def _number(self, key: str) -> int:
        return self._header.integer(f"clip.vision.{key}") or 0


def _damaged(header: Header, what: str) -> LoadError:
    return refused(header.path, f"{what}; it is damaged, make or download it again")
