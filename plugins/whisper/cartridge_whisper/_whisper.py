"""A loaded model, and what can be asked of it."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, cast

import attrs
import torch  # noqa: TID253 -- one of the private files that import the backend
from whisper.tokenizer import get_tokenizer  # noqa: TID253 -- as above

from cartridge_core.errors import BackendError, LoadError
from cartridge_whisper._alignment import align
from cartridge_whisper._decoding import Decoder, detect_language
from cartridge_whisper._mel import log_mel, pad
from cartridge_whisper._network import Network
from cartridge_whisper._rules import Rules
from cartridge_whisper._torch import choose_device, working
from cartridge_whisper._weights import load_checkpoint
from cartridge_whisper.segments import (
    FRAME_SAMPLES,
    FRAMES_PER_SECOND,
    WINDOW_FRAMES,
    cut,
    end_of,
)
from cartridge_whisper.windows import WindowText
from cartridge_whisper.words import place_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_whisper._network import Speech
    from cartridge_whisper.files import ModelFiles
    from cartridge_whisper.options import Decoding, LoadOptions
    from cartridge_whisper.texts import Text
    from cartridge_whisper.tokens import Tokenizer
    from cartridge_whisper.windows import Window

    Ask = Callable[[], None]

__all__ = ["Sound", "Whisper", "load"]

_FAILED = "the model failed"

_AFTER_FRAMES = 200
"""Silence that the encoder hears after a sound, where it does not hear 30 s."""


@attrs.frozen(eq=False)
class Sound:
    """A sound as a model sees it."""

    frames: int
    """Of 10 ms each; what fills no whole one at the end does not count, as in whisper."""

    mel: torch.Tensor
    """(mels, frames and more): silence follows the sound."""


def load(files: ModelFiles, options: LoadOptions, ask: Ask) -> Whisper:
    """
    Load a model; nothing is fetched, and no code of its own is run.

    Raises:
        LoadError: The device is not there, or the files hold no Whisper model.

        VerificationError: A file is not the one that it is called after.
    """
    doing = f"model {files.path}: torch {torch.__version__} cannot load it"
    with working(options.threads, LoadError, doing):
        device = choose_device(options.device)
        checkpoint = load_checkpoint(files, ask)
        # As whisper does by itself: float16 on a GPU, float32 on the CPU.
        dtype = torch.float16 if device.type == "cuda" else torch.float32
        return Whisper(Network(checkpoint, device, dtype), options.threads)


class Whisper:
    """
    A model; any number of threads may use it at once, and each gets what it would get alone.

    Args:
        network: The weights.
        threads: CPU threads of a call; 0 leaves torch's own setting.
    """

    def __init__(self, network: Network, threads: int) -> None:
        self._network = network
        self._threads = threads
        self.is_multilingual: bool = network.dims.is_multilingual
        self.text_context: int = network.dims.n_text_ctx
        with warnings.catch_warnings():
            # whisper leaves the file of the vocabulary, which it reads once, to be closed.
            warnings.simplefilter("ignore", ResourceWarning)
            self.tokenizer()
        self.languages: tuple[str, ...] = (
            self.tokenizer().all_language_codes if self.is_multilingual else ("en",)
        )
        """Codes of the languages that it knows."""

        self._rules = functools.cache(self._make_rules)

    def tokenizer(self, language: str | None = None, task: str = "transcribe") -> Tokenizer:
        """Give the tokenizer of a language and a task."""
        found = get_tokenizer(
            self.is_multilingual,
            num_languages=self._network.dims.language_count,
            language=language,
            task=task,
        )
        return cast("Tokenizer", found)

    def _make_rules(self, language: str | None, task: str) -> Rules:
        return Rules.of(self.tokenizer(language, task), self._network.device)

    def random(self, seed: int) -> torch.Generator:
        """
        Begin what temperatures above 0 draw from.

        Each call has its own, so that calls do not disturb one another.
        """
        return torch.Generator(device=self._network.device).manual_seed(seed)

    def hear(self, samples: NDArray[np.float32], ask: Ask, *, least_s: float = 0.0) -> Sound:
        """
        Make a sound ready.

        Args:
            samples: Mono, 16 kHz, full scale 1.
            ask: Called now and then; what it raises ends the work.
            least_s: How many seconds are needed; silence follows where the sound is shorter.

        Raises:
            BackendError: torch failed.
        """
        least = round(least_s * FRAMES_PER_SECOND)
        with working(self._threads, BackendError, _FAILED):
            mel = log_mel(samples, self._network.dims.n_mels, least, ask)
        return Sound(len(samples) // FRAME_SAMPLES, mel)

    def detect(self, sound: Sound, ask: Ask) -> dict[str, float]:
        """
        Say how likely each language is, by the first 30 s.

        Args:
            sound: `hear` with ``least_s=30.0``.
            ask: Called many times a second; what it raises ends the work.

        Returns:
            Probabilities by code; they sum to 1. Of an English model all of it is English's.

        Raises:
            BackendError: The model failed.
        """
        if not self.is_multilingual:
            return {"en": 1.0}
        with working(self._threads, BackendError, _FAILED):
            speech = self._listen([pad(sound.mel)], ask)
            return detect_language(self._network, self.tokenizer(), speech, ask)

    def decode(
        self,
        sound: Sound,
        windows: Sequence[Window],
        options: Decoding,
        random: torch.Generator,
        ask: Ask,
        *,
        prompt: Sequence[int] = (),
        draft: Sequence[int] = (),
        to_the_end: bool = False,
        least_frames: int = WINDOW_FRAMES,
    ) -> list[WindowText]:
        """
        Make texts of windows, all of them at once.

        The encoder sees every window once, whatever is tried afterwards.

        Args:
            sound: What they are windows of.
            windows: The windows.
            options: How to decode; the language is known.
            random: Of temperatures above 0.
            ask: Called many times a second; what it raises ends the work.
            prompt: Tokens of the text before every window.
            draft: What the text of a single window may begin with; saves time where it does.
            to_the_end: Whether no window follows that could begin inside one of them.
            least_frames: How much the encoder hears at least, silence after the sound included.

        Returns:
            What is said in each.

        Raises:
            BackendError: The model failed.
        """
        tokenizer = self.tokenizer(options.language, options.task)
        with working(self._threads, BackendError, _FAILED):
            longest = max(one.frames for one in windows)
            heard = min(WINDOW_FRAMES, max(least_frames, longest + _AFTER_FRAMES))
            heard += heard % 2  # the encoder takes two at a time
            mels = [pad(sound.mel[:, one.first_frame : one.end_frame], heard) for one in windows]
            speech = self._listen(mels, ask)
            decoder = Decoder(
                network=self._network,
                tokenizer=tokenizer,
                rules=self._rules(options.language, options.task),
                options=options,
                random=random,
                ask=ask,
                draft=draft,
            )
            texts = decoder.decode(speech, prompt)
            return [
                self._cut(window, text, speech.select([row]), options, tokenizer, ask, to_the_end)
                for row, (window, text) in enumerate(zip(windows, texts, strict=True))
            ]

    def _listen(self, mels: Sequence[torch.Tensor], ask: Ask) -> Speech:
        batch = torch.stack(list(mels))
        # On the CPU several at once are no faster, need more memory, and answer a cancel later.
        size = 1 if self._network.device.type == "cpu" else len(batch)
        features = torch.cat([self._network.encode(one, ask) for one in torch.split(batch, size)])
        return self._network.listen(features, ask)

    def _cut(
        self,
        window: Window,
        text: Text,
        speech: Speech,
        options: Decoding,
        tokenizer: Tokenizer,
        ask: Ask,
        to_the_end: bool,
    ) -> WindowText:
        if text.is_silence(options):
            return WindowText(text, (), window.frames)
        found = cut(text, window.first_frame, window.frames, tokenizer, to_the_end=to_the_end)
        frames = found.frames
        if options.word_timestamps:
            words = [
                token for one in found.segments for token in one.tokens if token < tokenizer.eot
            ]
            if words:
                aligned = align(self._network, tokenizer, speech, words, window.frames, ask)
                place_words(
                    found.segments, aligned, window.first_frame, window.last_speech_s, tokenizer
                )
            end_s = end_of(found.segments)
            if not found.is_whole and end_s > window.start_s:
                frames = round(end_s * FRAMES_PER_SECOND) - window.first_frame
        return WindowText(text, tuple(found.segments), frames)

    def close(self) -> None:
        """Let go of the weights, and of the memory that torch keeps for them on a GPU."""
        device = self._network.device
        del self._network, self._rules
        if device.type == "cuda":
            torch.cuda.empty_cache()
