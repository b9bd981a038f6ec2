"""
Train the tiny BLIP of the tests: ``train_tiny_blip.py FOLDER``; it takes ten minutes on one core.

Captions such as "a red square on a gray background" for pictures of 32 x 32.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from coloured_shapes import COLOURS, SHAPES, TRAINED, draw
from transformers import BertTokenizer, BlipConfig, BlipForConditionalGeneration, BlipProcessor
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main", "train"]

_STEPS = 3000
_BATCH = 64
_PICTURES = 120
"""Of each pair."""

_CAPTION = "a {} {} on a gray background"
_PROMPTED = "a photo of a {} {}"
_PROMPTED_SHARE = 0.3
_LEARNING_RATE = 2e-3
_TOLD_EVERY = 100
_IGNORED = -100


def main(folder: str) -> None:
    """Train, and save into a folder."""
    train(Path(folder), steps=_STEPS)


def train(folder: Path, *, steps: int) -> None:
    """Train for so many steps, and save."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = _tokenizer()
    model = BlipForConditionalGeneration(_config(tokenizer))
    processor = BlipImageProcessorPil(size={"height": 32, "width": 32})
    make_whole: Callable[..., BlipProcessor] = BlipProcessor
    whole = make_whole(processor, tokenizer)
    chance = random.Random(0)  # noqa: S311 -- the same pictures every time
    items = [(pair, draw(*pair, chance)) for pair in TRAINED for _ in range(_PICTURES)]
    pixels = processor([picture for _, picture in items], return_tensors="pt")["pixel_values"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, steps)
    model.train()
    for step in range(steps):
        batch = [chance.randrange(len(items)) for _ in range(_BATCH)]
        texts = [
            (_PROMPTED if chance.random() < _PROMPTED_SHARE else _CAPTION).format(*items[place][0])
            for place in batch
        ]
        tokens = tokenizer(texts, padding=True, return_tensors="pt")
        ids, mask = tokens["input_ids"], tokens["attention_mask"]
        labels = ids.masked_fill(ids == tokenizer.pad_token_id, _IGNORED)
        found = model(pixel_values=pixels[batch], input_ids=ids, attention_mask=mask, labels=labels)
        optimizer.zero_grad()
        found.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % _TOLD_EVERY == 0 or step == steps - 1:
            print(f"step {step}: loss {found.loss.item():.3f}", flush=True)
    model.train(mode=False)
    model.save_pretrained(folder)
    whole.save_pretrained(folder)


def _tokenizer() -> BertTokenizer:
    words = [*COLOURS, *SHAPES, "a", "an", "of", "photo", "picture", "image", "on", "gray"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[ENC]"]
    vocabulary = {word: index for index, word in enumerate([*special, *words, "background"])}
    return BertTokenizer(vocab=vocabulary, do_lower_case=True, model_max_length=32)


def _config(tokenizer: BertTokenizer) -> BlipConfig:
    common = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
    text = {
        "vocab_size": len(tokenizer),
        "encoder_hidden_size": 64,
        "num_hidden_layers": 2,
        "max_position_embeddings": 32,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
        "sep_token_id": tokenizer.sep_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "projection_dim": 64,
    }
    vision = {"num_hidden_layers": 3, "image_size": 32, "patch_size": 4}
    return BlipConfig(
        text_config={**common, **text},
        vision_config={**common, **vision},
        projection_dim=64,
        image_text_hidden_size=64,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
