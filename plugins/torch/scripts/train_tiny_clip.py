"""
Train the tiny CLIP of the tests: ``train_tiny_clip.py FOLDER``; it takes some minutes on one core.

223 thousand parameters, pictures of 32 x 32, in the layout of a sentence-transformers folder.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from coloured_shapes import COLOURS, SHAPES, TRAINED, draw
from transformers import CLIPConfig, CLIPModel, CLIPProcessor, CLIPTokenizer
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main", "train"]

_STEPS = 2000
_PICTURES = 200
"""Of each pair."""

_CAPTIONS = (
    "a {} {}",
    "a photo of a {} {}",
    "a picture of a {} {}",
    "an image of a {} {}",
    "{} {}",
)
_LEARNING_RATE = 2e-3
_TOLD_EVERY = 100


def main(folder: str) -> None:
    """Train, and save into a folder."""
    train(Path(folder), steps=_STEPS)


def train(folder: Path, *, steps: int) -> None:
    """Train for so many steps, and save."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = _tokenizer()
    model = CLIPModel(_config(tokenizer))
    processor = CLIPImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    )
    chance = random.Random(0)  # noqa: S311 -- the same pictures every time
    items = [(pair, draw(*pair, chance)) for pair in TRAINED for _ in range(_PICTURES)]
    pixels = processor([picture for _, picture in items], return_tensors="pt")["pixel_values"]
    places = {pair: [i for i, (one, _) in enumerate(items) if one == pair] for pair in TRAINED}
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, steps)
    model.train()
    for step in range(steps):
        # One picture of each pair: no two of a batch have the same caption.
        batch = [chance.choice(places[pair]) for pair in TRAINED]
        texts = [chance.choice(_CAPTIONS).format(*items[place][0]) for place in batch]
        tokens = tokenizer(texts, padding=True, return_tensors="pt")
        loss = model(**tokens, pixel_values=pixels[batch], return_loss=True).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % _TOLD_EVERY == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    make_whole: Callable[..., CLIPProcessor] = CLIPProcessor
    _save(model, make_whole(image_processor=processor, tokenizer=tokenizer), folder)


def _tokenizer() -> CLIPTokenizer:
    """Make a byte-level tokenizer to which the words of the captions are single tokens."""
    characters = _byte_characters()
    ended = [f"{character}</w>" for character in characters]
    vocabulary = {piece: index for index, piece in enumerate([*characters, *ended])}
    merges: list[tuple[str, str]] = []
    for word in [*COLOURS, *SHAPES, "a", "an", "of", "photo", "picture", "image"]:
        first, *others = [*word[:-1], f"{word[-1]}</w>"]
        for piece in others:
            if (first, piece) not in merges:
                merges.append((first, piece))
            first += piece
            vocabulary.setdefault(first, len(vocabulary))
    for special in ("<|startoftext|>", "<|endoftext|>"):
        vocabulary[special] = len(vocabulary)
    make: Callable[..., CLIPTokenizer] = CLIPTokenizer
    return make(vocab=vocabulary, merges=merges, model_max_length=32)


def _byte_characters() -> list[str]:
    """Give the character that stands for each byte: GPT-2's table, the printable ones first."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + n) for n in range(len(others))]


def _config(tokenizer: CLIPTokenizer) -> CLIPConfig:
    vocabulary = tokenizer.get_vocab()
    start, end = vocabulary["<|startoftext|>"], vocabulary["<|endoftext|>"]
    common = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "projection_dim": 64,
    }
    text = {
        "vocab_size": len(tokenizer),
        "num_hidden_layers": 2,
        "max_position_embeddings": 32,
        "bos_token_id": start,
        "eos_token_id": end,
        "pad_token_id": end,
    }
    vision = {"num_hidden_layers": 3, "image_size": 32, "patch_size": 4}
    return CLIPConfig(
        text_config={**common, **text}, vision_config={**common, **vision}, projection_dim=64
    )


def _save(model: CLIPModel, processor: CLIPProcessor, folder: Path) -> None:
    name = "0_CLIPModel"
    model.train(mode=False)
    model.save_pretrained(folder / name)
    processor.save_pretrained(folder / name)
    kind = "sentence_transformers.models.CLIPModel"
    modules = [{"idx": 0, "name": "0", "path": name, "type": kind}]
    (folder / "modules.json").write_text(json.dumps(modules))
    config = {"similarity_fn_name": "cosine"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))


if __name__ == "__main__":
    main(*sys.argv[1:])
