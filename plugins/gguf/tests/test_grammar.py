"""GBNF, read and checked before llama.cpp sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from grammar_texts import accepts, derive
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.errors import InvalidArgumentError
from cartridge_gguf.grammar import MAX_CHARACTERS, Grammar
from cartridge_gguf.grammar_checks import MAX_CHAIN, MAX_WAYS
from cartridge_gguf.grammar_elements import Elements
from cartridge_gguf.grammar_nodes import Characters, Repeat, Series, Text, write
from cartridge_gguf.grammar_parser import MAX_ELEMENTS, MAX_NESTING, MAX_REPEATS, MAX_RULES

if TYPE_CHECKING:
    import random

ARITHMETIC = """
root ::= (expr "=" ws term "\\n")+
expr ::= term ([-+*/] term)*
term ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num ::= [0-9]+ ws  # no sign
ws ::= [ \\t\\n]*
"""


def chain(length: int) -> str:
    """Make rules that begin with one another."""
    links = "".join(f"r{n} ::= r{n + 1} | [a]\n" for n in range(length))
    return f"root ::= r0\n{links}r{length} ::= [b]"


@pytest.mark.parametrize(
    ("text", "said", "rule"),
    [
        pytest.param('root ::= "abc', "line 1, column 10, rule 'root': this \"", "closed quotes"),
        pytest.param('foo ::= "a"', "no rule 'root'", "a rule 'root'"),
        pytest.param(" \n", "blank", "not blank"),
        pytest.param("", "blank", "not blank"),
        pytest.param("\u2003\t\r\n", "blank", "not blank"),
        pytest.param("# nothing but this", "comments only", "a rule 'root'"),
        pytest.param(
            'root ::= "a"\nfoo ::= [a-z', "line 2, column 9, rule 'foo'", "closed classes"
        ),
        pytest.param('root ::= ("a" | "b"', "this ( is not closed", "closed groups"),
        pytest.param('root ::= "a" bar', "there is no rule 'bar'", "rules that exist"),
    ],
    ids=[
        "a01-unclosed-quote",
        "a01-no-root",
        "a01-blank",
        "a01-empty",
        "a01-other-blanks",
        "a01-comments",
        "a01-unclosed-class",
        "a01-unclosed-group",
        "a01-missing-rule",
    ],
)
def test_what_ended_the_process_is_refused(text: str, said: str, rule: str) -> None:
    """A malformed or blank grammar is an error that names line and rule; nothing native is run."""
    with pytest.raises(InvalidArgumentError) as caught:
        Grammar.parse(text)
    assert said in str(caught.value)
    assert (caught.value.arg, caught.value.rule, caught.value.value) == ("grammar", rule, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("root", "column 5, rule 'root': '::=' must follow", id="name-alone"),
        pytest.param('ro_ot ::= "a"', "column 3, rule 'ro': '::='", id="underline-in-a-name"),
        pytest.param('"root" ::= "a"', "column 1: a rule begins with its name", id="no-name"),
        pytest.param('root ::= "a" )', "column 14, rule 'root': unexpected ')'", id="stray-paren"),
        pytest.param('root ::= "a"\n| "b"', "line 2, column 1: a rule begins", id="early-line-end"),
        pytest.param('root ::= "\\q"', "unknown escape \\q", id="unknown-escape"),
        pytest.param('root ::= "\\x4"', "followed by 2 hexadecimal", id="short-x"),
        pytest.param('root ::= "\\u12g4"', "followed by 4 hexadecimal", id="bad-u"),
        pytest.param('root ::= "\\U00110000"', "no character U+110000", id="beyond-unicode"),
        pytest.param('root ::= "\\uD800"', "no text has the character U+D800", id="half-pair"),
        pytest.param('root ::= "a\\x00"', "no text has the character U+0000", id="escaped-nul"),
        pytest.param('root ::= "a\0"', "there is a NUL", id="nul"),
        pytest.param('root ::= "\ud83d"', "half of a surrogate pair", id="not-unicode"),
        pytest.param("root ::= [z-a]", "ends before it begins", id="crossed-range"),
        pytest.param("root ::= [a-", "the text ends inside a class", id="range-without-end"),
        pytest.param("root ::= []", "no character fits", id="empty-class"),
        pytest.param("root ::= [\\x00]", "no character fits", id="class-of-nul"),
        pytest.param("root ::= [^\\x00-\\U0010FFFF]", "no character fits", id="class-of-nothing"),
        pytest.param("root ::= *", "nothing to repeat before *", id="star-alone"),
        pytest.param('root ::= ""+', "nothing to repeat before +", id="empty-text-repeated"),
        pytest.param('root ::= "a"{0}?', "nothing to repeat before ?", id="nothing-repeated"),
        pytest.param('root ::= "a"{,2}', "a repetition is {m}", id="no-least"),
        pytest.param('root ::= "a"{2', "a repetition is {m}", id="unclosed-repetition"),
        pytest.param('root ::= "a"{3,2}', "ends before it begins", id="crossed-repetition"),
        pytest.param("root ::= <think>", "tokens are not offered", id="token"),
        pytest.param("root ::= !<[7]>", "tokens are not offered", id="token-number"),
        pytest.param('root ::= "a"\nroot ::= "b"', "line 2, column 1, rule 'root'", id="twice"),
        pytest.param('root ::= root "a" | "b"', "left recursion: root -> root", id="left"),
        pytest.param(
            'root ::= a\na ::= b "x" | "y"\nb ::= a', "line 3, column 7, rule 'b'", id="left-by-two"
        ),
        pytest.param(
            'root ::= e root "d" | "c"\ne ::= "a"* "b"*', "left recursion", id="left-behind-empty"
        ),
        pytest.param('root ::= "a"\nx ::= x | "b"', "rule 'x': left recursion", id="left-unused"),
        pytest.param('root ::= ("a"?)*', "may be empty", id="endless-nothing"),
        pytest.param('root ::= e+\ne ::= "a" | ', "may be empty", id="endless-empty-rule"),
        pytest.param('root ::= "a" root', "'root' never ends", id="never-ends"),
        pytest.param(
            'root ::= "a" | x\nx ::= "b" y\ny ::= "c" x', "line 2, column 1, rule 'x'", id="circle"
        ),
    ],
)
def test_each_fault_is_named_with_its_place(text: str, said: str) -> None:
    """The error says what is wrong, and at which line, column and rule."""
    with pytest.raises(InvalidArgumentError) as caught:
        Grammar.parse(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        pytest.param("#" * (MAX_CHARACTERS + 1), MAX_CHARACTERS, id="characters"),
        pytest.param(f"root ::= {'(' * 65}[a]{')' * 65}", MAX_NESTING, id="groups-in-one-another"),
        pytest.param(f"root ::= [a]{'?' * 65}", MAX_NESTING, id="repetitions-of-repetitions"),
        pytest.param("root ::= [a]{2001}", MAX_REPEATS, id="repetitions"),
        pytest.param("root ::= [a]{1,100000}", MAX_REPEATS, id="range-of-repetitions"),
        pytest.param(f"root ::= [a]{{{'9' * 5000}}}", MAX_REPEATS, id="number-beyond-all"),
        pytest.param(
            "root ::= (([a]{0,99}){0,99}){0,99}", MAX_REPEATS, id="repetitions-multiplied"
        ),
        pytest.param(f'root ::= "{"a" * 200}"{{1500}}', MAX_ELEMENTS, id="elements"),
        pytest.param("".join(f"r{n} ::= [a]\n" for n in range(5001)), MAX_RULES, id="rules"),
        pytest.param(chain(MAX_CHAIN), MAX_CHAIN, id="rules-that-begin-with-one-another"),
        pytest.param(
            "root ::= r0\n"
            + "".join(f"r{n} ::= r{n + 1} [x] | r{n + 1} [y]\n" for n in range(30))
            + "r30 ::= [a]",
            MAX_WAYS,
            id="ways-to-begin",
        ),
    ],
)
def test_limits_are_named(text: str, limit: int) -> None:
    """What llama.cpp would need much memory or time for is refused, and the limit is said."""
    with pytest.raises(InvalidArgumentError) as caught:
        Grammar.parse(text)
    assert f"at most {limit}" in str(caught.value)
    assert f"at most {limit}" in str(caught.value.rule)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('root ::= n "+" root | n "-" root | n\nn ::= [0-9]+ | "(" root ")"', id="sum"),
        pytest.param("root ::= . root{0,40}", id="partitions"),
        pytest.param('root ::= (""| [^x] "ab"){900}', id="many-that-may-be-empty"),
        pytest.param(f"root ::= {'[a-z]? ' * 40}", id="optional-letters"),
        pytest.param("root ::= a{1,30}\na ::= b{1,30}\nb ::= [x]{1,30}", id="counted-in-counted"),
        pytest.param(
            'root ::= "foo(" root ")" | "foo(" root "]" | "c"', id="alternatives-alike-for-long"
        ),
    ],
)
def test_a_text_that_would_make_too_many_stacks_is_named(text: str) -> None:
    """Where ways multiply with each character, the error shows the text that they do it for."""
    with pytest.raises(
        InvalidArgumentError, match=r"after '.+' a text could go on in too many ways"
    ):
        Grammar.parse(text)


@pytest.mark.parametrize(
    ("text", "fits", "fits_not"),
    [
        pytest.param(ARITHMETIC, ["1+2=3\n", "(a -1 )*2=b\n"], ["1+2=3", ""], id="arithmetic"),
        pytest.param('root ::= "yes" | "no"', ["yes", "no"], ["yesno", ""], id="choice"),
        pytest.param('root ::= "\\x41\\u00e9\\U0001F999\\"\\\\"', ['Aé🦙"\\'], ["A"], id="escapes"),
        pytest.param("root ::= [-a] [a-] [\\]\\[] [^^]", ["--]a", "aa[b"], ["--]^"], id="classes"),
        pytest.param("root ::= .", ["a", "🦙", "\n"], ["", "ab"], id="any"),
        pytest.param('root ::= "a"{2} "b"{0,1} "c"{1,}', ["aac", "aabccc"], ["aab"], id="counted"),
        pytest.param('root ::= "ab"{2}{2}?', ["", "abababab"], ["abab"], id="repeated-repetition"),
        pytest.param('root ::= "a"{ 1 , 2 }', ["a", "aa"], ["aaa"], id="space-in-repetition"),
        pytest.param('root ::= "a" {0} "b"', ["b"], ["ab"], id="not-at-all"),
        pytest.param('root ::= (\n"a"\n|\n"b" # or\n)+', ["abba"], ["c"], id="lines-in-a-group"),
        pytest.param('root ::= "a" |\n"b"\r\n\r\nx ::=[c]\r', ["b"], ["c"], id="line-ends"),
        pytest.param('root ::= a1 B-2\na1 ::= "1"\nB-2 ::= "2"', ["12"], ["1"], id="names"),
        pytest.param('root ::= "(" root? ")"', ["()", "((()))"], ["(()"], id="recursion"),
        pytest.param('root ::= "a"\nunused ::= "b"', ["a"], ["b"], id="unused-rule"),
        pytest.param('root ::= "a" | ', ["a", ""], ["b"], id="empty-alternative"),
        pytest.param('root ::= "line\nend"', ["line\nend"], ["line"], id="line-end-in-quotes"),
        pytest.param(f"root ::= {'(' * 60}[a]{')' * 60}", ["a"], ["b"], id="deep"),
        pytest.param(chain(100), ["a", "b"], [""], id="long-chain"),
        pytest.param("root ::= [a]{2000}", ["a" * 2000], ["a" * 1999], id="often"),
        pytest.param("root ::= [a]? [a-z]? [b]? [a-c]*", ["ab", "zzc"[1:]], ["zz"], id="few-ways"),
        pytest.param('root ::= ([a-z]+ " "?)+', ["ab c", "a"], [" "], id="words"),
        pytest.param('root ::= "a" root "b"? | "c"', ["aacb", "c"], ["b"], id="ways-by-length"),
    ],
)
def test_a_grammar_means_its_texts(text: str, fits: list[str], fits_not: list[str]) -> None:
    """What is accepted keeps its text as it was, and is understood."""
    grammar = Grammar.parse(text)
    assert grammar.text == text
    assert [each for each in fits if not accepts(grammar.rules, each)] == []
    assert [each for each in fits_not if accepts(grammar.rules, each)] == []


@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_what_is_written_is_read_again(chance: random.Random) -> None:
    """Nodes written as GBNF mean the same when they are read."""
    rules = dict(Grammar.parse(ARITHMETIC).rules)
    rules["ws"] = Repeat(Characters.among(" \t\n"), 0, most=2)
    rules["num"] = Series((Text('"\\[^-]\n\x07é🦙'), Characters.among(']^-\\"é🦙\n'), Text("")))
    again = Grammar.parse(write(rules)).rules
    assert accepts(again, derive(rules, chance, depth=5))
    assert accepts(rules, derive(again, chance, depth=5))


def test_repetitions_are_written_out_as_llama_does() -> None:
    """`S+` is `S a` with `a ::= S a |`; `S{1,3}` is `S b` with `b ::= S c |` and `c ::= S |`."""
    elements = Elements.of(Grammar.parse('root ::= "x"+ "y"{1,3} ("z" | root)').rules)
    written = [
        [list(elements.parts[start : elements.parts.index(None, start)]) for start in starts]
        for starts in elements.starts
    ]
    assert elements.names == {"root": 0}
    assert written[0] == [["x", 1, "y", 3, 4]]
    assert written[1:] == [[["x", 1], []], [["y"], []], [["y", 2], []], [["z"], [0]]]


@pytest.mark.parametrize(
    ("given_ranges", "expected"),
    [
        pytest.param([(97, 99), (100, 101)], ((97, 101),), id="neighbours-are-one"),
        pytest.param([(120, 122), (97, 99)], ((97, 99), (120, 122)), id="in-order"),
        pytest.param([(0, 9)], ((1, 9),), id="no-nul"),
        pytest.param([(0xD000, 0xE000)], ((0xD000, 0xD7FF), (0xE000, 0xE000)), id="no-half-pairs"),
    ],
)
def test_sets_of_characters_are_tidy(
    given_ranges: list[tuple[int, int]], expected: tuple[tuple[int, int], ...]
) -> None:
    """Ranges are in order, apart, and without what no text has."""
    assert Characters.of(given_ranges).ranges == expected


@given(st.text(max_size=8), st.text(max_size=8), st.characters(exclude_categories=["Cs"]))
def test_sets_of_characters_are_sets(one: str, other: str, character: str) -> None:
    """Difference, intersection and inversion are those of sets."""
    a, b = Characters.among(one), Characters.among(other)
    character = character.replace("\0", "a")
    assert (character in a.minus(b)) == (character in one and character not in other)
    assert (character in a.both(b)) == (character in one and character in other)
    assert (character in a.inverted()) == (character not in one)
