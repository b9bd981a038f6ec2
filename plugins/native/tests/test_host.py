"""The example host in C: what it prints is what the host in Python gives, and it fails by name."""

from __future__ import annotations

import json
import re
import subprocess
import wave
from typing import TYPE_CHECKING

import native_packs
import numpy as np  # noqa: TID253 -- arrays are what they take
import pytest
from native_packs import library_of
from wav_files import chunk, wav_of

from cartridge_core.testing import registry_of
from cartridge_native import plugin

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from conftest import MakePack

RATE_HZ = 16_000


def run(host: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [host, *words], capture_output=True, encoding="utf-8", check=False, timeout=60
    )


def told(host: Path, *words: str | Path) -> list[tuple[str, str]]:
    """Run it well; give what it prints, the kind and the rest of each line."""
    done = run(host, *words)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    return [(kind, rest) for kind, _, rest in lines]


def speech(seed: int) -> NDArray[np.int16]:
    """Two bursts of noise with silence around them, int16, shape ``(samples,)``, 16 kHz."""
    generator = np.random.default_rng(seed)
    pieces = [(0.5, 0), (1.2, 16000), (0.5, 0), (0.613, 9000)]
    made = [generator.uniform(-peak, peak, int(RATE_HZ * length)) for length, peak in pieces]
    return np.concatenate(made).astype(np.int16)


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """Speech as a WAV file, written by Python's own module."""
    with wave.open(str(tmp_path / "speech.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(speech(0).tobytes())
    return tmp_path / "speech.wav"


def test_a_batch_is_that_of_python_bit_for_bit(host: Path, log_energies: Path, sound: Path) -> None:
    """Nine digits are enough for every float32 to come back as it was."""
    ((kind, line),) = told(host, library_of(log_energies), "--pcm", str(sound))
    with (
        registry_of(plugin, packs=[log_energies], isolation="inline") as registry,
        registry.open("native-log-energies") as cartridge,
        cartridge.session() as session,
    ):
        features = session.infer(speech(0).astype(np.float32) / 32768).payload
    assert isinstance(features, np.ndarray)
    document = json.loads(line)
    assert (kind, document["dtype"], document["shape"]) == ("FINAL", "float32", [281, 2])
    found = np.array(document["data"], np.float32).reshape(document["shape"])
    assert found.tobytes() == features.tobytes()


@pytest.mark.parametrize("chunk_ms", [10, 73, 100, 60000])
def test_a_stream_is_that_of_python(
    host: Path, endpointer: Path, sound: Path, chunk_ms: int
) -> None:
    """The same chunks give the same results in the same order."""
    lines = told(host, library_of(endpointer), "--pcm", str(sound), "--chunk-ms", str(chunk_ms))
    expected: list[tuple[str, object]] = []
    samples, step = speech(0), RATE_HZ * chunk_ms // 1000
    with (
        registry_of(plugin, packs=[endpointer], isolation="inline") as registry,
        registry.open("native-endpointer") as cartridge,
        cartridge.session() as session,
    ):
        for at in range(0, len(samples), step):
            session.push(samples[at : at + step])
            expected += [(one.kind.name, one.payload) for one in iter(session.pull, None)]
        session.flush()
        expected += [(one.kind.name, one.payload) for one in session.drain()]
    # An ENDPOINT's times are no payload in Python.
    found = [(kind, None if kind == "ENDPOINT" else json.loads(rest)) for kind, rest in lines]
    assert found == expected
    assert lines[2] == ("ENDPOINT", '{"start_s": 0.50, "end_s": 1.70}')
    assert [kind for kind, _ in lines].count("FINAL") == 2


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--text", "tea, and Käse"], id="text"),
        pytest.param(["--text", ""], id="empty-text"),
        pytest.param(["--json", "record.json"], id="json"),
        pytest.param([], id="nothing"),
    ],
)
def test_texts_and_files_are_given_as_they_are(
    words: list[str], host: Path, make_native_pack: MakePack, tmp_path: Path
) -> None:
    """A cartridge that echoes gives them back."""
    (tmp_path / "record.json").write_text('{"a": [1, "ü"]}')
    words = [word if word != "record.json" else str(tmp_path / word) for word in words]
    given = "".join(words[1:]) if "--json" not in words else '{"a": [1, "ü"]}'
    pack = make_native_pack("broken", tmp_path)
    assert told(host, library_of(pack), *words) == [("FINAL", given)]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        pytest.param("float16", [0.1, -0.0, 6e-8, 65504, "inf", "nan"], id="float16"),
        pytest.param("float32", [0.1, -0.0, 1e-45, 3.4e38, "-inf", "nan", 16777217], id="float32"),
        pytest.param("float64", [0.1, -0.0, 5e-324, 1.7e308, 1 / 3, "inf"], id="float64"),
        pytest.param("int8", [-128, 127, 0, -1], id="int8"),
        pytest.param("int64", [-(2**63), 2**63 - 1, -1], id="int64"),
        pytest.param("uint64", [2**64 - 1, 0], id="uint64"),
        pytest.param("bool", [True, False], id="bool"),
    ],
)
def test_numbers_come_back_as_they_were(
    dtype: str, values: list[object], host: Path, make_native_pack: MakePack, tmp_path: Path
) -> None:
    """What is printed of a number is enough to read the same one."""
    array = np.array(values).astype(dtype) if dtype != "uint64" else np.array(values, dtype)
    descriptor = native_packs.described("broken")
    output = {"dtype": dtype, "shape": [1, None]}
    io = {"mode": "batch", "input": {"dtype": "bytes"}, "output": output}
    pack = make_native_pack("broken", tmp_path, stated=descriptor | {"io": io})
    (tmp_path / "numbers").write_bytes(array.tobytes())
    ((_, line),) = told(host, library_of(pack), "--json", str(tmp_path / "numbers"))
    document = json.loads(line)
    found = np.array(document["data"], dtype)
    assert document["shape"] == [1, len(values)]
    assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")
    if array.dtype.kind == "f":
        assert np.array_equal(np.signbit(found), np.signbit(array))


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(wav_of(speech(0).tobytes()), id="pcm"),
        pytest.param(wav_of(speech(0).tobytes(), kind=0xFFFE), id="extensible"),
        pytest.param(
            wav_of((speech(0) / np.float32(32768)).astype("<f4").tobytes(), kind=3, bits=32),
            id="float",
        ),
    ],
)
def test_every_form_of_a_sound_is_the_same_sound(
    made: bytes, host: Path, endpointer: Path, sound: Path
) -> None:
    """16-bit PCM and float32 samples, also after a chunk that is none of theirs."""
    other = sound.with_name("other.wav")
    other.write_bytes(made)
    found, expected = (
        told(host, library_of(endpointer), "--pcm", str(path)) for path in (other, sound)
    )
    assert found == expected


def test_a_model_takes_the_place_of_the_pack(
    host: Path, make_native_pack: MakePack, tmp_path: Path
) -> None:
    """It is given as an absolute path; one that is not there is refused."""
    library = library_of(make_native_pack("broken", tmp_path))
    assert told(host, library, "--model", str(tmp_path), "--text", "tea") == [("FINAL", "tea")]
    done = run(host, library, "--model", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "nowhere: CTG_E_LOAD (-4): No such file" in done.stderr


NAMED = [
    ("NO_VERSION", "ctg_abi_version: CTG_E_ABI_MISMATCH (-8): the library does not export it"),
    ("NO_FLUSH", "ctg_flush: CTG_E_ABI_MISMATCH (-8): the library does not export it"),
    ("NO_DEPENDENCY", "dlopen: CTG_E_LOAD (-4)"),
    ("VERSION_0", "ctg_abi_version: CTG_E_ABI_MISMATCH (-8): 0: the library could not"),
    ("VERSION_1_0", "CTG_E_ABI_MISMATCH (-8): it speaks ABI 1.0"),
    ("DESCRIPTOR_NULL", "ctg_descriptor_json: CTG_E_ABI_MISMATCH (-8)"),
    ("PREFLIGHT_SAYS_NO", "ctg_preflight: CTG_E_PREFLIGHT (-3): the driver frob is not"),
    ("PREFLIGHT_FAILS", "ctg_preflight: CTG_E_PREFLIGHT (-3): of this thread"),
    ("OPEN_FAILS", "ctg_open: CTG_E_LOAD (-4): of this thread"),
    ("OPEN_GIVES_NULL", "ctg_open: CTG_E_BACKEND (-5): CTG_OK, and no cartridge"),
    ("SESSION_FAILS", "ctg_session_begin: CTG_E_STATE (-7): of this cartridge"),
    ("SESSION_GIVES_NULL", "ctg_session_begin: CTG_E_BACKEND (-5): CTG_OK, and no session"),
    ("STATUS_UNKNOWN", "ctg_infer: no status of the ABI (-12345): of this session"),
    ("RESULT_NULL", "ctg_infer: CTG_E_BACKEND (-5): CTG_OK, and no result"),
    ("KIND_UNKNOWN", "ctg_result_get_kind: CTG_E_BACKEND (-5)"),
    ("PAYLOAD_FAILS", "ctg_result_get_payload: CTG_E_INTERNAL (-99): of this session"),
    ("PAYLOAD_NULL", "ctg_result_get_payload: CTG_E_BACKEND (-5)"),
    ("PAYLOAD_TOO_LONG", "ctg_result_get_payload: CTG_E_BACKEND (-5)"),
]


@pytest.mark.parametrize(
    ("switch", "words"),
    [pytest.param(*case, id=case[0].lower().replace("_", "-")) for case in NAMED],
)
def test_error_what_a_library_does_wrong_is_named(
    switch: str, words: str, host: Path, make_native_pack: MakePack, tmp_path: Path
) -> None:
    """One line on stderr: the function, the status, and the library's own words; nothing else."""
    pack = make_native_pack("broken", tmp_path, f"-DBROKEN={switch}")
    done = run(host, library_of(pack), "--text", "tea")
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert done.stderr.startswith("ctg_host: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("made", "words"),
    [
        pytest.param(None, "No such file", id="missing"),
        pytest.param(b"not a sound", "it is no WAV file", id="no-wav"),
        pytest.param(wav_of(bytes(64))[:-8], "it is cut off", id="cut-off"),
        pytest.param(chunk(b"RIFF", b"WAVE"), "no format or no samples", id="empty"),
        pytest.param(wav_of(bytes(64), channels=2), "more than one channel", id="stereo"),
        pytest.param(wav_of(bytes(48), bits=24), "neither 16-bit PCM nor", id="24-bit"),
        pytest.param(wav_of(bytes(64), kind=7, bits=8), "neither 16-bit PCM nor", id="mu-law"),
        pytest.param(wav_of(bytes(64), rate_hz=8000), "8000 Hz, and .* takes 16000", id="rate"),
    ],
)
def test_error_a_sound_that_cannot_be_given(
    made: bytes | None, words: str, host: Path, endpointer: Path, tmp_path: Path
) -> None:
    """It says what is wrong with the file; a library that takes no sound says so too."""
    if made is not None:
        (tmp_path / "it.wav").write_bytes(made)
    done = run(host, library_of(endpointer), "--pcm", str(tmp_path / "it.wav"))
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(rf"it\.wav: CTG_E_INVALID_ARG \(-1\): .*{words}", done.stderr)


@pytest.mark.parametrize("name", ["missing.so", "text.so", "folder.so"])
def test_error_a_file_that_is_no_library(name: str, host: Path, tmp_path: Path) -> None:
    """What the loader says of it is told."""
    (tmp_path / "text.so").write_text("not one")
    (tmp_path / "folder.so").mkdir()
    done = run(host, str(tmp_path / name))
    assert (done.returncode, done.stdout) == (1, "")
    assert "CTG_E_LOAD (-4): " in done.stderr
    assert name in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([], id="nothing"),
        pytest.param(["lib.so", "--text"], id="no-value"),
        pytest.param(["lib.so", "--sing", "x"], id="unknown"),
        pytest.param(["lib.so", "--text", "a", "--json", "b"], id="two-inputs"),
        pytest.param(["lib.so", "--text", "a", "--chunk-ms", "5"], id="chunks-of-text"),
        pytest.param(["lib.so", "--pcm", "a", "--chunk-ms", "0"], id="no-length"),
        pytest.param(["lib.so", "--pcm", "a", "--chunk-ms", "5x"], id="no-number"),
    ],
)
def test_error_usage(words: list[str], host: Path) -> None:
    """What is typed wrongly ends with status 2 and the usage."""
    done = run(host, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ctg_host LIBRARY")


def test_error_output_that_cannot_be_written(
    host: Path, make_native_pack: MakePack, tmp_path: Path
) -> None:
    """A full disk is no success."""
    library = library_of(make_native_pack("broken", tmp_path))
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [host, library, "--text", "tea"], stdout=full, stderr=-1, check=False, timeout=60
        )
    assert done.returncode == 1
    assert b"stdout: CTG_E_INTERNAL" in done.stderr
