"""Picture descriptions: the open model with its projector, and the sessions that look."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.context import Context
from cartridge_core.errors import InvalidArgumentError, StateError
from cartridge_core.progress import Progress
from cartridge_gguf.answer import Prompt, write
from cartridge_gguf.engine import TextModel
from cartridge_gguf.files import ModelFiles
from cartridge_gguf.options import LoadOptions
from cartridge_gguf.prompts import Prompter
from cartridge_gguf.request import Request
from cartridge_media.images import read_image

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from pathlib import Path

    from PIL.Image import Image

    from cartridge_core.pack import Pack
    from cartridge_core.progress import Log
    from cartridge_core.results import Result
    from cartridge_gguf._projector import Picture, Projector
    from cartridge_gguf.header import Header

__all__ = ["DescriptionSession", "ImageDescriber"]


@attrs.frozen
class ImageDescriber:
    """A model that sees; the handle of gguf-vision."""

    _model: TextModel
    _projector: Projector
    _prompter: Prompter

    @classmethod
    def open(cls, pack: Pack, options: Mapping[str, object], context: Context) -> ImageDescriber:
        """
        Load a pack's model and its projector.

        Raises:
            LoadError: The pack does not hold one model and one projector, one of them cannot be
                loaded, or the projector is for another model.

            CancelledError: The context was cancelled.
        """
        files, load = ModelFiles.of(pack, projector=True), LoadOptions.read(options)
        header = cast("Header", files.projector_header)
        share = files.file_bytes / (files.file_bytes + header.file_size)
        model = TextModel.open(files, load, _part(context, 0.0, share))
        try:
            projector = _load_projector(model, header.path, load, _part(context, share, 1.0))
        except BaseException:
            model.close()
            raise
        return cls(model, projector, Prompter.of(model))

    def begin(
        self, cap: str, parameters: Mapping[str, object], context: Context
    ) -> DescriptionSession:
        """
        Begin a session.

        Raises:
            InvalidArgumentError: A text is no Unicode.
        """
        del cap  # there is one
        with _own_names():
            request = Request.read(parameters, is_constrained=False)
        return DescriptionSession(self, request, context)

    def describe(self, request: Request, image: Image, context: Context) -> Generator[Result]:
        """
        Give the text as it is written, and the record of the whole.

        Raises:
            InvalidArgumentError: Picture, prompt and answer do not fit into the context, or the
                chat template refuses the prompt.

            BackendError: The model's chat template or the backend failed.

            CancelledError: The context was cancelled.
        """
        with _own_names():
            prompt = self._prompt(request, image, context)
            yield from write(self._model, request, prompt, context)

    def _prompt(self, request: Request, image: Image, context: Context) -> Prompt:
        """Put the picture before the prompt."""
        before, after = self._prompter.tokens_around(request, context)
        tokens = [*before]
        pictures: dict[int, Picture] = {}

        def tell() -> None:
            context.log("debug", "looking at the picture")

        with self._model.turn(context):
            parts = self._projector.read(image.size, image.tobytes(), tell)
        for part in parts:
            if isinstance(part, list):
                tokens += part
            else:
                pictures[len(tokens)] = part
                tokens += part.tokens
        tokens += after
        if tokens[-1] < 0:
            rule = "at least one token"
            msg = f"prompt: it comes to no token, and after the picture the model must read {rule}"
            raise InvalidArgumentError(msg, arg="prompt", value=request.prompt, rule=rule)
        return Prompt(tokens, pictures)

    def close(self) -> None:
        """Let go of the model, once what runs has come out."""
        self._model.close()
        self._projector.close()


@attrs.define
class DescriptionSession:
    """
    One picture, and the text that describes it.

    The work begins with the first pull after flush; before, nothing is due.
    """

    _describer: ImageDescriber
    _request: Request
    _context: Context
    _image: Image | None = attrs.field(init=False, default=None)
    _results: Generator[Result] | None = attrs.field(init=False, default=None)

    def push(self, chunk: object) -> None:
        """
        Take the picture: a path, the bytes of a file, or an array.

        Raises:
            InvalidArgumentError: It is no picture that can be read.

            StateError: It is the second one.
        """
        if self._image is not None:
            msg = "push: the session has its picture; begin another session for another one"
            raise StateError(msg)
        self._image = read_image(chunk)

    def flush(self) -> None:
        """Take no more."""
        if self._image is not None:
            self._results = self._describer.describe(self._request, self._image, self._context)

    def pull(self) -> Result | None:
        """
        Write on, up to the next piece of text; None where the record of the whole was given.

        Raises:
            InvalidArgumentError: Picture, prompt and answer do not fit into the context, or the
                chat template refuses the prompt.

            BackendError: The model's chat template or the backend failed.

            CancelledError: The context was cancelled.
        """
        return None if self._results is None else next(self._results, None)

    def end(self) -> None:
        """Let go of the model's sequence, wherever the text is."""
        if self._results is not None:
            self._results.close()


def _load_projector(
    model: TextModel, path: Path, options: LoadOptions, context: Context
) -> Projector:
    from cartridge_gguf._projector import Projector  # noqa: PLC0415 -- loads the backend

    threads, on_gpu = options.thread_count, options.gpu_layers != 0
    with model.turn(context) as native:
        return Projector.load(path, native, context, threads=threads, on_gpu=on_gpu)


def _part(context: Context, begin: float, end: float) -> Context:
    """Make a context whose progress is a part of another one's."""

    def report(event: Progress | Log) -> None:
        if isinstance(event, Progress):
            context.progress(begin + (end - begin) * event.fraction, event.message)
        else:
            context.log(event.level, event.message)

    return Context(report, parent=context)


@contextmanager
def _own_names() -> Iterator[None]:
    """Name the caller's arguments in errors: here they are no fields of a request."""
    try:
        yield
    except InvalidArgumentError as exc:
        if exc.arg is not None:
            own = exc.arg.replace("request.messages", "prompt").removeprefix("request.")
            exc.args = (str(exc).replace(exc.arg, own, 1),)
            exc.arg = own
        raise
