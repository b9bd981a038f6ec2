"""The wheel of llama-cpp-python is built once for each set of flags, or it is said what to do."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import build_llama_wheel
import pytest
from build_llama_wheel import BuildError, build, check_machine, main, wheel_folder

WHAT = "llama-cpp-python==0.3.36"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no flags or compilers of the user's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "argv", ["build_llama_wheel.py", WHAT])
    for name in ("CMAKE_ARGS", "CXX", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pip that finds nothing."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")


def test_folder_is_in_the_users_cache(cache: Path) -> None:
    assert wheel_folder(WHAT).parent == cache / "cartridge" / "wheels"


def test_cache_is_in_the_home_where_nothing_else_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert wheel_folder(WHAT).is_relative_to(Path.home() / ".cache")


@pytest.mark.parametrize(
    "flags", ["-DGGML_NATIVE=ON", "-DGGML_CUDA=on", "-DGGML_BLAS=ON -DX='a b'"]
)
def test_flags_have_a_folder_of_their_own(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = wheel_folder(WHAT)
    monkeypatch.setenv("CMAKE_ARGS", flags)
    assert wheel_folder(WHAT) != plain
    assert wheel_folder(WHAT) == wheel_folder(WHAT)


def test_version_has_a_folder_of_its_own() -> None:
    assert wheel_folder("llama-cpp-python==0.3.37") != wheel_folder(WHAT)


def test_cached_wheel_is_not_built_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is looked for or run, and the folder is all that is printed."""
    folder = wheel_folder(WHAT)
    folder.mkdir(parents=True)
    (folder / "llama_cpp_python-0.3.36-py3-none-any.whl").touch()
    monkeypatch.setenv("PATH", "")
    assert main() == 0
    assert capsys.readouterr() == (f"{folder}\n", "")


@pytest.mark.parametrize("compiler", [None, "no-such-compiler -m64"])
def test_missing_compiler_is_said_with_what_to_type(
    compiler: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    if compiler:
        monkeypatch.setenv("CXX", compiler)
    assert main() == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{WHAT} is built from source, and there is no C++ compiler" in err
    assert (compiler or "c++, g++").split(" ")[0] in err
    assert "sudo apt install g++" in err


def test_full_disk_is_said_before_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", sys.executable)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**8))
    with pytest.raises(BuildError, match=r"0\.1 GB free and needs 2 GB.\nMake room"):
        check_machine(WHAT)


@pytest.mark.usefixtures("no_index")
def test_failed_build_leaves_no_wheel_and_shows_the_end_of_its_log() -> None:
    folder = wheel_folder(WHAT)
    with pytest.raises(BuildError, match="No matching distribution found") as caught:
        build(WHAT, folder)
    assert str(folder / "build.log") in str(caught.value)
    assert [path.name for path in folder.iterdir()] == ["build.log"]


def test_requirement_without_a_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["build_llama_wheel.py", "llama-cpp-python"])
    with pytest.raises(SystemExit, match="2"):
        main()


def test_makefile_pins_what_the_plugin_takes() -> None:
    """The pinned version is the plugin's floor: the one that is tested."""
    root = Path(build_llama_wheel.__file__).parents[3]
    version = WHAT.partition("==")[2]
    assert f"LLAMA := {WHAT}\n" in (root / "Makefile").read_text(encoding="utf-8")
    metadata = (root / "plugins/gguf/pyproject.toml").read_text(encoding="utf-8")
    assert f'"llama-cpp-python>={version}"' in metadata
