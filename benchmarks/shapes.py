"""
Cap URNs as they are in the wild: what model cartridges offer, times backends and languages.

Source: CapDAG, the model caps of its gguf, mlx, candle and data cartridges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BACKENDS", "LANGUAGES", "SHAPES", "Shape", "unseen", "unseen_in_and_out"]


@attrs.frozen
class Shape:
    """A cap URN without what tells one cartridge's from another's."""

    markers: tuple[str, ...]
    takes: str
    gives: str = attrs.field(kw_only=True)

    def cap(self, backend: str, language: str) -> str:
        """Write what a cartridge offers, canonically."""
        return _write(self, {**dict.fromkeys([*self.markers, backend]), "language": language})

    def request(self, backend: str | None = None, language: str | None = None) -> str:
        """Write what a caller asks for; None asks for any."""
        tags: dict[str, str | None] = dict.fromkeys(self.markers)
        if backend is not None:
            tags[backend] = None
        if language is not None:
            tags["language"] = language
        return _write(self, tags)


def _write(shape: Shape, tags: Mapping[str, str | None]) -> str:
    written = {key: key if value is None else f"{key}={value}" for key, value in tags.items()}
    written |= {"in": f'in="{shape.takes}"', "out": f'out="{shape.gives}"'}
    return "cap:" + ";".join(written[key] for key in sorted(written))


_TEXT = "media:enc=utf-8"
_REQUEST = "media:fmt=json;llm-generation-request;record"
_SPEC = "media:enc=utf-8;model-spec"
_PNG = "media:ext=png;image"
_VECTOR = "media:embedding-vector;enc=utf-8;record"
_JUDGMENT = "media:fmt=json;record;semantic-judgment"

SHAPES: tuple[Shape, ...] = tuple(
    Shape(tuple(markers.split()), takes, gives=gives)
    for markers, takes, gives in (
        ("llm llm-inference ml-model", _REQUEST, "media:fmt=ndjson;llm-text-stream"),
        (
            "constrained llm llm-inference-constrained ml-model",
            _REQUEST,
            "media:fmt=ndjson;llm-text-stream",
        ),
        ("llm llm-vocab ml-model", _REQUEST, "media:fmt=json;llm-vocab-response;record"),
        ("llm llm-model-info ml-model", _REQUEST, "media:fmt=json;llm-model-info;record"),
        ("generate_text llm ml-model", _TEXT, _TEXT),
        ("generate-embeddings ml-model", _TEXT, _VECTOR),
        ("generate_image_embeddings ml-model", _PNG, _VECTOR),
        (
            "embeddings-dimensions ml-model",
            "media:embeddings;enc=utf-8;gguf;model-spec;tokenizer-embedded-gguf",
            "media:integer;model-dim;numeric",
        ),
        (
            "describe-image ml-model vision",
            _PNG,
            "media:enc=utf-8;ext=txt;image-description;plain-text",
        ),
        (
            "ml-model transcribe",
            "media:audio;speech;wav",
            "media:enc=utf-8;record;transcription",
        ),
        ("download-model", _SPEC, "media:download-result;enc=utf-8;file-path;record"),
        ("model-status", _SPEC, "media:enc=utf-8;model-status;record"),
        ("model-path", _SPEC, "media:enc=utf-8;model-path;record"),
        ("model-contents", _SPEC, "media:enc=utf-8;model-contents;record"),
        ("model-availability", _SPEC, "media:enc=utf-8;model-availability;record"),
        ("list-models", "media:enc=utf-8;model-repo;record", "media:enc=utf-8;model-list;record"),
        *(
            (f"{verb} constrained", _TEXT, _JUDGMENT)
            for verb in ("ask", "classify", "explain", "extract", "normalize", "score", "verify")
        ),
        ("constrained generate_json", _TEXT, "media:fmt=json;record"),
        ("constrained make_decision", _TEXT, "media:bool;enc=utf-8"),
    )
)
"""25 of them."""

BACKENDS: tuple[str, ...] = (
    "gguf",
    "mlx",
    "candle",
    "torch",
    *(f"engine-{number}" for number in range(36)),
)
LANGUAGES: tuple[str, ...] = ("de", "en", "es", "fr", "hi", "it", "ja", "nl", "pt", "zh")


def unseen(number: int) -> tuple[Shape, str, str]:
    """Give a shape, a backend and a language that no other number gives; the media URNs recur."""
    return SHAPES[number % len(SHAPES)], f"engine-{number}", LANGUAGES[number % len(LANGUAGES)]


def unseen_in_and_out(number: int) -> tuple[Shape, str, str]:
    """Give the same with media URNs that no other number gives."""
    shape, backend, language = unseen(number)
    fresh = f"v{number}"
    return (
        attrs.evolve(shape, takes=f"{shape.takes};{fresh}", gives=f"{shape.gives};{fresh}"),
        backend,
        language,
    )
