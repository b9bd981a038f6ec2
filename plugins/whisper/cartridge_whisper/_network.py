"""
The network, computed from its weights: what `whisper.model` computes, without its overhead.

Nothing here is changed by a call, so any number of threads may compute with one network at once.
Keys and values are kept in buffers that belong to a text, and not by hooks on the model. Between
the parts of a layer the caller is asked whether to go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import torch  # noqa: TID253 -- one of the private files that import the backend
import torch.nn.functional as F  # noqa: N812, TID253 -- torch's own name for it; as above

from cartridge_whisper._layers import Affine, Attention, Block, Norm, cross_of, join, match, weigh

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cartridge_whisper._weights import Checkpoint
    from cartridge_whisper.dimensions import Dimensions

    Ask = Callable[[], None]

__all__ = ["Network", "Speech", "TextState"]

_PRODUCTS = 8_000_000_000
"""Multiplications between two questions whether to go on: some 100 ms of one core."""


@attrs.frozen(eq=False)
class Speech:
    """Windows of sound as the decoder attends to them; made once, used by every text of them."""

    keys: Sequence[torch.Tensor]
    """Of each layer: (windows, heads, positions, width of a head)."""

    values: Sequence[torch.Tensor]

    @property
    def count(self) -> int:
        """How many windows there are."""
        return int(self.keys[0].shape[0])

    def select(self, windows: Sequence[int]) -> Speech:
        """Give some of the windows, in this order."""
        if list(windows) == list(range(self.count)):
            return self
        index = torch.tensor(list(windows), device=self.keys[0].device)
        return Speech([one[index] for one in self.keys], [one[index] for one in self.values])


@attrs.define(eq=False)
class TextState:
    """What was computed of texts so far: a row for each, the same length in all."""

    keys: torch.Tensor
    """(layers, rows, heads, positions, width of a head); full up to ``length``."""

    values: torch.Tensor
    length: int = 0

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows, in this order; one may come several times."""
        if list(rows) != list(range(self.keys.shape[1])):
            index = torch.tensor(list(rows), device=self.keys.device)
            self.keys = self.keys.index_select(1, index)
            self.values = self.values.index_select(1, index)


class Network:
    """
    A model's weights on their device, and what is computed with them.

    Args:
        checkpoint: The weights; its tensors are taken out one by one.
        device: Where to compute.
        dtype: What to compute in.
    """

    def __init__(self, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> None:
        tensors = checkpoint.tensors
        self.dims: Dimensions = checkpoint.dims
        self.heads = checkpoint.heads
        """Those that follow the speech, for the times of words."""

        self.device = device
        self.dtype = dtype

        def take(name: str, kind: torch.dtype = dtype) -> torch.Tensor:
            return tensors.pop(name).to(device, kind).contiguous()

        def affine(name: str) -> Affine:
            weight = take(f"{name}.weight")
            return Affine(weight, take(f"{name}.bias") if f"{name}.bias" in tensors else None)

        def norm(name: str) -> Norm:
            return Norm(take(f"{name}.weight", torch.float32), take(f"{name}.bias", torch.float32))

        def attention(name: str, heads: int) -> Attention:
            query, key, value, out = (
                affine(f"{name}.{part}") for part in ("query", "key", "value", "out")
            )
            return Attention(norm(f"{name}_ln"), query, key, value, out, heads)

        def block(name: str, heads: int) -> Block:
            has_cross = f"{name}.cross_attn_ln.weight" in tensors
            return Block(
                attention(f"{name}.attn", heads),
                attention(f"{name}.cross_attn", heads) if has_cross else None,
                norm(f"{name}.mlp_ln"),
                affine(f"{name}.mlp.0"),
                affine(f"{name}.mlp.2"),
            )

        dims = self.dims
        self._conv1, self._conv2 = affine("encoder.conv1"), affine("encoder.conv2")
        self._audio_places = take("encoder.positional_embedding", torch.float32)
        self._audio_blocks = [
            block(f"encoder.blocks.{n}", dims.n_audio_head) for n in range(dims.n_audio_layer)
        ]
        self._audio_norm = norm("encoder.ln_post")
        self._embedding = take("decoder.token_embedding.weight")
        self._text_places = take("decoder.positional_embedding", torch.float32)
        self._text_blocks = [
            block(f"decoder.blocks.{n}", dims.n_text_head) for n in range(dims.n_text_layer)
        ]
        self._text_norm = norm("decoder.ln")

    def encode(self, mel: torch.Tensor, ask: Ask) -> torch.Tensor:
        """
        Compute the features of windows of sound.

        Args:
            mel: (windows, mels, frames): log-mel spectrograms of 30 s, or less.
            ask: Called between the parts of a layer; what it raises ends the work.

        Returns:
            (windows, positions, width).
        """
        ask()
        x = F.gelu(self._convolve(mel.to(self.device, self.dtype), self._conv1, stride=1))
        ask()
        x = F.gelu(self._convolve(x, self._conv2, stride=2)).permute(0, 2, 1)
        x = (x + self._audio_places[: x.shape[1]]).to(x.dtype)
        for block in self._audio_blocks:
            ask()
            one = block.attention
            y = one.norm(x)
            query, key, value = (one.split(f(y)) for f in (one.query, one.key, one.value))
            ask()
            y = F.scaled_dot_product_attention(query, key, value)
            ask()
            x = x + one.out(join(y))
            x = x + self._perceive(block, x, ask)
        return self._audio_norm(x)

    def _convolve(self, x: torch.Tensor, layer: Affine, stride: int) -> torch.Tensor:
        return F.conv1d(x, layer.weight, layer.bias, stride=stride, padding=1)

    def _perceive(self, block: Block, x: torch.Tensor, ask: Ask) -> torch.Tensor:
        """Compute a layer's perceptron; of large ones some positions at a time, to ask between."""
        products = 2 * block.up.weight.numel() * x.shape[0]
        step = max(64, _PRODUCTS // products)
        if step >= x.shape[1]:
            ask()
            return block.down(F.gelu(block.up(block.norm(x))))
        pieces = []
        for piece in torch.split(block.norm(x), step, dim=1):
            ask()
            pieces.append(block.down(F.gelu(block.up(piece))))
        return torch.cat(pieces, dim=1)

    def listen(self, features: torch.Tensor, ask: Ask) -> Speech:
        """Make the features of windows ready for the decoder."""
        keys, values = [], []
        for block in self._text_blocks:
            ask()
            one = cross_of(block)
            keys.append(one.split(one.key(features)).contiguous())
            values.append(one.split(one.value(features)).contiguous())
        return Speech(keys, values)

    def begin(self, rows: int, room: int) -> TextState:
        """
        Begin texts.

        Args:
            rows: How many.
            room: How many tokens they may have.
        """
        heads = self.dims.n_text_head
        shape = (self.dims.n_text_layer, rows, heads, room, self.dims.n_text_state // heads)
        keys = torch.empty(shape, device=self.device, dtype=self.dtype)
        return TextState(keys, torch.empty_like(keys))

    def read(
        self, tokens: torch.Tensor, state: TextState, speech: Speech, ask: Ask
    ) -> torch.Tensor:
        """
        Read tokens on; the state gains them.

        Args:
            tokens: (rows, tokens); several tokens at the beginning of a text alone. The rows of
                one window stand together, as many for each window.
            state: What was read before.
            speech: The windows.
            ask: Called once a layer; what it raises ends the work, and the state with it.

        Returns:
            (rows, tokens, width), for `score`.
        """
        rows, count = tokens.shape
        begin, end = state.length, state.length + count
        x = (self._embedding[tokens] + self._text_places[begin:end]).to(self.dtype)
        group = rows // speech.count
        for layer, block in enumerate(self._text_blocks):
            ask()
            one = block.attention
            y = one.norm(x)
            keys, values = state.keys[layer], state.values[layer]
            keys[:, :, begin:end] = one.split(one.key(y))
            values[:, :, begin:end] = one.split(one.value(y))
            attended = F.scaled_dot_product_attention(
                one.split(one.query(y)),
                keys[:, :, :end],
                values[:, :, :end],
                is_causal=count > 1,
            )
            x = x + one.out(join(attended))
            cross = cross_of(block)
            # The rows of a window are one query of several positions: its keys are read once.
            query = cross.query(cross.norm(x)).view(speech.count, group * count, -1)
            attended = F.scaled_dot_product_attention(
                cross.split(query), speech.keys[layer], speech.values[layer]
            )
            x = x + cross.out(join(attended).view(rows, count, -1))
            x = x + block.down(F.gelu(block.up(block.norm(x))))
        state.length = end
        return self._text_norm(x)

    def score(self, x: torch.Tensor) -> torch.Tensor:
        """Give the score of every token, in float32: (rows, width) becomes (rows, vocabulary)."""
        return F.linear(x, self._embedding).float()

    def attend(
        self,
        tokens: torch.Tensor,
        speech: Speech,
        heads: Sequence[tuple[int, int]],
        ask: Ask,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Read a whole text, and say what some heads attended to.

        Computed in plain steps as whisper does for the times of words: where it attends to is
        lost in the fused attention.

        Args:
            tokens: (tokens,).
            speech: One window.
            heads: Layer and head of each.
            ask: Called once a layer; what it raises ends the work.

        Returns:
            (tokens, width), for `score`; and (heads, tokens, positions) before their softmax.
        """
        count = len(tokens)
        mask = torch.full((count, count), -torch.inf, device=self.device).triu_(1)
        x = (self._embedding[tokens] + self._text_places[:count]).to(self.dtype)[None]
        found: dict[int, torch.Tensor] = {}
        for layer, block in enumerate(self._text_blocks):
            ask()
            one = block.attention
            y = one.norm(x)
            query, key, value = (one.split(f(y)) for f in (one.query, one.key, one.value))
            x = x + one.out(join(weigh(match(query, key) + mask, value)))
            cross = cross_of(block)
            query = cross.split(cross.query(cross.norm(x)))
            matches = match(query, speech.keys[layer])
            x = x + cross.out(join(weigh(matches, speech.values[layer])))
            found[layer] = matches[0]
            x = x + block.down(F.gelu(block.up(block.norm(x))))
        chosen = torch.stack([found[layer][head] for layer, head in heads])
        return self._text_norm(x)[0], chosen
