"""Words stand once two passes in a row have them, and then for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cartridge_whisper.agreement import Agreement
from cartridge_whisper.segments import Word

if TYPE_CHECKING:
    from collections.abc import Sequence


def words(text: str) -> list[Word]:
    """Make words of a text; the model doubts those with a question mark, which is not said."""
    return [
        Word(f" {word.strip('?')}", [], n, n + 1.0, 0.3 if "?" in word else 0.9)
        for n, word in enumerate(text.split())
    ]


def said(found: Sequence[Word]) -> str:
    """Make a text of words."""
    return "".join(word.text for word in found).strip()


@pytest.mark.parametrize(
    ("passes", "committed", "tail"),
    [
        pytest.param(["a b"], "", "a b", id="one-pass-commits-nothing"),
        pytest.param(["a b", "a b c"], "a b", "c", id="two-that-agree-commit"),
        pytest.param(["a b", "a x c"], "a", "x c", id="as-far-as-they-agree"),
        pytest.param(["a b", "x b", "x b"], "x b", "", id="in-a-row"),
        pytest.param(["a b", "c d", "a b"], "", "a b", id="not-with-the-one-before-the-last"),
        pytest.param(["a b", "a b c", "a b c d"], "a b c", "d", id="and-so-on"),
        pytest.param(["a b c", "a b? c"], "a", "b c", id="a-doubtful-word-waits"),
        pytest.param(["a b? c", "a b c"], "a b c", "", id="until-it-is-sure"),
        pytest.param(["a b", "a b", "a x c"], "a b", "c", id="what-stands-is-not-changed"),
        pytest.param(["a b", "a b", "a c"], "a b", "", id="nor-is-it-repeated"),
        pytest.param(["a b", "a b", "b c d"], "a b", "c d", id="nor-taken-back"),
        pytest.param(["a b", "a b", "A, b. c"], "a b", "c", id="case-and-marks-find-their-place"),
        pytest.param(["a B", "a b"], "a", "b", id="but-they-must-agree"),
        pytest.param(["a b", "a b", ""], "a b", "", id="an-empty-pass-takes-nothing-back"),
        pytest.param(["no no", "no no no"], "no no", "no", id="words-that-repeat"),
    ],
)
def test_what_stands(passes: list[str], committed: str, tail: str) -> None:
    """The words that stand, and those that do not yet."""
    agreement = Agreement()
    for text in passes:
        agreement.hear(words(text))
    assert (said(agreement.committed), said(agreement.tail)) == (committed, tail)
    assert said(agreement.words) == f"{committed} {tail}".strip()


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=6), max_size=8))
def test_what_stands_only_grows(passes: list[list[str]]) -> None:
    """No pass changes what stands, whatever it finds."""
    agreement = Agreement()
    before = ""
    for found in passes:
        agreement.hear(words(" ".join(found)))
        assert said(agreement.committed).startswith(before)
        before = said(agreement.committed)


def test_words_are_taken_off_the_beginning() -> None:
    """What is settled is not looked for in later passes."""
    agreement = Agreement()
    for _ in range(2):
        agreement.hear(words("a b c"))
    assert said(agreement.settle(2)) == "a b"
    agreement.hear(words("c d"))
    assert (said(agreement.committed), said(agreement.tail)) == ("c", "d")


def test_words_can_be_made_to_stand() -> None:
    """Where a sound must be let go of, one pass is enough."""
    agreement = Agreement()
    agreement.hear(words("a b c"))
    agreement.commit(2)
    assert (said(agreement.committed), said(agreement.tail)) == ("a b", "c")
