"""A session that turns texts into vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

import attrs

from cartridge_core.errors import InvalidArgumentError
from cartridge_core.results import Result, ResultKind
from cartridge_media.texts import Piece, check_unicode, pieces, read_texts
from cartridge_torch.vectors import unit_length

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cartridge_core.context import Context
    from cartridge_torch.embedding import Cut

__all__ = ["EmbeddingSession", "Settings", "TextEmbedder"]


class TextEmbedder(Protocol):
    """A model that embeds texts."""

    @property
    def name(self) -> str:
        """What it is called."""

    def embed(
        self,
        texts: Sequence[str],
        prompt: str | None,
        *,
        batch_size: int,
        on_cut: Callable[[Cut], None],
        refuses_cuts: bool,
        context: Context,
    ) -> NDArray[np.float32]:
        """Embed texts, as `cartridge_torch.embedding.TextEmbedding.embed`."""


class PromptedEmbedder(TextEmbedder, Protocol):
    """One that knows prompts."""

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""

    @property
    def prompts(self) -> Mapping[str, str]:
        """The model's prompts by name."""

    @property
    def default_prompt(self) -> str | None:
        """The prompt that the model itself says goes before every text."""


@attrs.frozen(kw_only=True)
class Settings:
    """The session arguments of an embedding session."""

    normalize: bool
    truncate_dim: int | None
    prompt: str | None
    batch_size: int
    chunk_size: int
    chunk_overlap: int
    refuses_cuts: bool

    can_chunk: bool = True
    """Whether the cap has a ``chunk_size``, to advise it."""

    @classmethod
    def read(cls, model: PromptedEmbedder, parameters: Mapping[str, object]) -> Settings:
        """
        Take the arguments as the host gives them.

        Raises:
            InvalidArgumentError: ``prompt`` and ``prompt_name`` are both given, the model has no
                such prompt, ``truncate_dim`` is more than it has, or ``chunk_overlap`` leaves
                nothing of ``chunk_size``.
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
            prompt=_prompt(model, parameters),
            batch_size=cast("int", parameters["batch_size"]),
            chunk_size=chunk_size,
            chunk_overlap=chunk_overlap,
            refuses_cuts=parameters["truncation"] == "error",
        )


def _prompt(model: PromptedEmbedder, parameters: Mapping[str, object]) -> str | None:
    name, prompt = parameters.get("prompt_name"), parameters.get("prompt")
    if prompt is not None:
        if name is not None:
            raise _refused(name, "prompt_name", "absent where prompt is given")
        return check_unicode(cast("str", prompt), "prompt")
    if name is None:
        return model.default_prompt
    if name not in model.prompts:
        known = ", ".join(sorted(model.prompts)) or "none"
        raise _refused(name, "prompt_name", f"one of the model's prompts ({known})")
    return model.prompts[cast("str", name)]


@attrs.frozen
class EmbeddingSession:
    """Turns texts into vectors."""

    _model: TextEmbedder
    _settings: Settings
    _context: Context = attrs.field(kw_only=True)

    def infer(self, value: object) -> Result:
        """
        Embed a text or a list of texts.

        Returns:
            A FINAL result whose payload holds ``vectors`` (float32, shape ``(rows, dimension)``, a
            row per text, or per chunk), ``embedding_dim``, ``model_name``, ``truncated`` and,
            where texts are cut into chunks, ``chunks``.

        Raises:
            InvalidArgumentError: The value is no text and no list of texts, or a text is too
                long and ``truncation`` is ``error``; the text is named by its index.

            BackendError: The backend failed.

            CancelledError: The context was cancelled.
        """
        settings, cuts = self._settings, list[dict[str, object]]()
        texts = read_texts(value)
        rows = pieces(texts, settings.chunk_size, settings.chunk_overlap, self._context)

        def on_cut(cut: Cut) -> None:
            if settings.refuses_cuts:
                raise self._too_long(rows[cut.row], cut)
            cuts.append(self._truncated(rows[cut.row], cut))

        vectors = self._model.embed(
            [row.chunk.text for row in rows],
            settings.prompt,
            batch_size=settings.batch_size,
            on_cut=on_cut,
            refuses_cuts=settings.refuses_cuts,
            context=self._context,
        )
        return Result(ResultKind.FINAL, self._payload(_shape(vectors, settings), rows, cuts))

    def _payload(
        self, vectors: NDArray[np.float32], rows: Sequence[Piece], cuts: list[dict[str, object]]
    ) -> dict[str, object]:
        payload: dict[str, object] = {
            "vectors": vectors,
            "embedding_dim": vectors.shape[1],
            "model_name": self._model.name,
            "truncated": sorted(cuts, key=lambda cut: (cut["item"], cut.get("chunk"))),
        }
        if self._settings.chunk_size:
            payload["chunks"] = [row.record() for row in rows]
        return payload

    def _truncated(self, row: Piece, cut: Cut) -> dict[str, object]:
        where = {"chunk": row.chunk_index} if self._settings.chunk_size else {}
        return {"item": row.item, **where, "tokens": cut.tokens, "limit": cut.limit}

    def _too_long(self, row: Piece, cut: Cut) -> InvalidArgumentError:
        chunk = f", chunk {row.chunk_index}" if self._settings.chunk_size else ""
        arg, rule = f"text[{row.item}]", f"at most {cut.limit} tokens"
        advice = "shorten it, set chunk_size," if self._settings.can_chunk else "shorten it,"
        msg = (
            f"{arg}{chunk}: it has {cut.tokens} tokens, the model takes {cut.limit}; {advice} or "
            "truncation='report'"
        )
        return InvalidArgumentError(msg, arg=arg, value=row.chunk.text, rule=rule)


def _shape(vectors: NDArray[np.float32], settings: Settings) -> NDArray[np.float32]:
    """Truncate, then normalize; a vector of zeros stays one."""
    import numpy as np

    vectors = np.ascontiguousarray(vectors[:, : settings.truncate_dim])
    return unit_length(vectors) if settings.normalize else vectors


def _refused(value: object, arg: str, rule: str) -> InvalidArgumentError:
    msg = f"{arg}: {value!r} must be {rule}"
    return InvalidArgumentError(msg, arg=arg, value=value, rule=rule)
