"""The sizes of a model, and the weights that a model of these sizes has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

    Shapes = Iterator[tuple[str, tuple[int, ...]]]

__all__ = ["Dimensions"]


@attrs.frozen(kw_only=True)
class Dimensions:
    """
    The sizes of a model.

    Source: openai-whisper, ``ModelDimensions``.
    """

    n_mels: int
    n_audio_ctx: int
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_vocab: int
    n_text_ctx: int
    n_text_state: int
    n_text_head: int
    n_text_layer: int

    @property
    def is_multilingual(self) -> bool:
        """Whether it knows more than English."""
        return self.n_vocab >= 51865

    @property
    def language_count(self) -> int:
        """How many languages have a token."""
        return self.n_vocab - 51765 - int(self.is_multilingual)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Give the name and the shape of every weight, as whisper's own model has them."""
        return dict(self._weights())

    def _weights(self) -> Shapes:
        audio, text = self.n_audio_state, self.n_text_state
        yield from _affine("encoder.conv1", (audio, self.n_mels, 3))
        yield from _affine("encoder.conv2", (audio, audio, 3))
        yield "encoder.positional_embedding", (self.n_audio_ctx, audio)
        for layer in range(self.n_audio_layer):
            yield from _block(f"encoder.blocks.{layer}", audio, ("attn",))
        yield from _affine("encoder.ln_post", (audio,))
        yield "decoder.token_embedding.weight", (self.n_vocab, text)
        yield "decoder.positional_embedding", (self.n_text_ctx, text)
        for layer in range(self.n_text_layer):
            yield from _block(f"decoder.blocks.{layer}", text, ("attn", "cross_attn"))
        yield from _affine("decoder.ln", (text,))


def _affine(name: str, shape: tuple[int, ...]) -> Shapes:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]


def _block(name: str, width: int, attentions: tuple[str, ...]) -> Shapes:
    for attention in attentions:
        yield from _affine(f"{name}.{attention}_ln", (width,))
        for part in ("query", "value", "out"):
            yield from _affine(f"{name}.{attention}.{part}", (width, width))
        yield f"{name}.{attention}.key.weight", (width, width)
    yield from _affine(f"{name}.mlp_ln", (width,))
    yield from _affine(f"{name}.mlp.0", (4 * width, width))
    yield from _affine(f"{name}.mlp.2", (width, 4 * width))
