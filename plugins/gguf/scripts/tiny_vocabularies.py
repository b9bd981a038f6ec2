"""The vocabularies of the tiny models: sentence pieces, byte pairs, word pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "END_OF_TURN",
    "Vocabulary",
    "byte_pairs",
    "sentence_pieces",
    "word_pieces",
]

START_OF_TURN, END_OF_TURN = "<|im_start|>", "<|im_end|>"
_SPACE = "\u2581"
_PROSE = (
    "hello world this is a tiny model speaking the yes no cat dog red user assistant image text "
    "true false one two three"
)
_WORDS = _PROSE.split()
_PRINTABLE = [chr(code) for code in range(33, 127)]


@frozen
class Vocabulary:
    """
    What a model reads and writes.

    Attributes:
        model: llama.cpp's name of the kind of tokenizer.
        tokens: The pieces, by id.
        types: What each of them is.
        special: Ids by role, such as ``bos``.
        end: The id that ends a text.
        scores: Sentence pieces only: which pairs are merged first.
        merges: Byte pairs only: the merges, in order.
    """

    model: str
    tokens: Sequence[str]
    types: Sequence[gguf.TokenType]
    special: dict[str, int] = field(kw_only=True)
    scores: Sequence[float] = field(kw_only=True, default=())
    merges: Sequence[str] = field(kw_only=True, default=())

    @property
    def end(self) -> int:
        """The id that ends a text."""
        return self.special["eos"]

    def index(self, token: str) -> int:
        """Give a piece's id."""
        return self.tokens.index(token)

    def write(self, writer: gguf.GGUFWriter) -> None:
        """Write it into a file's header."""
        writer.add_tokenizer_model(self.model)
        writer.add_tokenizer_pre("gpt-2" if self.model == "gpt2" else "default")
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        if self.scores:
            writer.add_token_scores(self.scores)
        if self.merges:
            writer.add_token_merges(self.merges)
        for role, token in self.special.items():
            writer.add_uint32(f"tokenizer.ggml.{_ROLE_KEYS[role]}_token_id", token)
        writer.add_add_bos_token(self.model != "gpt2")

    def spell(self, text: str) -> list[int]:
        """
        Spell a text, the longest piece first; what has no piece, by its bytes.

        Only for sentence pieces. It gives the same bytes as llama.cpp's tokenizer, not always the
        same pieces.
        """
        known = {token: place for place, token in enumerate(self.tokens)}
        rest, found = text.replace(" ", _SPACE), list[int]()
        while rest:
            size = next((size for size in range(len(rest), 0, -1) if rest[:size] in known), 0)
            if size:
                found.append(known[rest[:size]])
            else:
                size = 1
                found += [known[f"<0x{byte:02X}>"] for byte in rest[0].encode()]
            rest = rest[size:]
        return found


_ROLE_KEYS = {
    "bos": "bos",
    "eos": "eos",
    "unk": "unknown",
    "pad": "padding",
    "sep": "seperator",
    "mask": "mask",
}
"""The file format's own spelling, mistakes included."""


def sentence_pieces() -> Vocabulary:
    """Give a vocabulary that spells any text: words, characters, and all 256 bytes."""
    kind = gguf.TokenType
    words = [*(_SPACE + word for word in _WORDS), *_WORDS, '{"', '":', '",', ": "]
    # Every prefix of a word, so that merging pair by pair gets to the word.
    prefixes = [word[:size] for word in words for size in range(2, len(word) + 1)]
    pieces = list(dict.fromkeys([_SPACE, *_PRINTABLE, *prefixes]))
    scores = [
        -1.0 - place / 10 if len(piece) == 1 else -place / 10_000
        for place, piece in enumerate(pieces)
    ]
    control = ["<unk>", "<s>", "</s>"]
    return Vocabulary(
        "llama",
        [
            *control,
            *(f"<0x{byte:02X}>" for byte in range(256)),
            *pieces,
            START_OF_TURN,
            END_OF_TURN,
        ],
        [
            *(kind.UNKNOWN, kind.CONTROL, kind.CONTROL),
            *[kind.BYTE] * 256,
            *[kind.NORMAL] * len(pieces),
            *[kind.CONTROL] * 2,
        ],
        special={"unk": 0, "bos": 1, "eos": 2},
        scores=[0.0] * 259 + scores + [0.0] * 2,
    )


def byte_pairs() -> Vocabulary:
    """Give a byte-level vocabulary, as GPT-2's: every byte, and a few words."""
    # GPT-2 writes each byte as a character; those that are not printable move past 255.
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [byte for byte in range(256) if byte not in plain]
    characters = {byte: chr(byte) for byte in plain}
    characters |= {byte: chr(256 + place) for place, byte in enumerate(moved)}
    tokens = [characters[byte] for byte in range(256)]
    words = [characters[ord(" ")] + word for word in ("hello", "world", "the")]
    merges = [f"{word[:size]} {word[size]}" for word in words for size in range(1, len(word))]
    tokens += dict.fromkeys(word[:size] for word in words for size in range(2, len(word) + 1))
    control = ["<|endoftext|>", START_OF_TURN, END_OF_TURN]
    return Vocabulary(
        "gpt2",
        [*tokens, *control],
        [gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * len(control),
        special={"bos": len(tokens), "eos": len(tokens)},
        merges=merges,
    )


def word_pieces() -> Vocabulary:
    """Give a lower-case vocabulary of BERT's kind, in GGUF's writing: a word begins with U+2581."""
    control = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = [character for character in _PRINTABLE if not character.isupper()]
    words = [*_WORDS, "query", "document", "search", "blue", "test", "plugin"]
    pieces = [*(_SPACE + piece for piece in [*characters, *words]), *characters]
    pieces = list(dict.fromkeys(pieces))
    return Vocabulary(
        "bert",
        [*control, *pieces],
        [gguf.TokenType.CONTROL] * len(control) + [gguf.TokenType.NORMAL] * len(pieces),
        special={"pad": 0, "unk": 1, "bos": 2, "eos": 3, "sep": 3, "mask": 4},
    )
