"""Regular expressions, as grammars of the texts that they match as a whole."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from grammar_texts import accepts, derive
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.errors import InvalidArgumentError
from cartridge_gguf.constraint import read
from cartridge_gguf.grammar import Grammar
from cartridge_gguf.grammar_nodes import write
from cartridge_gguf.regex import read_regex, whole

if TYPE_CHECKING:
    import random

PATTERNS = [
    "abc",
    "a|bc|",
    "(a|b)+c?",
    "(?:ab){2,3}",
    "(?P<year>[0-9]{4})-(?<month>[01][0-9])",
    r"\d{3}-\d{4}",
    r"\w+@\w+\.com",
    r"[^\s\d]{1,4}\s[\w-]",
    r"\D\W\S",
    "[a-z-]+",
    "[-a]x[a-]",
    r"[\]\[^-]+",
    "[^^]",
    ".{0,3}",
    r"\(\)\{\}\[\]\.\*\+\?\|\^\$\\\/\-",
    r"\x41\u00e9\n\r\t\f\v",
    "é漢🦙",
    "a{0}b{1}c{2,}d{0,2}",
    "a*?b+?c??d{1,2}?",
    "^abc$",
    "^a|b$",
    "^(?:a|b)$",
    "((((a))))",
    "()a",
    "a}]",
    r"\"quoted\\",
    "(?:a?){2}",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@given(st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_what_is_made_matches(pattern: str, chance: random.Random) -> None:
    """Every text of the grammar is one that Python's `re` matches from beginning to end."""
    rules = Grammar.parse(write({"root": whole(pattern, "pattern")})).rules
    text = derive(rules, chance)
    assert re.fullmatch(pattern.replace("(?<", "(?P<"), text, re.ASCII)


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        pytest.param("a|bc|", ["a", "bc", ""], ["b", "abc"], id="alternatives"),
        pytest.param(r"\d+", ["0", "12"], ["", "1a", "٣"], id="ascii-digits"),
        pytest.param(r"\w", ["a", "_", "9"], ["é", "-"], id="ascii-word"),
        pytest.param(r"\S+", ["é漢", "a"], ["a b", ""], id="no-space"),
        pytest.param(".", ["a", "\t", "🦙"], ["\n", "\r", "\u2028"], id="dot-is-no-line-end"),
        pytest.param("a{0}b", ["b"], ["ab"], id="not-at-all"),
        pytest.param("a{2,}", ["aa", "aaaa"], ["a"], id="at-least"),
        pytest.param("^a|b$", ["a", "b"], ["ab"], id="anchored-alternatives"),
        pytest.param("[a-c]{2}", ["ab", "cc"], ["a", "ad"], id="class"),
    ],
)
def test_what_matches_is_made(pattern: str, fits: list[str], fits_not: list[str]) -> None:
    """The grammar has the texts that match, and no other."""
    rules = {"root": whole(pattern, "pattern")}
    assert [each for each in fits if not accepts(rules, each)] == []
    assert [each for each in fits_not if accepts(rules, each)] == []


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        pytest.param("", "character 1: it is empty", id="empty"),
        pytest.param("a(?=b)", "character 2: (?=: looking ahead", id="look-ahead"),
        pytest.param("(?!a)b", "looking ahead", id="negative-look-ahead"),
        pytest.param("(?<=a)b", "looking behind", id="look-behind"),
        pytest.param("(?<!a)b", "looking behind", id="negative-look-behind"),
        pytest.param(r"(a)\1", r"character 4: \1: a reference back", id="reference-back"),
        pytest.param("(?P<n>a)(?P=n)", "a reference back", id="named-reference-back"),
        pytest.param(r"(?<n>a)\k<n>", "a reference back", id="ecma-reference-back"),
        pytest.param("(?i)a", "a flag", id="flag"),
        pytest.param("(?i:a)", "a flag", id="flag-of-a-group"),
        pytest.param("(?>a)", "an atomic group", id="atomic"),
        pytest.param("(a)?(?(1)b|c)", "a condition", id="condition"),
        pytest.param("(?#said)a", "a comment", id="comment"),
        pytest.param(r"\bword", "a border", id="word-border"),
        pytest.param(r"\Aa\Z", "a border", id="python-anchors"),
        pytest.param(r"\p{L}", "a Unicode property", id="property"),
        pytest.param("a++", "character 3: possessive", id="possessive"),
        pytest.param("a**", "repeats a repetition", id="repetition-of-a-repetition"),
        pytest.param("a{,3}", "begins no repetition", id="no-least"),
        pytest.param("{2}", "begins no repetition", id="nothing-before-braces"),
        pytest.param("|*", "nothing to repeat", id="nothing-before-star"),
        pytest.param("a^b", "at the ends", id="anchor-inside"),
        pytest.param("(a$)", "at the ends", id="anchor-in-a-group"),
        pytest.param("a$b", "at the ends", id="end-inside"),
        pytest.param("[]a]", "means different things", id="bracket-first"),
        pytest.param("[^]", "means different things", id="ecma-any"),
        pytest.param("[z-a]", "to a later one", id="crossed-range"),
        pytest.param(r"[\d-x]", "to a later one", id="range-of-a-class"),
        pytest.param("[a-", "ends inside a class", id="range-without-end"),
        pytest.param("[a", "this [ is never closed", id="open-class"),
        pytest.param(r"[\D\d\S]{2}[^\D\d]", "no character fits", id="class-of-nothing"),
        pytest.param("(a", "this ( is never closed", id="open-group"),
        pytest.param("a)b", "closes nothing", id="stray-parenthesis"),
        pytest.param("a\\", "not offered", id="backslash-last"),
        pytest.param(r"\xZ1", "2 hexadecimal digits", id="bad-x"),
        pytest.param(r"\u{41}", "4 hexadecimal digits", id="ecma-u"),
        pytest.param(r"\ud83e\udd99", "no text has the character U+D83E", id="half-pair"),
        pytest.param("a\0", "no text has the character U+0000", id="nul"),
        pytest.param(r"\0", "not offered", id="escaped-nul"),
        pytest.param("a{2001}", "<= 2000", id="too-often"),
        pytest.param("a{3,2}", "m <= n", id="crossed-repetition"),
        pytest.param("(a?)*", "may be empty", id="endless-nothing"),
        pytest.param("(" * 65 + "a" + ")" * 65, "nest at most 64 deep", id="too-deep"),
    ],
)
def test_what_is_not_offered_is_named(pattern: str, said: str) -> None:
    """The error names the construct and where it stands."""
    with pytest.raises(InvalidArgumentError) as caught:
        read_regex(pattern, "pattern")
    assert said in str(caught.value)
    assert (caught.value.arg, caught.value.value) == ("pattern", pattern)


def test_anchors_are_kept_apart_for_each_alternative() -> None:
    """`^` and `$` belong to the alternative in which they stand."""
    ends = [(branch.from_start, branch.to_end) for branch in read_regex("^a|b$|^c$|d", "pattern")]
    assert ends == [(True, False), (False, True), (True, True), (False, False)]


@given(st.text("ab01(|)[]*+?{},^$.\\-dwsDn:<P>=!x", max_size=12))
@settings(max_examples=200, deadline=None)
def test_a_pattern_is_refused_or_python_reads_it_too(pattern: str) -> None:
    """Nothing is read here that Python would not read, or would read otherwise."""
    try:
        made = read({"constraint": {"type": "regex", "pattern": pattern}})
    except InvalidArgumentError:
        return
    assert made is not None
    rules = Grammar.parse(made.grammar).rules
    python = re.compile(pattern.replace("(?<", "(?P<"), re.ASCII)
    for text in ("", "a", "b", "ab", "aab", "0", "01", "a0", "-", "\\", "d", ".", "]", "}", "aaa"):
        assert accepts(rules, text) == bool(python.fullmatch(text)), text
