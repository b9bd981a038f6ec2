"""Cap definitions: CapDAG's rules, ours, and what an argument's value must be."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from cartridge_core.capdefs import read_cap
from cartridge_core.errors import InvalidArgumentError
from cartridge_core.jsondata import freeze

OUTPUTS = [
    {"name": "summary", "media_urn": "media:enc=utf-8;record", "output_description": "It."},
    {"name": "notes", "media_urn": "media:enc=utf-8;notes", "output_description": "More."},
]
CAP = {
    "urn": 'cap:in="media:enc=utf-8";out="media:enc=utf-8;record";summarise',
    "title": "Summary",
    "aliases": ["summarise"],
    "cap_description": "Shortens a text.",
    "metadata": {"activity_timeout_secs": "30"},
    "args": [
        {
            "name": "text",
            "media_urn": "media:enc=utf-8",
            "required": True,
            "is_sequence": True,
            "sources": [{"stdin": "media:enc=utf-8"}, {"position": 0}],
        },
        {
            "name": "model_spec",
            "media_urn": "media:enc=utf-8;model-spec",
            "required": False,
            "sources": [{"cli_flag": "--model-spec"}],
            "default_value": "hf:owner/repo",
            "metadata": {"pack": True},
        },
        {
            "name": "n_threads",
            "media_urn": "media:integer;n-threads;numeric",
            "required": False,
            "sources": [{"cli_flag": "--threads"}],
            "metadata": {"scope": "open", "schema": {"type": "integer", "minimum": 1}},
        },
        {
            "name": "style",
            "media_urn": "media:enc=utf-8;style",
            "required": False,
            "sources": [{"cli_flag": "--style"}],
            "default_value": {"length": "short"},
            "metadata": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "length": {"enum": ["short", "long"]},
                        "bullets": {"type": "boolean", "default": False},
                    },
                    "additionalProperties": False,
                }
            },
        },
    ],
    "outputs": OUTPUTS,
}


def _cap(**changes):
    return read_cap(freeze({**copy.deepcopy(CAP), **changes}, "$"), "$")


def _changed(place, value):
    """Give the definition with one place set; ``...`` takes it away."""
    document = copy.deepcopy(CAP)
    _put(document, place, value)
    return document


def _put(target, place, value):
    for step in place[:-1]:
        target = target[step]
    if value is ...:
        del target[place[-1]]
    else:
        target[place[-1]] = value


def _arg(name="extra", **changes):
    return {
        "name": name,
        "media_urn": f"media:enc=utf-8;{name}",
        "required": False,
        "sources": [{"cli_flag": f"--{name}"}],
        **changes,
    }


def _with_arg(**changes):
    return {**copy.deepcopy(CAP), "args": [*copy.deepcopy(CAP["args"]), _arg(**changes)]}


NO_INPUT = {"urn": "cap:in=media:void;out=media:void;x", "args": [], "outputs": []}
VOID = {**CAP, **NO_INPUT}

REFUSED = [
    (
        "RULE1-media-urn-twice",
        _with_arg(media_urn="media:style;enc=utf-8"),
        "$.args[4].media_urn",
        "RULE1",
    ),
    ("RULE2-no-sources", _with_arg(sources=[]), "$.args[4].sources", "RULE2"),
    (
        "RULE3-two-main-inputs",
        _with_arg(sources=[{"stdin": "media:enc=utf-8;extra"}]),
        "$.args[4].sources",
        "RULE3",
    ),
    (
        "RULE4-source-kind-twice",
        _with_arg(sources=[{"cli_flag": "--a"}, {"cli_flag": "--b"}]),
        "$.args[4].sources",
        "RULE4",
    ),
    (
        "RULE5-position-twice",
        _with_arg(sources=[{"position": 0}]),
        "$.args[4].sources",
        "RULE5",
    ),
    ("RULE6-position-gap", _with_arg(sources=[{"position": 2}]), "$.args", "RULE6"),
    (
        "RULE7-position-and-flag",
        _with_arg(sources=[{"position": 1}, {"cli_flag": "--e"}]),
        "$.args[4].sources",
        "RULE7",
    ),
    (
        "RULE8-unknown-source",
        _with_arg(sources=[{"env": "X"}]),
        "$.args[4].sources[0]",
        "RULE8",
    ),
    (
        "RULE8-two-in-one",
        _with_arg(sources=[{"position": 1, "stdin": "media:"}]),
        "$.args[4].sources[0]",
        "RULE8",
    ),
    (
        "RULE9-flag-twice",
        _with_arg(sources=[{"cli_flag": "--style"}]),
        "$.args[4].sources",
        "RULE9",
    ),
    (
        "RULE10-reserved-flag",
        _with_arg(sources=[{"cli_flag": "--help"}]),
        "$.args[4].sources[0].cli_flag",
        "RULE10",
    ),
    (
        "RULE11-flag-empty",
        _with_arg(sources=[{"cli_flag": ""}]),
        "$.args[4].sources[0].cli_flag",
        "not empty",
    ),
    (
        "RULE12-no-media-urn",
        _changed(["args", 3, "media_urn"], ...),
        "$.args[3].media_urn",
        "missing",
    ),
    ("RULE13-no-alias", _changed(["aliases"], []), "$.aliases", "RULE13"),
    ("RULE13-aliases-missing", _changed(["aliases"], ...), "$.aliases", "missing"),
    (
        "RULE14-side-arg-streams",
        _with_arg(streaming=True),
        "$.args[4].streaming",
        "RULE14",
    ),
    (
        "RULE15-no-main-input",
        _changed(["args", 0, "sources"], [{"position": 0}]),
        "$.args",
        "RULE15",
    ),
    (
        "RULE15-other-main-input",
        _changed(["args", 0, "sources", 0], {"stdin": "media:image"}),
        "$.args",
        "RULE15",
    ),
    (
        "RULE15-void-takes-input",
        {**VOID, "args": [_arg(sources=[{"stdin": "media:enc=utf-8"}])]},
        "$.args[0].sources",
        "RULE15",
    ),
    ("RULE17-no-name", _changed(["args", 0, "name"], ...), "$.args[0].name", "missing"),
    ("RULE17-name-form", _with_arg(name="1st"), "$.args[4].name", "RULE17"),
    ("RULE17-name-constant", _with_arg(name="true"), "$.args[4].name", "RULE17"),
    (
        "RULE17-name-twice",
        _with_arg(name="text", media_urn="media:enc=utf-8;t"),
        "$.args[4].name",
        "RULE17",
    ),
    (
        "RULE18-accepts-and-stdin",
        _changed(["args", 0, "accepts"], "media:enc=utf-8"),
        "$.args[0].accepts",
        "RULE18",
    ),
    (
        "RULE19-output-name-form",
        _changed(["outputs", 1, "name"], "a b"),
        "$.outputs[1].name",
        "RULE19",
    ),
    (
        "RULE19-output-name-twice",
        _changed(["outputs", 1, "name"], "summary"),
        "$.outputs[1].name",
        "RULE19",
    ),
    (
        "RULE20-output-twice",
        _changed(["outputs", 1, "media_urn"], "media:record;enc=utf-8"),
        "$.outputs[1].media_urn",
        "RULE20",
    ),
    ("RULE21-no-main-output", _changed(["outputs"], []), "$.outputs", "RULE21"),
    (
        "RULE21-void-gives-output",
        {**VOID, "outputs": CAP["outputs"]},
        "$.outputs",
        "RULE21",
    ),
    (
        "RULE22-main-output-carries",
        _changed(["outputs", 0, "carries"], "input"),
        "$.outputs[0].carries",
        "RULE22",
    ),
    (
        "RULE22-nothing-to-carry",
        {
            **CAP,
            "urn": 'cap:in=media:void;out="media:enc=utf-8;record";x',
            "args": [],
            "outputs": [OUTPUTS[0], {**OUTPUTS[1], "carries": "input"}],
        },
        "$.outputs[1].carries",
        "RULE22",
    ),
    (
        "carries-else",
        _changed(["outputs", 1, "carries"], "output"),
        "$.outputs[1].carries",
        "input",
    ),
    ("unknown-key", _changed(["command"], "x"), "$.command", "keys are"),
    ("unknown-arg-key", _with_arg(defualt_value=1), "$.args[4].defualt_value", "keys are"),
    ("unknown-output-key", _changed(["outputs", 0, "x"], 1), "$.outputs[0].x", "keys are"),
    ("unknown-dim-key", _changed(["dims"], [{"dim": "a", "x": 1}]), "$.dims[0].x", "keys are"),
    (
        "unknown-origin-key",
        _changed(["registered_by"], {"username": "a", "at": 1}),
        "$.registered_by.at",
        "keys are",
    ),
    ("no-title", _changed(["title"], ...), "$.title", "missing"),
    ("bad-cap-urn", _changed(["urn"], "cap:a;a"), "$.urn", "cap URN"),
    ("bad-media-urn", _with_arg(media_urn="media:a b"), "$.args[4].media_urn", "media URN"),
    ("bad-accepts", _with_arg(accepts="cap:x"), "$.args[4].accepts", "media URN"),
    ("required-missing", _changed(["args", 0, "required"], ...), "$.args[0].required", "missing"),
    ("required-text", _changed(["args", 0, "required"], "yes"), "$.args[0].required", "true or"),
    ("position-below-0", _with_arg(sources=[{"position": -1}]), "$.args[4].sources[0]", "from 0"),
    ("metadata-number", _changed(["metadata", "x"], 1), "$.metadata.x", "string"),
    (
        "timeout-words",
        _changed(["metadata", "activity_timeout_secs"], "soon"),
        "$.metadata.activity_timeout_secs",
        "seconds",
    ),
    ("name-not-identifier", _with_arg(name="top-k"), "$.args[4].name", "Python identifier"),
    ("name-keyword", _with_arg(name="lambda"), "$.args[4].name", "Python identifier"),
    ("name-debug", _with_arg(name="__debug__"), "$.args[4].name", "Python identifier"),
    ("pack-other-name", _with_arg(metadata={"pack": True}), "$.args[4].name", "model_spec"),
    ("pack-text", _with_arg(metadata={"pack": "yes"}), "$.args[4].metadata.pack", "true or"),
    ("scope-word", _with_arg(metadata={"scope": "load"}), "$.args[4].metadata.scope", '"open"'),
    (
        "scope-of-main",
        _changed(["args", 0, "metadata"], {"scope": "open"}),
        "$.args[0].metadata.scope",
        "load",
    ),
    (
        "schema-keyword",
        _with_arg(metadata={"schema": {"oneOf": []}}),
        "$.args[4].metadata.schema.oneOf",
        "keywords",
    ),
    (
        "default-breaks-schema",
        _changed(["args", 2, "default_value"], 0),
        "$.args[2].default_value",
        "at least 1",
    ),
    (
        "default-breaks-media-urn",
        _with_arg(media_urn="media:extra;integer;numeric", default_value="1"),
        "$.args[4].default_value",
        "integer",
    ),
    ("default-null", _with_arg(default_value=None), "$.args[4].default_value", "null"),
    (
        "pack-default-number",
        _changed(["args", 1, "default_value"], 1),
        "$.args[1].default_value",
        "string",
    ),
    (
        "pack-default-no-spec",
        _changed(["args", 1, "default_value"], "just words"),
        "$.args[1].default_value",
        "just words",
    ),
    *(
        (f"reserved-{name}", _with_arg(name=name), "$.args[4].name", "every call")
        for name in "cap value mode cartridge_id pack prefer on_progress trust".split()  # noqa: SIM905 -- reads as one line
    ),
]


@pytest.mark.parametrize(
    ("document", "place", "words"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_error_definition_names_place_and_rule(document, place, words):
    """A definition that breaks a rule is refused; the message starts with the place."""
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        read_cap(freeze(document, "$"), "$")
    assert str(caught.value).startswith((f"{place}: ", f"{place}."))


def test_error_starts_with_the_place_it_was_given():
    """The root of the message is the caller's."""
    with pytest.raises(InvalidArgumentError, match=r"^\$\.attributes\.caps\[2\]\.title: "):
        read_cap(freeze(_changed(["title"], 1), "$"), "$.attributes.caps[2]")


def test_cap_says_what_was_declared():
    """Fields are called as in the rest of core, and hold what the JSON says."""
    cap = _cap()
    assert str(cap.urn) == 'cap:in="media:enc=utf-8";out="media:enc=utf-8;record";summarise'
    assert (cap.title, cap.aliases, cap.description) == (
        "Summary",
        ("summarise",),
        "Shortens a text.",
    )
    assert cap.activity_timeout_s == 30.0
    assert [output.name for output in cap.outputs] == ["summary", "notes"]


def test_args_are_sorted_by_what_they_are_for():
    """Neither open nor session arguments hold the main input or the pack argument."""
    cap = _cap()
    assert cap.main is cap.arg("text")
    assert cap.pack_arg is cap.arg("model_spec")
    assert cap.open_args == (cap.arg("n_threads"),)
    assert cap.session_args == (cap.arg("style"),)
    assert cap.arg("absent") is None


def test_main_input_may_be_the_pack_argument():
    """A cap about a model takes the model spec as its input."""
    spec = "media:enc=utf-8;model-spec"
    cap = _cap(
        urn=f'cap:in="{spec}";out="media:enc=utf-8;record";size',
        args=[
            _arg(
                "model_spec",
                media_urn=spec,
                required=True,
                sources=[{"stdin": spec}, {"position": 0}],
                metadata={"pack": True},
            )
        ],
    )
    assert cap.main is cap.pack_arg
    assert cap.session_args == cap.open_args == ()


def test_cap_without_input_has_no_main():
    """Where in= is media:void there is no main input."""
    assert _cap(**NO_INPUT).main is None


def test_default_is_filled_and_the_callers_own():
    """A declared default has its fields' defaults, and every reader gets a copy."""
    style = _cap().arg("style")
    first = style.default
    assert first == {"length": "short", "bullets": False}
    first["length"] = "changed"
    assert style.default == {"length": "short", "bullets": False}
    assert style.has_default
    assert not _cap().arg("text").has_default


def test_definition_cannot_be_changed():
    """What was read is immutable, its metadata too."""
    cap = _cap()
    with pytest.raises(AttributeError):
        cap.title = "x"
    with pytest.raises(TypeError):
        cap.arg("style").metadata["schema"]["type"] = "x"


def test_caps_are_equal_by_content():
    """Two readings of one definition are equal and hash alike; another default is another cap."""
    assert _cap() == _cap()
    assert hash(_cap()) == hash(_cap())
    assert _cap() != read_cap(freeze(_changed(["args", 1, "default_value"], "hf:a/b"), "$"), "$")


def _check(media_urn, value, **changes):
    document = _with_arg(name="knob", media_urn=media_urn, **changes)
    arg = read_cap(freeze(document, "$"), "$").arg("knob")
    assert arg is not None
    return arg.check(value)


TAKEN = [
    ("media:bool;enc=utf-8;knob", True),
    ("media:integer;knob;numeric", 3),
    ("media:knob;numeric", 0.5),
    ("media:knob;numeric", 2),
    ("media:knob;record", {"a": 1}),
    ("media:enc=utf-8;knob;record", {"a": 1}),
    ("media:enc=utf-8;knob", ""),
    ("media:image;knob", b"\x89PNG"),
    ("media:audio;enc=pcm;knob", [0.0, 1.0]),
    ("media:enc=utf-8;file-path;knob", Path("a")),
    ("media:enc=utf-8;knob;model-spec", Path("a")),
    ("media:knob;list;numeric", [1, 2.5]),
    pytest.param("media:knob", object(), id="media:knob-anything"),
]


@pytest.mark.parametrize(("media_urn", "value"), TAKEN, ids=str)
def test_media_urn_says_what_a_value_is(media_urn, value):
    """Without a schema, the media URN's markers decide; images and audio are not looked into."""
    assert _check(media_urn, value) is value


@pytest.mark.parametrize("marker", ["audio", "image", "video"])
@pytest.mark.parametrize("value", ["b.png", Path("b.png"), "./b.png"], ids=repr)
def test_the_path_of_a_medium_becomes_absolute(marker, value):
    """Text and path objects for an image, audio or video are paths, made absolute text."""
    assert _check(f"media:{marker};knob", value) == str(Path("b.png").absolute())


NOT_TAKEN = [
    ("media:bool;enc=utf-8;knob", "true", "true or false"),
    ("media:bool;enc=utf-8;knob", 1, "true or false"),
    ("media:integer;knob;numeric", 3.5, "an integer"),
    ("media:integer;knob;numeric", True, "an integer"),
    ("media:knob;numeric", "3", "a number"),
    ("media:enc=utf-8;knob;record", "{}", "a mapping"),
    ("media:enc=utf-8;knob", b"bytes", "a string"),
    ("media:enc=utf-8;knob", Path("a"), "a string"),
    ("media:enc=utf-8;knob", ["a"], "a string"),
    ("media:knob;list;numeric", 1, "a list"),
]


@pytest.mark.parametrize(("media_urn", "value", "words"), NOT_TAKEN, ids=str)
def test_error_value_is_not_what_the_media_urn_says(media_urn, value, words):
    """A value of another kind is refused with the argument's name."""
    with pytest.raises(InvalidArgumentError, match=f"^knob: must be {words}"):
        _check(media_urn, value)


def test_schema_is_asked_before_the_media_urn():
    """A declared schema alone decides."""
    schema = {"schema": {"type": ["integer", "null"]}}
    assert _check("media:enc=utf-8;knob", 3, metadata=schema) == 3


def test_accepts_says_what_a_value_is():
    """Where an argument says what it accepts, that decides and not its own URN."""
    assert _check("media:enc=utf-8;knob", 3, accepts="media:integer;numeric") == 3


def test_stdin_source_says_what_the_main_input_is():
    """A file-path slot whose piped content is an image takes an image."""
    image = "media:ext=png;image"
    cap = _cap(
        urn=f'cap:in="{image}";out="media:enc=utf-8;record";x',
        args=[_arg(media_urn="media:enc=utf-8;file-path", sources=[{"stdin": image}])],
    )
    assert cap.main.check(b"\x89PNG") == b"\x89PNG"


@pytest.mark.parametrize("value", ["one", ["one", "two"], []], ids=json.dumps)
def test_sequence_takes_an_item_or_a_list(value):
    """An argument with is_sequence takes one item or a list of items."""
    assert _cap().main.check(value) == value


def test_error_sequence_names_the_bad_item():
    """A bad item is named with its index."""
    with pytest.raises(InvalidArgumentError, match=r"^text\[3\]: must be a string, found 5$") as e:
        _cap().main.check(["a", "b", "c", 5])
    assert (e.value.arg, e.value.value) == ("text[3]", 5)


@pytest.mark.parametrize("value", [("a", "b"), {"a"}, 3, b"a"], ids=repr)
def test_error_of_a_sequence_says_that_a_list_is_taken(value):
    """What is neither an item nor a list is named by its type, and both are said to be taken."""
    with pytest.raises(InvalidArgumentError) as caught:
        _check("media:enc=utf-8;knob", value, is_sequence=True)
    assert str(caught.value).endswith(
        f"of type {type(value).__name__}; it takes one item, or a list of them"
    )
