"""The header is C and C++ of the strictest kind, and says what the plugin reads."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import native_packs
import pytest

from cartridge_core.errors import Status
from cartridge_core.results import ResultKind
from cartridge_native import _binding, _library

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HEADER = native_packs.INCLUDE / "cartridge_abi.h"
CODE = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)

USES_ALL = """
#include <cartridge_abi.h>
#include <cartridge_abi.h>
#include <stdio.h>
int main(void)
{
    printf("%d %d %d %d ", (int)CTG_SIZE_PREFLIGHT_REPORT, (int)CTG_SIZE_OPEN_OPTIONS,
           (int)CTG_SIZE_SESSION_OPTIONS, (int)CTG_SIZE_BUFFER);
    printf("%d %d\\n", (int)CTG_MAX_BUFFER_BYTES, (int)CTG_ABI_VERSION);
    return 0;
}
"""


@pytest.mark.parametrize(
    ("compiler", "language"),
    [
        pytest.param("cc", ["-x", "c", "-std=c11"], id="c11"),
        pytest.param("c++", ["-x", "c++", "-std=c++17"], id="cxx17"),
    ],
)
def test_header_compiles_without_a_warning(
    compiler: str, language: Sequence[str], tmp_path: Path
) -> None:
    """Included twice; and the sizes that it states are those that the plugin sets."""
    if shutil.which(compiler) is None:
        pytest.skip(f"needs a compiler, {compiler}")
    (tmp_path / "main").write_text(USES_ALL)
    words = [compiler, *language, *native_packs.STRICT, "-I", str(HEADER.parent), "main"]
    subprocess.run([*words, "-o", "program"], cwd=tmp_path, check=True, timeout=60)
    told = subprocess.run(
        [tmp_path / "program"], check=True, capture_output=True, text=True, timeout=60
    )
    sizes = [_binding.REPORT_SIZE, _binding.OPTIONS_SIZE, _binding.OPTIONS_SIZE]
    expected = [*sizes, _binding.BUFFER_SIZE, _library.MAX_BUFFER_BYTES, 1]
    assert told.stdout.split() == [str(number) for number in expected]


def test_sizes_end_with_the_last_field() -> None:
    """Options end at 12 bytes, where `sizeof`, with its padding, is 16."""
    assert (_binding.OPTIONS_SIZE, ctypes.sizeof(_binding.Options)) == (12, 16)


def test_header_declares_what_is_bound() -> None:
    """The functions are the sixteen, each once."""
    declared = re.findall(r"^CTG_API\s[^;]*?\b(ctg_\w+)\(", CODE, flags=re.MULTILINE)
    assert sorted(declared) == sorted([*_binding.FUNCTIONS, "ctg_abi_version"])
    assert len(declared) == 16


def test_header_has_the_statuses_and_kinds_of_core() -> None:
    """Every number of the ABI has its name in the header, and no other."""
    numbers = dict(re.findall(r"CTG_((?:E_|RESULT_|OK)\w*) = (-?\d+)", CODE))
    statuses = {"OK" if one is Status.OK else f"E_{one.name}": str(int(one)) for one in Status}
    kinds = {f"RESULT_{one.name}": str(int(one)) for one in ResultKind}
    assert numbers == statuses | kinds


def test_header_is_clean_for_generators() -> None:
    """No function-like macros, enum types, bit fields, or enums without a name, as bindgen asks."""
    assert not re.findall(r"#define\s+\w+\([^)]*\)", CODE.replace("__attribute__((", ""))
    assert "typedef enum" not in CODE
    assert not re.findall(r"enum\s*\{", CODE)
    assert not re.findall(r"\w\s*:\s*\d+;", CODE)


def test_header_settles_eleven_questions() -> None:
    """What ABI 0.1 leaves open is answered by number."""
    text = HEADER.read_text()
    assert re.findall(r"^ \* ( ?\d+)\. ", text, flags=re.MULTILINE) == [
        f"{number:2}" for number in range(1, 12)
    ]
