"""What the project's own plugins offer, to say which one to install for a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cartridge_core.urn import CapUrn

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KNOWN", "find_distributions"]

_SPEC = 'in="media:enc=utf-8;model-spec"'
_REPOSITORY = 'in="media:enc=utf-8;model-repo;record"'
_IMAGE_SPEC = 'in="media:enc=utf-8;image-embeddings;model-spec"'
_GGUF_SPEC = 'in="media:embeddings;enc=utf-8;gguf;model-spec;tokenizer-embedded-gguf"'
_DIMENSIONS = 'out="media:integer;model-dim;numeric"'
_VECTORS = 'ml-model;out="media:embedding-vector;enc=utf-8;record"'
_EMBEDDINGS = f'in="media:enc=utf-8";{_VECTORS}'
_IMAGE_EMBEDDINGS = f"in=media:image;{_VECTORS}"
_REQUEST = 'in="media:fmt=json;llm-generation-request;record"'
_TEXT = 'out="media:fmt=ndjson;llm-text-stream"'
_DESCRIPTION = 'out="media:enc=utf-8;ext=txt;image-description;plain-text"'
_SOUND = "in=media:audio"
_LANGUAGE = 'out="media:enc=utf-8;language;record"'
_TRANSCRIPTION = 'out="media:enc=utf-8;record;transcription"'

KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "cartridge-gguf": (
        f"cap:constrained;gguf;{_REQUEST};llm;llm-inference-constrained;ml-model;{_TEXT}",
        f"cap:describe-image;gguf;in=media:image;ml-model;{_DESCRIPTION};vision",
        f"cap:embeddings-dimensions;gguf;{_GGUF_SPEC};ml-model;{_DIMENSIONS}",
        f"cap:generate-embeddings;gguf;{_EMBEDDINGS}",
        f"cap:gguf;{_REQUEST};llm;llm-inference;ml-model;{_TEXT}",
        f'cap:gguf;{_REQUEST};llm;llm-model-info;ml-model;out="media:fmt=json;llm-model-info;record"',
        f'cap:gguf;{_REQUEST};llm;llm-vocab;ml-model;out="media:fmt=json;llm-vocab-response;record"',
    ),
    "cartridge-models": (
        f'cap:download-model;{_SPEC};out="media:download-result;enc=utf-8;file-path;record"',
        f'cap:{_REPOSITORY};list-models;out="media:enc=utf-8;model-list;record"',
        f'cap:{_SPEC};model-availability;out="media:enc=utf-8;model-availability;record"',
        f'cap:{_SPEC};model-contents;out="media:enc=utf-8;model-contents;record"',
        f'cap:{_SPEC};model-path;out="media:enc=utf-8;model-path;record"',
        f'cap:{_SPEC};model-status;out="media:enc=utf-8;model-status;record"',
        f'cap:{_SPEC};out="media:enc=utf-8;model-removal;record";remove-model',
    ),
    "cartridge-torch": (
        f"cap:describe-image;in=media:image;ml-model;{_DESCRIPTION};torch;vision",
        f"cap:embeddings-dimensions;{_IMAGE_SPEC};ml-model;{_DIMENSIONS};torch",
        f"cap:embeddings-dimensions;{_SPEC};ml-model;{_DIMENSIONS};torch",
        f"cap:generate-embeddings;{_EMBEDDINGS};torch",
        f"cap:generate-image-embeddings;{_EMBEDDINGS};torch",
        f"cap:generate-image-embeddings;{_IMAGE_EMBEDDINGS};torch",
    ),
    "cartridge-whisper": (
        f"cap:detect-language;{_SOUND};ml-model;{_LANGUAGE};whisper",
        f"cap:{_SOUND};ml-model;{_TRANSCRIPTION};transcribe;whisper",
    ),
}
"""Canonical cap URNs by distribution; a test holds them against the plugins' descriptors."""


def find_distributions(request: CapUrn) -> list[str]:
    """Name the distributions whose plugin would serve a request; none where we know of none."""
    return [
        distribution
        for distribution, caps in KNOWN.items()
        if any(CapUrn.parse(cap).is_dispatchable(request) for cap in caps)
    ]
