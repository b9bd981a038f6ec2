"""Build what drives native cartridges from C: the example host, and the tests' fuzz driver."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from native_packs import INCLUDE, STRICT

__all__ = ["HOST", "SANITIZED", "build_fuzz", "build_host"]

HOST = Path(__file__).parents[1] / "examples" / "host"
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
"""Flags under which the first fault of memory or arithmetic ends the program."""

_FUZZ = Path(__file__).parents[1] / "tests" / "fuzz_calls.c"
_TIMEOUT_S = 120.0


def build_host(folder: Path, *flags: str) -> Path:
    """
    Build the example host by its Makefile.

    Args:
        folder: Where to; it is made.
        *flags: For the compiler, in place of the usual ones.

    Returns:
        The program, ``ctg_host``.
    """
    words = ["make", "--silent", "-C", str(HOST), f"BUILD={folder}"]
    if flags:
        words.append(f"CFLAGS={' '.join(flags)}")
    # What an outer make says of itself is not for this one.
    variables = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    subprocess.run(words, env=variables, check=True, timeout=_TIMEOUT_S)  # noqa: S603 -- make
    return folder / "ctg_host"


def build_fuzz(folder: Path, *flags: str) -> Path:
    """Build the driver that calls a library in random orders; give the program."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = [_FUZZ, HOST / "library.c", HOST / "ports.c"]
    words = ["cc", "-std=c11", *STRICT, *flags, "-I", str(INCLUDE), "-I", str(HOST)]
    words += [*map(str, sources), "-o", str(folder / "fuzz_calls"), "-ldl", "-lpthread"]
    subprocess.run(words, check=True, timeout=_TIMEOUT_S)  # noqa: S603 -- a compiler
    return folder / "fuzz_calls"
