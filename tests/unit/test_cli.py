"""The command line parses words, prints results and maps errors to exit statuses."""

from __future__ import annotations

import base64
import importlib
import io
import json
import os
import sys
from array import array
from functools import partial
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.__main__ import main
from cartridge_core.cli.plain import as_plain
from cartridge_core.errors import (
    AbiMismatchError,
    ActivityTimeoutError,
    BackendError,
    BusyError,
    CancelledError,
    CartridgeDiedError,
    CartridgeError,
    DownloadError,
    InternalError,
    InvalidArgumentError,
    LoadError,
    OfflineError,
    PreflightError,
    StateError,
    UnsupportedError,
    VerificationError,
)
from cartridge_core.hookspecs import hookimpl
from cartridge_core.registry import Registry
from cartridge_core.reports import Check, DiscoveryIssue, PreflightReport
from cartridge_core.results import Result, ResultKind
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor
from cartridge_core.testing.fakes import (
    BatchEcho,
    FailingEcho,
    FakeSession,
    SegmentingEcho,
    StreamingEcho,
)
from cartridge_core.testing.registries import discovered_of, registry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cartridge_core.pack import Pack

ECHO = 'cap:echo;in="media:enc=utf-8"'
HEAR = "cap:hear;in=media:audio"


class Giving(BatchEcho):
    """Gives a payload, and keeps the values and parameters it was given."""

    plugin_name = "giving"
    descriptor = fake_descriptor(
        "giving-anything",
        caps=[
            fake_cap(
                "give",
                fake_arg("upper", "boolean", default=False),
                fake_arg("most", "integer", maximum=9),
                fake_arg("word", "string"),
                fake_arg("prefix", "string", scope="open"),
                {**fake_arg("stop", "string"), "is_sequence": True},
                {
                    **fake_arg("shape", "string"),
                    "media_urn": "media:list;shape",
                    "metadata": {"schema": {"type": ["array", "string"]}},
                },
            )
        ],
    )

    def __init__(self, payload: object = None) -> None:
        super().__init__()
        self.payload = payload
        self.values: list[object] = []
        self.parameters: Mapping[str, object] = {}

    @hookimpl
    def cartridge_infer(self, session: FakeSession, value: object) -> Result:
        self.values.append(value)
        self.parameters = {**session.parameters, **session.handle.options}
        return Result(ResultKind.FINAL, self.payload)


class GivingMany(Giving):
    """Takes a text or a list of texts."""

    plugin_name = "giving-many"
    descriptor = fake_descriptor(
        "giving-many",
        caps=[
            {
                **fake_cap("give"),
                "args": [
                    {
                        "name": "text",
                        "media_urn": "media:enc=utf-8",
                        "required": True,
                        "is_sequence": True,
                        "sources": [{"stdin": "media:enc=utf-8"}, {"position": 0}],
                    }
                ],
            }
        ],
    )


class Hearing(StreamingEcho):
    """Keeps the chunks it was given."""

    plugin_name = "hearing"
    descriptor = fake_descriptor("hearing-text", "streaming", partial="append")

    def __init__(self) -> None:
        super().__init__()
        self.chunks: list[object] = []

    @hookimpl
    def cartridge_push(self, session: FakeSession, chunk: object) -> None:
        self.chunks.append(chunk)
        session.chunks.append(chunk)


class Telling(Hearing):
    """Gives the texts of its chunks in records."""

    plugin_name = "telling"
    descriptor = fake_descriptor("telling-text", "streaming", partial="append")

    def step(self, session: FakeSession, chunk: object) -> Result:
        return Result(ResultKind.PARTIAL, {"text": str(super().step(session, chunk).payload)})

    def commit(self, session: FakeSession) -> Result:
        text = super().commit(session).payload
        return Result(ResultKind.FINAL, {"text": text, "finish_reason": "stop"})


class Heard(SegmentingEcho):
    """Takes texts for what it hears."""

    plugin_name = "heard"
    descriptor = fake_descriptor(
        "heard-text",
        "streaming",
        [fake_cap("heard", gives="media:enc=utf-8;text", streaming=True)],
        partial="replace",
        endpointing="signal",
    )

    @hookimpl
    def cartridge_push(self, session: FakeSession, chunk: object) -> None:
        super().cartridge_push(session, str(chunk).encode())


class Breaking(StreamingEcho):
    """Fails where its stream would end."""

    plugin_name = "breaking"
    descriptor = fake_descriptor("breaking-text", "streaming", partial="append")

    def commit(self, session: FakeSession) -> Result:
        msg = "the end is missing"
        raise BackendError(msg)


class Noisy(BatchEcho):
    """Writes to stdout and stderr wherever it is called."""

    plugin_name = "noisy"

    def saw(self, hook: str) -> None:
        super().saw(hook)
        print(f"printed by {hook}")  # noqa: T201 -- the trouble itself
        os.write(1, f"written by {hook}\n".encode())
        os.write(2, f"warned by {hook}\n".encode())


class Lacking(BatchEcho):
    """Lacks something on this machine."""

    plugin_name = "lacking"

    @hookimpl
    def cartridge_preflight(
        self, cartridge_id: str, pack: Pack | None, options: Mapping[str, object]
    ) -> PreflightReport:
        check = Check("driver", ok=False, required="550", found="none", fix="install a driver")
        return PreflightReport((check,), memory_bytes=7)


@attrs.frozen
class Outcome:
    """How a command ended."""

    status: int
    out: str
    err: str

    def document(self) -> dict[str, object]:
        """Give its one JSON document."""
        found: dict[str, object] = json.loads(self.out)
        return found


class _Stdin(io.TextIOWrapper):
    def __init__(self, data: bytes | io.BytesIO | None) -> None:
        buffer = data if isinstance(data, io.BytesIO) else io.BytesIO(data or b"")
        buffer.isatty = lambda: data is None  # type: ignore[method-assign]
        super().__init__(buffer)


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 99


@pytest.fixture
def cartridge(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """Give a function that runs a command on a registry of plugins."""
    monkeypatch.delenv("CARTRIDGE_STRICT", raising=False)

    def run(
        *words: str,
        plugins: object = None,
        stdin: bytes | io.BytesIO | None = None,
        registry: Callable[[], Registry] | None = None,
    ) -> Outcome:
        monkeypatch.setattr(sys, "stdin", _Stdin(stdin))
        given = plugins if isinstance(plugins, list) else [plugins or BatchEcho()]
        capfd.readouterr()
        status = main(words, registry or partial(registry_of, *given))
        return Outcome(status, *capfd.readouterr())

    return run


STATUSES = [
    pytest.param(InvalidArgumentError, 11, id="invalid-argument"),
    pytest.param(UnsupportedError, 12, id="unsupported"),
    pytest.param(PreflightError, 13, id="preflight"),
    pytest.param(LoadError, 14, id="load"),
    pytest.param(VerificationError, 14, id="verification"),
    pytest.param(OfflineError, 14, id="offline"),
    pytest.param(BackendError, 15, id="backend"),
    pytest.param(ActivityTimeoutError, 15, id="activity-timeout"),
    pytest.param(CartridgeDiedError, 15, id="died"),
    pytest.param(CancelledError, 16, id="cancelled"),
    pytest.param(StateError, 17, id="state"),
    pytest.param(BusyError, 17, id="busy"),
    pytest.param(AbiMismatchError, 18, id="abi-mismatch"),
    pytest.param(InternalError, 109, id="internal"),
]


@pytest.mark.parametrize(("error", "status"), STATUSES)
def test_error_gives_its_exit_status_and_one_line(
    cartridge: Callable[..., Outcome], error: type[CartridgeError], status: int
) -> None:
    """An error ends with 10 + |status|, and stderr has its class and message alone."""
    ended = cartridge("run", ECHO, "hi", plugins=FailingEcho(error=error("the reason")))
    assert ended == Outcome(status, "", f"error: {error.__name__}: the reason\n")


def test_error_of_a_plugin_s_class_has_the_public_one_s_name(
    cartridge: Callable[..., Outcome],
) -> None:
    """A class of a plugin's own is named as the one of ours that it is."""

    class GoneError(DownloadError):
        pass

    ended = cartridge("run", ECHO, "hi", plugins=FailingEcho(error=GoneError("gone")))
    assert ended == Outcome(14, "", "error: DownloadError: gone\n")


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(RuntimeError("oops"), id="error-of-another-kind"),
        pytest.param(SystemExit(0), id="exit-with-success"),
        pytest.param(SystemExit("bye"), id="exit-with-words"),
    ],
)
def test_error_of_a_plugin_that_is_no_cartridge_error_is_never_success(
    cartridge: Callable[..., Outcome], error: BaseException
) -> None:
    """Whatever a plugin raises, `sys.exit(0)` too, the command fails."""
    ended = cartridge("run", ECHO, "hi", plugins=FailingEcho(error=error))
    assert ended.status not in {0, 1, 2}
    assert ended.out == ""
    assert ended.err.startswith("error: ")


def test_error_shows_its_traceback_with_verbose(cartridge: Callable[..., Outcome]) -> None:
    """``--verbose`` adds the traceback before the error line."""
    ended = cartridge("run", ECHO, "hi", "--verbose", plugins=FailingEcho())
    assert "Traceback (most recent call last)" in ended.err
    assert ended.err.endswith("error: BackendError: the fake backend gave up\n")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([], id="no-verb"),
        pytest.param(["bogus"], id="unknown-verb"),
        pytest.param(["route"], id="missing-argument"),
        pytest.param(["list", "--bogus"], id="unknown-option"),
        pytest.param(["route", ECHO, "--mode", "both"], id="bad-choice"),
        pytest.param(["run", ECHO, "hi", "--bogus", "1"], id="undeclared-flag"),
        pytest.param(["run", ECHO, "hi", "--set", "upper"], id="set-without-value"),
        pytest.param(["run", ECHO, "hi", "--set", "upper=true", "--upper"], id="given-twice"),
        pytest.param(["run", ECHO, "hi", "there"], id="more-values-than-taken"),
        pytest.param(["run", ECHO, "hi", "--prefix"], id="flag-without-value"),
        pytest.param(["run", ECHO, "--input", "no-such-file"], id="unreadable-input"),
        pytest.param(["run", ECHO, "hi", "--input", "-"], id="two-inputs"),
        pytest.param(["models"], id="no-verb-of-models"),
    ],
)
def test_error_of_usage_is_2(cartridge: Callable[..., Outcome], words: list[str]) -> None:
    """Wrong usage ends with 2, says so on stderr, and prints nothing."""
    ended = cartridge(*words)
    assert (ended.status, ended.out) == (2, "")
    assert "Usage: cartridge" in ended.err or "error: UsageError: " in ended.err


def test_error_of_a_missing_extra_says_what_to_type(
    cartridge: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without click or rich the command says which extra to install, and ends with 2."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ended = cartridge("list")
    assert (ended.status, ended.out) == (2, "")
    assert 'pip install "cartridge-core[cli]"' in ended.err


@pytest.mark.parametrize("words", [[], ["models"]], ids=["the-command", "models"])
def test_usage_is_printed_once(cartridge: Callable[..., Outcome], words: list[str]) -> None:
    """A group without its verb is answered with its help, and that alone."""
    ended = cartridge(*words)
    assert ended.err.count("Usage: ") == 1
    assert "error: " not in ended.err


@pytest.mark.parametrize("words", [[], ["models"]], ids=["the-command", "models"])
def test_summaries_of_verbs_are_whole_sentences(
    cartridge: Callable[..., Outcome], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No summary is cut where a terminal has 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    summaries = cartridge(*words, "--help").out.partition("Commands:\n")[2].splitlines()
    assert summaries
    assert not [line for line in summaries if not line.endswith(".") or line.endswith("...")]


def test_ctrl_c_is_130(cartridge: Callable[..., Outcome]) -> None:
    """Ctrl-C ends with 130 and says nothing."""

    def interrupted() -> Registry:
        raise KeyboardInterrupt

    assert cartridge("run", ECHO, "hi", registry=interrupted) == Outcome(130, "", "")


JSON_VERBS = [
    pytest.param(["list"], id="list"),
    pytest.param(["show", "batch-echo-text"], id="show"),
    pytest.param(["caps"], id="caps"),
    pytest.param(["route", ECHO], id="route"),
    pytest.param(["route", ECHO, "--explain"], id="explain"),
    pytest.param(["preflight", "batch-echo-text"], id="preflight"),
    pytest.param(["doctor"], id="doctor"),
    pytest.param(["run", ECHO, "hi"], id="run"),
]


@pytest.mark.parametrize("words", JSON_VERBS)
def test_json_is_one_document_and_nothing_on_stderr(
    cartridge: Callable[..., Outcome], words: list[str]
) -> None:
    """``--json`` gives one JSON document on one line."""
    ended = cartridge(*words, "--json")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.count("\n") == 1
    assert json.loads(ended.out)


@pytest.mark.parametrize("words", JSON_VERBS)
def test_text_is_not_json_and_nothing_on_stderr(
    cartridge: Callable[..., Outcome], words: list[str]
) -> None:
    """Without ``--json`` the result is for people."""
    ended = cartridge(*words)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.strip()
    assert not ended.out.startswith(("{", "["))


def test_list_shows_id_mode_plugin_version_caps_and_pack(
    cartridge: Callable[..., Outcome],
) -> None:
    """``list`` has a row for every cartridge, sorted by id."""
    ended = cartridge("list", plugins=[StreamingEcho(), BatchEcho()])
    assert [line.split() for line in ended.out.splitlines()] == [
        ["ID", "MODE", "PLUGIN", "VERSION", "CAPS", "PACK"],
        ["batch-echo-text", "batch", "batch-echo", BatchEcho.descriptor.version, "1"],
        ["streaming-echo-text", "streaming", "streaming-echo", BatchEcho.descriptor.version, "1"],
    ]


def test_list_of_nothing_says_what_to_install(cartridge: Callable[..., Outcome]) -> None:
    """Where nothing is installed, ``list`` says what to type."""
    ended = cartridge("list", plugins=[])
    assert ended.status == 0
    assert "pip install" in ended.out


@pytest.mark.parametrize("verb", ["list", "doctor"])
def test_nothing_usable_is_not_nothing_installed(
    cartridge: Callable[..., Outcome], verb: str
) -> None:
    """Where issues leave no cartridge, they are shown, and nothing is called missing."""
    issue = DiscoveryIssue("typo", None, what="allowed name", why="nothing has it", fix="Correct.")
    found = attrs.evolve(discovered_of(), issues=(issue,))
    ended = cartridge(verb, registry=lambda: Registry(found))
    assert "no cartridge can be used" in ended.out
    assert str(issue) in ended.out
    assert "installed" not in ended.out


def test_show_gives_the_descriptor(cartridge: Callable[..., Outcome]) -> None:
    """``show --json`` is the descriptor's own JSON."""
    ended = cartridge("show", "batch-echo-text", "--json")
    assert ended.document() == BatchEcho.descriptor.to_json()


def test_error_of_show_names_what_is_installed(cartridge: Callable[..., Outcome]) -> None:
    """An unknown id is answered with the known ones."""
    ended = cartridge("show", "nobody")
    assert ended.status == 12
    assert "'nobody'" in ended.err
    assert "batch-echo-text" in ended.err


def test_caps_shows_arguments_with_flags_and_defaults(cartridge: Callable[..., Outcome]) -> None:
    """``caps`` names every URN, its cartridge, its arguments, what to type and the defaults."""
    ended = cartridge("caps")
    assert str(BatchEcho.descriptor.caps[0].urn) in ended.out
    assert "batch-echo-text (batch)" in ended.out
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["main", "VALUE", "required"] in lines
    assert ["upper", "--upper", "=", "false"] in lines


def test_show_shows_an_argument_without_a_flag(cartridge: Callable[..., Outcome]) -> None:
    """An argument that declares no flag is given by ``--set``."""
    flagless = {**fake_arg("depth", "integer"), "sources": [{"position": 1}]}
    plugin = BatchEcho()
    plugin.descriptor = fake_descriptor("batch-echo-text", caps=[fake_cap("echo", flagless)])
    shown = cartridge("show", "batch-echo-text", plugins=plugin).out
    assert ["depth", "--set", "depth=", "optional"] in [line.split() for line in shown.splitlines()]


def test_route_says_where_and_why(cartridge: Callable[..., Outcome]) -> None:
    """``route`` names the cartridge, the mode and the reason."""
    found = cartridge("route", ECHO, "--json", plugins=[StreamingEcho(), BatchEcho()]).document()
    assert (found["cartridge_id"], found["mode"]) == ("batch-echo-text", "batch")
    assert found["reason"]


def test_error_of_route_comes_after_its_explanation(cartridge: Callable[..., Outcome]) -> None:
    """``route --explain`` explains a refusal, and still ends with its status."""
    ended = cartridge("route", ECHO, "--mode", "streaming", "--explain", "--json")
    assert ended.status == 12
    candidates = ended.document()["candidates"]
    assert isinstance(candidates, list)
    assert [one["chosen"] for one in candidates] == [False]
    assert "NoRouteError" in ended.err


def test_preflight_that_is_not_ok_is_13(cartridge: Callable[..., Outcome]) -> None:
    """A requirement that is not met is a result, and ends with 13."""
    ended = cartridge("preflight", "batch-echo-text", plugins=Lacking())
    assert (ended.status, ended.err) == (13, "")
    assert "install a driver" in ended.out


def test_preflight_takes_open_arguments(cartridge: Callable[..., Outcome]) -> None:
    """An open argument may be set; another is refused by name."""
    assert cartridge("preflight", "batch-echo-text", "--set", "prefix=a").status == 0
    assert cartridge("preflight", "batch-echo-text", "--prefix", "a").status == 0
    refused = cartridge("preflight", "batch-echo-text", "--set", "pack=a")
    assert refused.status == 11
    assert "'pack'" in refused.err


NEAR = [
    pytest.param(["preflight", "batch-echo-text", "--prefx", "a"], "--prefix", id="preflight"),
    pytest.param(["run", ECHO, "hi", "--uper"], "--upper", id="of-the-cap"),
    pytest.param(["run", ECHO, "hi", "--strem"], "--stream", id="of-the-command"),
]


@pytest.mark.parametrize(("words", "meant"), NEAR)
def test_error_of_an_unknown_flag_names_the_nearest(
    cartridge: Callable[..., Outcome], words: list[str], meant: str
) -> None:
    """A misspelt flag is answered with the one that was meant."""
    ended = cartridge(*words)
    assert ended.status == 2
    assert f"Did you mean {meant}?" in ended.err


def test_doctor_says_what_a_machine_lacks(cartridge: Callable[..., Outcome]) -> None:
    """``doctor`` gives every cartridge's unmet requirements, and what to do."""
    ended = cartridge("doctor", plugins=Lacking())
    assert ended.status == 0
    assert "install a driver" in ended.out


def test_doctor_shows_the_hub_s_variables_where_they_are_set(
    cartridge: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What decides where models come from is shown, and what is not set is not."""
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")
    monkeypatch.delenv("HF_HOME", raising=False)
    ended = cartridge("doctor")
    assert ["HF_ENDPOINT", "https://hub.example"] in [
        line.split() for line in ended.out.split("\n")
    ]
    assert "HF_HOME" not in ended.out


def test_error_of_doctor_only_when_strict(cartridge: Callable[..., Outcome]) -> None:
    """A plugin that cannot be activated is an issue; ``--strict`` makes it an error."""
    ended = cartridge("doctor", registry=_broken)
    assert ended.status == 0
    assert "cartridge-batch-echo" in ended.out
    assert "ImportError: no libfake.so" in ended.out
    assert "--strict" in ended.out
    strict = cartridge("doctor", "--strict", registry=_broken)
    assert strict.status == 18
    assert "error: DiscoveryError: " in strict.err


def _broken() -> Registry:
    """Give a registry whose one plugin cannot be imported."""

    def load() -> object:
        msg = "no libfake.so"
        raise ImportError(msg)

    found = discovered_of(BatchEcho())
    plugins = {name: attrs.evolve(one, load=load) for name, one in found.plugins.items()}
    return Registry(attrs.evolve(found, plugins=plugins))


VALUES = [
    pytest.param(["--set", "upper=true"], "upper", True, id="bool"),
    pytest.param(["--set", "most=3"], "most", 3, id="integer"),
    pytest.param(["--set", "word=3"], "word", "3", id="text-that-looks-like-a-number"),
    pytest.param(["--set", "word=a=b"], "word", "a=b", id="text-with-an-equals-sign"),
    pytest.param(["--set", "word="], "word", "", id="empty-text"),
    pytest.param(["--set", "word=null"], "word", "null", id="text-that-looks-like-null"),
    pytest.param(["--set", "stop=a"], "stop", "a", id="one-of-a-sequence"),
    pytest.param(["--set", "stop=a", "--set", "stop=b"], "stop", ["a", "b"], id="a-sequence"),
    pytest.param(["--set", "shape=[1, 2]"], "shape", [1, 2], id="array"),
    pytest.param(["--set", "shape=any"], "shape", "any", id="text-where-an-array-may-be"),
    pytest.param(["--set", "shape=12"], "shape", "12", id="number-where-text-or-array-may-be"),
    pytest.param(["--set", "prefix=x"], "prefix", "x", id="open-argument"),
    pytest.param(["--upper"], "upper", True, id="flag-of-a-bool"),
    pytest.param(["--upper", "false"], "upper", False, id="flag-of-a-bool-with-a-value"),
    pytest.param(["--upper=false"], "upper", False, id="flag-of-a-bool-with-equals-sign"),
    pytest.param(["--upper", "--most", "3"], "upper", True, id="flag-of-a-bool-before-a-flag"),
    pytest.param(["--most", "3"], "most", 3, id="declared-flag"),
    pytest.param(["--word=--x"], "word", "--x", id="declared-flag-with-equals-sign"),
]


@pytest.mark.parametrize(("words", "name", "value"), VALUES)
def test_argument_is_read_as_declared(
    cartridge: Callable[..., Outcome], words: list[str], name: str, value: object
) -> None:
    """Text stays text; numbers, bools, arrays and objects are JSON."""
    plugin = Giving("ok")
    ended = cartridge("run", "cap:give", "hi", *words, plugins=plugin)
    assert ended == Outcome(0, "ok\n", "")
    assert plugin.parameters[name] == value
    assert type(plugin.parameters[name]) is type(value)


REFUSED = [
    pytest.param(["--set", "most=many"], "most", id="no-integer"),
    pytest.param(["--set", "most=10"], "most", id="above-the-maximum"),
    pytest.param(["--set", 'most="3"'], "most", id="quoted-integer"),
    pytest.param(["--set", "upper=True"], "upper", id="python-bool"),
    pytest.param(["--upper", "no"], 'upper: must be true or false, found "no"', id="flag-no"),
    pytest.param(["--upper", "False"], 'true or false, found "False"', id="flag-python-bool"),
    pytest.param(["--upper", "0"], "upper: must be true or false, found 0", id="flag-zero"),
    pytest.param(["--upper=maybe"], 'true or false, found "maybe"', id="flag-equals-maybe"),
    pytest.param(["--set", "bogus=1"], "'bogus'", id="undeclared"),
    pytest.param(["--set", "mode=batch"], "'mode'", id="a-word-of-the-registry"),
    pytest.param(["--set", "prefer=x"], "'prefer'", id="another-word-of-the-registry"),
]


@pytest.mark.parametrize(("words", "name"), REFUSED)
def test_error_of_an_argument_names_it(
    cartridge: Callable[..., Outcome], words: list[str], name: str
) -> None:
    """A value that breaks its rule ends with 11 and names the argument."""
    plugin = Giving()
    ended = cartridge("run", "cap:give", "hi", *words, plugins=plugin)
    assert ended.status == 11
    assert name in ended.err
    assert plugin.values == []


DASHED = [
    pytest.param(["cap:give", "--", "--dash"], "--dash", id="after-the-cap"),
    pytest.param(["--", "cap:give", "--dash"], "--dash", id="before-the-cap"),
    pytest.param(["cap:give", "--most", "3", "--", "--upper"], "--upper", id="a-declared-flag"),
    pytest.param(["cap:give", "--upper", "--", "no"], "no", id="after-a-flag-of-a-bool"),
    pytest.param(["cap:give", "--", "--"], "--", id="itself"),
]


@pytest.mark.parametrize(("words", "value"), DASHED)
def test_words_after_two_dashes_are_values(
    cartridge: Callable[..., Outcome], words: list[str], value: str
) -> None:
    """After ``--`` every word is a VALUE, whatever it begins with."""
    plugin = Giving("ok")
    assert cartridge("run", *words, plugins=plugin) == Outcome(0, "ok\n", "")
    assert plugin.values == [value]


def test_a_word_after_a_flag_of_a_bool_stays_a_value(cartridge: Callable[..., Outcome]) -> None:
    """What does not read like a bool is no value of the flag before it."""
    plugin = Giving("ok")
    assert cartridge("run", "cap:give", "--upper", "maybe", plugins=plugin).status == 0
    assert plugin.values == ["maybe"]
    assert plugin.parameters["upper"] is True


def test_stdin_is_the_input_where_no_value_is_given(cartridge: Callable[..., Outcome]) -> None:
    """Without VALUE the text of stdin is the input, as it is."""
    plugin = Giving()
    assert cartridge("run", "cap:give", plugins=plugin, stdin="é\n".encode()).status == 0
    assert plugin.values == ["é\n"]


@pytest.mark.parametrize(
    "stdin", [pytest.param(None, id="terminal"), pytest.param(b"", id="empty")]
)
def test_error_of_no_input_at_all(cartridge: Callable[..., Outcome], stdin: bytes | None) -> None:
    """A required input that is nowhere is refused, not taken as empty."""
    ended = cartridge("run", "cap:give", plugins=Giving(), stdin=stdin)
    assert ended.status == 11
    assert "main" in ended.err
    assert ("stdin was empty" in ended.err) is (stdin == b"")


@pytest.mark.parametrize("stdin", [b"", b"other"])
def test_stdin_is_left_alone_where_the_input_is_given_by_name(
    cartridge: Callable[..., Outcome], stdin: bytes
) -> None:
    """A main argument that ``--set`` gives is not looked for on stdin."""
    plugin = BatchEcho()
    model = {
        **fake_arg("model_spec", "string"),
        "required": True,
        "sources": [{"stdin": "media:enc=utf-8;model-spec"}],
        "media_urn": "media:enc=utf-8;model-spec",
        "metadata": {"pack": True},
    }
    cap = {**fake_cap("echo", takes="media:enc=utf-8;model-spec"), "args": [model]}
    plugin.descriptor = fake_descriptor("batch-echo-text", caps=[cap])
    ended = cartridge(
        "run", "cap:echo", "--set", f"model_spec={__file__}", plugins=plugin, stdin=stdin
    )
    assert (ended.status, ended.err) == (0, "")


def test_error_of_input_that_is_not_text(cartridge: Callable[..., Outcome]) -> None:
    """Bytes that are not UTF-8 are refused with their place."""
    ended = cartridge("run", "cap:give", plugins=Giving(), stdin=b"ab\xff")
    assert ended.status == 11
    assert "byte 2" in ended.err


def test_input_file_is_read(cartridge: Callable[..., Outcome], tmp_path: os.PathLike[str]) -> None:
    """``--input`` reads the value from a file."""
    path = os.path.join(tmp_path, "in.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("from a file")
    plugin = Giving()
    assert cartridge("run", "cap:give", "--input", path, plugins=plugin).status == 0
    assert plugin.values == ["from a file"]


def test_several_values_are_a_list_where_the_input_is_a_sequence(
    cartridge: Callable[..., Outcome],
) -> None:
    """Several VALUEs make a list; one alone stays one."""
    plugin = GivingMany()
    assert cartridge("run", "cap:give", "a", "b", plugins=plugin).status == 0
    assert cartridge("run", "cap:give", "a", plugins=plugin).status == 0
    assert plugin.values == [["a", "b"], "a"]


def test_several_values_are_chunks_where_the_input_is_streaming(
    cartridge: Callable[..., Outcome],
) -> None:
    """A streaming input takes several VALUEs, one after the other."""
    plugin = Hearing()
    assert cartridge("run", ECHO, "a", "b", plugins=plugin) == Outcome(0, "ab\n", "")
    assert plugin.chunks == ["a", "b"]


@pytest.mark.parametrize("words", [[], ["--input", "-"]], ids=["implied", "asked-for"])
def test_text_of_stdin_comes_by_lines_where_the_input_is_streaming(
    cartridge: Callable[..., Outcome], words: list[str]
) -> None:
    """Each line of stdin is a chunk with its end, pushed before the next is read."""
    plugin = Hearing()
    seen: list[int] = []

    class Stdin(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            seen.append(len(plugin.chunks))
            return super().readline(size)

    stdin = Stdin("é\nb".encode())
    ended = cartridge("run", ECHO, *words, "--stream", plugins=plugin, stdin=stdin)
    assert ended == Outcome(0, "é\nb\n", "")
    assert plugin.chunks == ["é\n", "b"]
    assert seen == [0, 1, 2]


def test_error_of_a_streaming_input_that_is_not_text(cartridge: Callable[..., Outcome]) -> None:
    """The place of a byte that is not UTF-8 counts from the beginning of stdin."""
    ended = cartridge("run", ECHO, plugins=Hearing(), stdin=b"ab\ncd\xff")
    assert ended.status == 11
    assert "byte 5" in ended.err


def test_error_of_a_streaming_input_that_is_empty(cartridge: Callable[..., Outcome]) -> None:
    """No chunk at all is no input."""
    ended = cartridge("run", ECHO, plugins=Hearing(), stdin=b"")
    assert ended.status == 11
    assert "stdin was empty" in ended.err


def test_stdin_comes_in_chunks_where_the_input_is_streaming(
    cartridge: Callable[..., Outcome],
) -> None:
    """Bytes of stdin go to a streaming cartridge as they come."""
    ended = cartridge("run", HEAR, "--input", "-", plugins=SegmentingEcho(), stdin=b"hello.")
    assert ended == Outcome(0, "hello.\n", "")


PAYLOADS = [
    pytest.param({"a": array("b", [1])}, {"a": [1]}, id="array-in-a-record"),
    pytest.param(b"\x00\xff", base64.b64encode(b"\x00\xff").decode(), id="bytes"),
    pytest.param([{"text": "é", "at": None}], [{"text": "é", "at": None}], id="records"),
    pytest.param(float("nan"), None, id="not-a-number"),
    pytest.param("half \udc80", "half \udc80", id="half-a-surrogate-pair"),
    pytest.param(True, True, id="bool"),
]


@pytest.mark.parametrize(("payload", "plain"), PAYLOADS)
def test_json_of_a_payload(payload: object, plain: object) -> None:
    """Arrays are lists, bytes base64; a number that JSON lacks is null."""
    assert as_plain(payload) == plain


def test_json_of_numpy() -> None:
    """Arrays of several axes are nested lists, their scalars numbers."""
    numpy = importlib.import_module("numpy")
    assert as_plain(numpy.array([[1.5, 2.0]], dtype="float32")) == [[1.5, 2.0]]
    assert as_plain([numpy.float32(0.5), numpy.int64(2), numpy.bool_(1)]) == [0.5, 2, True]


def test_run_json_has_kind_payload_and_cartridge(cartridge: Callable[..., Outcome]) -> None:
    """The document of ``run`` is the result."""
    found = cartridge("run", "cap:give", "x", "--json", plugins=Giving({"v": array("d", [1])}))
    assert found.document() == {
        "kind": "final",
        "payload": {"v": [1.0]},
        "segment": 0,
        "start_s": None,
        "end_s": None,
        "cartridge_id": "giving-anything",
    }


TEXTS = [
    pytest.param("hi", "hi\n", id="text"),
    pytest.param("hi\n", "hi\n", id="text-with-its-own-end"),
    pytest.param({"text": "hi", "n": 1}, "text: hi\nn: 1\n", id="record"),
    pytest.param(["a", "b"], "a\nb\n", id="texts"),
    pytest.param([1, 2], "[1, 2]\n", id="numbers"),
    pytest.param(None, "", id="nothing"),
    pytest.param(b"raw", "raw", id="bytes"),
]


@pytest.mark.parametrize(("payload", "text"), TEXTS)
def test_text_of_a_payload(cartridge: Callable[..., Outcome], payload: object, text: str) -> None:
    """People get text as it is, records a line a field, and bytes raw."""
    assert cartridge("run", "cap:give", "x", plugins=Giving(payload)) == Outcome(0, text, "")


def test_stream_json_is_one_object_a_line(cartridge: Callable[..., Outcome]) -> None:
    """Every event of a stream is a JSON object on its own line, progress too."""
    ended = cartridge("run", ECHO, "hi", "--stream", "--json", plugins=StreamingEcho())
    events = [json.loads(line) for line in ended.out.splitlines()]
    results = [(one["kind"], one["payload"]) for one in events if one["event"] == "result"]
    assert results == [("partial", "hi"), ("final", "hi")]
    assert events[-1]["event"] == "progress"
    assert events[-1]["fraction"] == 1.0


def test_stream_takes_streaming_where_both_are_offered(cartridge: Callable[..., Outcome]) -> None:
    """``--stream`` takes the streaming cartridge, `run` alone the batch one."""
    both = [StreamingEcho(), BatchEcho()]
    assert cartridge("run", ECHO, "hi", "--stream", plugins=both).out == "hi\n"
    assert cartridge("run", ECHO, "hi", plugins=both).out == "text: hi\n"


def test_stream_of_a_batch_cartridge_gives_its_final(cartridge: Callable[..., Outcome]) -> None:
    """``--stream`` works where only batch is offered."""
    assert cartridge("run", ECHO, "hi", "--stream").out == "text: hi\n"


GROWING = [
    pytest.param(StreamingEcho, ["a ", "b"], "a b\n", id="texts"),
    pytest.param(Telling, ["a ", "b"], "a b\n", id="records"),
    pytest.param(StreamingEcho, ["a", "b\n"], "ab\n", id="text-with-its-own-end"),
    pytest.param(StreamingEcho, [""], "\n", id="nothing"),
]


@pytest.mark.parametrize(("kind", "values", "text"), GROWING)
def test_stream_of_increments_is_their_text(
    cartridge: Callable[..., Outcome],
    kind: Callable[[], StreamingEcho],
    values: list[str],
    text: str,
) -> None:
    """Increments stand one after the other, and the FINAL only ends their line."""
    ended = cartridge("run", "cap:echo", *values, "--stream", plugins=kind())
    assert ended == Outcome(0, text, "")


def test_error_in_a_stream_ends_the_line_that_has_begun(cartridge: Callable[..., Outcome]) -> None:
    """What came before an error is a line of its own."""
    ended = cartridge("run", "cap:echo", "hi", "--stream", plugins=Breaking())
    assert ended == Outcome(15, "hi\n", "error: BackendError: the end is missing\n")


def test_stream_that_replaces_gives_every_final_on_a_line(
    cartridge: Callable[..., Outcome],
) -> None:
    """Where stdout is no terminal, only what is committed is printed."""
    ended = cartridge("run", "cap:heard", "--stream", "a", "b.", "c", plugins=Heard())
    assert ended == Outcome(0, "ab.\nc\n", "")


def test_stream_that_replaces_rewrites_a_terminal_s_line(
    cartridge: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal the text so far stands in the line that its FINAL takes."""
    screen = _Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr("os.get_terminal_size", lambda fd: os.terminal_size((4, 9)))
    cartridge("run", "cap:heard", "--stream", "a", "bcde", plugins=Heard())
    clear = "\r\x1b[K"
    assert screen.getvalue() == f"{clear}a{clear}cde{clear}abcde\n"


def test_what_plugins_write_is_kept_out(cartridge: Callable[..., Outcome]) -> None:
    """Prints of a plugin, and what it writes to the file descriptors, are in neither stream."""
    ended = cartridge("run", ECHO, "hi", "--json", plugins=Noisy())
    assert (ended.status, ended.err) == (0, "")
    assert ended.document()["payload"] == {"text": "hi"}


def test_what_plugins_write_is_in_the_log(cartridge: Callable[..., Outcome]) -> None:
    """``--verbose`` shows the log on stderr, with what a plugin printed."""
    ended = cartridge("run", ECHO, "hi", "--json", "--verbose", plugins=Noisy())
    assert json.loads(ended.out)
    assert "INFO cartridge.stdout: printed by infer\n" in ended.err
    assert "INFO cartridge.stdout: written by infer\n" in ended.err
    assert "warned by infer\n" in ended.err


def test_streams_are_restored_after_a_command(
    cartridge: Callable[..., Outcome], capfd: pytest.CaptureFixture[str]
) -> None:
    """A program that calls `main` has its own stdout and stderr back."""
    before = (sys.stdout, sys.stderr)
    cartridge("run", ECHO, "hi", plugins=Noisy())
    assert (sys.stdout, sys.stderr) == before
    os.write(1, b"mine\n")
    assert capfd.readouterr().out == "mine\n"


@pytest.mark.parametrize("verb", ["list", "caps", "route"])
def test_verbs_that_only_read_call_no_plugin(cartridge: Callable[..., Outcome], verb: str) -> None:
    """``list``, ``caps`` and ``route`` call no hook of a plugin."""
    plugin = BatchEcho()
    assert cartridge(verb, *([ECHO] if verb == "route" else []), plugins=plugin).status == 0
    assert set(plugin.calls) <= {"descriptors"}
