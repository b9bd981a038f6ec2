"""Stdout is the program's own: what cartridges and libraries print there goes into the log."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from functools import partial

import pytest

from cartridge_core.__main__ import main
from cartridge_core.testing.fakes import BatchEcho, StreamingEcho
from cartridge_core.testing.registries import registry_of

HIT = "cache hit"


def prints():
    print(HIT)  # noqa: T201 -- the trouble itself


def prints_without_an_end():
    print(HIT, end="")  # noqa: T201 -- the trouble itself


def writes_to_the_descriptor():
    os.write(1, f"{HIT}\n".encode())


def prints_from_c():
    # Left in the C library's own buffer, which is emptied at some later time.
    ctypes.CDLL(None).printf(b"%s\n", HIT.encode())


def starts_a_child():
    subprocess.run([sys.executable, "-c", f"print({HIT!r})"], check=True)


def prints_json_itself():
    print(json.dumps({"payload": HIT}))  # noqa: T201 -- the trouble itself


def make(kind, hook, speak, cached):
    """Make a cartridge that speaks in a hook once its model is cached."""

    def saw(self, name):
        kind.saw(self, name)
        if name == hook:
            if cached.exists():
                speak()
            cached.write_text("the model")

    return type("Caching", (kind,), {"plugin_name": "caching", "saw": saw})()


SPEAKERS = [
    pytest.param("open", prints, id="a23-print-on-load"),
    pytest.param("open", prints_without_an_end, id="a23-half-a-line"),
    pytest.param("open", writes_to_the_descriptor, id="a23-file-descriptor"),
    pytest.param("open", prints_from_c, id="a23-c-library"),
    pytest.param("open", starts_a_child, id="a23-child-process"),
    pytest.param("open", prints_json_itself, id="a23-json-of-its-own"),
    pytest.param("preflight", prints, id="a23-print-in-preflight"),
    pytest.param("session_end", prints_from_c, id="a23-c-library-at-the-end"),
    pytest.param("close", prints, id="a23-print-on-close"),
]


@pytest.mark.parametrize("kind", [BatchEcho, StreamingEcho], ids=["batch", "streaming"])
@pytest.mark.parametrize(("hook", "speak"), SPEAKERS)
def test_a_stray_line_is_never_on_stdout(kind, hook, speak, tmp_path, capfd):
    """Both runs give one JSON document, and nothing else, though the second one prints."""
    given = []
    for run in range(2):
        plugin = make(kind, hook, speak, tmp_path / "cached")
        words = ["run", "cap:echo", "hi", "--json", "--verbose"]
        assert main(words, partial(registry_of, plugin)) == 0
        out, err = capfd.readouterr()
        given.append(json.loads(out)["payload"])
        assert out.count("\n") == 1
        assert HIT not in out
        assert (HIT in err) is (run == 1), err
    assert given[0] == given[1]


@pytest.mark.parametrize(("hook", "speak"), SPEAKERS)
def test_a_stray_line_is_never_among_events(hook, speak, tmp_path, capfd):
    """Where every event is a line, every line is an event."""
    for _ in range(2):
        plugin = make(StreamingEcho, hook, speak, tmp_path / "cached")
        words = ["run", "cap:echo", "hi", "--json", "--stream"]
        assert main(words, partial(registry_of, plugin)) == 0
        out, err = capfd.readouterr()
        lines = [json.loads(line) for line in out.splitlines()]
        assert [one["payload"] for one in lines if one.get("kind")] == ["hi", "hi"]
        assert err == ""


def test_a_program_of_its_own_keeps_its_streams(tmp_path, capfd):
    """Core redirects nothing in a user's process: what is printed there is the plugin's doing."""
    (tmp_path / "cached").touch()
    with registry_of(make(BatchEcho, "infer", prints, tmp_path / "cached")) as registry:
        registry.call("cap:echo", "hi")
    assert capfd.readouterr().out == f"{HIT}\n"
