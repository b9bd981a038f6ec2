"""The command in a process of its own, over plugins installed in a folder of its path."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
{at_import}
import os
import sys
from pathlib import Path

from cartridge_core import PreflightReport, Result, ResultKind, hookimpl, read_descriptors


@hookimpl
def cartridge_descriptors():
    return read_descriptors(Path(__file__).parent / "descriptors")


@hookimpl
def cartridge_preflight(cartridge_id, pack, options):
    return PreflightReport()


@hookimpl
def cartridge_open(cartridge_id, pack, options, context):
    {at_open}
    return "handle"


@hookimpl
def cartridge_close(handle):
    pass


@hookimpl
def cartridge_session_begin(handle, cap, parameters, context):
    return context


@hookimpl
def cartridge_session_end(session):
    pass


@hookimpl
def cartridge_infer(session, value):
    context = session
    {at_infer}
    return Result(ResultKind.FINAL, value)
"""


def a_descriptor(name: str) -> dict[str, object]:
    """Give the descriptor of a plugin that gives its text back."""
    cap = {
        "urn": f'cap:{name};in="media:enc=utf-8";out="media:echo;enc=utf-8"',
        "title": name,
        "aliases": [name],
        "args": [
            {
                "name": "text",
                "media_urn": "media:enc=utf-8",
                "required": True,
                "sources": [{"stdin": "media:enc=utf-8"}, {"position": 0}],
            }
        ],
        "outputs": [
            {"media_urn": "media:echo;enc=utf-8", "name": "echo", "output_description": "It."}
        ],
    }
    return {
        "spec_version": "0.3",
        "id": f"{name}-echo",
        "version": "1.0.0",
        "family": "echo",
        "modality": "text",
        "task": "echo",
        "io": {"mode": "batch", "input": {"dtype": "utf8"}, "output": {"dtype": "utf8"}},
        "target": {"hardware": "any", "abi": "any"},
        "performance": {"measured_on": "unmeasured"},
        "execution_mode": "native",
        "license": "MIT",
        "attributes": {"abi": "0.1", "hooks": 1, "caps": [cap]},
    }


@attrs.frozen
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


class Site:
    """A folder of sys.path with fake distributions, and the command run over them alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plugins: list[str] = []
        self.variables: dict[str, str] = {}

    def install(
        self, name: str, *, at_import: str = "", at_open: str = "", at_infer: str = ""
    ) -> Path:
        """Install a plugin that runs given code; gives its package's folder."""
        info = self.folder / f"cartridge_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: cartridge-{name}\nVersion: 1.0\n"
        )
        group = f"[cartridge_core.plugins]\n{name} = cartridge_{name}.plugin\n"
        (info / "entry_points.txt").write_text(group)
        package = self.folder / f"cartridge_{name}"
        (package / "descriptors").mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "descriptors" / "echo.json").write_text(json.dumps(a_descriptor(name)))
        hooks = {"at_open": at_open, "at_infer": at_infer}
        indented = {key: textwrap.indent(code, "    ").strip() for key, code in hooks.items()}
        source = SOURCE.format(at_import=at_import, **indented)
        (package / "plugin.py").write_text(source)
        self.plugins.append(name)
        return package

    @property
    def environment(self) -> dict[str, str]:
        """What a command sees: these plugins and no other, and output as buffered as usual."""
        hidden = ("CARTRIDGE_", "PYTHONUNBUFFERED")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        own = {"PYTHONPATH": str(self.folder), "CARTRIDGE_PLUGINS": ",".join(self.plugins)}
        return {**inherited, **own, **self.variables}

    def start(
        self, *words: str, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        """Start a command with nothing on its stdin."""
        return subprocess.Popen(
            [sys.executable, "-m", "cartridge_core", *words],
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )

    def run(self, *words: str) -> Ended:
        """Run a command to its end."""
        with self.start(*words) as process:
            out, err = process.communicate(timeout=60)
        return Ended(process.returncode, out, err)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_command_is_installed() -> None:
    """``cartridge`` is a console script of cartridge-core, and `main` is what it runs."""
    points = importlib.metadata.entry_points(group="console_scripts", name="cartridge")
    assert [point.load() for point in points] == [main]


def test_version_is_that_of_the_distribution(site: Site) -> None:
    """``--version`` prints the distribution's version."""
    version = importlib.metadata.version("cartridge-core")
    assert site.run("--version") == Ended(0, f"cartridge {version}\n", "")


BROKEN = [
    pytest.param(
        "import no_such_native_lib", "No module named 'no_such_native_lib'", id="a03-import"
    ),
    pytest.param("raise SystemExit(3)", "SystemExit: 3", id="a03-exits"),
    pytest.param("def broken(:", "SyntaxError", id="a03-syntax"),
    pytest.param("import ctypes; ctypes.CDLL('libnone.so')", "libnone.so", id="a03-shared-library"),
]


def test_one_broken_plugin_takes_no_verb_down(site: Site) -> None:
    """``--help``, ``list``, routing to the good plugins and running them end with 0."""
    site.install("good")
    site.install("broken", at_import="import no_such_native_lib")
    site.install("nice")
    assert site.run("--help").status == 0
    listed = site.run("list")
    assert (listed.status, listed.err) == (0, "")
    for name in ("good", "nice"):
        assert f"{name}-echo" in listed.out
        assert site.run("route", f"cap:{name}").status == 0
        assert site.run("run", f"cap:{name}", "hi") == Ended(0, "hi\n", "")


@pytest.mark.parametrize(("line", "cause"), BROKEN)
def test_doctor_names_a_broken_plugin_and_its_cause(site: Site, line: str, cause: str) -> None:
    """``doctor`` shows the distribution and the cause, and ends with 0."""
    site.install("good")
    site.install("broken", at_import=line)
    doctor = site.run("doctor")
    assert (doctor.status, doctor.err) == (0, "")
    issue = next(part for part in doctor.out.split("\n\n") if part.startswith("issue: "))
    assert "cartridge-broken 1.0" in issue
    assert cause in issue
    assert ["good-echo", "ok"] in [line.split() for line in doctor.out.splitlines()]


@pytest.mark.parametrize(("line", "cause"), BROKEN)
def test_error_of_running_a_broken_plugin_names_it(site: Site, line: str, cause: str) -> None:
    """A call that needs the broken plugin says which distribution it is, and why."""
    site.install("broken", at_import=line)
    ended = site.run("run", "cap:broken", "hi")
    assert (ended.status, ended.out) == (14, "")
    assert ended.err.startswith("error: LoadError: ")
    assert "cartridge-broken" in ended.err
    assert cause in ended.err


def test_error_of_a_broken_plugin_when_strict(site: Site) -> None:
    """``CARTRIDGE_STRICT=1`` makes a plugin that cannot be imported an error of ``doctor``."""
    site.install("broken", at_import="import no_such_native_lib")
    site.variables["CARTRIDGE_STRICT"] = "1"
    ended = site.run("doctor")
    assert ended.status == 18
    assert "error: DiscoveryError: " in ended.err
    assert "no_such_native_lib" in ended.out


UNREADABLE = [
    pytest.param("{", id="no-json"),
    pytest.param('{"id": "x"}', id="no-descriptor"),
    pytest.param("\udcff", id="no-utf-8"),
]


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_broken_descriptor_is_an_issue_and_an_error_when_strict(site: Site, text: str) -> None:
    """What discovery finds broken is shown by ``list``, and ends every verb when strict."""
    site.install("good")
    package = site.install("broken")
    data = text.encode("utf-8", "surrogateescape")
    (package / "descriptors" / "echo.json").write_bytes(data)
    listed = site.run("list")
    assert listed.status == 0
    assert "good-echo" in listed.out
    assert "unusable: cartridge-broken 1.0" in listed.out
    site.variables["CARTRIDGE_STRICT"] = "1"
    ended = site.run("list")
    assert (ended.status, ended.out) == (18, "")
    assert "error: DiscoveryError: cartridge-broken 1.0" in ended.err


NEVER = [
    pytest.param("import time; time.sleep(3)", id="a24-sleeps"),
    pytest.param("import torch", id="a24-torch"),
    pytest.param("import os; os._exit(3)", id="a24-ends-the-process"),
    pytest.param("raise SystemExit(3)", id="a24-exits"),
    pytest.param("print('imported')", id="a24-prints"),
]
READING = (
    ["--help"],
    ["--version"],
    ["list"],
    ["caps"],
    ["show", "lazy-echo"],
    ["route", "cap:lazy"],
)
WITNESS = """
import json, sys
from cartridge_core.__main__ import main
statuses = [main(words) for words in json.loads(sys.argv[1])]
with open("witness.json", "w") as file:
    json.dump([statuses, sorted(sys.modules)], file)
"""


@pytest.mark.parametrize("line", NEVER)
def test_verbs_that_only_read_import_no_plugin(site: Site, line: str) -> None:
    """``--help``, ``list`` and their like import no plugin's package, backend, numpy or rich."""
    mark = "import pathlib; pathlib.Path(__file__).with_name('imported').touch()\n"
    package = site.install("lazy", at_import=mark + line)
    (package / "__init__.py").write_text(mark + line)
    ended = subprocess.run(
        [sys.executable, "-c", WITNESS, json.dumps(READING)],
        cwd=site.folder,
        env=site.environment,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not (package / "imported").exists()
    statuses, modules = json.loads((site.folder / "witness.json").read_text())
    assert statuses == [0] * len(READING)
    assert not {"cartridge_lazy", "torch", "llama_cpp", "numpy", "rich", "whisper"} & set(modules)
    # What they do not use would double the time that they take.
    assert not {"cartridge_core.registry", "importlib_metadata", "pluggy"} & set(modules)


CHILD = "import subprocess; subprocess.run(['sh', '-c', 'echo from a child'])"
STRAY = [
    pytest.param({"at_open": "print('cache hit')"}, "cache hit", id="print-at-open"),
    pytest.param({"at_infer": "os.write(1, b'raw\\n')"}, "raw", id="file-descriptor"),
    pytest.param({"at_import": "print('at import')"}, "at import", id="print-at-import"),
    pytest.param({"at_infer": CHILD}, "from a child", id="child-process"),
    pytest.param(
        {"at_infer": "import ctypes; ctypes.CDLL(None).puts(b'from C')"}, "from C", id="c-library"
    ),
    pytest.param(
        {"at_infer": "sys.__stdout__.write('the first stdout\\n')"},
        "the first stdout",
        id="first-stdout",
    ),
    pytest.param(
        {"at_infer": "sys.stdout.write('no end'); sys.stderr.write('x' * 200_000)"},
        "no end",
        id="no-line-end",
    ),
    pytest.param(
        {"at_infer": "import ctypes; ctypes.PyDLL(None).write(1, b'z' * 300_000, 300_000)"},
        "zzz",
        id="more-than-a-pipe-holds-with-the-gil-held",
    ),
]


@pytest.mark.parametrize(("code", "text"), STRAY)
def test_stdout_is_the_result_alone(site: Site, code: dict[str, str], text: str) -> None:
    """
    Whatever a plugin or native code writes, stdout is one JSON document, also the second time.

    What it wrote is in the log.
    """
    site.install("stray", **code)
    ended = site.run("run", "cap:stray", "hi", "--json")
    assert (ended.status, ended.err) == (0, "")
    assert json.loads(ended.out)["payload"] == "hi"
    again = site.run("run", "cap:stray", "hi", "--json", "--verbose")
    assert json.loads(again.out)["payload"] == "hi"
    assert f"INFO cartridge.stdout: {text}" in again.err


LATE = [
    pytest.param("import atexit; atexit.register(print, 'bye')", id="at-exit"),
    pytest.param("import atexit, os; atexit.register(os.write, 2, b'bye')", id="at-exit-on-stderr"),
    pytest.param("import ctypes; ctypes.CDLL(None).printf(b'in the buffer')", id="c-buffer"),
    pytest.param("sys.stdout.close(); sys.stderr.close()", id="closes-its-streams"),
    pytest.param(
        "import os, subprocess; subprocess.Popen(['sh', '-c', 'sleep 1; echo late'])",
        id="child-that-outlives-it",
    ),
]


@pytest.mark.parametrize("line", LATE)
def test_stdout_has_nothing_after_the_result(site: Site, line: str) -> None:
    """What is written while the process ends, or after it, is not on stdout either."""
    site.install("stray", at_infer=line)
    ended = site.run("run", "cap:stray", "hi", "--json")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.count("\n") == 1
    assert json.loads(ended.out)["payload"] == "hi"


def test_noise_on_stderr_is_shown_with_verbose_alone(site: Site) -> None:
    """Native stderr, warnings and log lines of others are in the log, not on stderr."""
    code = "import logging, warnings; os.write(2, b'raw\\n'); warnings.warn('careful')"
    site.install("stray", at_infer=f"{code}; logging.warning('logged')")
    assert site.run("run", "cap:stray", "hi") == Ended(0, "hi\n", "")
    verbose = site.run("run", "cap:stray", "hi", "--verbose")
    assert verbose.out == "hi\n"
    for text in ("raw", "careful", "logged"):
        assert text in verbose.err


def test_progress_is_on_stderr_where_it_is_a_terminal(site: Site) -> None:
    """A terminal gets a bar with the messages of the call, and stdout the result alone."""
    site.install("good", at_infer="context.progress(0.5, 'halfway'); __import__('time').sleep(0.3)")
    site.variables["TERM"] = "xterm"
    controller, terminal = os.openpty()
    with site.start("run", "cap:good", "hi", stderr=terminal) as process:
        os.close(terminal)
        drawn = b""
        # Reading a terminal that nobody holds any more is EIO on Linux.
        with contextlib.suppress(OSError):
            while piece := os.read(controller, 4096):
                drawn += piece
        out, _ = process.communicate(timeout=30)
    os.close(controller)
    assert (process.returncode, out) == (0, "hi\n")
    assert b"halfway" in drawn


SLOW = """
from pathlib import Path
here = Path(__file__).parent
try:
    (here / "working").touch()
    while True:
        context.check_cancelled()
        __import__("time").sleep(0.01)
finally:
    (here / "cancelled").touch()
"""


def test_ctrl_c_cancels_the_work_and_is_130(site: Site) -> None:
    """SIGINT ends the command with 130, without a word, and the work with it."""
    package = site.install("slow", at_infer=SLOW)
    with site.start("run", "cap:slow", "hi") as process:
        _wait_for(package / "working", process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert Ended(process.returncode, out, err) == Ended(130, "", "")
    assert (package / "cancelled").exists()


STUCK = """
import threading, time
from pathlib import Path
threading.Thread(target=time.sleep, args=(100,), daemon=False).start()
Path(__file__).with_name("stuck").touch()
time.sleep(100)
"""


def test_ctrl_c_does_not_wait_for_what_cannot_be_interrupted(site: Site) -> None:
    """SIGINT ends the command though a plugin's import, and a thread it started, go on."""
    package = site.install("stuck", at_import=STUCK)
    with site.start("run", "cap:stuck", "hi") as process:
        _wait_for(package / "stuck", process)
        process.send_signal(signal.SIGINT)
        out, err = _end_of(process)
    assert Ended(process.returncode, out, err) == Ended(130, "", "")


def test_ctrl_c_again_is_130_and_a_terminal_is_told(site: Site) -> None:
    """On a terminal the first SIGINT says what the next one does."""
    package = site.install("stuck", at_import=STUCK)
    controller, terminal = os.openpty()
    with site.start("run", "cap:stuck", "hi", stderr=terminal) as process:
        os.close(terminal)
        _wait_for(package / "stuck", process)
        process.send_signal(signal.SIGINT)
        said = b""
        while b"cancelling; press Ctrl-C again to stop at once\r\n" not in said:
            said += os.read(controller, 4096)
        process.send_signal(signal.SIGINT)
        out, _ = _end_of(process)
    os.close(controller)
    assert (process.returncode, out) == (130, "")


def test_ctrl_c_several_times_is_130(site: Site) -> None:
    """However often it comes, and wherever the process is by then, SIGINT gives the status."""
    package = site.install("slow", at_infer=SLOW)
    with site.start("run", "cap:slow", "hi") as process:
        _wait_for(package / "working", process)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
        out, err = _end_of(process)
    assert Ended(process.returncode, out, err) == Ended(130, "", "")


TOUCH = "Path(__file__).with_name('working').touch()"

FIRST_STEPS = """
import sys, time
from pathlib import Path

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            Path(__file__).with_name("started").touch()
            time.sleep(100)

sys.meta_path.insert(0, Finder())
"""


def test_ctrl_c_at_the_start_is_130(site: Site) -> None:
    """Before anything of the command line is imported, SIGINT ends it without a traceback."""
    (site.folder / "sitecustomize.py").write_text(FIRST_STEPS)
    with site.start("list") as process:
        _wait_for(site.folder / "started", process)
        process.send_signal(signal.SIGINT)
        out, err = _end_of(process)
    assert Ended(process.returncode, out, err) == Ended(130, "", "")


LINGERING = """
import threading, time
threading.Thread(target=time.sleep, args=(100,), daemon=False).start()
"""


def test_ctrl_c_after_the_result_is_130(site: Site) -> None:
    """A thread that keeps the process alive after the command does not keep it from SIGINT."""
    site.install("lingering", at_infer=LINGERING)
    with site.start("run", "cap:lingering", "hi") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hi\n"
        process.send_signal(signal.SIGINT)
        _, err = _end_of(process)
    assert (process.returncode, err) == (130, "")


def test_ctrl_c_is_ignored_where_the_process_was_started_so(site: Site) -> None:
    """In the background of a shell that ignores SIGINT, the command goes on."""
    package = site.install("good", at_infer=f"{TOUCH}; __import__('time').sleep(0.3)")
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = site.start("run", "cap:good", "hi")
    finally:
        signal.signal(signal.SIGINT, previous)
    with process:
        _wait_for(package / "working", process)
        process.send_signal(signal.SIGINT)
        out, err = _end_of(process)
    assert Ended(process.returncode, out, err) == Ended(0, "hi\n", "")


def _end_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for the end of a process that must not stay."""
    try:
        return process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def _wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


PIPED = [
    pytest.param(["caps"], id="caps"),
    pytest.param(["--help"], id="help"),
    pytest.param(["list", "--json"], id="json"),
    pytest.param(["run", "cap:good", "hi", "--stream", "--json"], id="stream"),
]


@pytest.mark.parametrize("words", PIPED)
def test_a_reader_that_leaves_is_no_error(site: Site, words: list[str]) -> None:
    """When nobody reads stdout any more the command ends with 141 and says nothing."""
    site.install("good")
    reader, writer = os.pipe()
    os.close(reader)
    with site.start(*words, stdout=writer) as process:
        os.close(writer)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (141, "")


@pytest.mark.parametrize("closed", ["0", "1", "2"])
def test_a_closed_standard_stream_does_no_harm(site: Site, closed: str) -> None:
    """With stdin, stdout or stderr closed the others are what they should be."""
    site.install("good")
    shell = f'exec "$0" -m cartridge_core run cap:good hi --json {closed}>&-'
    ended = subprocess.run(
        ["sh", "-c", shell, sys.executable],
        cwd=site.folder,
        env=site.environment,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    if closed != "1":
        assert json.loads(ended.stdout)["payload"] == "hi"
