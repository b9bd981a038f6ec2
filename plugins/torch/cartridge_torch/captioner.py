"""A model that describes pictures, word by word; the handle of torch-image-captioning."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import InvalidArgumentError, LoadError, StateError
from cartridge_core.results import Result, ResultKind
from cartridge_media.images import read_image
from cartridge_media.texts import check_unicode
from cartridge_torch.growing_text import GrowingText
from cartridge_torch.options import LoadOptions
from cartridge_torch.vision_folder import BLIP, VisionFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from PIL.Image import Image

    from cartridge_core.context import Context
    from cartridge_core.pack import Pack
    from cartridge_torch._blip import Blip

__all__ = ["CaptionSession", "Captioner"]


@attrs.define
class Captioner:
    """A loaded model, which many sessions may use at once."""

    name: str
    _blip: Blip

    @classmethod
    def open(cls, pack: Pack, options: Mapping[str, object], context: Context) -> Captioner:
        """
        Load a pack.

        Raises:
            LoadError: The folder is no BLIP captioner, or the backend or the model cannot be
                loaded.

            CancelledError: The context was cancelled.
        """
        found = VisionFolder.read(pack, BLIP)
        context.progress(0.0, "importing transformers")
        try:
            from cartridge_torch import _blip  # noqa: PLC0415 -- heavy
        except (ImportError, OSError) as exc:
            msg = f"transformers cannot be imported ({exc}); pip install cartridge-torch"
            raise LoadError(msg) from exc
        context.check_cancelled()
        blip = _blip.load(found.path, LoadOptions.read(options), context)
        return cls(found.folder.name, blip)

    def begin(self, cap: str, parameters: Mapping[str, object], context: Context) -> CaptionSession:
        """
        Begin a session.

        Raises:
            InvalidArgumentError: The prompt is no Unicode, or leaves no room for a caption.
        """
        del cap  # there is one
        text = check_unicode(cast("str", parameters.get("prompt", "")), "prompt")
        prompt = self._blip.prompt(text)
        if len(prompt) > self._blip.limit:
            rule = f"at most {self._blip.limit} tokens"
            msg = f"prompt: it has {len(prompt)} tokens, and must have {rule}; shorten it"
            raise InvalidArgumentError(msg, arg="prompt", value=text, rule=rule)
        # The last token is never read, so it needs no room.
        room = self._blip.limit - len(prompt) + 1
        limit = min(cast("int", parameters["max_tokens"]), room)
        return CaptionSession(self._blip, self.name, prompt, context, limit=limit)

    def close(self) -> None:
        """Let go of the weights."""
        self._blip.close()


@attrs.define
class CaptionSession:
    """
    One picture, and the caption that is written for it.

    The work begins with the first pull after flush; before, nothing is due.
    """

    _blip: Blip
    _model_name: str
    _prompt: Sequence[int]
    _context: Context
    _limit: int = attrs.field(kw_only=True)
    _picture: Image | None = attrs.field(init=False, default=None)
    _results: Iterator[Result] | None = attrs.field(init=False, default=None)

    def push(self, chunk: object) -> None:
        """
        Take the picture: a path, the bytes of a file, or an array.

        Raises:
            InvalidArgumentError: It is no picture that can be read.

            StateError: It is the second one.
        """
        if self._picture is not None:
            msg = "push: the session has its picture; begin another session for another one"
            raise StateError(msg)
        self._picture = read_image(chunk)

    def flush(self) -> None:
        """Take no more."""
        if self._picture is not None:
            self._results = self._describe(self._picture)

    def pull(self) -> Result | None:
        """
        Write on, up to the next words; None where the record of the whole was given.

        Raises:
            BackendError: The backend failed.

            CancelledError: The context was cancelled.
        """
        return None if self._results is None else next(self._results, None)

    def end(self) -> None:
        """Let go of the picture."""
        self._picture = self._results = None

    def _describe(self, picture: Image) -> Iterator[Result]:
        """Give the caption as it is written, and the record of the whole."""
        begun_s = time.monotonic()
        # The model's own first token is no part of the text.
        tokens, caption, reason = list(self._prompt[1:]), GrowingText(), "length"
        self._context.progress(0.0, "looking at the picture")
        seen = self._blip.look(picture, self._context)
        unread = self._prompt
        for made in range(self._limit):
            self._tell(made)
            token = self._blip.step(unread, seen, self._context)
            if token == self._blip.end:
                reason = "stop"
                break
            unread = [token]
            tokens.append(token)
            if piece := caption.feed(self._blip.text(tokens)):
                yield Result(ResultKind.PARTIAL, piece)
        if piece := caption.finish(self._blip.text(tokens)):
            yield Result(ResultKind.PARTIAL, piece)
        record = {
            "generated_text": caption.given,
            "tokens_generated": len(tokens) - len(self._prompt) + 1,
            "prompt_tokens": len(self._prompt),
            "finish_reason": reason,
            "generation_time_ms": round((time.monotonic() - begun_s) * 1000),
            "model_name": self._model_name,
        }
        yield Result(ResultKind.FINAL, record)

    def _tell(self, made: int) -> None:
        fraction = (1 + made) / (1 + self._limit)
        self._context.progress(fraction, f"{made} of at most {self._limit} tokens written")
