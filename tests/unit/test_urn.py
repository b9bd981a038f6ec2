"""URNs: what is refused and where, what the text means, and what serves what."""

from __future__ import annotations

import copy
import pickle
from typing import cast

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cartridge_core._urn_grammar import _read_any
from cartridge_core._urn_grammar import read as read_tags
from cartridge_core.errors import InvalidArgumentError, UrnError
from cartridge_core.urn import CapUrn, Effect, Grade, MediaUrn, TaggedUrn

FEW = settings(max_examples=150, deadline=None)

REFUSED = {
    "leading-white-space": (TaggedUrn, " x:a", "WhitespaceInInput", 0),
    "trailing-white-space": (TaggedUrn, "x:a\n", "WhitespaceInInput", 3),
    "nothing": (TaggedUrn, "", "Empty", 0),
    "no-prefix": (TaggedUrn, "a=1", "MissingPrefix", 0),
    "empty-prefix": (TaggedUrn, ":a", "EmptyPrefix", 0),
    "no-value": (TaggedUrn, "x:a=;b", "EmptyTagComponent", 4),
    "no-value-at-the-end": (TaggedUrn, "x:b;a=", "EmptyTagComponent", 6),
    "empty-quotes": (TaggedUrn, 'x:b;a=""', "EmptyTagComponent", 6),
    "sign-without-key": (TaggedUrn, "x:b;?", "EmptyTagComponent", 5),
    "no-key": (TaggedUrn, "x:=1", "InvalidCharacter", 2),
    "space-in-key": (TaggedUrn, "x:a b", "InvalidCharacter", 3),
    "comma-in-value": (TaggedUrn, "x:a=b,c", "InvalidCharacter", 5),
    "two-signs": (TaggedUrn, "x:?a?", "InvalidCharacter", 4),
    "mixed-signs": (TaggedUrn, "x:!?a", "InvalidCharacter", 3),
    "text-after-a-sign": (TaggedUrn, "x:a?b", "InvalidCharacter", 4),
    "sign-and-any": (TaggedUrn, "x:b;?a=*", "InvalidCharacter", 7),
    "key-twice-in-two-cases": (TaggedUrn, "x:a=1;A=2", "DuplicateKey", 6),
    "key-twice-plain": (TaggedUrn, "x:a;b;a", "DuplicateKey", 6),
    "number-as-key": (TaggedUrn, "x:a;12=b", "NumericKey", 4),
    "half-a-surrogate": (TaggedUrn, 'x:a="\ud800"', "InvalidCharacter", 5),
    "other-prefix-than-media": (MediaUrn, "cap:x", "MediaUrn", 0),
    "void-refined": (MediaUrn, "media:void;why", "MediaUrn", 11),
    "void-excluded-and-refined": (MediaUrn, "media:!void;why", "MediaUrn", 12),
    "other-prefix-than-cap": (CapUrn, "media:x", "CapUrn", 0),
    "bare-top": (CapUrn, "cap:in=*;out=media:;effect=declared", "CapUrn", None),
    "in-is-no-urn": (CapUrn, "cap:t;in=pdf", "MissingPrefix", 9),
    "in-of-other-prefix": (CapUrn, 'cap:t;in="x:y"', "MediaUrn", 10),
    "in-excluded": (CapUrn, "cap:t;!in", "MissingPrefix", 6),
    "fault-inside-in": (CapUrn, 'cap:in="media:a;b c";t', "InvalidCharacter", 17),
    "fault-after-an-escape": (CapUrn, r'cap:in="media:a=\"b\";c d";t', "InvalidCharacter", 23),
    "void-refined-inside-out": (CapUrn, 'cap:out="media:void;x"', "MediaUrn", 20),
    "unknown-effect": (CapUrn, "cap:t;effect=odd", "CapUrn", 13),
    "effect-excluded": (CapUrn, "cap:t;!effect", "CapUrn", 6),
    "none-changes-the-type": (
        CapUrn,
        'cap:effect=none;in="media:ext=pdf";out=media:record',
        "CapUrn",
        11,
    ),
}

QUOTES_MALFORMED = {
    "never-closed": ('cap:op="a=b', "UnterminatedQuote", 7),
    "never-closed-before-a-tag": ('cap:in="media:text;enc=utf-8;op=embed', "UnterminatedQuote", 7),
    "closing-quote-escaped": ('cap:op="a;b\\"', "UnterminatedQuote", 7),
    "backslash-at-the-end": ('cap:op="a;b\\', "UnterminatedQuote", 7),
    "text-after-the-quote": ('cap:op="a;b"c', "InvalidCharacter", 12),
    "second-quoted-value": ('cap:op="a=b""c"', "InvalidCharacter", 12),
    "quote-inside-a-bare-value": ('cap:op=a"b;c"', "InvalidCharacter", 8),
    "quoted-key": ('cap:"op;x"=a', "InvalidCharacter", 4),
    "unknown-escape": ('cap:op="a;\\n"', "InvalidEscapeSequence", 10),
    "empty-quotes": ('cap:op="";x', "EmptyTagComponent", 7),
}

QUOTES_HOLD_DATA = {
    "separators-in-in": (
        'cap:in="media:text;enc=utf-8";op=embed',
        'cap:in="media:enc=utf-8;text";op=embed',
        {"op": "embed"},
    ),
    "equals-sign": ('cap:op="a=b"', 'cap:op="a=b"', {"op": "a=b"}),
    "semicolon": ('cap:op="a;b";x', 'cap:op="a;b";x', {"op": "a;b", "x": "*"}),
    "looks-like-tags": ('cap:op="a=b;c=d;;"', 'cap:op="a=b;c=d;;"', {"op": "a=b;c=d;;"}),
    "quote-and-backslash": (r'cap:op="a\"b\\;"', r'cap:op="a\"b\\;"', {"op": 'a"b\\;'}),
    "only-separators": ('cap:op=";=;"', 'cap:op=";=;"', {"op": ";=;"}),
    "after-a-sign": ('cap:op!="a;b=c"', 'cap:op!="a;b=c"', {"op": "!=a;b=c"}),
    "nested-quotes": (
        r'cap:in="media:title=\"a;b=c\";x";t',
        r'cap:in="media:title=\"a;b=c\";x";t',
        {"t": "*"},
    ),
    "case-is-kept": ('cap:op="A;b"', 'cap:op="A;b"', {"op": "A;b"}),
    "needless-quotes-go": ('cap:op="ab"', "cap:op=ab", {"op": "ab"}),
    "comma-and-white-space": ('cap:op="a, b\tc"', 'cap:op="a, b\tc"', {"op": "a, b\tc"}),
}

# candidate, request, dispatch, grade
SERVED = {
    "same": ("cap:extract;in=media:a;out=media:b", "cap:extract;in=media:a;out=media:b", "exact"),
    "takes-more": ("cap:x", 'cap:in="media:ext=pdf";x', "guaranteed"),
    "open-request": ('cap:in="media:ext=pdf";x', "cap:x", "exact"),
    "request-open-in-other-words": ("cap:in=media:a;x", 'cap:in="media:?b";x', "exact"),
    "takes-less": ('cap:in="media:ext=pdf";x', "cap:in=media:ext;x", "possible"),
    "takes-another": ('cap:in="media:ext=pdf";x', 'cap:in="media:ext=png";x', "none"),
    "gives-more": (
        'cap:out="media:enc=utf-8;record";x',
        'cap:out="media:enc=utf-8";x',
        "guaranteed",
    ),
    "gives-less": ("cap:out=media:ext;x", 'cap:out="media:ext=pdf";x', "possible"),
    "refined-tag": ("cap:candle=metal;x", "cap:candle;x", "exact"),
    "vaguer-tag": ("cap:target;x", "cap:target=a;x", "possible"),
    "missing-tag": ("cap:x", "cap:candle;x", "none"),
    "other-value": ("cap:op=extract", "cap:op=summarize", "none"),
    "more-tags": ("cap:version=2;x", "cap:x", "exact"),
    "unset-is-unset": ("cap:x", "cap:!target;x", "exact"),
    "unset-is-not-a": ("cap:x", "cap:target?=a;x", "exact"),
    "unset-is-not-set-to-another": ("cap:x", "cap:target!=a;x", "none"),
    "set-to-another": ("cap:target=b;x", "cap:target!=a;x", "exact"),
    "set-though-excluded": ("cap:convert;out=media:image", "cap:!convert;out=media:image", "none"),
    "other-effect": ("cap:effect=none;x", "cap:x", "none"),
    "any-effect": ("cap:effect=none", "cap:?effect", "exact"),
    "nothing-for-something": ("cap:in=media:void;x", 'cap:in="media:enc=utf-8";x', "possible"),
}


@pytest.mark.parametrize(("urn_class", "text", "kind", "position"), REFUSED.values(), ids=REFUSED)
def test_error_says_what_and_where(urn_class, text, kind, position):
    """Malformed text is refused with its kind, the whole text and the place."""
    with pytest.raises(UrnError) as raised:
        urn_class.parse(text)
    assert (raised.value.kind, raised.value.position) == (kind, position)
    assert raised.value.text == text


@pytest.mark.parametrize(
    ("text", "kind", "position"),
    QUOTES_MALFORMED.values(),
    ids=[f"a26-{name}" for name in QUOTES_MALFORMED],
)
def test_error_malformed_quoting_has_a_position(text, kind, position):
    """A value whose quotes are broken is refused, and the place is named."""
    with pytest.raises(UrnError) as raised:
        CapUrn.parse(text)
    assert (raised.value.kind, raised.value.position) == (kind, position)


def test_error_shows_a_caret_under_the_place():
    """The message has the problem, the text, and a caret below the character."""
    with pytest.raises(UrnError) as raised:
        CapUrn.parse('cap:op="a"b')
    assert str(raised.value) == (
        "expected ';' or the end after a closing quote, found 'b'\n"
        '    cap:op="a"b\n'
        "              ^"
    )


def test_error_inside_in_is_shown_in_the_whole_text():
    """The caret stands in the text the caller wrote, and the message says which side it is."""
    with pytest.raises(UrnError, match="in= is no media URN: expected a value") as raised:
        CapUrn.parse('cap:in="media:a=;b";t')
    assert str(raised.value).splitlines()[1:] == [
        '    cap:in="media:a=;b";t',
        "                    ^",
    ]


def test_error_in_a_long_text_shows_the_surroundings():
    """A megabyte of text gives a message of a few lines, the caret at the right character."""
    text = "x:" + "a" * 500_000 + "@" + "b;" * 250_000
    with pytest.raises(UrnError) as raised:
        TaggedUrn.parse(text)
    shown, caret = str(raised.value).splitlines()[1:]
    assert len(shown) < 200
    assert shown[caret.index("^")] == "@"


def test_error_is_a_value_error_and_an_invalid_argument():
    """Who knows nothing of URNs catches it all the same."""
    with pytest.raises(ValueError, match="prefix"):
        TaggedUrn.parse("a")
    with pytest.raises(InvalidArgumentError):
        TaggedUrn.parse("a")


@pytest.mark.parametrize(
    "relation",
    ["conforms_to", "accepts", "meets", "satisfies", "may_satisfy", "is_equivalent"],
)
def test_error_prefixes_are_not_compared(relation):
    """Two prefixes are a mistake of the caller, not a no."""
    with pytest.raises(UrnError, match="one prefix") as raised:
        getattr(TaggedUrn.parse("x:a"), relation)(TaggedUrn.parse("y:a"))
    assert raised.value.kind == "PrefixMismatch"


@pytest.mark.parametrize(
    ("text", "canonical", "tags"),
    QUOTES_HOLD_DATA.values(),
    ids=[f"a26-{name}" for name in QUOTES_HOLD_DATA],
)
def test_separators_inside_quotes_are_data(text, canonical, tags):
    """A separator inside quotes is data; parse, print, parse is stable."""
    cap = CapUrn.parse(text)
    assert dict(cap.tags) == tags
    assert str(cap) == canonical
    assert CapUrn.parse(canonical) == cap


def test_sides_and_effect_are_no_tags():
    """in, out and effect have their own attributes; the rest are tags."""
    cap = CapUrn.parse('cap:gguf;in="media:enc=utf-8";effect=patch;out=media:record;llm=2')
    assert cap.in_ == MediaUrn.parse("media:enc=utf-8")
    assert cap.out == MediaUrn.parse("media:record")
    assert cap.effect == "patch"
    assert cap.effect is Effect.PATCH
    assert dict(cap.tags) == {"gguf": "*", "llm": "2"}


def test_defaults_are_left_out_of_the_text():
    """An open side and effect=declared are what their absence means."""
    cap = CapUrn.parse("cap:OUT=*;t;in=media:;Effect=declared;")
    assert str(cap) == "cap:t"
    assert cap == CapUrn.parse("cap:t")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        pytest.param("X:B=Y;A;;", "x:a;b=y", id="sorted-and-lower-case"),
        pytest.param("x:A\u03a3=A\u03a3", "x:a\u03c3=a\u03c3", id="sigma-whatever-its-neighbours"),
        pytest.param('x:a="\U0001d400"', 'x:a="\U0001d400"', id="capital-without-a-small-letter"),
        pytest.param('x:a="*";b=?;c="!=v"', "x:a;?b;c!=v", id="quoted-sign-is-the-sign"),
        pytest.param("x:a=?v;b=v?", "x:a=?v;b=v?", id="sign-inside-a-value"),
    ],
)
def test_canonical_text(text, canonical):
    """tagged-urn: sorted by key, in lower case outside quotes, quoted only where it has to be."""
    assert str(TaggedUrn.parse(text)) == canonical


def test_any_effect_stands_in_for_each():
    """A cap with ?effect is comparable with the same cap that has one, not equivalent to it."""
    either, declared = CapUrn.parse("cap:?effect;x"), CapUrn.parse("cap:x")
    assert either.is_comparable(declared)
    assert declared.is_comparable(either)
    assert not either.is_equivalent(declared)


def test_patch_is_always_admissible():
    """effect=patch: in with the difference to out applied is out itself, so nothing contradicts."""
    cap = CapUrn.parse('cap:effect=patch;in="media:ext=pdf";out="media:ext=png;image"')
    assert cap.effect is Effect.PATCH


def test_has_asks_whether_a_key_is_set():
    """A key with any value is set; an excluded, open or maybe unset one is not."""
    media = MediaUrn.parse("media:enc=utf-8;list;!record;?image;ext?=pdf;fmt!=json")
    assert [key for key in ("enc", "list", "fmt") if media.has(key)] == ["enc", "list", "fmt"]
    assert not any(media.has(key) for key in ("record", "image", "ext", "audio"))


@pytest.mark.parametrize(
    ("text", "specificity"),
    [
        ("cap:?effect", 0),
        ("cap:!constrained;extract;stage!=alpha;?target;target2=metadata;ver?=draft", 15),
        ("cap:ext=pdf;generate;in=media:void;out=media:record", 20206),
        ('cap:generate;in="media:document;ext=pdf";out="media:ext=png;image;thumb"', 80602),
    ],
)
def test_specificity(text, specificity):
    """CapDAG: 10000 out + 100 in + tags; ! 5, value 4, != 3, set 2, ?= 1, ? 0."""
    assert CapUrn.parse(text).specificity == specificity


def test_distance_puts_refinements_before_fallbacks():
    """CapDAG's ranking key: exact, nearest refinement, nearest fallback."""
    request = CapUrn.parse('cap:in="media:a;b";x')
    texts = ['cap:in="media:a;b";x', 'cap:in="media:a;b";x;y', "cap:in=media:a;x", "cap:x"]
    distances = [CapUrn.parse(text).distance(request) for text in texts]
    assert distances == [(0, 0), (0, 2), (1, 200), (1, 400)]


@pytest.mark.parametrize(("candidate", "request_text", "grade"), SERVED.values(), ids=SERVED)
def test_what_serves_what(candidate, request_text, grade):
    """CapDAG: input may be wider, output narrower, tags refined, effect exact."""
    cap, request = CapUrn.parse(candidate), CapUrn.parse(request_text)
    assert cap.grade(request) is Grade(grade)
    assert cap.is_dispatchable(request) == (grade in {"exact", "guaranteed"})
    assert cap.may_dispatch(request) == (grade != "none")


def test_pattern_turns_the_output_round():
    """A pattern is fitted by a cap whose output covers the pattern's; dispatch asks the reverse."""
    vague, narrow = CapUrn.parse("cap:out=media:ext;x"), CapUrn.parse('cap:out="media:ext=pdf";x')
    assert narrow.accepts(vague)
    assert vague.conforms_to(narrow)
    assert not vague.is_dispatchable(narrow)
    assert narrow.is_dispatchable(vague)


def test_flow_joins_an_output_and_an_input():
    """What one gives the next must take; it may where the two could be one thing."""
    pdf = CapUrn.parse('cap:out="media:ext=pdf";a')
    page = CapUrn.parse("cap:in=media:ext;b")
    assert pdf.flows_into(page)
    assert not CapUrn.parse("cap:out=media:ext;a").flows_into(
        CapUrn.parse('cap:in="media:ext=pdf";b')
    )
    assert CapUrn.parse("cap:out=media:ext;a").may_flow_into(
        CapUrn.parse('cap:in="media:ext=pdf";b')
    )


def test_values_cannot_be_changed():
    """Neither the attributes nor the tags can be set."""
    cap = CapUrn.parse("cap:in=media:a;t")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(cap, "in_", cap.out)  # noqa: B010 -- it is read-only
    with pytest.raises(TypeError):
        cast("dict[str, str]", cap.tags)["t"] = "1"


def test_values_say_what_they_are():
    """The repr can be read, and copies are equal."""
    cap = CapUrn.parse('cap:t;in="media:a;b"')
    assert repr(cap) == "CapUrn('cap:in=\"media:a;b\";t')"
    assert repr(cap.in_) == "MediaUrn('media:a;b')"
    assert pickle.loads(pickle.dumps(cap)) == copy.deepcopy(cap) == cap  # noqa: S301 -- our own


def test_kinds_of_urns_are_not_equal():
    """A media URN is not the tagged URN with the same text, nor the text."""
    media = MediaUrn.parse("media:a")
    assert media != TaggedUrn.parse("media:a")
    assert media != "media:a"
    assert CapUrn.parse("cap:a") != TaggedUrn.parse("cap:a")


KEYS = st.sampled_from(["a", "b", "ext", "é"])
VALUES = st.sampled_from(
    ["v", "w", "*", "?", "!", "?v", "A b", "x,y", "a;b=c", '"', "\\", "\t", "Σ", "ǅ"]
)
STORED = VALUES | st.sampled_from(["?=v", "!=v", "?=*", "!=", "?=x,y"]) | st.text(min_size=1)
TAG_TEXTS = st.sampled_from(["{}", "?{}", "!{}", "{}=v", "{}=w", "{}!=v", "{}?=v"])
SIDES = st.sampled_from(
    ["media:", "media:ext", "media:ext=pdf", "media:ext=pdf;page", "media:void"]
)


def read(urn_class, text):
    """The URN, or the error."""
    try:
        return urn_class.parse(text), None
    except UrnError as exc:
        return None, exc


# Joined, these are well-formed, or malformed by little.
PIECES = st.sampled_from([*'ab=;"1Aé*?\\', "in", "media:x;y"])


def outcome(read_text, text):
    """What is read, or what is said against it."""
    try:
        return read_text(text)
    except UrnError as exc:
        return str(exc)


@FEW
@given(st.lists(PIECES, max_size=14))
@example(list('a="b";in"x'))
@example(list('a=";b"c"'))
def test_the_short_way_reads_what_the_long_way_reads(pieces):
    """A plain text is read faster, and not otherwise."""
    text = "x:" + "".join(pieces)
    assert outcome(read_tags, text) == outcome(_read_any, text)


@st.composite
def quoted_texts(draw):
    """Tagged URNs whose values are quoted whatever they hold."""
    tags = draw(st.dictionaries(KEYS, STORED.filter(lambda v: v.isprintable() or "\t" in v)))
    parts = [
        f'{key}="' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for key, value in tags.items()
    ]
    return "x:" + ";".join(parts)


@st.composite
def caps(draw):
    """Caps near each other: two keys, few media URNs."""
    sides = [f'{key}="{draw(SIDES)}"' for key in ("in", "out")]
    tags = [draw(TAG_TEXTS).format(key) for key in ("p", "q") if draw(st.booleans())]
    return CapUrn.parse("cap:always;" + ";".join([*sides, *tags]))


@FEW
@given(quoted_texts())
def test_canonical_text_reads_back_as_the_same(text):
    """The canonical text of a URN always parses, to an equal URN with an equal hash."""
    urn = TaggedUrn.parse(text)
    again = TaggedUrn.parse(str(urn))
    assert again == urn
    assert hash(again) == hash(urn)
    assert again.tags == urn.tags
    assert str(again) == str(urn)


@FEW
@given(st.text(alphabet='xa1AİΣ:;="\\?!* ,', max_size=12))
def test_any_text_is_read_or_refused(text):
    """Parsing gives a URN or a `UrnError` whose position lies in the text, nothing else."""
    for urn_class in (TaggedUrn, MediaUrn, CapUrn):
        urn, error = read(urn_class, text)
        if error is None:
            assert urn_class.parse(str(urn)) == urn
        else:
            assert error.position is None or 0 <= error.position <= len(text)


def test_dispatch_is_transitive_where_the_middle_is_asked_and_named():
    """
    CapDAG: what serves b serves what b serves, over all triples of 72 caps.

    Two readings are no types and so are left out: an open input of b is *some* input as a
    request and *any* as a cap; a tag b does not have is unset as a cap and open as a request.
    """
    sides = ("media:", "media:ext", "media:ext=pdf")
    tags = ("", "p", "p=v", "p=w", "!p", "?p", "p?=v", "p!=v")
    texts = [
        f'cap:{tag};in="{in_}";out="{out}";x' for tag in tags for in_ in sides for out in sides
    ]
    urns = [CapUrn.parse(text) for text in texts]
    served = {a: [b for b in urns if a.is_dispatchable(b)] for a in urns}
    chains = 0
    for first in urns:
        for middle in filter(lambda urn: urn.in_.tags, served[first]):
            for last in served[middle]:
                if middle.tags.keys() >= last.tags.keys():
                    assert first.is_dispatchable(last), (first, middle, last)
                    chains += 1
    assert chains > 2000


@FEW
@given(caps(), caps())
def test_relations_hang_together(a, b):
    """CapDAG: a cap serves itself; a guarantee is a possibility; a grade says which of them."""
    assert a.is_dispatchable(a)
    assert a.is_dispatchable(b) <= a.may_dispatch(b)
    assert (a.grade(b) in {Grade.EXACT, Grade.GUARANTEED}) == a.is_dispatchable(b)
    assert a.is_equivalent(b) == b.is_equivalent(a)
    assert a.is_equivalent(b) <= a.is_comparable(b)
    assert a.accepts(b) == b.conforms_to(a)
    assert a.flows_into(b) <= a.may_flow_into(b)
