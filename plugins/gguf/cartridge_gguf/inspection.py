"""The cartridge ``gguf-inspect``: what a model is, and its tokens, from its header alone."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections import Counter
from typing import TYPE_CHECKING

import attrs

from cartridge_core.results import Result, ResultKind
from cartridge_core.urn import CapUrn
from cartridge_gguf.files import ModelFiles
from cartridge_gguf.vocabulary import Token, read_tokens

if TYPE_CHECKING:
    from cartridge_core.context import Context
    from cartridge_core.pack import Pack

__all__ = ["InformationSession", "VocabularySession", "begin", "open_files"]

_STEP = 4096
"""How many tokens go between two looks at the cancellation."""

_TOOL_TEMPLATE = "tokenizer.chat_template.tool_use"
_OPENS, _CLOSES, _TOOLS = re.compile(r"\{[%{]"), re.compile(r"[%}]\}"), re.compile(r"\btools\b")


def open_files(pack: Pack) -> ModelFiles:
    """
    Find the model's files and read their headers: they are the open cartridge.

    Raises:
        LoadError: As `ModelFiles.to_inspect`.
    """
    return ModelFiles.to_inspect(pack)


def begin(files: ModelFiles, cap: str, context: Context) -> VocabularySession | InformationSession:
    """
    Begin a session.

    Args:
        files: The open cartridge.
        cap: The declared cap URN.
        context: Takes the progress, and says whether to go on.
    """
    if "llm-vocab" in CapUrn.parse(cap).tags:
        return VocabularySession(files, context)
    return InformationSession(files)


@attrs.frozen
class VocabularySession:
    """Lists the tokens."""

    _files: ModelFiles
    _context: Context

    def infer(self, value: object) -> Result:
        """
        Give every token once, in the order of their ids.

        Returns:
            A FINAL result with ``vocab``, a record a token, and ``vocab_size``.

        Raises:
            UnsupportedError: The file has no vocabulary, or one of an unknown kind.

            LoadError: The vocabulary is damaged.

            CancelledError: The context was cancelled.
        """
        del value
        header, entries = self._files.header, list[dict[str, object]]()
        for token in read_tokens(header):
            if token.id % _STEP == 0:
                self._context.check_cancelled()
                done = token.id / (header.vocabulary_size or 1)
                self._context.progress(done, f"{token.id} tokens read")
            entries.append(_entry(token))
        return Result(ResultKind.FINAL, {"vocab": entries, "vocab_size": len(entries)})


def _entry(token: Token) -> dict[str, object]:
    """Make a token's record; what there is not is not in it."""
    text = token.text
    entry: dict[str, object] = {
        "id": token.id,
        "bytes": b64encode(token.raw).decode(),
        "piece": token.piece,
        "kind": token.kind,
    }
    if text is not None:
        entry["text"] = text
    if token.score is not None:
        entry["score"] = token.score
    return entry


@attrs.frozen
class InformationSession:
    """Says what the model is."""

    _files: ModelFiles

    def infer(self, value: object) -> Result:
        """
        Give what the header says; what it does not say is not in the record.

        Raises:
            LoadError: The header is damaged.
        """
        del value
        header = self._files.header
        found = {
            "architecture": _readable(header.architecture),
            "name": _readable(header.name),
            "vocab_size": header.vocabulary_size,
            "context_length": header.context_length,
            "embedding_dim": header.embedding_length,
            "head_count": header.head_count,
            "layer_count": header.block_count,
            "quantization": _quantization(self._files),
            "parameter_count": _parameter_count(self._files),
        }
        record: dict[str, object] = {key: item for key, item in found.items() if item is not None}
        template = header.chat_template
        record["file_size_bytes"] = self._files.file_bytes
        record["supports_chat"] = template is not None
        record["supports_tools"] = _TOOL_TEMPLATE in header.metadata or _knows_tools(template or "")
        return Result(ResultKind.FINAL, record)


def _readable(text: str | None) -> str | None:
    """Replace what is no UTF-8."""
    return (
        None if text is None else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    )


def _quantization(files: ModelFiles) -> str | None:
    """Name the tensor type that most of the bytes are in; None where there are no tensors."""
    sizes = Counter[str]()
    for header in files.headers:
        for tensor in header.tensors:
            sizes[tensor.type_name or f"type {tensor.type}"] += tensor.nbytes or 0
    return max(sizes, key=sizes.__getitem__, default=None)


def _parameter_count(files: ModelFiles) -> int | None:
    """Count the numbers in all tensors; None where there are none."""
    return sum(math.prod(item.shape) for header in files.headers for item in header.tensors) or None


def _knows_tools(template: str) -> bool:
    """Tell whether a chat template's code, not its text, speaks of the variable ``tools``."""
    codes = (_CLOSES.split(part, 1)[0] for part in _OPENS.split(template)[1:])
    return any(_TOOLS.search(code) for code in codes)
