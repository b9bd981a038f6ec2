"""
A model's vocabulary, from its header alone: what each token stands for.

The bytes are those that llama.cpp gives for the token, control tokens written out; no native code
is called, and no weights are read.

Source: llama.cpp, ``llama_token_to_piece`` and what ``llama_vocab`` makes of the metadata.
"""

from __future__ import annotations

import re
from array import array
from typing import TYPE_CHECKING

import attrs

from cartridge_core.errors import UnsupportedError
from cartridge_gguf.header import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cartridge_gguf.header import Header
    from cartridge_gguf.parsing import Texts

__all__ = ["Token", "check_loadable", "read_tokens"]

_TYPES = "tokenizer.ggml.token_type"
_KINDS = {1: "normal", 2: "unknown", 3: "control", 4: "user_defined", 5: "unused", 6: "byte"}
_NORMAL, _BYTE_KIND = 1, 6
_WRITTEN_OUT = frozenset({"unknown", "control", "user_defined"})

_SENTENCE_PIECES = frozenset({"llama", "bert", "t5", "gemma4"})
_BYTE_PAIRS = frozenset({"gpt2", "hybriddna", "whitespace"})
_BYTE_PAIRS_WITH_SPACES = frozenset({"gemma4", "granite-embed-multi-311m", "sarvam-moe"})
"""Pre-tokenizers of byte-pair vocabularies whose pieces are plain text with a mark for a space."""

_SPACE = "\u2581".encode()
_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
_ESCAPE = re.compile(rb"\\(?:x([0-9a-f]{2})|(.))", re.DOTALL)
_ESCAPED = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}
_DNA_MARK = "\ue000".encode()


@attrs.frozen
class Token:
    """One token."""

    id: int

    piece: str
    """As the file writes it; bytes that are no UTF-8 as ``\\xff``."""

    raw: bytes = attrs.field(kw_only=True)
    """What it adds to a text; often no whole characters, nothing for unused ones."""

    kind: str = attrs.field(kw_only=True)
    """As the file marks it: ``normal``, ``unknown``, ``control``, ``user_defined``, ``unused``,
    ``byte``, or ``undefined``."""

    score: float | None = attrs.field(kw_only=True)
    """None where the file has no scores."""

    @property
    def text(self) -> str | None:
        """What it adds to a text; None where that is no whole characters."""
        try:
            return self.raw.decode()
        except UnicodeDecodeError:
            return None


def read_tokens(header: Header) -> Iterator[Token]:
    """
    Give every token, in the order of their ids.

    Raises:
        UnsupportedError: The file has no vocabulary, or one of a kind that is not known here.

        LoadError: The vocabulary is damaged.
    """
    tokens, model = header.tokens, header.text("tokenizer.ggml.model")
    if tokens is None or model is None:
        msg = f"model {header.path}: it has no vocabulary of its own"
        raise UnsupportedError(msg)
    decode = _decoder(header, model)
    kinds = _numbers(header, _TYPES, len(tokens))
    scores = _numbers(header, "tokenizer.ggml.scores", len(tokens))
    for index, piece in enumerate(_pieces(tokens)):
        kind = _KINDS.get(int(kinds[index] if kinds else _NORMAL), "undefined")
        yield Token(
            index,
            piece.decode("utf-8", "backslashreplace"),
            raw=decode(piece, kind),
            kind=kind,
            score=float(scores[index]) if scores else None,
        )


def check_loadable(header: Header) -> None:
    """
    Refuse a vocabulary for which llama.cpp ends the process, where it should give an error.

    Raises:
        LoadError: A piece is there twice, or a vocabulary of word pieces has single bytes.
    """
    tokens, model = header.tokens, header.text("tokenizer.ggml.model")
    if tokens is None:
        return
    if len(set(_pieces(tokens))) < len(tokens):
        what = "its vocabulary has a piece twice"
    elif model == "bert" and _BYTE_KIND in _numbers(header, _TYPES, len(tokens)):
        what = "its vocabulary of word pieces has single bytes among them"
    else:
        return
    raise refused(header.path, f"{what}; make or download it again")


def _pieces(tokens: Texts) -> Iterator[bytes]:
    """Give the pieces; one without a name gets the name that llama.cpp gives it."""
    return (piece or b"[EMPTY_%d]" % index for index, piece in enumerate(tokens.raw()))


def _decoder(header: Header, model: str) -> Callable[[bytes, str], bytes]:
    if model in _SENTENCE_PIECES or (
        model in _BYTE_PAIRS and header.text("tokenizer.ggml.pre") in _BYTE_PAIRS_WITH_SPACES
    ):
        return _sentence_piece
    if model == "hybriddna":
        return lambda piece, kind: _byte_pair(piece.removesuffix(_DNA_MARK), kind)
    if model in _BYTE_PAIRS:
        return _byte_pair
    if model == "rwkv":
        return lambda piece, _: _ESCAPE.sub(_unescape, piece)
    if model == "plamo2":
        return lambda piece, kind: _byte(piece) if kind == "byte" else piece
    msg = f"model {header.path}: its tokenizer, {model[:80]!a}, is not known here"
    raise UnsupportedError(msg)


def _numbers(header: Header, key: str, count: int) -> Sequence[float]:
    """Give one number a token; empty where the file has none."""
    numbers = header.metadata.get(key, array("i"))
    if isinstance(numbers, array) and (not numbers or len(numbers) >= count):
        return numbers
    raise refused(header.path, f"its {key} are no {count} numbers, one a token; it is damaged")


def _sentence_piece(piece: bytes, kind: str) -> bytes:
    if kind == "normal":
        return piece.replace(_SPACE, b" ")
    if kind == "byte":
        return _byte(piece)
    return piece if kind in _WRITTEN_OUT else b""


def _byte_pair(piece: bytes, kind: str) -> bytes:
    if kind != "normal":
        return _sentence_piece(piece, kind)
    characters = piece.decode("utf-8", "surrogateescape")
    try:
        return bytes([_BYTES[character] for character in characters])
    except KeyError:
        return b"".join(_character(character, piece) for character in characters)


def _character(character: str, piece: bytes) -> bytes:
    """Give a character's byte; for one that stands for no byte, what llama.cpp writes then."""
    if character in _BYTES:
        return bytes([_BYTES[character]])
    is_utf8 = not "\udc80" <= character <= "\udcff"
    found = (character if is_utf8 else "\ufffd").encode()
    return b"[UNK_BYTE_0x" + found.hex().encode() + piece + b"]"


def _byte_characters() -> dict[str, int]:
    """Give the byte that each character of a byte-level vocabulary stands for, as in GPT-2."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in itself]
    characters = {chr(byte): byte for byte in itself}
    return characters | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_characters()


def _byte(piece: bytes) -> bytes:
    match = _BYTE.fullmatch(piece)
    return piece if match is None else bytes.fromhex(match[1].decode())


def _unescape(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes.fromhex(match[1].decode())
    return _ESCAPED.get(match[2], match[2])
