"""Reading sound is an extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cartridge_core.errors import LoadError
from cartridge_media.pcm import PcmReader


def test_importing_it_imports_no_library() -> None:
    """Neither numpy nor what decodes or resamples, until something is read."""
    script = (
        "import sys\n"
        "import cartridge_media.audio, cartridge_media.pcm, cartridge_media.ffmpeg\n"
        "print([name for name in ('numpy', 'soundfile', 'soxr') if name in sys.modules])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize("missing", ["numpy", "soundfile"])
def test_error_a_file_without_a_library(missing: str) -> None:
    """The message says what to type."""
    script = (
        "import sys\n"
        "sys.modules[sys.argv[1]] = None\n"
        "from cartridge_core.errors import LoadError\n"
        "from cartridge_media.audio import read_audio\n"
        "try:\n"
        "    read_audio(b'fLaC' + bytes(99))\n"
        "except LoadError as exc:\n"
        "    print(exc)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, missing],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert 'pip install "cartridge-media[audio]"' in ended.stdout


def test_error_chunks_without_soxr(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is needed for other rates alone."""
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(LoadError, match=r'pip install "cartridge-media\[audio\]"'):
        PcmReader("int16", 48_000)
    PcmReader("int16", 16_000)
