"""
Build llama-cpp-python once and keep the wheel: PyPI has its source distribution only.

    python build_llama_wheel.py llama-cpp-python==0.3.36

prints a folder for pip's ``--find-links``. The wheel in it is built if it is not there yet, which
needs a C++ compiler and takes some minutes; cmake and ninja come as wheels where they are missing.

It is built for any CPU with AVX2 (x86-64) or for any arm64 one, with vision, and without the parts
of llama.cpp that llama-cpp-python does not use: half the time and an eighth of the size of the
default build. ``CMAKE_ARGS`` adds flags, which come last and so win: ``-DGGML_NATIVE=ON`` is a
little faster and runs on CPUs like this machine's only. Each set of flags has its own folder.

Only the standard library is imported: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

FLAGS = (
    "-DGGML_NATIVE=OFF",
    "-DLLAMA_OPENSSL=OFF",
    # A wheel cannot hold links: each versioned name would be another copy of the library.
    "-DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON",
)
# The cache entry of the same name is set with FORCE; a normal variable goes before it.
WITHOUT_COMMON = "set(LLAMA_BUILD_COMMON OFF)\n"
# Headers, and a second copy of the libraries outside the package.
EXCLUDED = "lib/**;include/**;bin/**"
NEEDED = ("libllama", "libmtmd")
NEEDED_BYTES = 2 * 10**9

NO_COMPILER = """\
{requirement} is built from source, and there is no C++ compiler ({names}).
Get one, then run the same command again:

    Debian, Ubuntu:  sudo apt install g++
    Fedora:          sudo dnf install gcc-c++
    macOS:           xcode-select --install

A compiler under another name: set CXX and CC.
"""
NO_DISK = """\
{requirement} is built in {folder}, which has {free:.1f} GB free and needs {needed:.0f} GB.
Make room there, or set TMPDIR to a folder that has it, then run the same command again.
"""
NO_BUILD = """\
{requirement} was not built. The end of {log}:

{tail}
If the network failed, or memory ran out (then set CMAKE_BUILD_PARALLEL_LEVEL=1), run the same
command again. Flags of your own: CMAKE_ARGS={own!r}.
"""


class BuildError(Exception):
    """Why there is no wheel, and what to do."""


def main() -> int:
    """Print the folder with the wheel; give the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("requirement", help="what to build, such as llama-cpp-python==0.3.36")
    requirement = parser.parse_args().requirement
    if "==" not in requirement:
        parser.error(f"a version is needed, such as llama-cpp-python==0.3.36; found {requirement}")
    folder = wheel_folder(requirement)
    try:
        if not any(folder.glob("*.whl")):
            check_machine(requirement)
            build(requirement, folder)
    except BuildError as exc:
        sys.stderr.write(str(exc))
        return 1
    print(folder)
    return 0


def wheel_folder(requirement: str) -> Path:
    """Give the folder of a wheel in the user's cache, one for each version and set of flags."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    text = "\n".join([*FLAGS, WITHOUT_COMMON, EXCLUDED, *own_flags(), sysconfig.get_platform()])
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    return cache / "cartridge" / "wheels" / f"{requirement.replace('==', '-')}-{key}"


def own_flags() -> list[str]:
    """Give the flags that the user adds."""
    return shlex.split(os.environ.get("CMAKE_ARGS", ""))


def check_machine(requirement: str) -> None:
    """
    Find out before the download whether a build can work.

    Raises:
        BuildError: There is no compiler, or no room.
    """
    compiler = os.environ.get("CXX")
    names = [shlex.split(compiler)[0]] if compiler else ["c++", "g++", "clang++"]
    if not any(map(shutil.which, names)):
        raise BuildError(NO_COMPILER.format(requirement=requirement, names=", ".join(names)))
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        sizes = {"free": free / 10**9, "needed": NEEDED_BYTES / 10**9}
        raise BuildError(NO_DISK.format(requirement=requirement, folder=folder, **sizes))


def build(requirement: str, folder: Path) -> None:
    """
    Build the wheel, and put it into its folder once it is whole.

    Raises:
        BuildError: pip, cmake or the compiler failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "build.log"
    sys.stderr.write(f"Building {requirement}, once, which takes some minutes; see {log}\n")
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as temporary:
        include = Path(temporary, "without_common.cmake")
        include.write_text(WITHOUT_COMMON, encoding="utf-8")
        flags = [*FLAGS, f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={include}", *own_flags()]
        settings = {
            "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 1),
            **os.environ,
            "CMAKE_ARGS": shlex.join(flags),
        }
        # pip's own cache would answer with a wheel of other flags.
        pip = [sys.executable, "-m", "pip", "wheel", "--no-cache-dir", "--no-deps"]
        pip += ["--no-binary", requirement.partition("==")[0], "--wheel-dir", temporary]
        pip += ["--verbose", "--config-settings", f"wheel.exclude={EXCLUDED}", requirement]
        with log.open("w", encoding="utf-8") as output:
            status = subprocess.run(  # noqa: S603 -- the flags are the user's own
                pip, env=settings, stdout=output, stderr=subprocess.STDOUT, check=False
            ).returncode
        wheels = list(Path(temporary).glob("*.whl"))
        if status != 0 or len(wheels) != 1 or not is_whole(wheels[0]):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
            own = os.environ.get("CMAKE_ARGS", "")
            raise BuildError(
                NO_BUILD.format(
                    requirement=requirement, log=log, tail="".join(lines[-30:]), own=own
                )
            )
        wheels[0].replace(folder / wheels[0].name)


def is_whole(wheel: Path) -> bool:
    """Tell whether the libraries are in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = [Path(name).name.partition(".")[0] for name in archive.namelist()]
    return all(name in names for name in NEEDED)


if __name__ == "__main__":
    os.nice(10)
    sys.exit(main())
