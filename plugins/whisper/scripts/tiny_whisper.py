"""
Write the smallest Whisper models there are, for tests.

    python tiny_whisper.py FOLDER

Their vocabulary is whisper's, and takes most of the room. The *random* ones say nonsense, the
*scripted* one says one and the same sentence of whatever it hears, on any machine.
"""

from __future__ import annotations

import dataclasses
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from whisper.model import ModelDimensions, Whisper
from whisper.tokenizer import get_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

MULTILINGUAL, ENGLISH = 51_865, 51_864
SENTENCE = " hello world this is a test"
SENTENCE_S = 2.0
_STEP_S = 0.02


def main() -> None:
    """Write one of each."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_random(folder / "random.pt")
    write_random(folder / "random-english.pt", vocabulary=ENGLISH)
    write_scripted(folder / "scripted.pt")


def write_random(
    file: Path, *, vocabulary: int = MULTILINGUAL, width: int = 8, seed: int = 0
) -> Path:
    """Write a model with random weights in float16: two layers, two heads."""
    model = _model(vocabulary, width, layers=2, seed=seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.2)
        model.decoder.positional_embedding.normal_(0, 1.0)
    return _save(model, file, torch.float16)


def write_scripted(file: Path, sentence: str = SENTENCE, end_s: float = SENTENCE_S) -> Path:
    """
    Write a model that says a sentence, from 0 s to a time, and ends.

    Nothing that its layers compute counts, so the next token is decided by the place alone: the
    embedding of the place points to the embedding of the token.
    """
    width = 32
    model = _model(MULTILINGUAL, width, layers=1, seed=0)
    with warnings.catch_warnings():
        # whisper leaves the file of the vocabulary, which it reads once, to be closed.
        warnings.simplefilter("ignore", ResourceWarning)
        tokenizer = get_tokenizer(
            multilingual=True, num_languages=model.num_languages, language="en", task="transcribe"
        )
    zero = tokenizer.timestamp_begin
    end = zero + round(end_s / _STEP_S)
    said = [zero, *tokenizer.encode(sentence), end, tokenizer.eot]
    with torch.no_grad():
        _script(model, said, tokenizer.to_language_token("en"))
    return _save(model, file, torch.float32)


def _script(model: Whisper, said: Sequence[int], language: int) -> None:
    decoder = model.decoder
    directions = torch.randn(decoder.token_embedding.weight.shape)
    directions -= directions.mean(dim=1, keepdim=True)  # the final norm takes the mean off
    directions /= directions.norm(dim=1, keepdim=True)
    decoder.token_embedding.weight.copy_(0.1 * directions)
    for block in [*decoder.blocks, *model.encoder.blocks]:
        outs = [block.attn.out, block.mlp[2]]
        outs += [block.cross_attn.out] if block.cross_attn is not None else []
        for out in outs:
            out.weight.zero_()
            out.bias.zero_()
    decoder.positional_embedding.zero_()
    decoder.positional_embedding[0] = 50 * directions[language]
    # The first token that is chosen follows three: start, language and task.
    for place, token in enumerate(said, start=2):
        decoder.positional_embedding[place] = 50 * directions[token]
    decoder.ln.weight.fill_(60.0)  # so that every choice is certain


def _model(vocabulary: int, width: int, *, layers: int, seed: int) -> Whisper:
    torch.manual_seed(seed)
    sizes = ModelDimensions(
        n_mels=80,
        n_audio_ctx=1500,
        n_audio_state=width,
        n_audio_head=2,
        n_audio_layer=layers,
        n_vocab=vocabulary,
        n_text_ctx=64,
        n_text_state=width,
        n_text_head=2,
        n_text_layer=layers,
    )
    return Whisper(sizes)


def _save(model: Whisper, file: Path, dtype: torch.dtype) -> Path:
    tensors = {name: tensor.to(dtype) for name, tensor in model.state_dict().items()}
    torch.save({"dims": dataclasses.asdict(model.dims), "model_state_dict": tensors}, file)
    return file


if __name__ == "__main__":
    main()
