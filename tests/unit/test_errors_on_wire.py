"""Errors cross as what they are, and what is no error is refused."""

from __future__ import annotations

import inspect
import re

import pytest

from cartridge_core import errors
from cartridge_core.errors import BackendError, CartridgeError, LoadError
from cartridge_core.packing import MalformedError
from cartridge_core.progress import Log, Phase, Progress
from cartridge_core.reports import Candidate, Check, DiscoveryIssue, Explanation, PreflightReport
from cartridge_core.results import Result, ResultKind
from cartridge_core.urn import CapUrn
from cartridge_core.wire import Receiver
from cartridge_core.worker.errors_on_wire import encode_error, unpack_error
from cartridge_core.worker.plain import (
    as_plain,
    from_plain,
    pack_event,
    pack_result,
    unpack_event,
    unpack_result,
)


def crossed(error, *, trace=False):
    """Give an error as it comes out on the other side."""
    data = b"".join(bytes(one) for one in encode_error("failed", 1, ["x"], error, trace=trace))

    def receive_into(room):
        room[: len(data)] = data
        return len(data)

    (_, _, (before, packed)) = Receiver(receive_into).receive()
    assert before == "x"
    return unpack_error(packed, "in the process of x")


def attributes(error):
    return {name: value for name, value in vars(error).items() if name != "__notes__"}


CHECK = Check("torch", ok=False, required="2.0", found="none", fix="pip install torch")
ATTRIBUTES = {
    "arg": "text[3]",
    "value": {"a": [1, b"x"]},
    "rule": "type",
    "kind": "DuplicateKey",
    "text": "cap:a;a",
    "position": 4,
    "cartridge_ids": ("a-b", "c-d"),
    "explanation": Explanation(
        "cap:x",
        None,
        (Candidate("a-b", "a", "cap:x", "batch", "exact", chosen=True, reason="best"),),
        "one serves it",
    ),
    "reason": errors.NoRouteReason.OTHER_MODE,
    "report": PreflightReport((CHECK, Check("disk", ok=True)), memory_bytes=5),
    "exit_status": -11,
    "stderr": "last\nwords",
    "issues": (DiscoveryIssue("d", None, "what", "why", "fix", plugin="p", caps=("cap:x",)),),
}
OURS = [
    kind
    for kind in map(vars(errors).get, errors.__all__)
    if isinstance(kind, type) and issubclass(kind, CartridgeError)
]


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_each_error_of_ours_is_itself(kind):
    """Its class, its message and every attribute arrive."""
    made = inspect.getattr_static(kind, "__init__")
    names = inspect.signature(made).parameters if inspect.isfunction(made) else ()
    error = kind(
        "what happened", **{name: ATTRIBUTES[name] for name in names if name in ATTRIBUTES}
    )
    found = crossed(error)
    assert type(found) is kind
    assert str(found) == "what happened"
    assert attributes(found) == attributes(error)
    plain = crossed(kind("what happened"))
    assert attributes(plain) == attributes(kind("what happened"))


def test_a_urns_error_is_itself():
    """One that core raises by itself, message of several lines included."""
    with pytest.raises(errors.UrnError) as caught:
        CapUrn.parse("cap:echo;in=media:enc=utf-8")
    found = crossed(caught.value)
    assert (str(found), attributes(found)) == (str(caught.value), attributes(caught.value))
    assert isinstance(found, ValueError)


BUILT_IN = [
    pytest.param(ValueError("one", 2), id="value"),
    pytest.param(KeyError("k"), id="key"),
    pytest.param(OSError(28, "No space left on device", "/x"), id="os"),
    pytest.param(FileNotFoundError(2, "No such file", "a", None, "b"), id="two-files"),
    pytest.param(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why"), id="unicode"),
    pytest.param(MemoryError(), id="memory"),
    pytest.param(NotImplementedError("later"), id="subclass"),
]


@pytest.mark.parametrize("error", BUILT_IN)
def test_built_in_errors_are_themselves(error):
    """Class, arguments and text are the same."""
    found = crossed(error)
    assert type(found) is type(error)
    assert (found.args, str(found)) == (error.args, str(error))


class OwnError(LoadError):
    """Of a plugin."""


class StrangeError(Exception):
    """Has no text."""

    def __str__(self):
        msg = "no text"
        raise RuntimeError(msg)


OTHERS = [
    pytest.param(OwnError("mine"), LoadError, "^mine$", id="own-subclass"),
    pytest.param(
        StrangeError(),
        BackendError,
        "test_errors_on_wire.StrangeError: .*RuntimeError",
        id="strange",
    ),
    pytest.param(SystemExit(3), BackendError, "^SystemExit: 3$", id="exit"),
    pytest.param(StopIteration(1), BackendError, "^StopIteration: 1$", id="stop"),
    pytest.param(ExceptionGroup("g", [OSError()]), BackendError, "^ExceptionGroup: g", id="group"),
    pytest.param(re.error("bad"), BackendError, r"^re\.error: bad$", id="library"),
]


@pytest.mark.parametrize(("error", "kind", "words"), OTHERS)
def test_other_errors_are_the_nearest(error, kind, words):
    """What only one side has is named, as the nearest that both have."""
    found = crossed(error)
    assert type(found) is kind
    assert re.search(words, str(found), re.DOTALL)


def test_cause_notes_and_traceback_go_along():
    """All that a person needs is there."""
    error = BackendError("it failed")
    error.__cause__ = ValueError("deep inside")
    error.add_note("look here")
    found = crossed(error, trace=True)
    assert type(found.__cause__) is ValueError
    note, trace = found.__notes__
    assert note == "look here"
    assert trace.startswith("Raised in the process of x:\n")
    assert "ValueError: deep inside" in trace


def test_causes_have_an_end():
    """A chain that goes in a circle crosses."""
    one, other = BackendError("one"), BackendError("other")
    one.__cause__, other.__cause__ = other, one
    assert str(crossed(one).__cause__) == "other"


def test_attribute_that_cannot_cross_is_told():
    """A value that is not plain arrives as its text, one that nests too deep as well."""
    deep: object = 1
    for _ in range(packing_depth()):
        deep = [deep]
    for value in ({1, 2}, deep):
        found = crossed(errors.InvalidArgumentError("m", arg="a", value=value))
        assert "m" in str(found)


def packing_depth():
    from cartridge_core.packing import MAX_NESTING

    return MAX_NESTING - 1


NO_ERRORS = [
    pytest.param(None, id="nothing"),
    pytest.param({"class": "x"}, id="too-little"),
    pytest.param({"class": 1, "message": "m", "notes": []}, id="class"),
    pytest.param(
        {"class": "x", "message": "m", "notes": [], "base": "Status", "fields": {}}, id="no-class"
    ),
    pytest.param(
        {"class": "x", "message": "m", "notes": [], "base": "UrnError", "fields": {"kind": 1}},
        id="attribute",
    ),
    pytest.param(
        {
            "class": "x",
            "message": "m",
            "notes": [],
            "base": "PreflightError",
            "fields": {"report": {"checks": [{"name": "x"}], "memory_bytes": None}},
        },
        id="part-of-an-attribute",
    ),
]


@pytest.mark.parametrize("packed", NO_ERRORS)
def test_error_what_is_no_error(packed):
    """What is not of the right shape is refused."""
    with pytest.raises(MalformedError):
        unpack_error(packed, "there")


@pytest.mark.parametrize("name", ["KeyboardInterrupt", "SystemExit", "eval", "Exception.x", "open"])
def test_only_exceptions_are_made(name):
    """What a process names is not called unless it is a built-in exception."""
    found = unpack_error({"class": name, "message": "m", "notes": [], "args": ["x"]}, "there")
    assert type(found) is BackendError


EVENTS = [
    pytest.param(Progress(0.5, "half", phase=Phase.LOAD), id="progress"),
    pytest.param(Progress(1), id="end"),
    pytest.param(Log("info", "line", cartridge_id="a-b"), id="log"),
    pytest.param(
        Result(ResultKind.PARTIAL, "x", segment=2, start_s=1, end_s=2.5, cartridge_id="a-b"),
        id="result",
    ),
]


@pytest.mark.parametrize("event", EVENTS)
def test_events_come_back(event):
    """What a peer call gives is the same on the other side."""
    assert unpack_event(*pack_event(event)) == event


RESULT = pack_result(Result(ResultKind.FINAL, 1))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(None, id="nothing"),
        pytest.param(RESULT[:-1], id="too-few"),
        pytest.param([9, *RESULT[1:]], id="kind"),
        pytest.param([True, *RESULT[1:]], id="bool-kind"),
        pytest.param([2, 1, "0", None, None, None], id="segment"),
        pytest.param([2, 1, 0, "1", None, None], id="start"),
        pytest.param([2, 1, 0, None, None, 3], id="cartridge"),
    ],
)
def test_error_what_is_no_result(values):
    """What is not of the right shape is refused."""
    with pytest.raises(MalformedError):
        unpack_result(values)
    with pytest.raises(MalformedError):
        unpack_event("result", values)


LOG = {"level": "info", "message": "x", "cartridge_id": None}


@pytest.mark.parametrize(
    ("kind", "values"),
    [("what", LOG), ("log", {**LOG, "more": 1}), ("log", {**LOG, "level": 1}), ("log", None)],
    ids=["kind", "too-many", "type", "nothing"],
)
def test_error_what_is_no_event(kind, values):
    """A kind that there is not is refused, and so are fields that are not its own."""
    with pytest.raises(MalformedError):
        unpack_event(kind, values)


def test_error_what_is_no_report():
    """Every part of a value is looked at."""
    report = as_plain(PreflightReport((CHECK,)))
    assert from_plain(PreflightReport, report) == PreflightReport((CHECK,))
    with pytest.raises(MalformedError):
        from_plain(PreflightReport, {"checks": [{"name": "x"}], "memory_bytes": None})
