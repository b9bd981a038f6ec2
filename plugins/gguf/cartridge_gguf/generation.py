"""Text generation: the open model, and the sessions that write with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import StateError
from cartridge_core.urn import CapUrn
from cartridge_gguf.answer import Prompt, write
from cartridge_gguf.engine import TextModel
from cartridge_gguf.files import ModelFiles
from cartridge_gguf.options import LoadOptions
from cartridge_gguf.prompts import Prompter
from cartridge_gguf.request import Request

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from cartridge_core.context import Context
    from cartridge_core.pack import Pack
    from cartridge_core.results import Result

__all__ = ["GenerationSession", "TextGenerator"]


@attrs.frozen
class TextGenerator:
    """A model that writes; the handle of gguf-text-generation."""

    _model: TextModel
    _prompter: Prompter

    @classmethod
    def open(cls, pack: Pack, options: Mapping[str, object], context: Context) -> TextGenerator:
        """
        Load a pack's model.

        Raises:
            LoadError: The pack holds no model, or it cannot be loaded.

            CancelledError: The context was cancelled.
        """
        files = ModelFiles.of(pack, projector=False)
        model = TextModel.open(files, LoadOptions.read(options), context)
        return cls(model, Prompter.of(model))

    def begin(
        self, cap: str, parameters: Mapping[str, object], context: Context
    ) -> GenerationSession:
        """Begin a session of one of the two caps."""
        del parameters  # everything is in the request
        is_constrained = "constrained" in CapUrn.parse(cap).tags
        return GenerationSession(
            self._model, self._prompter, context, is_constrained=is_constrained
        )

    def close(self) -> None:
        """Let go of the model, once what runs has come out."""
        self._model.close()


@attrs.define
class GenerationSession:
    """
    One request, and the text that answers it.

    The work begins with the first pull after flush: a request is a whole, so nothing is due
    before.
    """

    _model: TextModel
    _prompter: Prompter
    _context: Context
    _is_constrained: bool = attrs.field(kw_only=True)
    _request: Request | None = attrs.field(init=False, default=None)
    _results: Generator[Result] | None = attrs.field(init=False, default=None)

    def push(self, chunk: object) -> None:
        """
        Take the request.

        Raises:
            InvalidArgumentError: Its fields do not go together.

            StateError: It is the second one.
        """
        if self._request is not None:
            msg = "push: the session has its request; begin another session for another one"
            raise StateError(msg)
        fields = cast("Mapping[str, object]", chunk)
        self._request = Request.read(fields, is_constrained=self._is_constrained)

    def flush(self) -> None:
        """Take no more."""
        if self._request is not None:
            self._results = self._answer(self._request)

    def pull(self) -> Result | None:
        """
        Write on, up to the next piece of text; None where the record of the whole was given.

        Raises:
            InvalidArgumentError: The request does not go with this model: its prompt is too long,
                or the chat template refuses it.

            BackendError: The model's chat template or the backend failed.

            CancelledError: The context was cancelled.
        """
        return None if self._results is None else next(self._results, None)

    def end(self) -> None:
        """Let go of the model's sequence, wherever the text is."""
        if self._results is not None:
            self._results.close()

    def _answer(self, request: Request) -> Generator[Result]:
        """Give the text as it is written, and the record of the whole."""
        prompt = Prompt(self._prompter.tokens(request, self._context))
        yield from write(self._model, request, prompt, self._context)
