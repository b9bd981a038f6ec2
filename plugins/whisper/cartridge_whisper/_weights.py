"""The weights of a model in any of the three formats, as whisper names them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import itertools
from typing import TYPE_CHECKING, cast

import attrs
import torch  # noqa: TID253 -- one of the private files that import the backend
import whisper  # noqa: TID253 -- as above
from safetensors import safe_open

from cartridge_core.errors import LoadError, VerificationError
from cartridge_whisper.ct2 import read_variables
from cartridge_whisper.dimensions import Dimensions
from cartridge_whisper.files import Format
from cartridge_whisper.names import from_ct2, from_hugging_face

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cartridge_whisper.ct2 import Variable
    from cartridge_whisper.files import ModelFiles

__all__ = ["Checkpoint", "load_checkpoint"]

_BLOCK_BYTES = 1 << 24
_SHOWN = 3
_FLOATS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_INTEGERS = {"int8": torch.int8, "int16": torch.int16, "int32": torch.int32}

# Nothing public has these. In the address of a file is its SHA-256.
_MODELS = cast("Mapping[str, str]", whisper._MODELS)
_HEADS = cast("Mapping[str, bytes]", whisper._ALIGNMENT_HEADS)
_DIGESTS = {name: address.split("/")[-2] for name, address in _MODELS.items()}


@attrs.frozen(eq=False)
class Checkpoint:
    """A model's weights, all of them, each in its shape."""

    dims: Dimensions
    tensors: dict[str, torch.Tensor]

    heads: tuple[tuple[int, int], ...]
    """Layer and head of the cross-attentions that follow the speech, for the times of words."""


def load_checkpoint(files: ModelFiles, ask: Callable[[], None]) -> Checkpoint:
    """
    Read a model's weights.

    Args:
        files: Where they are.
        ask: Called now and then; what it raises ends the work.

    Raises:
        LoadError: They are not those of a Whisper model, or cannot be read.

        VerificationError: A file has the name of one of OpenAI's, and not its SHA-256.
    """
    load = {
        Format.WHISPER: _load_whisper,
        Format.HUGGING_FACE: _load_hugging_face,
        Format.CTRANSLATE2: _load_ct2,
    }[files.format]
    found = load(files, ask)
    _check_shapes(files.path, found)
    return found


def _load_whisper(files: ModelFiles, ask: Callable[[], None]) -> Checkpoint:
    (file,) = files.weights
    name = _check_digest(file, ask)
    document: object = torch.load(file, map_location="cpu", weights_only=True)
    match document:
        case {"dims": dict(sizes), "model_state_dict": dict(tensors)}:
            dims = Dimensions(**cast("Mapping[str, int]", sizes))
            return Checkpoint(dims, cast("dict[str, torch.Tensor]", tensors), _heads(dims, name))
    what = "it has no dims and model_state_dict, as whisper's checkpoints have"
    raise _refused(file, what)


def _check_digest(file: Path, ask: Callable[[], None]) -> str | None:
    """Give the name of OpenAI's model whose file this is; None for anybody else's."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            ask()
            digest.update(block)
    found = digest.hexdigest()
    expected = _DIGESTS.get(file.stem)
    if expected is not None and found != expected:
        msg = (
            f"model {file}: {file.stem} of OpenAI has the SHA-256 {expected}, this file {found}; "
            "download it again, or give a model of your own another name"
        )
        raise VerificationError(msg)
    return next((name for name, known in _DIGESTS.items() if known == found), None)


def _load_hugging_face(files: ModelFiles, ask: Callable[[], None]) -> Checkpoint:
    config = files.read_config("config.json")
    state = _integer(files, config, "d_model")
    dims = Dimensions(
        n_mels=_integer(files, config, "num_mel_bins"),
        n_audio_ctx=_integer(files, config, "max_source_positions"),
        n_audio_state=state,
        n_audio_head=_integer(files, config, "encoder_attention_heads"),
        n_audio_layer=_integer(files, config, "encoder_layers"),
        n_vocab=_integer(files, config, "vocab_size"),
        n_text_ctx=_integer(files, config, "max_target_positions"),
        n_text_state=state,
        n_text_head=_integer(files, config, "decoder_attention_heads"),
        n_text_layer=_integer(files, config, "decoder_layers"),
    )
    tensors: dict[str, torch.Tensor] = {}
    for file in files.weights:
        with safe_open(file, framework="pt") as stored:
            for name, new in from_hugging_face(stored.keys()).items():
                ask()
                tensors[new] = stored.get_tensor(name)
    said = files.read_config("generation_config.json").get("alignment_heads")
    return Checkpoint(dims, tensors, _pairs(said) or _heads(dims, None))


def _integer(files: ModelFiles, config: Mapping[str, object], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _refused(files.path, f"its config.json says {name} = {value!r}; download it again")
    return value


def _load_ct2(files: ModelFiles, ask: Callable[[], None]) -> Checkpoint:
    (file,) = files.weights
    variables = read_variables(file)
    parts = from_ct2(variables)
    lacking = sorted({part.source for part in parts.values()} - variables.keys())
    if lacking:
        raise _refused(file, f"it lacks {_some(lacking)}; it is no Whisper model")
    quantised = sorted(
        part.source for part in parts.values() if variables[part.source].dtype not in _FLOATS
    )
    if quantised:
        kind = variables[quantised[0]].dtype
        what = f"its weights are quantised to {kind}; take the float16 or float32 ones"
        raise _refused(file, what)
    arrays = {}
    for name in {part.source for part in parts.values()} | {"encoder/num_heads"}:
        ask()
        arrays[name] = _read_array(file, variables[name])
    tensors = {}
    for name, part in parts.items():
        whole = arrays[part.source]
        rows = whole.shape[0] // part.count
        tensors[name] = whole[part.index * rows : (part.index + 1) * rows]
        if name.endswith(".key.weight"):
            _check_no_bias(file, arrays, part.source, part.index, rows)
    heads = int(arrays["encoder/num_heads"].item())
    said = files.read_config("config.json").get("alignment_heads")
    dims = _measure(tensors, heads)
    return Checkpoint(dims, tensors, _pairs(said) or _heads(dims, None))


def _check_no_bias(
    file: Path, arrays: Mapping[str, torch.Tensor], source: str, index: int, rows: int
) -> None:
    bias = arrays.get(source.removesuffix("weight") + "bias")
    if bias is not None and bool(bias[index * rows : (index + 1) * rows].any()):
        raise _refused(file, f"{source} has a bias for keys, which Whisper has not")


def _read_array(file: Path, variable: Variable) -> torch.Tensor:
    dtype = {**_FLOATS, **_INTEGERS}[variable.dtype]
    with file.open("rb") as stream:
        stream.seek(variable.offset)
        data = bytearray(stream.read(variable.count * dtype.itemsize))
    return torch.frombuffer(data, dtype=dtype).reshape(variable.shape)


def _measure(tensors: Mapping[str, torch.Tensor], heads: int) -> Dimensions:
    vocabulary, state = tensors["decoder.token_embedding.weight"].shape
    audio = tensors["encoder.positional_embedding"].shape

    def layers(side: str) -> int:
        numbers = itertools.count()
        return next(n for n in numbers if f"{side}.blocks.{n}.mlp_ln.bias" not in tensors)

    return Dimensions(
        n_mels=tensors["encoder.conv1.weight"].shape[1],
        n_audio_ctx=audio[0],
        n_audio_state=audio[1],
        n_audio_head=heads,
        n_audio_layer=layers("encoder"),
        n_vocab=vocabulary,
        n_text_ctx=tensors["decoder.positional_embedding"].shape[0],
        n_text_state=state,
        n_text_head=heads,
        n_text_layer=layers("decoder"),
    )


def _pairs(value: object) -> tuple[tuple[int, int], ...]:
    """Read a list of [layer, head]; empty where it is none."""
    if not isinstance(value, list):
        return ()
    found = [tuple(one) for one in cast("list[list[int]]", value)]
    return cast("tuple[tuple[int, int], ...]", tuple(found))


def _heads(dims: Dimensions, name: str | None) -> tuple[tuple[int, int], ...]:
    """
    Give the heads that follow the speech.

    Those that OpenAI publishes for the model of this name, or else for its models of these sizes;
    for other sizes all heads of the upper half of the layers, as whisper does.
    """
    layers, heads = dims.n_text_layer, dims.n_text_head
    flags = None if name is None else _flags(_HEADS[name])
    if flags is None:
        # large and turbo are other names of the last ones; the earlier large ones differ from one
        # another in nothing but the weights.
        same = [
            published
            for known, text in _HEADS.items()
            if len(published := _flags(text)) == layers * heads
            and known.endswith(".en") is not dims.is_multilingual
        ]
        flags = same[-1] if same else None
    if flags is None:
        flags = [place >= layers // 2 * heads for place in range(layers * heads)]
    return tuple(divmod(place, heads) for place, is_chosen in enumerate(flags) if is_chosen)


def _flags(text: bytes) -> list[bool]:
    return [bool(byte) for byte in gzip.decompress(base64.b85decode(text))]


def _check_shapes(path: Path, checkpoint: Checkpoint) -> None:
    """Compare names and shapes with those of whisper's own model of these sizes."""
    dims = checkpoint.dims
    expected = dims.shapes()
    found = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    wrong = sorted(name for name in expected | found if expected.get(name) != found.get(name))
    if wrong:
        what = (
            f"its weights are not those of a Whisper model: {len(wrong)} are missing, of another "
            f"shape or unknown ({_some(wrong)}); download it again"
        )
        raise _refused(path, what)
    pairs = [(layer, head) for layer, head in checkpoint.heads]
    if any(layer >= dims.n_text_layer or head >= dims.n_text_head for layer, head in pairs):
        raise _refused(path, "its alignment_heads name heads that it has not; download it again")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _refused(path: Path, what: str) -> LoadError:
    msg = f"model {path}: {what}"
    return LoadError(msg)
