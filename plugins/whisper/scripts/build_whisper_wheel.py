"""
Build openai-whisper without its demand for triton, and keep the wheel.

    python build_whisper_wheel.py openai-whisper==20250625

prints a folder for pip's ``--find-links``. The wheel in it is the release from the package index
with one line of its metadata less: on Linux that line has pip install triton, about 1 GB, which
whisper uses on GPUs alone, and cartridge-whisper never. Its version ends in ``+cpu``, which pip
takes before the plain one, so that nothing else has to be said; and ``pip check`` is content.

Only the standard library is imported.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

DEMAND = '"triton'
VERSION = "whisper/version.py"


class BuildError(Exception):
    """Why there is no wheel, and what to do."""


def main() -> int:
    """Print the folder with the wheel; give the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("requirement", help="which release, such as openai-whisper==20250625")
    requirement = parser.parse_args().requirement
    if "==" not in requirement:
        parser.error(f"a version is needed, such as openai-whisper==20250625; found {requirement}")
    folder = wheel_folder(requirement)
    try:
        if not any(folder.glob("*.whl")):
            with tempfile.TemporaryDirectory() as scratch:
                source = fetch(requirement, Path(scratch))
                release(source)
                run_pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(source))
    except BuildError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    print(folder)
    return 0


def wheel_folder(requirement: str) -> Path:
    """Give the folder of a wheel in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "cartridge" / "wheels" / f"{requirement.replace('==', '-')}-cpu"


def fetch(requirement: str, folder: Path) -> Path:
    """
    Unpack the source distribution of a release.

    Raises:
        BuildError: pip cannot get it.
    """
    # pip builds the metadata of what it downloads, and not the wheel.
    run_pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(folder), requirement)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def release(source: Path) -> None:
    """
    Take the demand for triton out of an unpacked release, and mark its version.

    Raises:
        BuildError: The release is put together in another way.
    """
    project = source / "pyproject.toml"
    lines = project.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if DEMAND not in line]
    version = source / VERSION
    text = version.read_text(encoding="utf-8") if version.is_file() else ""
    if len(kept) != len(lines) - 1 or text.count('"') != 2:
        msg = (
            f"{source.name} is put together in another way than the releases known here; install "
            "it as it is: pip install openai-whisper"
        )
        raise BuildError(msg)
    project.write_text("".join(kept), encoding="utf-8")
    start, number, end = text.split('"')
    version.write_text(f'{start}"{number}+cpu"{end}', encoding="utf-8")


def run_pip(*arguments: str) -> None:
    """
    Run pip.

    Raises:
        BuildError: It failed; its last lines say why.
    """
    done = subprocess.run(  # noqa: S603 -- this interpreter's pip
        [sys.executable, "-m", "pip", "--quiet", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        msg = "\n".join(["pip failed:", *done.stderr.strip().splitlines()[-8:]])
        raise BuildError(msg)


if __name__ == "__main__":
    sys.exit(main())
