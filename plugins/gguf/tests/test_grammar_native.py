"""What our reader accepts, llama.cpp takes and follows; tried in a process that may die of it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from grammar_texts import accepts
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.errors import InvalidArgumentError
from cartridge_gguf.constraint import read
from cartridge_gguf.grammar import Grammar
from cartridge_gguf.grammar_nodes import (
    Characters,
    Choice,
    Node,
    Reference,
    Repeat,
    Series,
    Text,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(find_spec("llama_cpp") is None, reason="needs llama-cpp-python")


@attrs.define
class Native:
    """Asks llama.cpp, in a child process."""

    _model: Path
    _child: subprocess.Popen[str] | None = None

    def follow(self, grammar: str) -> tuple[bytes, bool] | None:
        """
        Follow a grammar for some tokens.

        Returns:
            The text, and whether it ended; None where llama.cpp refuses the grammar.
        """
        child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{json.dumps(grammar)}\n")
        child.stdin.flush()
        ready, _, _ = select.select([child.stdout], [], [], 60)
        line = child.stdout.readline() if ready else ""
        if not line:
            self.stop()
            pytest.fail(f"llama.cpp died of, or hangs in {grammar!r}")
        answer: str | None = json.loads(line)
        if answer is None:
            return None
        assert not answer.endswith("!"), f"no token is allowed after {answer!r} in {grammar!r}"
        return bytes.fromhex(answer.rstrip(".")), answer.endswith(".")

    def _start(self) -> subprocess.Popen[str]:
        program = Path(__file__).with_name("native_grammars.py")
        self._child = subprocess.Popen(
            [sys.executable, program, self._model, "12"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},
            text=True,
        )
        return self._child

    def stop(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None


@pytest.fixture(scope="module")
def native(llama: Path) -> Iterator[Native]:
    """llama.cpp, with the vocabulary of a small model."""
    native = Native(llama)
    yield native
    native.stop()


NAMES = ("root", "a", "b", "c")
CLASSES = ["a", "abc", "a-]^\\[", " \n\t", "é漢", "0123456789"]


def nodes(names: tuple[str, ...]) -> st.SearchStrategy[Node]:
    """Make bodies of rules."""
    classes = st.sampled_from(CLASSES).map(Characters.among)
    leaves: st.SearchStrategy[Node] = st.one_of(
        st.text('ab"\\é🦙\n', max_size=3).map(Text),
        classes,
        classes.map(Characters.inverted),
        st.sampled_from(names).map(Reference),
    )

    def inner(node: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        times = st.sampled_from([(0, 1), (0, None), (1, None), (2, 2), (0, 3), (1, 40), (0, 1999)])
        several = st.lists(node, min_size=1, max_size=3).map(tuple)
        return st.one_of(
            several.map(Series),
            several.map(Choice),
            st.builds(lambda item, n: Repeat(item, n[0], most=n[1]), node, times),
        )

    return st.recursive(leaves, inner, max_leaves=6)


GRAMMARS = st.sampled_from([NAMES[:count] for count in (1, 2, 3, 4)]).flatmap(
    lambda names: st.fixed_dictionaries({name: nodes(names) for name in names}).map(write)
)

VALID = [
    'root ::= "yes" | "no"\n',
    'root ::= [a-z]+ (" " [a-z]+){0,5} "."',
    'root ::= item ("," item)*\nitem ::= [0-9]{1,3} | "(" root ")"',
    'root ::= "\\x41\\u00e9\\U0001F999" [^\\x00-\\x1f"\\\\]{2,4}\n# said\nfoo ::= .?',
    'root ::= ( "a" |\n "b" # or\n | "q" )+ "z"',
    'root ::= a b? c*\r\na ::= "x" | a1\r\na1 ::= "y"{3}\r\nb ::= [-a] [a-]\r\nc ::= [\\]\\[]',
    'root ::= x\nx ::= "a" x | "b" y\ny ::= "c" | "d" x',
    'root ::= (("a"?) ("b"?)){0,3} "e"',
    'root ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]+)?',
    'root ::= ("a" "b"){2}{3}? "c"',
    'root ::= "" | "a" ()',
    'root ::= "a"{0} b{0,0} "c"\nb ::= ',
    'root ::= [^\\n]+ "\\n" | \'.',
    'root::=("[" (root ("," root)*)? "]")|[0-9]',
    'root ::= .{3} "é" | [ぁ-ゟ]+',
    'root ::= ws "{" ws "}" ws\nws ::= [ \\t\\n]*',
    'root ::= "a"{1,3}{2}',
    'root ::= "a" ( "b" ( "c" ( "d" )? )? )?',
    'root ::= (a|b)+\na ::= "1"\nb ::= "2" c?\nc ::= "3"+',
    "root ::= [\\u0041-\\u005A] [\\U0001F600-\\U0001F64F]{1,2}",
]


@pytest.mark.parametrize("grammar", VALID[:12] + VALID[13:])
def test_each_valid_grammar_is_followed(native: Native, grammar: str) -> None:
    """What llama.cpp lets through is a text of the grammar as we understand it, if it ended."""
    rules = Grammar.parse(grammar).rules
    followed = native.follow(grammar)
    assert followed is not None
    text, ended = followed
    assert not ended or accepts(rules, text.decode())


def try_it(native: Native, grammar: str) -> None:
    try:
        Grammar.parse(grammar)
    except InvalidArgumentError:
        return
    assert native.follow(grammar) is not None, f"llama.cpp refuses {grammar!r}"


@given(GRAMMARS)
@settings(max_examples=80, deadline=None)
def test_an_accepted_grammar_is_safe(native: Native, grammar: str) -> None:
    """llama.cpp takes every grammar that we accept, does not die of it, and is never stuck."""
    try_it(native, grammar)


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_an_accepted_mutation_is_safe(native: Native, data: st.DataObject) -> None:
    """So is a valid grammar after some damage, where we accept that."""
    grammar = data.draw(st.sampled_from(VALID))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(grammar)))
        end = data.draw(st.integers(start, min(len(grammar), start + 3)))
        inserted = data.draw(st.text('"[]()|*+?{}<!.\\^-#: \n\rabxrot=0129,éA漢', max_size=2))
        grammar = f"{grammar[:start]}{inserted}{grammar[end:]}"
    try_it(native, grammar)


@pytest.mark.parametrize(
    "grammar",
    [
        pytest.param('root ::= "abc', id="a01-unclosed-quote"),
        pytest.param('foo ::= "a"', id="a01-no-root"),
        pytest.param(" \n", id="a01-blank"),
        pytest.param("root ::= x", id="missing-rule"),
        pytest.param('root ::= x{0} "a"\ny ::= "b"', id="missing-rule-not-used"),
        pytest.param('root ::= root "a" | "b"', id="left-recursion"),
        pytest.param('root ::= "a"**', id="endless-nothing"),
        pytest.param("root ::= (([a]{0,99}){0,99}){0,99}", id="repetitions-multiplied"),
        pytest.param('root ::= (x y z){700}\nx::="x"\ny::="y"\nz::="z"', id="names-count-too"),
        pytest.param("root ::= <no-such-token>", id="unknown-token"),
    ],
)
def test_what_llama_refuses_is_refused(native: Native, grammar: str) -> None:
    """llama.cpp gives no sampler for these, which would be followed as a null pointer."""
    with pytest.raises(InvalidArgumentError):
        Grammar.parse(grammar)
    assert native.follow(grammar) is None


@pytest.mark.parametrize(
    "grammar",
    [
        pytest.param('root ::= "a"\nroot ::= "b"', id="the-last-rule-of-a-name"),
        pytest.param("root ::= [] [z-aq]", id="empty-classes-and-crossed-ranges"),
        pytest.param('root ::= "a"{1,3000}', id="many-taken-for-endless"),
        pytest.param("root ::= <[97]>", id="tokens"),
        pytest.param('root ::= "b" | "a" root root "b"{0} x\nx ::= "a" x', id="never-ends"),
        pytest.param('root ::= ("a"*)*', id="endless-nothing-in-a-group"),
    ],
)
def test_what_llama_takes_and_we_do_not(native: Native, grammar: str) -> None:
    """These do something else than they say, or nothing more than they could say plainly."""
    assert native.follow(grammar) is not None
    with pytest.raises(InvalidArgumentError):
        Grammar.parse(grammar)


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
        "friend": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "score": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
        "born": {"type": "string", "format": "date-time"},
        "key": {"type": "string", "pattern": "^[a-z]{2}-\\d+$"},
    },
    "required": ["name", "age"],
}


@pytest.mark.parametrize(
    "constraint",
    [
        pytest.param({"type": "json_schema", "schema": PERSON}, id="object"),
        pytest.param({"type": "json_schema", "schema": {}}, id="any-json"),
        pytest.param({"type": "json_schema", "schema": {"type": "object"}}, id="any-object"),
        pytest.param(
            {"type": "json_schema", "schema": {**PERSON, "additionalProperties": True}}, id="open"
        ),
        pytest.param(
            {"type": "json_schema", "schema": {"enum": [f"v{n}" for n in range(3000)]}}, id="many"
        ),
        pytest.param(
            {"type": "json_schema", "schema": {"type": "string", "maxLength": 2000}}, id="long"
        ),
        pytest.param({"type": "regex", "pattern": r"(\w+\s?){1,5}[.!]|\d{3}-[^a-z]*"}, id="regex"),
        pytest.param(
            {"type": "tool_call", "tools": [{"name": "a", "parameters": PERSON}, {"name": "b"}]},
            id="tools",
        ),
    ],
)
def test_what_we_write_is_followed(native: Native, constraint: object) -> None:
    """llama.cpp follows the grammars of schemas, patterns and tools."""
    made = read({"constraint": constraint})
    assert made is not None
    followed = native.follow(made.grammar)
    assert followed is not None
    text, ended = followed
    if ended:
        made.parse(text.decode())
