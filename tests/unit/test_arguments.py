"""Arguments: sorted into model, load and session, defaults filled in, nothing undeclared."""

from __future__ import annotations

import pytest

from cartridge_core.arguments import bind, bind_options, bind_parameters, check_main
from cartridge_core.errors import InvalidArgumentError
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor

SPEC = {
    **fake_arg("model_spec", "string", default="hf:owner/default"),
    "media_urn": "media:enc=utf-8;model-spec",
    "metadata": {"pack": True},
}
DESCRIPTOR = fake_descriptor(
    "fake-text",
    caps=[
        fake_cap(
            "echo",
            SPEC,
            fake_arg("upper", "boolean", default=False),
            fake_arg("times", "integer", minimum=1),
            fake_arg("device", "string", default="cpu", scope="open"),
            fake_arg("threads", "integer", scope="open"),
        )
    ],
)
CAP = DESCRIPTOR.caps[0]


def test_arguments_are_sorted_into_three():
    """Open arguments become options, the model spec stands alone, the rest are parameters."""
    given = {"device": "cuda", "upper": True, "times": 2, "model_spec": "hf:a/b"}
    arguments = bind(CAP, given)
    assert arguments.options == {"device": "cuda"}
    assert arguments.parameters == {"upper": True, "times": 2}
    assert arguments.model_spec == "hf:a/b"


def test_declared_defaults_are_filled_in():
    """An argument with a default is always there; an optional one without is absent."""
    arguments = bind(CAP, {})
    assert arguments.options == {"device": "cpu"}
    assert arguments.parameters == {"upper": False}
    assert arguments.model_spec == "hf:owner/default"


def test_none_counts_as_not_given():
    """None is the absence of an argument: its default is taken, or it stays absent."""
    arguments = bind(CAP, {"device": None, "times": None, "upper": None, "model_spec": None})
    assert arguments == bind(CAP, {})


def test_the_callers_mapping_is_not_changed():
    """What the caller passed stays as it was."""
    given = {"upper": True}
    bind(CAP, given)
    assert given == {"upper": True}


@pytest.mark.parametrize(
    ("given", "arg", "words"),
    [
        pytest.param({"uper": 1}, "uper", "Did you mean upper", id="misspelt"),
        pytest.param({"xyz": 1}, "xyz", "Its arguments: device, model_spec", id="unknown"),
        pytest.param({"main": "x"}, "main", "pass it as the value", id="main-by-name"),
        pytest.param({"upper": "yes"}, "upper", "true or false", id="text-for-a-boolean"),
        pytest.param({"upper": 1}, "upper", "true or false", id="one-for-a-boolean"),
        pytest.param({"times": 0}, "times", "1", id="below-the-minimum"),
        pytest.param({"times": True}, "times", "integer", id="true-for-an-integer"),
        pytest.param({"times": 1.5}, "times", "integer", id="fraction-for-an-integer"),
        pytest.param({"model_spec": 3}, "model_spec", "string", id="number-for-a-model-spec"),
    ],
)
def test_error_an_argument_that_breaks_its_rule_is_named(given, arg, words):
    """The error names the argument, its value, and the rule."""
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        bind(CAP, given)
    assert caught.value.arg == arg
    assert caught.value.value == given[arg]


def test_error_a_required_argument_is_missing():
    """An argument without which the cap cannot work is asked for by name."""
    required = {**fake_arg("labels", "string"), "required": True}
    cap = fake_descriptor("fake-text", caps=[fake_cap("echo", required)]).caps[0]
    with pytest.raises(InvalidArgumentError, match="needs the argument labels"):
        bind(cap, {})


@pytest.mark.parametrize("value", [3, None, b"x", ["x"], {"a": 1}])
def test_error_the_main_value_is_checked(value):
    """The main argument is checked by what its media URN says."""
    with pytest.raises(InvalidArgumentError) as caught:
        check_main(CAP, value)
    assert caught.value.arg == "main"


def test_options_alone_and_parameters_alone():
    """Opening by hand takes the open arguments, a session the others."""
    assert bind_options(DESCRIPTOR, {"threads": 2}) == {"device": "cpu", "threads": 2}
    assert bind_parameters(CAP, {"times": 3}) == {"upper": False, "times": 3}


def test_error_a_model_spec_is_no_session_argument():
    """What takes effect at open is refused in a session, saying where it belongs."""
    with pytest.raises(InvalidArgumentError, match="takes effect at open"):
        bind_parameters(CAP, {"model_spec": "hf:a/b"})
