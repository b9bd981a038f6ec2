"""The parts that the network is made of."""

from __future__ import annotations

import attrs
import torch  # noqa: TID253 -- one of the private files that import the backend
import torch.nn.functional as F  # noqa: N812, TID253 -- torch's own name for it; as above

__all__ = ["Affine", "Attention", "Block", "Norm", "cross_of", "join", "match", "weigh"]


@attrs.frozen(eq=False)
class Affine:
    """A matrix and what is added."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Compute it."""
        return F.linear(x, self.weight, self.bias)


@attrs.frozen(eq=False)
class Norm:
    """A layer norm."""

    weight: torch.Tensor
    bias: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Compute it."""
        # As whisper: in float32 whatever the network computes in.
        normal = F.layer_norm(x.float(), self.weight.shape, self.weight, self.bias)
        return normal.type(x.dtype)


@attrs.frozen(eq=False)
class Attention:
    """An attention and the norm before it."""

    norm: Norm
    query: Affine
    key: Affine
    value: Affine
    out: Affine
    heads: int

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """Cut the last axis into heads: (batch, heads, length, width of a head)."""
        return x.view(*x.shape[:2], self.heads, -1).permute(0, 2, 1, 3)


@attrs.frozen(eq=False)
class Block:
    """A layer: attention to the text or the sound itself, to the sound, and a perceptron."""

    attention: Attention
    cross: Attention | None
    norm: Norm
    up: Affine
    down: Affine


def join(x: torch.Tensor) -> torch.Tensor:
    """Undo `Attention.split`."""
    return x.permute(0, 2, 1, 3).flatten(start_dim=2)


def cross_of(block: Block) -> Attention:
    """Give the attention of a decoder's layer to the sound."""
    assert block.cross is not None  # noqa: S101 -- of the decoder's blocks
    return block.cross


def match(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Say how well each key matches each query, before the softmax; as whisper scales it."""
    scale = float(query.shape[-1]) ** -0.25
    return torch.matmul(query * scale, (key * scale).transpose(-1, -2)).float()


def weigh(matches: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Give the values, weighed by how well their keys match."""
    weights: torch.Tensor = F.softmax(matches, dim=-1).to(value.dtype)
    return torch.matmul(weights, value)
