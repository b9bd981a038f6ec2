"""Text embeddings: the open model, and the sessions of the two caps."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.results import Result, ResultKind
from cartridge_core.urn import CapUrn
from cartridge_gguf.embedder import POOLINGS, Embedder
from cartridge_gguf.files import ModelFiles
from cartridge_gguf.options import LoadOptions
from cartridge_media.texts import check_unicode, pieces, read_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.context import Context
    from cartridge_core.pack import Pack
    from cartridge_gguf.tokenizing import Tokens
    from cartridge_media.texts import Piece

__all__ = ["DimensionSession", "EmbeddingSession", "Settings", "TextEmbedder"]

_STEP = 1024
"""How many texts are tokenised between two signs of life."""


@attrs.frozen
class TextEmbedder:
    """A model that embeds texts; the handle of gguf-embedding."""

    _model: Embedder

    @classmethod
    def open(cls, pack: Pack, options: Mapping[str, object], context: Context) -> TextEmbedder:
        """
        Load a pack's model.

        Raises:
            LoadError: The pack holds no model, or it cannot be loaded.

            CancelledError: The context was cancelled.

            InvalidArgumentError: The model cannot do what an option asks for.
        """
        files = ModelFiles.of(pack, projector=False)
        return cls(Embedder.open(files, LoadOptions.read(options), context))

    def begin(
        self, cap: str, parameters: Mapping[str, object], context: Context
    ) -> EmbeddingSession | DimensionSession:
        """
        Begin a session of one of the two caps.

        Raises:
            InvalidArgumentError: The arguments do not go together, or not with this model.
        """
        if _asks_for_dimension(cap):
            return DimensionSession(self._model)
        return EmbeddingSession(self._model, Settings.read(self._model, parameters), context)

    def close(self) -> None:
        """Let go of the model, once what runs has come out."""
        self._model.close()


@cache
def _asks_for_dimension(cap: str) -> bool:
    """Tell the two caps apart; cached, as a short text takes hardly longer than reading a URN."""
    return "embeddings-dimensions" in CapUrn.parse(cap).tags


@attrs.frozen
class DimensionSession:
    """Tells how many numbers a vector has."""

    _model: Embedder

    def infer(self, value: object) -> Result:
        """Give the dimension; the value, the model spec, is already the open model."""
        del value
        return Result(ResultKind.FINAL, self._model.dimension)


@attrs.frozen(kw_only=True)
class Settings:
    """The session arguments of an embedding session."""

    normalize: bool
    truncate_dim: int | None
    prompt: str
    pooling: str
    chunk_size: int
    chunk_overlap: int
    refuses_cuts: bool

    @classmethod
    def read(cls, model: Embedder, parameters: Mapping[str, object]) -> Settings:
        """
        Take the arguments as the host gives them.

        Raises:
            InvalidArgumentError: ``truncate_dim`` is more than the model has, ``chunk_overlap``
                leaves nothing of ``chunk_size``, ``prompt`` is no Unicode, or ``pooling`` is not
                given and the model's file says none that gives a text one vector.
        """
        chunk_size = cast("int", parameters["chunk_size"])
        chunk_overlap = cast("int", parameters["chunk_overlap"])
        if 0 < chunk_size <= chunk_overlap:
            raise _refused(chunk_overlap, "chunk_overlap", f"less than chunk_size, {chunk_size}")
        truncate_dim = cast("int | None", parameters.get("truncate_dim"))
        if truncate_dim is not None and truncate_dim > model.dimension:
            raise _refused(truncate_dim, "truncate_dim", f"at most the model's {model.dimension}")
        return cls(
            normalize=cast("bool", parameters["normalize"]),
            truncate_dim=truncate_dim,
            prompt=check_unicode(cast("str", parameters["prompt"]), "prompt"),
            pooling=_pooling(model, cast("str | None", parameters.get("pooling"))),
            chunk_size=chunk_size,
            chunk_overlap=chunk_overlap,
            refuses_cuts=parameters["truncation"] == "error",
        )


def _pooling(model: Embedder, asked: str | None) -> str:
    """Take what is asked for, else what the model's file says."""
    if asked is not None:
        return asked
    if model.pooling in POOLINGS:
        return model.pooling
    known = ", ".join(POOLINGS)
    rule = f"one of {known}, as the model's file names none of them"
    what = "it ranks documents" if model.pooling == "rank" else "it may be no embedding model"
    msg = (
        f"pooling: not given, and the file of {model.name} does not say how the vectors of a "
        f"text's tokens become one ({what}); give one of {known}"
    )
    raise InvalidArgumentError(msg, arg="pooling", rule=rule)


@attrs.frozen
class EmbeddingSession:
    """Turns texts into vectors."""

    _model: Embedder
    _settings: Settings
    _context: Context

    def infer(self, value: object) -> Result:
        """
        Embed a text or a list of texts.

        Returns:
            A FINAL result whose payload holds ``vectors`` (float32, shape ``(rows, dimension)``, a
            row per text, or per chunk), ``embedding_dim``, ``model_name``, ``truncated`` and,
            where texts are cut into chunks, ``chunks``.

        Raises:
            InvalidArgumentError: The value is no text and no list of texts, a text comes to no
                token, or is too long and ``truncation`` is ``error``; the text is named by its
                index.

            BackendError: The backend failed.

            CancelledError: The context was cancelled.

            StateError: The cartridge is closed.
        """
        settings, context = self._settings, self._context
        rows = pieces(read_texts(value), settings.chunk_size, settings.chunk_overlap, context)
        cuts = list[dict[str, object]]()
        tokens = [self._checked(row, found, cuts) for row, found in self._tokens(rows)]
        vectors = self._model.embed(tokens, settings.pooling, context)
        return Result(ResultKind.FINAL, self._payload(_shape(vectors, settings), rows, cuts))

    def _tokens(self, rows: Sequence[Piece]) -> Iterator[tuple[Piece, Tokens]]:
        for number, row in enumerate(rows):
            if number and number % _STEP == 0:
                self._context.progress(0.0, f"{number} of {len(rows)} tokenised")
            yield row, self._model.tokenize(self._settings.prompt + row.chunk.text, self._context)

    def _checked(self, row: Piece, tokens: Tokens, cuts: list[dict[str, object]]) -> Sequence[int]:
        """Give what the model is given of a piece; note, or refuse, what is cut off."""
        if not tokens.ids:
            rule = "a text that comes to at least one token"
            msg = f"{self._name(row)}: it comes to no token, and the model adds none by itself"
            raise InvalidArgumentError(
                msg, arg=f"text[{row.item}]", value=row.chunk.text, rule=rule
            )
        if tokens.count > len(tokens.ids):
            if self._settings.refuses_cuts:
                raise self._too_long(row, tokens)
            where = {"chunk": row.chunk_index} if self._settings.chunk_size else {}
            limit = self._model.limit
            cuts.append({"item": row.item, **where, "tokens": tokens.count, "limit": limit})
        return tokens.ids

    def _payload(
        self, vectors: NDArray[np.float32], rows: Sequence[Piece], cuts: list[dict[str, object]]
    ) -> dict[str, object]:
        payload: dict[str, object] = {
            "vectors": vectors,
            "embedding_dim": vectors.shape[1],
            "model_name": self._model.name,
            "truncated": cuts,
        }
        if self._settings.chunk_size:
            payload["chunks"] = [row.record() for row in rows]
        return payload

    def _too_long(self, row: Piece, tokens: Tokens) -> InvalidArgumentError:
        rule = f"at most {self._model.limit} tokens"
        msg = (
            f"{self._name(row)}: it has {tokens.count} tokens, the model takes "
            f"{self._model.limit}; shorten it, set chunk_size, or truncation='report'"
        )
        return InvalidArgumentError(msg, arg=f"text[{row.item}]", value=row.chunk.text, rule=rule)

    def _name(self, row: Piece) -> str:
        chunk = f", chunk {row.chunk_index}" if self._settings.chunk_size else ""
        return f"text[{row.item}]{chunk}"


def _shape(vectors: NDArray[np.float32], settings: Settings) -> NDArray[np.float32]:
    """Truncate, then normalize; a vector of zeros stays one."""
    import numpy as np

    if settings.truncate_dim is not None:
        vectors = np.ascontiguousarray(vectors[:, : settings.truncate_dim])
    if settings.normalize:
        lengths = np.sqrt(np.add.reduce(vectors * vectors, axis=1, keepdims=True))
        vectors /= np.maximum(lengths, np.float32(1e-12))
    return vectors


def _refused(value: object, arg: str, rule: str) -> InvalidArgumentError:
    msg = f"{arg}: {value!r} must be {rule}"
    return InvalidArgumentError(msg, arg=arg, value=value, rule=rule)
