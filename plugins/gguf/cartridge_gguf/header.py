"""What a GGUF file says of itself, read from its header alone, with the standard library."""

from __future__ import annotations

import stat
from array import array
from typing import TYPE_CHECKING, BinaryIO

import attrs

from cartridge_core.errors import LoadError
from cartridge_gguf.impostors import describe
from cartridge_gguf.parsing import MAGIC, Malformed, Parsed, Short, Texts, parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cartridge_gguf.tensors import Tensor

__all__ = ["Header", "read_header", "refused"]

_FIRST_READ = 1 << 20
_GROWTH = 16
_MOST_BYTES = 1 << 27
"""The longest header that is read; a vocabulary of 262 144 pieces takes a tenth of it."""

_ALIGNMENT = 32
"""Of the tensor data, where the file says nothing else."""


def refused(path: Path, what: str) -> LoadError:
    """Make the error that names a model's file and what is wrong with it."""
    msg = f"model {path}: {what}"
    return LoadError(msg)


@attrs.frozen(kw_only=True, eq=False)
class Header:
    """A GGUF file's metadata and the list of its tensors."""

    path: Path
    version: int

    metadata: Mapping[str, object] = attrs.field(repr=False)
    """By key: bool, int, float, str, `Texts`, or an ``array.array`` of numbers."""

    tensors: tuple[Tensor, ...] = attrs.field(repr=False)

    file_size: int
    """Bytes of the file; never less than the tensors need."""

    data_size: int
    """Bytes of the tensor data, as far as the tensors' types are known."""

    @property
    def architecture(self) -> str | None:
        """What llama.cpp calls the kind of model; ``clip`` for a projector."""
        return self.text("general.architecture")

    @property
    def kind(self) -> str:
        """``model``, ``mmproj``, ``adapter``, ``imatrix``; a file that says nothing is a model."""
        if self.architecture == "clip":
            return "mmproj"
        return self.text("general.type") or "model"

    @property
    def name(self) -> str | None:
        """What its maker calls it."""
        return self.text("general.name")

    @property
    def context_length(self) -> int | None:
        """How many tokens it was trained on."""
        return self.integer(self.key("context_length"))

    @property
    def embedding_length(self) -> int | None:
        """How many numbers an embedding has."""
        return self.integer(self.key("embedding_length"))

    @property
    def block_count(self) -> int | None:
        """How many layers it has."""
        return self.integer(self.key("block_count"))

    @property
    def head_count(self) -> int | None:
        """How many attention heads a layer has; the most, where layers differ."""
        return self.integer(self.key("attention.head_count"))

    @property
    def head_count_kv(self) -> int | None:
        """How many heads have keys of their own; the most, where layers differ."""
        count = self.integer(self.key("attention.head_count_kv"))
        return self.head_count if count is None else count

    @property
    def tokens(self) -> Texts | None:
        """The vocabulary's pieces, as the file writes them."""
        return self.texts("tokenizer.ggml.tokens")

    @property
    def vocabulary_size(self) -> int | None:
        """How many tokens there are."""
        return self.integer(self.key("vocab_size")) if self.tokens is None else len(self.tokens)

    @property
    def chat_template(self) -> str | None:
        """The chat template, Jinja text."""
        return self.text("tokenizer.chat_template")

    @property
    def unknown_types(self) -> tuple[int, ...]:
        """The numbers of the tensor types that are not known here."""
        return tuple(sorted({item.type for item in self.tensors if item.type_name is None}))

    def key(self, name: str) -> str:
        """Give the key of something that belongs to the architecture."""
        return f"{self.architecture}.{name}"

    def text(self, key: str) -> str | None:
        """
        Give a text; None where the file has none.

        Raises:
            LoadError: It is no text.
        """
        value = self.metadata.get(key)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(key, "a text")

    def texts(self, key: str) -> Texts | None:
        """
        Give an array of texts; None where the file has none.

        Raises:
            LoadError: It is no array of texts.
        """
        value = self.metadata.get(key)
        if value is None or isinstance(value, Texts):
            return value
        raise self._wrong(key, "an array of texts")

    def integer(self, key: str) -> int | None:
        """
        Give a whole number, the largest of an array; None where the file has none.

        Raises:
            LoadError: It is no whole number.
        """
        return max(self.integers(key) or (), default=None)

    def integers(self, key: str) -> Sequence[int] | None:
        """
        Give whole numbers; one where it is not an array, None where the file has none.

        Raises:
            LoadError: They are no whole numbers.
        """
        value = self.metadata.get(key)
        if value is None:
            return None
        if isinstance(value, array) and value.typecode not in "fd":
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return (value,)
        raise self._wrong(key, "a whole number")

    def number(self, key: str) -> float | None:
        """
        Give a number; None where the file has none.

        Raises:
            LoadError: It is no number.
        """
        value = self.metadata.get(key)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise self._wrong(key, "a number")

    def _wrong(self, key: str, wanted: str) -> LoadError:
        found = type(self.metadata[key]).__name__
        what = f"its metadata entry {key!a} should be {wanted} and is of type {found}"
        return refused(self.path, f"{what}; make or download it again")


def read_header(path: Path) -> Header:
    """
    Read a file's header, and check that the file is as long as it says.

    Args:
        path: A GGUF file, version 2 or 3.

    Raises:
        LoadError: It is a directory, a pipe or a device, is empty, is something else (a web page, a
            Git LFS pointer, another format), is of another version or byte order, is cut short, or
            is damaged; each with its own text.
    """
    size = _check_regular(path)
    try:
        with path.open("rb") as stream:
            parsed = _parse(path, stream, size)
    except OSError as exc:
        raise refused(path, f"it cannot be read ({exc.strerror or exc})") from exc
    except Malformed as exc:
        raise refused(path, str(exc)) from exc
    header = Header(
        path=path,
        version=parsed.version,
        metadata=parsed.metadata,
        tensors=parsed.tensors,
        file_size=size,
        data_size=max((item.offset + (item.nbytes or 0) for item in parsed.tensors), default=0),
    )
    _check_length(header, parsed.end)
    return header


def _check_regular(path: Path) -> int:
    """Refuse what is no regular file, whose opening may wait for ever; give its size."""
    try:
        found = path.stat()
    except OSError as exc:
        raise refused(path, f"it cannot be read ({exc.strerror or exc}); check the path") from exc
    if stat.S_ISDIR(found.st_mode):
        raise refused(path, "it is a directory, not a GGUF file; name the file")
    if not stat.S_ISREG(found.st_mode):
        raise refused(path, "it is a pipe, a socket or a device, not a GGUF file; name the file")
    if found.st_size == 0:
        raise refused(path, "it is empty (0 bytes); download it again")
    return found.st_size


def _parse(path: Path, stream: BinaryIO, size: int) -> Parsed:
    """Parse as much of the beginning as it takes."""
    data = stream.read(_FIRST_READ)
    if not data.startswith(MAGIC) and not MAGIC.startswith(data):
        raise refused(path, describe(data[:512]))
    while True:
        try:
            return parse(data)
        except Short as exc:
            if exc.end > size:
                raise _cut(path, f"at least {exc.end}", size) from None
            if exc.end > _MOST_BYTES:
                what = f"its header is longer than {_MOST_BYTES} bytes, which no model's is"
                raise refused(path, f"{what}; it is damaged, download it again") from None
            more = stream.read(max(exc.end, min(len(data) * _GROWTH, _MOST_BYTES)) - len(data))
            if not more:
                raise _cut(path, f"at least {exc.end}", len(data)) from None
            data += more


def _check_length(header: Header, header_end: int) -> None:
    alignment = header.integer("general.alignment")
    if alignment is None:
        alignment = _ALIGNMENT
    if alignment < 1 or alignment & (alignment - 1):
        what = f"its general.alignment is {alignment}, no power of two"
        raise refused(header.path, f"{what}; it is damaged, download it again")
    if header.tensors:
        wanted = -(-header_end // alignment) * alignment + header.data_size
        if wanted > header.file_size:
            raise _cut(header.path, str(wanted), header.file_size)


def _cut(path: Path, wanted: str, found: int) -> LoadError:
    what = f"it is truncated: its header promises {wanted} bytes, and it has {found}"
    return refused(path, f"{what}; download it again")
