"""However a cartridge's process ends, its calls say how, and nothing else notices."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from cartridge_core.binding import Binding
from cartridge_core.context import Context
from cartridge_core.errors import (
    AbiMismatchError,
    CancelledError,
    CartridgeDiedError,
    LoadError,
    StateError,
)
from cartridge_core.testing.background import Background
from cartridge_core.wire import MAX_HEADER_BYTES
from cartridge_core.worker import starting
from cartridge_core.worker.lanes import Lanes
from cartridge_core.worker.line import LineError

if TYPE_CHECKING:
    import socket

pytestmark = pytest.mark.timeout(120)

PLUGINS = Path(__file__).parent / "worker_plugins"


@pytest.fixture(scope="module")
def trouble(source_of):
    """Give the source of the trouble plugin."""
    module = importlib.import_module("plugin_trouble")
    return source_of("plugin_trouble", module.cartridge_descriptors())


def use(worker):
    """Open the trouble plugin in a worker; give what has it do one thing."""
    binding = Binding("trouble", worker.plugin, worker.plugin.cartridge_descriptors())
    handle = binding.open("trouble-batch", None, {}, Context())

    def do(*what):
        session = binding.session_begin(handle, "cap:x", {}, Context())
        try:
            return binding.infer(session, list(what)).payload
        finally:
            binding.session_end(session)

    return do


@pytest.fixture
def begin(trouble, start_worker):
    """Start a worker, and give it with what has it do one thing."""

    def begin():
        worker = start_worker(trouble)
        return worker, use(worker)

    return begin


@pytest.fixture(scope="module")
def bystander(trouble, start_worker):
    """Give a worker that nothing happens to."""
    return use(start_worker(trouble))


def is_gone(pid):
    """Say whether a process has ended; whoever should have waited for it may not have."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


DEATHS = [
    pytest.param(["segv"], -signal.SIGSEGV, "SIGSEGV", "in _segv", id="segv"),
    pytest.param(["abort"], -signal.SIGABRT, "SIGABRT", "in _abort", id="abort"),
    pytest.param(["kill", 9], -signal.SIGKILL, "SIGKILL", "", id="kill"),
    pytest.param(["kill", 15], -signal.SIGTERM, "SIGTERM", "", id="terminate"),
    pytest.param(["exit", 3], 3, "exit status 3", "leaving", id="exit"),
    pytest.param(["exit", 0], 0, "exit status 0", "leaving", id="exit-well"),
]


@pytest.mark.parametrize(("what", "status", "how", "words"), DEATHS)
def test_error_death_in_a_call(begin, bystander, what, status, how, words):
    """Every call in the process gets how it ended and stderr's last lines; so do later calls."""
    worker, do = begin()
    beside = Background(lambda: do("work", 30))
    assert do("echo", 1) == 1
    with pytest.raises(CartridgeDiedError, match=how) as caught:
        do(*what)
    beside.join(10)
    for error in (caught.value, beside.error):
        assert isinstance(error, CartridgeDiedError)
        assert error.exit_status == status
        assert words in error.stderr
        assert f"trouble-batch: its process {worker.pid} " in str(error)
        assert error.stderr in str(error)
    with pytest.raises(CartridgeDiedError, match=how) as later:
        do("echo", 1)
    assert later.value.exit_status == status
    assert not worker.is_alive
    assert bystander("echo", 2) == 2


def test_error_killed_from_outside_while_idle(begin, eventually):
    """Who watches is told once, and the next call says what happened."""
    worker, do = begin()
    told: list[int] = []
    worker.on_death(lambda: told.append(1))
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: told == [1])
    with pytest.raises(CartridgeDiedError, match="SIGKILL"):
        do("echo", 1)
    worker.on_death(lambda: told.append(2))
    assert told == [1, 2]


def test_error_out_of_memory(begin):
    """Python's own limit is an error of the call; the process lives on."""
    worker, do = begin()
    with pytest.raises(MemoryError):
        do("exhaust", 200_000_000)
    assert do("echo", 1) == 1
    assert worker.is_alive


def test_error_line_closed_by_the_process(begin):
    """A process that closes its line is ended."""
    worker, do = begin()
    with pytest.raises(CartridgeDiedError):
        do("close_line")
    assert is_gone(worker.pid)


@pytest.mark.parametrize("when", ["before", "while"])
def test_error_lane_that_somebody_asks_over_is_closed_after_him(when):
    """The end of a process closes those that are free, and no file is left open."""
    others: list[socket.socket] = []
    lanes = Lanes(others.append, "in the process of x")
    lane = lanes.take()
    if when == "before":
        lane.asking.acquire()
    else:
        asking = Background(lambda: lane.ask("x", 1, [], list, (), None))
        while not lane.asking.locked():
            time.sleep(0.001)
    lanes.hang_up()
    lanes.close()
    if when == "before":
        lane.asking.release()
        with pytest.raises(LineError):
            lane.ask("x", 1, [], list, (), None)
    else:
        asking.join(10)
        assert isinstance(asking.error, LineError)
    others[0].close()
    assert lane.sock.fileno() == -1


def test_error_death_that_leaves_a_child(begin):
    """A process of the plugin's own that lives on delays nothing."""
    worker, do = begin()
    began_s = time.monotonic()
    with pytest.raises(CartridgeDiedError, match="exit status 3"):
        do("exit_with_a_child")
    assert time.monotonic() - began_s < 10
    worker.end()


def test_error_death_in_a_blocking_call(trouble, begin):
    """The context is told that the blocking work is over."""
    blocks: list[str] = []

    class Noting(Context):
        @contextlib.contextmanager
        def blocking(self, message, limit_s):
            blocks.append(message)
            try:
                yield
            finally:
                blocks.append("end")

    worker, _ = begin()
    binding = Binding("trouble", worker.plugin, trouble.descriptors)
    handle = binding.open("trouble-batch", None, {}, Context())
    session = binding.session_begin(handle, "cap:x", {}, Noting())
    with pytest.raises(CartridgeDiedError):
        binding.infer(session, ["exit_blocking", 3])
    assert blocks == ["leaving", "end"]


def test_hang_that_holds_pythons_lock_can_be_killed(begin):
    """A native call that hangs answers no ping; killing ends it, and its calls say why."""
    worker, do = begin()
    stuck = Background(lambda: do("hang", 60))
    time.sleep(0.5)
    assert not worker.ping(0.3)
    began_s = time.monotonic()
    worker.kill("it gave no sign of life for 1 s")
    stuck.join(5)
    assert time.monotonic() - began_s < 5
    assert isinstance(stuck.error, CartridgeDiedError)
    assert "was killed: it gave no sign of life for 1 s" in str(stuck.error)
    assert is_gone(worker.pid)


def test_large_value_to_a_process_that_hangs(begin):
    """Who sends to a process that reads nothing comes out when it is killed, others too."""
    worker, do = begin()
    stuck = Background(lambda: do("hang", 60))
    time.sleep(0.3)
    sender = Background(lambda: do("echo", b"x" * 50_000_000))
    other = Background(lambda: do("echo", 1))
    time.sleep(0.3)
    assert not worker.ping(0.2)
    worker.kill()
    for one in (stuck, sender, other):
        one.join(5)
        assert isinstance(one.error, CartridgeDiedError)


def test_end_is_orderly(begin):
    """An ended process exits by itself with status 0, its plugin's clean-up done."""
    worker, do = begin()
    assert do("echo", 1) == 1
    told: list[int] = []
    worker.on_death(lambda: told.append(1))
    worker.end(10)
    assert is_gone(worker.pid)
    with pytest.raises(CartridgeDiedError, match="was told to end") as caught:
        do("echo", 1)
    assert caught.value.exit_status == 0
    assert told == []
    worker.end()


def test_end_kills_what_does_not_end(begin):
    """A process that hangs is killed after the grace."""
    worker, do = begin()
    stuck = Background(lambda: do("hang", 60))
    time.sleep(0.3)
    worker.end(0.2)
    stuck.join(5)
    assert isinstance(stuck.error, CartridgeDiedError)
    assert is_gone(worker.pid)


def frame(text):
    data = text.encode()
    return struct.pack(">I", len(data)) + data


GARBAGE = [
    pytest.param(b"\x86rubbish" * 100, "a header of", id="rubbish"),
    pytest.param(struct.pack(">I", MAX_HEADER_BYTES + 1), "a header of", id="long-header"),
    pytest.param(struct.pack(">I", 4) + b"what", "not JSON", id="no-json"),
    pytest.param(frame("{}"), r"not \[kind", id="no-frame"),
    pytest.param(frame('["done",2,[],[9999999999999]]'), "buffers of", id="long-buffer"),
    pytest.param(frame('["said",1,' + "[" * 150 + "]" * 150 + ",[]]"), "nests deeper", id="deep"),
    pytest.param(frame('["record",0,["root",10,"x"],[]]'), "a log record", id="foreign-record"),
]
ON_THE_LINE = [
    *GARBAGE,
    pytest.param(frame('["what",1,[],[]]'), "a frame of the kind 'what'", id="unknown-kind"),
    pytest.param(frame('["peer",1,["x"],[]]'), "a peer call that says", id="peer"),
]
ON_LANES = [
    *GARBAGE,
    pytest.param(frame('["done",999,[],[]]'), "'done' about 999", id="unknown-question"),
    pytest.param(frame('["said",999,["log","a","b"],[]]'), "'said' about 999", id="context"),
    pytest.param(frame('["what",1,[],[]]'), "'what' about 1", id="unknown-kind"),
]


@pytest.mark.parametrize(
    ("verb", "data", "words"),
    [
        pytest.param(verb, *param.values, id=f"{verb}-{param.id}")
        for verb, params in (("write_line", ON_THE_LINE), ("write_lanes", ON_LANES))
        for param in params
    ],
)
def test_error_process_that_sends_garbage(begin, verb, data, words):
    """What must not come ends the process, and its calls say what it sent."""
    worker, do = begin()
    beside = Background(lambda: do("work", 30))
    time.sleep(0.1)
    with pytest.raises(CartridgeDiedError, match=f"was killed, since it sent .*{words}"):
        do(verb, data)
    beside.join(5)
    assert isinstance(beside.error, CartridgeDiedError)
    assert is_gone(worker.pid)


ANSWERS = [
    pytest.param('["done",{},["x"],[]]', "a result that is none", id="no-result"),
    pytest.param('["done",{},[9,1,0,null,null,null],[]]', "a result that is none", id="kind"),
    pytest.param('["failed",{},[],[]]', "an error that is none", id="no-error"),
    pytest.param(
        '["failed",{},[{{"class":"x","message":"m","notes":[],"base":"PreflightError",'
        '"fields":{{"report":[1]}}}}],[]]',
        "is expected",
        id="field",
    ),
]


@pytest.mark.parametrize(("text", "words"), ANSWERS)
def test_error_answer_of_the_wrong_shape(begin, text, words):
    """An answer that is not what was asked for is no result and no error of the plugin's."""
    worker, do = begin()
    do("echo", 1)
    number = next(worker._talk._numbers) + 3
    with pytest.raises(CartridgeDiedError, match=f"was killed, since it sent .*{words}"):
        do("write_lanes", frame(text.format(number)))


@pytest.fixture
def start_script(monkeypatch, tmp_path, trouble, start_worker):
    """Start a program that is no worker in the place of one."""

    def start(body, **given):
        program = tmp_path / "program"
        text = textwrap.dedent(body)
        program.write_text(
            f"#!{sys.executable}\nimport os, sys, time\nline = int(sys.argv[4])\n{text}"
        )
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        return start_worker(trouble, **given)

    return start


IMPOSTORS = [
    pytest.param("sys.stderr.write('no way'); sys.exit(7)", "status 7.*\nno way", id="exits"),
    pytest.param("os.close(line); time.sleep(60)", "SIGKILL", id="closes"),
    pytest.param("os.write(line, b'rubbish ' * 600); time.sleep(60)", "it sent", id="rubbish"),
    pytest.param("os.write(line, b'\\0\\0'); sys.exit(0)", "status 0", id="half-a-frame"),
    pytest.param("while True: os.write(line, b'\\0\\0\\0\\2[]')", "it sent", id="endless"),
]


@pytest.mark.parametrize(("body", "words"), IMPOSTORS)
def test_error_program_that_is_no_worker(start_script, body, words):
    """A process that does not come up as it should is a `LoadError` that says why."""
    with pytest.raises(LoadError, match=f"(?s){words}"):
        start_script(body)


def test_nothing_is_left_behind(trouble, bystander, start_script):
    """Fifty processes, ended in every way, leave no thread, file or process."""
    assert bystander("echo", 1) == 1
    threads = {thread.name for thread in threading.enumerate()}
    files = len(os.listdir("/proc/self/fd"))
    pids = []
    for number in range(50):
        if number == 10:
            # What comes up at once, and does nothing.
            start_script(
                """
                import socket, struct
                control = socket.socket(fileno=line)
                lane = socket.socket(fileno=socket.recv_fds(control, 65536, 4)[1][0])
                lane.recv(1000000)
                answer = b'["done",1,[false],[]]'
                lane.sendall(struct.pack(">I", len(answer)) + answer)
                while control.recv(65536): pass
                """
            ).end()
        worker = starting.start(trouble, "trouble-batch", trouble.descriptors)
        pids.append(worker.pid)
        if number % 3 == 0:
            os.kill(worker.pid, signal.SIGKILL)
        elif number % 3 == 1:
            worker.kill()
        worker.end()
    assert all(not Path(f"/proc/{pid}").exists() for pid in pids)
    assert len(os.listdir("/proc/self/fd")) == files
    end_s = time.monotonic() + 5
    while {thread.name for thread in threading.enumerate()} - threads:
        assert time.monotonic() < end_s, threading.enumerate()
        time.sleep(0.01)


def test_error_program_that_says_nothing(start_script):
    """A start has a limit; what was written to stderr is told."""
    with pytest.raises(LoadError, match=r"(?s)did not come up within 0\.5 s.*thinking"):
        start_script(
            "print('thinking', file=sys.stderr, flush=True); time.sleep(60)", timeout_s=0.5
        )


def test_error_endless_frame(start_script):
    """A buffer that never ends takes only the memory that is sent."""
    body = """
        import json, struct
        header = json.dumps(["done", 1, [{"$b": 0}], [4 * 2**30]]).encode()
        os.write(line, struct.pack(">I", len(header)) + header)
        while True: os.write(line, bytes(1000)); time.sleep(0.1)
    """
    with pytest.raises(LoadError, match="did not come up within 1 s"):
        start_script(body, timeout_s=1)


def test_error_no_python(monkeypatch, trouble):
    """Where Python cannot be found, that is said."""
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(LoadError, match=r"sys\.executable"):
        starting.start(trouble, "trouble-batch", trouble.descriptors)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(LoadError, match="no process can be started"):
        starting.start(trouble, "trouble-batch", trouble.descriptors)


BROKEN = [
    pytest.param("raise RuntimeError('bad')", LoadError, "RuntimeError: bad", id="raises"),
    pytest.param("import sys; sys.exit(4)", LoadError, "SystemExit: 4", id="exits"),
    pytest.param("import nothing_like_it", LoadError, "ModuleNotFoundError", id="missing"),
    pytest.param("import os; os._exit(5)", LoadError, "exit status 5", id="dies"),
    pytest.param("x = 1", AbiMismatchError, "lacks the hooks", id="no-hooks"),
]


@pytest.mark.parametrize(("body", "kind", "words"), BROKEN)
def test_error_plugin_that_cannot_be_used(tmp_path, monkeypatch, source_of, body, kind, words):
    """What is wrong with a plugin is what it is inline, and the process is gone."""
    (tmp_path / "plugin_broken.py").write_text(body)
    monkeypatch.syspath_prepend(str(tmp_path))
    source = source_of("plugin_broken", ())
    with pytest.raises(kind, match=words):
        starting.start(source, "broken-one", ())


def test_error_descriptors_that_differ(source_of, trouble):
    """The plugin's own descriptors are held against the static ones in the process."""
    other = source_of("plugin_trouble", importlib.import_module("plugin_fakes").DESCRIPTORS)
    source = attrs.evolve(trouble, descriptors=other.descriptors)
    with pytest.raises(AbiMismatchError, match="trouble-batch"):
        starting.start(source, "trouble-batch", trouble.descriptors)


def test_error_start_that_is_cancelled(start_script):
    """Cancelling ends a start at once."""
    context = Context()
    timer = threading.Timer(0.5, context.cancel)
    timer.start()
    began_s = time.monotonic()
    with pytest.raises(CancelledError):
        start_script("time.sleep(60)", context=context)
    assert time.monotonic() - began_s < 10


def test_error_after_a_fork(begin):
    """In a fork everything of the parent's worker refuses, and the parent's goes on."""
    worker, do = begin()
    assert do("echo", 1) == 1
    binding = Binding("trouble", worker.plugin, worker.plugin.cartridge_descriptors())
    handle = binding.open("trouble-batch", None, {}, Context())
    session = binding.session_begin(handle, "cap:x", {}, Context())
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        outcome = "nothing raised"
        try:
            for refuse in (
                lambda: do("echo", 1),
                lambda: binding.infer(session, ["echo", 1]),
                lambda: worker.ping(1),
                worker.kill,
                worker.end,
                lambda: worker.is_alive,
            ):
                try:
                    refuse()
                except StateError as exc:
                    outcome = f"StateError {exc}"
                else:
                    outcome = f"{refuse} was not refused"
                    break
        except BaseException as exc:  # noqa: BLE001 -- told to the parent
            outcome = repr(exc)
        finally:
            os.write(writer, outcome.encode())
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 1000).decode().startswith("StateError")
    os.close(reader)
    os.close(writer)
    assert binding.infer(session, ["echo", 2]).payload == 2
    assert worker.ping(5)


def test_fork_that_ends_harms_nothing(tmp_path):
    """A child that just ends, and one that starts a worker of its own, leave the parent's."""
    with run_host(
        """
        import os
        worker, do = start()
        for work in (lambda: None, lambda: print(start()[1]("echo", "child"), flush=True)):
            child = os.fork()
            if child == 0:
                work()
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            print(do("echo", "parent"), worker.ping(5), flush=True)
        worker.end()
        """,
        tmp_path / "script.py",
    ) as host:
        out, err = host.communicate(timeout=60)
    assert (out, err) == ("parent True\nchild\nparent True\n", "")


def test_error_death_where_the_system_does_not_tell(monkeypatch, begin, eventually):
    """Without a file that says when a process ends, it is looked at."""

    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    worker, do = begin()
    told = threading.Event()
    worker.on_death(told.set)
    with pytest.raises(CartridgeDiedError, match="exit status 3"):
        do("exit", 3)
    assert told.wait(10)


def run_host(body, script=None):
    """Run a program that starts a worker, from a script or as ``python -c``."""
    text = f"""
import importlib, sys, threading, time
sys.path.insert(0, {str(PLUGINS)!r})
from cartridge_core.binding import Binding
from cartridge_core.context import Context
from cartridge_core.discovery import PluginSource
from cartridge_core.worker import starting
module = importlib.import_module("plugin_trouble")
source = PluginSource(
    "trouble", "cartridge-trouble", version=None, module="plugin_trouble",
    descriptors=module.cartridge_descriptors(), load=None,
)
def start():
    worker = starting.start(source, "trouble-batch", source.descriptors)
    binding = Binding("trouble", worker.plugin, source.descriptors)
    handle = binding.open("trouble-batch", None, {{}}, Context())
    session = binding.session_begin(handle, "cap:x", {{}}, Context())
    return worker, lambda *what: binding.infer(session, list(what)).payload
{textwrap.dedent(body)}
"""
    if script is not None:
        script.write_text(text)
    command = [sys.executable, *(["-c", text] if script is None else [str(script)])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


HANGS = [
    pytest.param("", id="idle"),
    pytest.param('threading.Thread(target=do, args=("work", 60), daemon=True).start()', id="busy"),
    pytest.param('threading.Thread(target=do, args=("hang", 60), daemon=True).start()', id="hangs"),
]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the end of the line has to do")
@pytest.mark.parametrize("work", HANGS)
def test_process_ends_with_its_host(work):
    """A host that is killed takes its processes along within a second, whatever they do."""
    with run_host(
        f"""
        worker, do = start()
        {work}
        time.sleep(0.3)
        print(worker.pid, flush=True)
        time.sleep(60)
        """
    ) as host:
        pid = int(host.stdout.readline())
        assert not is_gone(pid)
        host.kill()
        host.wait()
        end_s = time.monotonic() + 1
        while not is_gone(pid):
            assert time.monotonic() < end_s
            time.sleep(0.01)


def test_process_outlives_the_thread_that_asked_for_it():
    """A worker that a thread started lives when that thread has ended."""
    with run_host(
        """
        started = []
        thread = threading.Thread(target=lambda: started.append(start()))
        thread.start(); thread.join(); time.sleep(0.3)
        print(started[0][1]("echo", "still here"))
        started[0][0].end()
        """
    ) as host:
        out, err = host.communicate(timeout=60)
    assert (out, err) == ("still here\n", "")


def test_works_without_a_main_guard(tmp_path, eventually):
    """A script that starts a worker at its top is not run again by it; at exit nothing is left."""
    script = tmp_path / "script.py"
    body = """
        print("once")
        worker, do = start()
        print(do("echo", "hello"), worker.pid)
        """
    with run_host(body, script) as host:
        out, err = host.communicate(timeout=60)
    assert err == ""
    once, said = out.splitlines()
    hello, pid = said.split()
    assert (once, hello) == ("once", "hello")
    eventually(lambda: is_gone(int(pid)))


def test_ctrl_c_in_a_load_leaves_nothing_open():
    """What an interrupted open has loaded in the end is unloaded again."""
    with run_host(
        """
        import os, signal
        worker, do = start()
        binding = Binding("trouble", worker.plugin, source.descriptors)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        try:
            does = {"at": "open", "do": ["sleep", 4]}
            binding.open("trouble-batch", None, does, Context())
        except KeyboardInterrupt:
            binding.preflight("trouble-batch", None, {})
            print("interrupted", do("open_handles"), time.monotonic() - began < 3.5)
        end = time.monotonic() + 20
        while do("open_handles") > 1 and time.monotonic() < end:
            time.sleep(0.05)
        print(do("open_handles"))
        worker.end()
        """
    ) as host:
        out, err = host.communicate(timeout=60)
    assert (out, err) == ("interrupted 2 True\n1\n", "")


def test_error_ctrl_c_in_the_main_thread():
    """Ctrl-C ends a hook that the main thread waits for, cancels its work, and harms no other."""
    with run_host(
        """
        import os, signal
        worker, do = start()
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        try:
            do("work", 30)
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - began < 10)
        print(do("echo", "goes on"), worker.ping(5), time.monotonic() - began < 15)
        worker.end()
        """
    ) as host:
        out, err = host.communicate(timeout=60)
    assert (out, err) == ("interrupted True\ngoes on True True\n", "")
