"""A session that makes the text of a sound while it comes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.results import Result, ResultKind
from cartridge_media.pcm import PcmReader
from cartridge_whisper.listening import WhisperRecogniser
from cartridge_whisper.options import Decoding
from cartridge_whisper.patience import Patience
from cartridge_whisper.records import Clock
from cartridge_whisper.segments import SAMPLE_RATE_HZ
from cartridge_whisper.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cartridge_core.context import Context
    from cartridge_whisper._whisper import Whisper
    from cartridge_whisper.stream import News, Voice

__all__ = ["StreamSettings", "StreamingSession"]

_BYTES_DTYPE = "int16"
"""What bytes are where nobody says it: what most microphones and files give."""


@attrs.frozen(kw_only=True)
class StreamSettings:
    """The arguments of a session of the streaming cartridge."""

    decoding: Decoding
    dtype: str | None
    rate_hz: int
    channels: int
    pause_s: float
    step_s: float
    context_s: float
    initial_prompt: str
    conditions: bool
    seed: int

    @classmethod
    def read(cls, parameters: Mapping[str, object]) -> StreamSettings:
        """Take them, checked and with defaults filled in."""
        return cls(
            decoding=Decoding.read(parameters),
            dtype=cast("str | None", parameters.get("dtype")),
            rate_hz=cast("int", parameters["sample_rate_hz"]),
            channels=cast("int", parameters["channels"]),
            pause_s=float(cast("float", parameters["pause_s"])),
            step_s=float(cast("float", parameters["step_s"])),
            context_s=float(cast("float", parameters["context_s"])),
            initial_prompt=cast("str", parameters.get("initial_prompt", "")).strip(),
            conditions=cast("bool", parameters["condition_on_previous_text"]),
            seed=cast("int", parameters["seed"]),
        )


class StreamingSession:
    """
    One sound, and the results that are due.

    Args:
        whisper: The model.
        model_name: Its name, for the records.
        voice: Says how likely speech is; this session's own.
        settings: The arguments.
        context: Says whether to go on.
    """

    def __init__(
        self,
        whisper: Whisper,
        model_name: str,
        voice: Voice,
        settings: StreamSettings,
        context: Context,
    ) -> None:
        self._model_name = model_name
        self._settings = settings
        self._patience = Patience(context)
        self._reader: PcmReader | None = None
        decoding, prompt = settings.decoding, settings.initial_prompt
        tokenizer = whisper.tokenizer(decoding.language, decoding.task)
        self._stream = Stream(
            voice,
            WhisperRecogniser(whisper, decoding, settings.context_s, settings.seed),
            pause_s=settings.pause_s,
            step_s=settings.step_s,
            prompt=tokenizer.encode(f" {prompt}") if prompt else [],
            conditions=settings.conditions,
            clock=time.monotonic,
        )

    def push(self, chunk: object) -> None:
        """
        Take a chunk of raw samples; the work is done in `pull`.

        Raises:
            InvalidArgumentError: It holds none, or others than were declared.
        """
        if self._reader is None:
            settings = self._settings
            # An array says itself what it holds.
            dtype = settings.dtype or str(getattr(chunk, "dtype", _BYTES_DTYPE))
            self._reader = PcmReader(dtype, settings.rate_hz, settings.channels)
        self._stream.add(self._reader.push(chunk))

    def flush(self) -> None:
        """
        Know that nothing follows.

        Raises:
            InvalidArgumentError: The last sample lacks bytes.
        """
        if self._reader is not None:
            self._stream.add(self._reader.flush())
        self._stream.end()

    def pull(self) -> Result | None:
        """
        Work until a result is due, and give it; None where all that was pushed is done.

        Raises:
            BackendError: The model failed.

            CancelledError: The context was cancelled.
        """
        news = self._stream.next(self._patience.ask)
        return None if news is None else self._result(news)

    def _result(self, news: News) -> Result:
        start_s, end_s = news.start / SAMPLE_RATE_HZ, news.end / SAMPLE_RATE_HZ
        payload = None if news.kind is ResultKind.ENDPOINT else self._record(news, start_s, end_s)
        return Result(news.kind, payload, segment=news.segment, start_s=start_s, end_s=end_s)

    def _record(self, news: News, start_s: float, end_s: float) -> dict[str, object]:
        clock, heard = Clock(end_s, start_s), news.heard
        words = [
            {
                "start_s": clock.tell(word.start_s),
                "end_s": clock.tell(word.end_s),
                "text": word.text,
                "probability": word.probability,
                "segment": 0,
            }
            for word in news.words
        ]
        text = "".join(word.text for word in news.words)
        segments = [
            {
                "start_s": words[0]["start_s"],
                "end_s": words[-1]["end_s"],
                "text": text,
                "avg_logprob": heard.avg_logprob,
                "no_speech_prob": heard.no_speech_prob,
            }
            for heard in ([heard] if heard and words else [])
        ]
        return {
            "text": text,
            "committed_text": "".join(word.text for word in news.committed),
            "has_speech": bool(words),
            "language": self._settings.decoding.language or (heard.language if heard else None),
            "segment": news.segment,
            "start_s": start_s,
            "end_s": end_s,
            "duration_s": end_s - start_s,
            "segments": segments,
            "words": words if self._settings.decoding.word_timestamps else [],
            "model_name": self._model_name,
        }
