"""
Typed one-liners for the usual jobs, on top of a registry.

Each asks for a cap by its URN and gives plain, typed values; what they do can be done with
`Registry.call` just as well.
"""

from cartridge_core.tasks.embedding import Embeddings, embed_image, embed_text
from cartridge_core.tasks.generation import (
    Generation,
    describe_image,
    generate_text,
    stream_text,
)
from cartridge_core.tasks.models import (
    Download,
    ModelInfo,
    Vocabulary,
    download_model,
    model_info,
    vocabulary,
)
from cartridge_core.tasks.transcription import (
    Transcript,
    TranscriptPiece,
    stream_transcribe,
    transcribe,
)

__all__ = [
    "Download",
    "Embeddings",
    "Generation",
    "ModelInfo",
    "Transcript",
    "TranscriptPiece",
    "Vocabulary",
    "describe_image",
    "download_model",
    "embed_image",
    "embed_text",
    "generate_text",
    "model_info",
    "stream_text",
    "stream_transcribe",
    "transcribe",
    "vocabulary",
]
