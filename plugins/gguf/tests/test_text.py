"""Token bytes become whole characters, and stop strings never leak, wherever the bytes are cut."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cartridge_gguf.text import TextAssembler

if TYPE_CHECKING:
    from collections.abc import Sequence


def assemble(pieces: Sequence[bytes], stops: Sequence[str] = ()) -> tuple[list[str], TextAssembler]:
    """Feed pieces until the end or a stop, and give what came for each and at the end."""
    text = TextAssembler(stops)
    chunks = list[str]()
    for piece in pieces:
        chunks.append(text.feed(piece))
        if text.is_stopped:
            return chunks, text
    return [*chunks, text.finish()], text


def expected(data: bytes, stops: Sequence[str]) -> str:
    """Say what the whole stream gives: its text up to the earliest stop string."""
    text = data.decode(errors="ignore")
    places = [text.find(stop) for stop in stops if stop in text]
    return text[: min(places)] if places else text


SPELLED = {
    "a07-llama-han-accent": "a🦙漢字é",
    "a07-family-of-joined-emoji": "👩‍👩‍👧‍👦!",
    "a07-combining-marks": "e\u0301 n\u0303 ก็",
    "a07-right-to-left": "שלום عليكم",
    "a07-last-code-point": "\U0010ffff\u007f\u0080\u07ff\u0800\uffff\U00010000",
    "a07-the-replacement-character-itself": "a\ufffdb",
}


@pytest.mark.parametrize("text", SPELLED.values(), ids=SPELLED.keys())
def test_bytes_that_come_singly_give_whole_characters(text: str) -> None:
    """Each character comes with its last byte, and nothing before that."""
    chunks, assembler = assemble([bytes([byte]) for byte in text.encode()])
    assert [chunk for chunk in chunks if chunk] == list(text)
    assert assembler.dropped_bytes == 0
    assert not assembler.is_cut


STOPS = {
    "a08-stop-split-over-tokens": (["abc", "ST", "OP", "tail"], ["STOP"], "abc"),
    "a08-stop-inside-one-token": (["abcSTOPtail"], ["STOP"], "abc"),
    "a08-false-start-is-released": (["a", "S", "T", "x", "y"], ["STOP"], "aSTxy"),
    "a08-false-start-at-the-end": (["a", "ST"], ["STOP"], "aST"),
    "a08-false-start-then-the-stop": (["aST", "ST", "OP", "b"], ["STOP"], "aST"),
    "a08-stop-that-overlaps-itself": (["xaa", "ab", "y"], ["aab"], "xa"),
    "a08-stop-of-one-character": (["ab", ".c"], ["."], "ab"),
    "a08-stop-first-of-all": (["STOP", "tail"], ["STOP"], ""),
    "a08-several-stops-the-earliest-wins": (["one two three"], ["three", "two"], "one "),
    "a08-a-stop-inside-a-longer-one": (["x", "\n", "User", ":", "y"], ["User", "\nUser:"], "x"),
    "a08-the-longer-one-does-not-come": (["x", "\n", "User", "?", "y"], ["User", "\nUser:"], "x\n"),
    "a08-the-longer-one-is-cut-by-the-end": (["x", "\n", "User"], ["User", "\nUser:"], "x\n"),
    "a08-one-stop-begins-another": (["abcd"], ["bc", "b"], "a"),
    "a08-stop-with-wide-characters": (["漢", "字🦙", "é"], ["🦙é"], "漢字"),
}


@pytest.mark.parametrize(("pieces", "stops", "kept"), STOPS.values(), ids=STOPS.keys())
def test_stop_strings_do_not_leak(pieces: list[str], stops: list[str], kept: str) -> None:
    """The text ends before the stop string, and has all that turned out to be none."""
    chunks, _ = assemble([piece.encode() for piece in pieces], stops)
    assert "".join(chunks) == kept


def test_a_stop_string_split_inside_a_character() -> None:
    """A stop string is found though a token ends in the middle of one of its characters."""
    data = "abc停止tail".encode()
    chunks, assembler = assemble([data[:4], data[4:8], data[8:]], ["停止"])
    assert chunks == ["abc", "", ""]
    assert assembler.is_stopped


def test_a_false_start_comes_as_soon_as_it_is_one() -> None:
    """Text is held back for as long as it may be a stop string, and not longer."""
    chunks, _ = assemble([b"a", b"S", b"T", b"x", b"y"], ["STOP"])
    assert chunks == ["a", "", "", "STx", "y", ""]


def test_a_stop_string_ends_the_text_at_once() -> None:
    """That a longer one may begin at the same place changes nothing."""
    text = TextAssembler(["b", "bc"])
    assert text.feed(b"ab") == "a"
    assert text.is_stopped


def test_text_that_is_no_beginning_of_a_stop_is_not_held() -> None:
    """Only the end of the text that may become a stop string waits."""
    chunks, _ = assemble([b"hello S", b"o S"], ["STOP"])
    assert chunks == ["hello ", "So ", "S"]


def test_bytes_that_are_no_text_are_dropped_and_counted() -> None:
    """A stray byte, an overlong form and half a surrogate pair are no characters."""
    chunks, assembler = assemble([b"a\xff", b"\xc0\xaf", b"b\xed", b"\xa0\x80c"])
    assert "".join(chunks) == "abc"
    assert assembler.dropped_bytes == 6
    assert not assembler.is_cut


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_character_that_the_end_cuts_is_dropped_and_flagged(size: int) -> None:
    """Nothing stands for it in the text."""
    chunks, assembler = assemble([b"a", "🦙".encode()[:size]])
    assert "".join(chunks) == "a"
    assert assembler.is_cut
    assert assembler.dropped_bytes == size


def test_a_character_begun_after_a_stop_string_is_not_missed() -> None:
    """What comes after the stop string was never part of the text."""
    _, assembler = assemble([b"abcSTOP\xf0\x9f"], ["STOP"])
    assert not assembler.is_cut
    assert assembler.dropped_bytes == 0


DATA = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(str.encode),
    st.text(alphabet="ab\nU🦙é", max_size=30).map(str.encode),
)
ANY_STOPS = st.lists(
    st.text(alphabet="ab\nU🦙é", min_size=1, max_size=5) | st.text(min_size=1, max_size=3),
    max_size=4,
)


@st.composite
def cut(draw: st.DrawFn) -> list[bytes]:
    """Give bytes in pieces."""
    data = draw(DATA)
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=len(data))))
    edges = [0, *places, len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(pieces=cut(), stops=ANY_STOPS)
def test_cuts_make_no_difference(pieces: list[bytes], stops: list[str]) -> None:
    """The joined text is that of the whole stream, up to the earliest stop string."""
    chunks, assembler = assemble(pieces, stops)
    joined = "".join(chunks)
    data = b"".join(pieces)
    assert joined == expected(data, stops)
    assert assembler.is_stopped == (joined != data.decode(errors="ignore"))


@given(pieces=cut())
def test_every_byte_is_in_the_text_or_counted(pieces: list[bytes]) -> None:
    """Without stop strings, the text's bytes and the dropped ones are all there were."""
    chunks, assembler = assemble(pieces)
    data = b"".join(pieces)
    assert len("".join(chunks).encode()) + assembler.dropped_bytes == len(data)


@given(pieces=cut(), stops=ANY_STOPS)
def test_nothing_is_taken_back(pieces: list[bytes], stops: list[str]) -> None:
    """What was given at any time is the beginning of the whole, and is no more than that."""
    whole = expected(b"".join(pieces), stops)
    given_so_far = ""
    for chunk in assemble(pieces, stops)[0]:
        given_so_far += chunk
        assert whole.startswith(given_so_far)
