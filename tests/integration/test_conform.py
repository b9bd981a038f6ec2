"""The verb ``conform`` names the rule that a cartridge breaks, and outlives what dies."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import io
import json
import os
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.__main__ import main
from cartridge_core.cli.conform import conform as conform_command
from cartridge_core.testing.descriptors import fake_arg, fake_cap, fake_descriptor
from cartridge_core.testing.fakes import SlowCounter

if TYPE_CHECKING:
    from collections.abc import Callable

    from cartridge_core.descriptor import Descriptor

pytestmark = pytest.mark.integration

SOURCE = """
import os
import threading
import time
from pathlib import Path

from cartridge_core import Result, ResultKind, hookimpl, read_descriptors
from cartridge_core.testing.fakes import BatchEcho, SlowCounter, StreamingEcho


class Fake({kind}):
    pass
{body}

fake = Fake()


@hookimpl
def cartridge_descriptors():
    return read_descriptors(Path(__file__).parent / "descriptors")


for hook in dir(fake):
    if hook.startswith("cartridge_") and hook not in globals():
        globals()[hook] = getattr(fake, hook)
"""

INFER = """
    @hookimpl
    def cartridge_infer(self, session, value):
        {body}
        return super().cartridge_infer(session, value)
"""

ON_ANOTHER_THREAD = "if threading.current_thread() is not threading.main_thread(): {}"


def breaking(body: str) -> str:
    return INFER.format(body=body)


@attrs.frozen
class Outcome:
    """How a command ended."""

    status: int
    out: str

    @property
    def broken(self) -> dict[str, str]:
        """What is wrong, by the rule that is broken."""
        rules = json.loads(self.out)["rules"]
        return {one["rule"]: one["detail"] for one in rules if one["verdict"] == "fail"}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install the plugin ``fake`` with one cartridge, on the path of this process."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CARTRIDGE_PLUGINS", "fake")

    def make(body: str = "", kind: str = "BatchEcho", descriptor: Descriptor | None = None) -> None:
        info = tmp_path / "cartridge_fake-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cartridge-fake\nVersion: 1\n")
        group = "[cartridge_core.plugins]\nfake = cartridge_fake.plugin\n"
        (info / "entry_points.txt").write_text(group)
        package = tmp_path / "cartridge_fake"
        (package / "descriptors").mkdir(parents=True)
        (package / "__init__.py").write_text("")
        told = (descriptor or fake_descriptor("fake-one")).to_json()
        (package / "descriptors" / "one.json").write_text(json.dumps({**told, "id": "fake-one"}))
        (package / "plugin.py").write_text(SOURCE.format(kind=kind, body=body))

    return make


def conform(*words: str) -> Outcome:
    """Run the verb in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main(["conform", *words])
    return Outcome(status, out.getvalue())


PARTIAL = fake_descriptor("fake-one", "streaming", [fake_cap("echo", streaming=True)])
DYING = f"""{breaking(ON_ANOTHER_THREAD.format("os._exit(0)"))}

    @hookimpl
    def cartridge_cancel(self, session):
        os.abort()
"""
BROKEN = [
    pytest.param(
        (breaking("print('loading')\n        value = threading.get_ident()"),),
        (),
        {
            "calls_reach_it_through_the_registry": "and a session",
            "nothing_is_printed": "this is printed on stdout, which is the program's own",
        },
        id="it-prints-and-knows-its-thread",
    ),
    pytest.param(
        ("", "StreamingEcho", PARTIAL),
        (),
        {"results_form_segments": "PARTIAL results need attributes.partial"},
        id="it-declares-no-partial",
    ),
    pytest.param(
        (
            breaking("time.sleep(value / 1000)\n        value = 0"),
            "SlowCounter",
            SlowCounter.descriptor,
        ),
        ("--slow-input", "slow.json"),
        {"cancelling_stops_the_work": "call context.check_cancelled() between steps"},
        id="it-works-on",
    ),
    pytest.param(
        (DYING,),
        (),
        {
            "calls_reach_it_through_the_registry": "its process ended with exit status 0",
            "cancelling_from_another_thread_ends_the_session": "its process was ended by SIGABRT",
        },
        id="it-dies",
    ),
    pytest.param(
        (breaking(ON_ANOTHER_THREAD.format("time.sleep(1000)")),),
        ("--timeout", "8"),
        {"calls_reach_it_through_the_registry": "nothing came of it within 8 s"},
        id="it-hangs",
    ),
]


@pytest.mark.parametrize(("plugin", "words", "broken"), BROKEN)
def test_error_what_is_broken_is_named_and_nothing_else(
    install: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plugin: tuple[object, ...],
    words: tuple[str, ...],
    broken: dict[str, str],
) -> None:
    """The report has exactly the rules that are broken, and what is wrong; the rest goes on."""
    install(*plugin)
    monkeypatch.chdir(tmp_path)
    Path("slow.json").write_text("400")
    done = conform("fake-one", "--json", *words)
    assert done.status == 18, done.out
    assert list(done.broken) == list(broken)
    assert all(text in done.broken[rule] for rule, text in broken.items()), done.broken
    document = json.loads(done.out)
    assert document["failed"] == len(broken)
    rules = [one["rule"] for one in document["rules"]]
    assert document["passed"] + document["not_applicable"] + len(broken) == len(rules) > 20
    assert ("pull_after_the_end_stays_none" in rules) is ("StreamingEcho" in plugin)
    assert ("infer_gives_one_final" in rules) is ("StreamingEcho" not in plugin)


STARTING = {
    "it-starts-a-program": "subprocess.Popen(['sleep', '1000'], stdout=held)",
    "it-forks": "os.fork() or time.sleep(1000)",
}


@pytest.mark.parametrize("start", STARTING.values(), ids=STARTING)
def test_error_what_a_dying_cartridge_started_ends_with_it(
    install: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    """It is found at once that it died; no process and no temporary file of it is left."""
    held = tmp_path / "held"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", os.fspath(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    work = f"""
            import fcntl, subprocess, tempfile
            tempfile.mkdtemp()
            held = open({os.fspath(held)!r}, "w")
            fcntl.flock(held, fcntl.LOCK_EX)
            {start}
            os.abort()"""
    install(breaking(ON_ANOTHER_THREAD.format(work)))
    done = conform("fake-one", "--json")
    assert list(done.broken) == ["calls_reach_it_through_the_registry"], done.out
    assert "SIGABRT" in done.broken["calls_reach_it_through_the_registry"]
    assert list(temporary.iterdir()) == []
    until_s = time.monotonic() + 5.0
    with held.open() as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                assert time.monotonic() < until_s, "something of it is left"
                time.sleep(0.05)
            else:
                break


PICTURE = fake_descriptor("fake-one", caps=[fake_cap("look", takes="media:image")])
NEEDS_MODEL = fake_descriptor(
    "fake-one",
    caps=[
        fake_cap(
            "echo",
            {
                "name": "model_spec",
                "media_urn": "media:enc=utf-8;model-spec",
                "required": True,
                "sources": [{"cli_flag": "--model-spec"}],
                "metadata": {"pack": True},
            },
        )
    ],
)

REFUSED = [
    pytest.param(None, ["fake-two"], 12, "no usable cartridge has the id 'fake-two'", id="unknown"),
    pytest.param(None, ["no/such"], 14, "no/such is neither a file nor", id="no-such-folder"),
    pytest.param(None, ["such.so"], 14, "such.so is neither a file nor", id="no-such-library"),
    pytest.param(None, ["such.dylib"], 14, "such.dylib is neither", id="no-such-dylib"),
    pytest.param(None, ["fake-one", "--input", "none.wav"], 2, "does not exist", id="no-input"),
    pytest.param(
        None,
        ["fake-one", "--golden", "bad.json"],
        11,
        "--golden bad.json: $.schema_version",
        id="bad-golden",
    ),
    pytest.param(None, ["fake-one", "--timeout", "0"], 2, "0", id="no-time"),
    pytest.param(None, ["fake-one", "--model-spec", "./x"], 2, "takes no model", id="model"),
    pytest.param(None, ["empty"], 14, "empty is no pack that can be opened", id="empty-folder"),
    pytest.param(PICTURE, ["fake-one"], 11, "give one with --input", id="no-picture"),
    pytest.param(
        PICTURE, ["fake-one", "--input", "bad.npy"], 11, "not what its name says", id="bad-npy"
    ),
    pytest.param(NEEDS_MODEL, ["fake-one"], 2, "no default model", id="no-model"),
    pytest.param(
        NEEDS_MODEL,
        ["fake-one", "--model-spec", "./none"],
        14,
        "does not exist",
        id="no-such-model",
    ),
]


@pytest.mark.parametrize(("descriptor", "words", "status", "text"), REFUSED)
def test_error_what_cannot_be_tried_is_said_at_once(
    install: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    descriptor: Descriptor | None,
    words: list[str],
    status: int,
    text: str,
) -> None:
    """Neither a name that is nothing, nor a bad file, nor a missing input starts the suite."""
    install(descriptor=descriptor)
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("{}")
    Path("bad.npy").write_text("no array")
    Path("empty").mkdir()
    begin_s = time.monotonic()
    done = conform(*words)
    assert done.status == status, done.out
    assert text in done.out
    assert time.monotonic() - begin_s < 5.0


def test_error_without_pytest_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite is an extra, and the error names it."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pytest" else find(name)
    )
    done = conform("fake-one")
    assert done.status == 14
    assert "pip install 'cartridge-core[testing]'" in done.out


def test_every_rule_has_a_line_and_its_text(install: Callable[..., None], tmp_path: Path) -> None:
    """
    What passes, what does not apply, and status 0.

    Of a cap the first golden vector is the input, with its parameters, and the second another one.
    """
    looks = fake_cap(
        "look", fake_arg("upper", "boolean"), takes="media:image", gives="media:enc=utf-8"
    )
    body = breaking("assert session.parameters['upper'] and value[-4:] in {'.png', '.gif'}")
    install(body, descriptor=fake_descriptor("fake-one", caps=[looks]))
    vectors = [
        {"id": name, "input_file": name, "parameters": {"upper": True}, "compare": "exact"}
        for name in ("a.png", "b.gif")
    ]
    for name in ("a.png", "b.gif"):
        (tmp_path / name).write_bytes(b"x")
    golden = tmp_path / "golden.json"
    golden.write_text(json.dumps({"schema_version": "1", "vectors": vectors}))
    done = conform("fake-one", "--golden", os.fspath(golden))
    assert done.status == 0, done.out
    *lines, why, last = done.out.splitlines()
    assert last == "fake-one: 20 passed, 0 failed, 1 not applicable"
    assert why.strip().startswith("no input is known that takes seconds")
    words = [line.split(None, 2) for line in lines if not line.startswith("not applicable")]
    assert {verdict for verdict, _, _ in words} == {"pass"}
    told = {rule: text for _, rule, text in words}
    assert told["hooks_follow_the_contract"] == (
        "Every hook of its io.mode is there, spelt as the specification spells it."
    )


def test_every_option_is_documented() -> None:
    """The table of contract.md has the options of the verb, in their order."""
    page = (Path(__file__).parents[2] / "docs" / "contract.md").read_text("utf-8")
    own = [one.opts[0] for one in conform_command.params if one.opts[0].startswith("--")]
    assert re.findall(r"^\| `(--[\w-]+)` \|", page, re.MULTILINE) == own[: own.index("--json")]
