"""One model and many callers; stopping; progress; what is imported and printed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from cartridge_core.context import Context
from cartridge_core.errors import (
    BackendError,
    CancelledError,
    InvalidArgumentError,
    LoadError,
)
from cartridge_core.progress import Log, Progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_whisper.model import SpeechModel
    from conftest import Transcript

    Sound = NDArray[np.float32]
    Open = Callable[..., SpeechModel]
    Transcribe = Callable[..., Transcript]
    Noise = Callable[..., Sound]


class Impatient(Context):
    """Is cancelled at the question of a number; counts them."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def check_cancelled(self) -> None:
        """Count."""
        self.left -= 1
        if self.left == 0:
            self.cancel()
        super().check_cancelled()


def test_many_callers_get_what_each_gets_alone(
    random_model: SpeechModel, transcribe: Transcribe, speech_like: Noise
) -> None:
    """Random draws and words included; each caller has other arguments."""
    jobs: list[tuple[Sound, dict[str, object]]] = [
        (speech_like(3.0, 1), {"language": "de", "temperature": 0.6, "seed": 5}),
        (speech_like(4.0, 2), {"language": "en", "temperature": 0.0, "beam_size": 3}),
        (speech_like(2.0, 3), {"language": "fr", "temperature": [0.0, 0.9]}),
        (speech_like(3.0, 4), {"language": "en", "temperature": 0.0, "word_timestamps": True}),
    ]

    def run(job: tuple[Sound, dict[str, object]]) -> Transcript:
        return transcribe(random_model, job[0], **job[1])

    alone = [run(job) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, jobs * 3))
    assert together == alone * 3


def test_a_seed_decides_what_is_drawn(
    random_model: SpeechModel, transcribe: Transcribe, speech_like: Noise
) -> None:
    """The same one gives the same text, whatever torch's own generator does."""
    import torch

    sound, more = speech_like(3.0), {"language": "de", "temperature": 1.0}
    texts = []
    for seed in (1, 1, 2):
        torch.manual_seed(99)
        texts.append(transcribe(random_model, sound, seed=seed, **more).text)
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("at", [1, 8, 12, 20, 40, 60])
def test_a_cancel_is_obeyed_between_the_parts_of_a_layer(
    random_model: SpeechModel, transcribe: Transcribe, speech_like: Noise, at: int
) -> None:
    """In the spectrogram, the encoder and the decoder; the model works on afterwards."""
    sound, more = speech_like(3.0), {"language": "de", "temperature": 0.0}
    expected = transcribe(random_model, sound, **more)
    with pytest.raises(CancelledError):
        transcribe(random_model, sound, context=Impatient(at), **more)
    assert transcribe(random_model, sound, **more) == expected


@pytest.mark.integration
def test_a_cancel_of_a_real_model_comes_soon(
    tiny_en: SpeechModel, transcribe: Transcribe, speech_like: Noise
) -> None:
    """Questions are less than a quarter of a second of this thread's work apart."""
    gaps: list[float] = []

    class Watch(Context):
        last = time.thread_time()

        def check_cancelled(self) -> None:
            now = time.thread_time()
            gaps.append(now - self.last)
            self.last = now
            super().check_cancelled()

    transcribe(tiny_en, speech_like(3.0), context=Watch(), temperature=0.0)
    assert len(gaps) > 50
    assert max(gaps[1:]) < 0.25


def test_cancelling_from_another_thread(
    random_model: SpeechModel, transcribe: Transcribe, speech_like: Noise
) -> None:
    """A sound of ten minutes is left within moments."""
    context = Context()
    timer = threading.Timer(0.3, context.cancel)
    timer.start()
    start_s = time.monotonic()
    with pytest.raises(CancelledError):
        transcribe(random_model, speech_like(600.0), context=context, language="de")
    timer.join()
    assert time.monotonic() - start_s < 20


def test_progress_is_the_place_in_the_sound(
    scripted: SpeechModel, transcribe: Transcribe, speech_like: Noise
) -> None:
    """It never goes back, and says how many seconds are done."""
    said: list[Progress | Log] = []
    more = {"language": "en", "condition_on_previous_text": False}
    transcribe(scripted, speech_like(65.0), context=Context(said.append), **more)
    progress = [item for item in said if isinstance(item, Progress)]
    fractions = [item.fraction for item in progress]
    assert fractions == sorted(fractions)
    assert "30.0 of 65.0 s done" in [item.message for item in progress]
    assert 0.9 < fractions[-1] < 1


def test_several_windows_at_a_time_say_the_same(
    scripted: SpeechModel, transcribe: Transcribe, speech_like: Noise
) -> None:
    """A model whose text does not depend on the sound says it once in each window."""
    more = {"language": "en", "condition_on_previous_text": False}
    one = transcribe(scripted, speech_like(100.0), **more)
    four = transcribe(scripted, speech_like(100.0), batch_windows=4, **more)
    assert len(one.segments) == 4
    assert four.text.startswith(one.text)
    times = [time for part in four.segments for time in (part["start_s"], part["end_s"])]
    assert times == sorted(times)


def test_several_windows_are_cut_where_it_is_quiet(noise: Noise) -> None:
    """The cut lies in the pause, in the last third of the window."""
    import numpy as np

    from cartridge_whisper.clips import Piece
    from cartridge_whisper.pieces import _split

    sound = noise(70.0, -20.0)
    for second in (24, 51):
        sound[second * 16_000 : second * 16_000 + 8_000] = 0.0
    pieces = [Piece(*span) for span in _split(np.ascontiguousarray(sound), 0, 7_000)]
    cuts = [piece.end_frame / 100 for piece in pieces]
    assert [round(cut - 0.25) for cut in cuts] == [24, 51, 70]


def test_error_an_english_model_knows_english_alone(
    english_file: Path, open_model: Open, transcribe: Transcribe, speech_like: Noise
) -> None:
    """Another language, and translating, are refused by name; the language is English."""
    model, sound = open_model(english_file), speech_like(2.0)
    with pytest.raises(InvalidArgumentError, match="language: must be one that random-english"):
        transcribe(model, sound, language="de")
    with pytest.raises(InvalidArgumentError, match="cannot translate"):
        transcribe(model, sound, task="translate")
    assert transcribe(model, sound, language="en", temperature=0.0).language == "en"


def test_error_weights_that_are_no_numbers(
    random_file: Path, tmp_path: Path, open_model: Open, transcribe: Transcribe, speech_like: Noise
) -> None:
    """A damaged model is not taken for one that says nothing."""
    import torch

    document = torch.load(random_file, weights_only=True)
    document["model_state_dict"]["decoder.ln.weight"][0] = float("nan")
    torch.save(document, tmp_path / "damaged.pt")
    model = open_model(tmp_path / "damaged.pt")
    for more in ({}, {"beam_size": 2}, {"temperature": 0.5}):
        with pytest.raises(BackendError, match="not finite"):
            transcribe(model, speech_like(2.0), language="de", **more)


def test_error_a_device_that_is_not_there(random_file: Path, open_model: Open) -> None:
    """The message says what to take."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(LoadError, match="take device='cpu'"):
        open_model(random_file, device="cuda")


def test_threads_are_left_as_they_were(
    random_file: Path, open_model: Open, transcribe: Transcribe, speech_like: Noise
) -> None:
    """A call uses its own number of threads, and the program's stays."""
    import torch

    before = torch.get_num_threads()
    transcribe(open_model(random_file, threads=before + 1), speech_like(1.0), temperature=0.0)
    assert torch.get_num_threads() == before


CHILD = """
import sys
sys.path.insert(0, sys.argv[2])  # a triton that can be imported
import numpy as np
from cartridge_core.context import Context
from cartridge_core.pack import Pack
from cartridge_whisper import plugin
(d,) = [d for d in plugin.cartridge_descriptors() if d.id == "whisper-transcription"]
options = {a.name: a.default for a in d.caps[0].open_args}
defaults = {a.name: a.default for a in d.caps[0].session_args if a.has_default}
model = plugin.cartridge_open(d.id, Pack.from_path(sys.argv[1]), options, Context())
sound = np.random.default_rng(0).standard_normal(48_000).astype("float32")
sound *= np.where(np.arange(48_000) // 4_000 % 2, 0.1, 0.001)
more = {"language": "en", "word_timestamps": True}
session = plugin.cartridge_session_begin(model, str(d.caps[0].urn), {**defaults, **more}, Context())
assert plugin.cartridge_infer(session, sound).payload["words"]
plugin.cartridge_close(model)
assert "triton" not in sys.modules
"""


def test_nothing_is_printed_and_triton_not_imported(scripted_file: Path, tmp_path: Path) -> None:
    """Loading and transcribing leave stdout and stderr empty, and triton where it is."""
    (tmp_path / "triton.py").write_text("")
    command = [sys.executable, "-W", "default", "-c", CHILD, str(scripted_file), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
