"""Hosts in C and in Python call an exported library, rightly and wrongly."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kettle_site
import native_host
import native_packs
import pytest
from native_packs import library_of

from cartridge_core.__main__ import main

pytestmark = pytest.mark.integration

Scenes = dict[str, Any]

_TIMEOUT_S = 120.0


def as_latin(text: str) -> str:
    """Give a text's UTF-8 as the driver writes bytes."""
    return text.encode().decode("latin-1")


@pytest.fixture(scope="session")
def scenes(site: Path, kettle_echo: Path, kettle_stream: Path, kettle_levels: Path) -> Scenes:
    """What came of every scene of the driver, in a Python that loaded three libraries at once."""
    packs = (kettle_echo, kettle_stream, kettle_levels)
    done = subprocess.run(
        [sys.executable, str(kettle_site.DRIVER), *(str(library_of(pack)) for pack in packs)],
        env=kettle_site.environment(site, PYTHONPATH=""),
        check=True,
        capture_output=True,
        timeout=_TIMEOUT_S,
    )
    found: Scenes = json.loads(done.stdout)
    return found


def test_texts(scenes: Scenes) -> None:
    """A text comes and goes as UTF-8, an empty one too; what is none is refused."""
    *good, (status, said) = scenes["texts"]
    assert good == [[0, "hot tea" * 2], [0, "hot " * 2], [0, as_latin("hot naïve 茶" * 2)]]
    assert status == -1
    assert "io.input is a text in UTF-8, and the host gave something else" in said


def test_error_failures_are_statuses_with_a_text(scenes: Scenes) -> None:
    """Whatever is raised in Python; and the session goes on."""
    assert scenes["failures"] == [
        [-5, "the kettle is cold:   °C"],
        [-99, "KeyError: 'bug'"],
        [-5, "plugin kettle: cartridge_infer raised SystemExit: exit"],
        [-5, "kettle-echo gave a value of type int, and io.output is a text"],
        [0, "hot tea" * 2],
    ]


def test_cancel_from_another_thread(scenes: Scenes) -> None:
    """The call that is inside is out with CTG_E_CANCELLED, and so is the next; others go on."""
    assert scenes["cancel"] == [-6, -6, 0, 0, [0, "hot tea" * 2]]


def test_error_handles_that_are_gone(scenes: Scenes) -> None:
    """A number stands for one thing for ever, so that nothing is touched that is not there."""
    gone = "there is no such handle: it was closed or ended, or never was one"
    assert scenes["stale"] == {
        "ended": [0, -1],
        "infer after end": [-1, gone],
        "closed": [0, -1],
        "begin after close": [-1, 0],
        "infer after close": [[-7, "infer after end: begin a new session"], 0],
    }


def test_results_outlive_their_session_and_are_released_once(scenes: Scenes) -> None:
    """A second release is harmless, and a released result is none."""
    assert scenes["results"] == [[2, "hot tea" * 2], -1, -1]


def test_error_handles_of_another_kind(scenes: Scenes) -> None:
    """They are refused, and what they stand for lives on."""
    *refused, (_, said), _, good = scenes["mixed_up"]
    assert refused == [-1, -1, -1]
    assert "no such handle" in said
    assert good == [0, "hot tea" * 2]


def test_error_arguments_that_break_the_header(scenes: Scenes) -> None:
    """NULL, lengths and sizes."""
    assert scenes["arguments"] == [
        -8,
        "the buffer is smaller than that of 0.1",
        *[-1] * 5,
        "pack_dir and out must be given",
        *[-1] * 2,
    ]


def test_error_the_other_family(scenes: Scenes) -> None:
    """A batch library streams not, and the other way round."""
    assert scenes["families"] == [-2] * 4


def test_a_stream(scenes: Scenes) -> None:
    """PARTIAL, ENDPOINT with its times, FINAL; after the flush what is left, NULL, and no push."""
    assert scenes["streaming"] == [
        None,
        *(0, [1, '{"text": "tea", "pace": [1.5]}']),
        *(0, [3, '{"start_s": 0.0, "end_s": 14.0}']),
        *(0, [2, '{"text": "tea is served.", "pace": [1.5]}']),
        *(0, [1, '{"text": "", "pace": [1.5]}']),
        *([1, '{"text": "Milk", "pace": [1.5]}'], 0),
        [3, '{"start_s": 14.0, "end_s": 18.0}'],
        [2, '{"text": "Milk", "pace": [1.5]}'],
        *[None] * 2,
        -7,
        "push after flush: the session is drained; begin a new session",
        *(0, None),
    ]


def test_arrays(scenes: Scenes) -> None:
    """Raw and little-endian in both directions; half a number is refused."""
    *good, (status, said) = scenes["arrays"]
    one, two, four = "\0\0\x80\x3f", "\0\0\0\x40", "\0\0\x80\x40"
    assert good == [[0, one + two + two + four], [0, ""]]
    assert status == -1
    assert "and the host gave 3 bytes" in said


def test_threads_and_libraries_keep_apart(scenes: Scenes) -> None:
    """Six threads on two libraries; the text without a handle is each thread's own."""
    assert scenes["threads"] == [{str(number): [True, True] for number in range(6)}, True]


def run(host: Path, pack: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the host with no variable but those that are given: the library finds its Python."""
    return subprocess.run(
        [str(host), str(library_of(pack)), *words],
        env=variables,
        check=False,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )


def test_a_host_in_c(host: Path, kettle_echo: Path) -> None:
    """It has no Python of its own, and an environment that says nothing."""
    done = run(host, kettle_echo, "--text", "tea")
    assert (done.stdout, done.stderr, done.returncode) == ("FINAL hot teahot tea\n", "", 0)


def test_a_cartridge_in_a_process_of_its_own(host: Path, kettle_aside: Path) -> None:
    """The library starts the process with its own Python, and not with the host."""
    done = run(host, kettle_aside, "--text", "tea")
    assert (done.stdout, done.stderr, done.returncode) == ("FINAL tea\n", "", 0)


LOCAL_HOST = """
#include "cartridge_abi.h"
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    ctg_cartridge *cartridge = NULL;
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    ctg_status (*open)(const char *, const ctg_open_options *, ctg_cartridge **);

    *(void **)&open = dlsym(library, "ctg_open");
    printf("%d", open("/", NULL, &cartridge));
    return cartridge == NULL;
}
"""


def test_a_host_that_keeps_its_symbols_apart(kettle_echo: Path, tmp_path: Path) -> None:
    """Python's own modules find Python all the same."""
    source, program = tmp_path / "host.c", tmp_path / "host"
    source.write_text(LOCAL_HOST)
    words = ["cc", "-I", str(native_packs.INCLUDE), str(source), "-o", str(program), "-ldl"]
    subprocess.run(words, check=True, timeout=_TIMEOUT_S)
    words = [str(program), str(library_of(kettle_echo))]
    done = subprocess.run(words, env={}, check=True, capture_output=True, timeout=_TIMEOUT_S)
    assert done.stdout == b"0"


def test_error_a_broken_pipe(host: Path, kettle_echo: Path) -> None:
    """An exception as in every Python, and not the end of the host."""
    done = run(host, kettle_echo, "--text", "pipe")
    assert done.returncode == 1
    assert "CTG_E_INTERNAL (-99): BrokenPipeError" in done.stderr


OF_ANOTHER_ENVIRONMENT = """
import ctypes, sys

class Buffer(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_char_p), ("len", ctypes.c_size_t)]

for path in sys.argv[1:]:
    library = ctypes.CDLL(path)
    made = ctypes.c_void_p()
    assert library.ctg_open(b"/", None, ctypes.byref(made)) == 0
    assert library.ctg_session_begin(made, None, ctypes.byref(made)) == 0
    given = Buffer(24, b"tea", 3)
    assert library.ctg_infer(made, ctypes.byref(given), ctypes.byref(made)) == 0
    assert library.ctg_result_get_payload(made, ctypes.byref(given)) == 0
    print(given.data[: given.len].decode())
"""


def test_a_python_of_another_environment(kettle_echo: Path, tmp_path: Path) -> None:
    """The library brings its own folders along; a copy of it is a library of its own."""
    copy = shutil.copy(library_of(kettle_echo), tmp_path / "copy.so")
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}")
    done = subprocess.run(
        [str(base), "-I", "-c", OF_ANOTHER_ENVIRONMENT, str(library_of(kettle_echo)), str(copy)],
        check=True,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    assert done.stdout == "hot teahot tea\n" * 2


FAILURES = [
    pytest.param(
        {"KETTLE_IS_BROKEN": "1"},
        "ctg_preflight: CTG_E_LOAD (-4): plugin kettle",
        "the kettle has no lid",
        id="plugin-that-cannot-be-imported",
    ),
    pytest.param(
        {"KETTLE_WATER": "0"},
        "ctg_preflight: CTG_E_PREFLIGHT (-3): water",
        "none",
        id="preflight-that-says-no",
    ),
    pytest.param(
        {"CARTRIDGE_PLUGINS": "native"},
        "ctg_preflight: CTG_E_UNSUPPORTED (-2): kettle-echo, which this library serves, is not",
        "cartridge doctor",
        id="plugin-that-is-not-allowed",
    ),
]


@pytest.mark.parametrize(("variables", "begins", "says"), FAILURES)
def test_error_in_a_host_in_c(
    variables: dict[str, str], begins: str, says: str, host: Path, kettle_echo: Path
) -> None:
    """The host lives, and has a status and the reason."""
    done = run(host, kettle_echo, "--text", "tea", **variables)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"ctg_host: {begins}")
    assert says in done.stderr


def test_error_a_plugin_that_is_gone(
    host: Path, kettle_echo: Path, site: Path, tmp_path: Path
) -> None:
    """It was uninstalled after the export."""
    gone = site.with_name("gone")
    site.rename(gone)
    try:
        done = run(host, kettle_echo, "--text", "tea")
    finally:
        gone.rename(site)
    assert done.returncode == 1
    assert f"is not usable in {sys.prefix}" in done.stderr


def test_error_a_python_that_is_gone(host: Path, kettle_echo: Path, tmp_path: Path) -> None:
    """As after its environment was removed: a text that says which, and what to do."""
    pack = tmp_path / "pack"
    shutil.copytree(kettle_echo, pack)
    file, python = library_of(pack), sys.executable.encode()
    data = file.read_bytes()
    assert python + b"\0" in data
    file.write_bytes(data.replace(python + b"\0", python[:-1] + b"?\0"))
    done = run(host, pack, "--text", "tea")
    assert done.returncode == 1
    assert done.stderr.startswith("ctg_host: ctg_preflight: CTG_E_LOAD (-4): ")
    assert "No such file" in done.stderr
    assert "export it again" in done.stderr


def test_error_a_package_that_is_gone(host: Path, kettle_echo: Path, tmp_path: Path) -> None:
    """What the library imports first is not there: its name is in the text."""
    pack = tmp_path / "pack"
    shutil.copytree(kettle_echo, pack)
    file, name = library_of(pack), b"cartridge_native.export.served"
    data = file.read_bytes()
    assert name in data
    file.write_bytes(data.replace(name, b"cartridge_native.export.gonegon"[: len(name)]))
    done = run(host, pack, "--text", "tea")
    assert done.returncode == 1
    assert "cannot set this library up: ModuleNotFoundError: No module named" in done.stderr


def test_loads_back(site: Path, kettle_echo: Path, kettle_levels: Path, tmp_path: Path) -> None:
    """By the plugin, in a process and inline: routed to by its cap, and what Python gives."""
    script = tmp_path / "back.py"
    script.write_text(
        "import sys\n"
        "from cartridge_core import Registry\n"
        "ids = ['native-kettle-echo', 'kettle-echo']\n"
        "for isolation in ('process', 'inline'):\n"
        "    with Registry.discover(packs=sys.argv[1:], isolation=isolation) as registry:\n"
        "        assert not registry.issues, registry.issues\n"
        "        by_c = registry.call('cap:echo', 'tea', cartridge_id=ids[0])\n"
        "        fixed = {'times': 2, 'prefix': 'hot '}\n"
        "        by_python = registry.call('cap:echo', 'tea', cartridge_id=ids[1], **fixed)\n"
        "        print(by_c.payload == by_python.payload == 'hot tea' * 2)\n"
        "        route = registry.route('cap:scale', prefer=['native'])\n"
        "        pairs = registry.call('cap:scale', [1.5, 2], prefer=['native']).payload\n"
        "        print(route.cartridge_id, pairs.dtype, pairs.tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(kettle_echo), str(kettle_levels)],
        env=kettle_site.environment(site),
        check=True,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    told = "True\nnative-kettle-levels float32 [[1.5, 3.0], [2.0, 4.0]]\n"
    assert done.stdout == told * 2


def test_calls_in_random_orders(kettle_echo: Path, kettle_stream: Path, tmp_path: Path) -> None:
    """Every status is one that the header allows there."""
    fuzz = native_host.build_fuzz(tmp_path / "fuzz")
    for pack in (kettle_echo, kettle_stream):
        subprocess.run(
            [str(fuzz), str(library_of(pack)), str(pack), "1", "500"],
            check=True,
            capture_output=True,
            timeout=_TIMEOUT_S,
        )


def test_keeps_the_contract(
    site: Path, kettle_stream: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As every cartridge."""
    assert main(["conform", str(kettle_stream)]) == 0, capfd.readouterr().out
