"""
Write a checkpoint of openai-whisper in the formats of transformers and CTranslate2, for tests.

    python whisper_formats.py model.pt hugging-face FOLDER
    python whisper_formats.py model.pt ctranslate2 FOLDER
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import torch
from safetensors.torch import save_file

from cartridge_whisper.names import from_ct2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Tensors = Mapping[str, torch.Tensor]

_SHORT = {
    ".blocks.": ".layers.",
    ".positional_embedding": ".embed_positions.weight",
    ".token_embedding.": ".embed_tokens.",
    "encoder.ln_post.": "encoder.layer_norm.",
    "decoder.ln.": "decoder.layer_norm.",
    ".cross_attn_ln.": ".encoder_attn_layer_norm.",
    ".attn_ln.": ".self_attn_layer_norm.",
    ".mlp_ln.": ".final_layer_norm.",
    ".cross_attn.": ".encoder_attn.",
    ".attn.": ".self_attn.",
    ".query.": ".q_proj.",
    ".key.": ".k_proj.",
    ".value.": ".v_proj.",
    ".out.": ".out_proj.",
    ".mlp.0.": ".fc1.",
    ".mlp.2.": ".fc2.",
}
_CT2_DTYPES = {torch.float32: 0, torch.int8: 1, torch.int16: 2, torch.float16: 4}


def main() -> None:
    """Write one."""
    source, kind, folder = sys.argv[1:]
    write: Callable[[Path, Path], Path] = (
        write_hugging_face if kind == "hugging-face" else write_ct2
    )
    write(Path(source), Path(folder))


def write_hugging_face(source: Path, folder: Path, *, shards: int = 1) -> Path:
    """Write a folder as transformers saves it; its alignment heads are the first layer's."""
    dims, tensors = _read(source)
    folder.mkdir(parents=True, exist_ok=True)
    named: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        new = name
        for ours, theirs in _SHORT.items():
            new = new.replace(ours, theirs)
        named[f"model.{new}"] = tensor.contiguous()
    names = sorted(named)
    if shards == 1:
        save_file(named, folder / "model.safetensors", {"format": "pt"})
    else:
        where = {}
        for number in range(shards):
            file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
            part = names[number::shards]
            save_file({name: named[name] for name in part}, folder / file, {"format": "pt"})
            where.update(dict.fromkeys(part, file))
        index = {"metadata": {}, "weight_map": where}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {
        "model_type": "whisper",
        "num_mel_bins": dims["n_mels"],
        "max_source_positions": dims["n_audio_ctx"],
        "d_model": dims["n_audio_state"],
        "encoder_attention_heads": dims["n_audio_head"],
        "encoder_layers": dims["n_audio_layer"],
        "vocab_size": dims["n_vocab"],
        "max_target_positions": dims["n_text_ctx"],
        "decoder_attention_heads": dims["n_text_head"],
        "decoder_layers": dims["n_text_layer"],
    }
    (folder / "config.json").write_text(json.dumps(config))
    heads = {"alignment_heads": [[0, head] for head in range(dims["n_text_head"])]}
    (folder / "generation_config.json").write_text(json.dumps(heads))
    return folder


def write_ct2(source: Path, folder: Path, *, quantised: bool = False) -> Path:
    """
    Write a folder as CTranslate2 saves it.

    Args:
        source: The checkpoint.
        folder: Where to.
        quantised: Store whole numbers, as its int8 models do; the values mean nothing then.
    """
    dims, tensors = _read(source)
    folder.mkdir(parents=True, exist_ok=True)
    layers = {side: dims[f"n_{short}_layer"] for side, short in _SIDES.items()}
    names = [f"{side}/layer_{n}/" for side, count in layers.items() for n in range(count)]
    arrays: dict[str, torch.Tensor] = {
        f"{side}/num_heads": torch.tensor(dims["n_text_head"], dtype=torch.int16) for side in layers
    }
    rows: dict[str, dict[int, torch.Tensor]] = {}
    counts: dict[str, int] = {}
    for name, part in from_ct2(names).items():
        rows.setdefault(part.source, {})[part.index] = tensors[name]
        counts[part.source] = part.count
    for place, pieces in rows.items():
        missing = torch.zeros_like(next(iter(pieces.values())))
        arrays[place] = torch.cat([pieces.get(n, missing) for n in range(counts[place])])
        if counts[place] == 1:
            arrays[place] = pieces[0]
    with (folder / "model.bin").open("wb") as stream:
        stream.write(struct.pack("<I", 6))
        _write_text(stream, "WhisperSpec")
        stream.write(struct.pack("<II", 3, len(arrays)))
        for place, array in arrays.items():
            is_weight = quantised and place.endswith("/weight")
            _write_array(stream, place, array.to(torch.int8) if is_weight else array)
        stream.write(struct.pack("<I", 0))
    config = {"alignment_heads": [[0, head] for head in range(dims["n_text_head"])]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


_SIDES = {"encoder": "audio", "decoder": "text"}


def _read(source: Path) -> tuple[Mapping[str, int], Tensors]:
    document: object = torch.load(source, weights_only=True)
    found = cast("Mapping[str, object]", document)
    return (
        cast("Mapping[str, int]", found["dims"]),
        cast("Tensors", found["model_state_dict"]),
    )


def _write_text(stream: BinaryIO, text: str) -> None:
    data = text.encode() + b"\0"
    stream.write(struct.pack("<H", len(data)) + data)


def _write_array(stream: BinaryIO, name: str, array: torch.Tensor) -> None:
    _write_text(stream, name)
    data = array.contiguous().numpy().tobytes()
    shape = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
    stream.write(shape + struct.pack("<BI", _CT2_DTYPES[array.dtype], len(data)) + data)


if __name__ == "__main__":
    main()
