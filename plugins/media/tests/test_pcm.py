"""Raw samples in chunks."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- arrays are what is read
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.errors import InvalidArgumentError, StateError
from cartridge_media.audio import read_audio
from cartridge_media.levels import alaw_levels, mulaw_levels
from cartridge_media.pcm import PCM_DTYPES, PcmReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from cartridge_media.levels import Floats

RATES_HZ = [8_000, 16_000, 44_100, 48_000, 11_025]


def raw(dtype: str, frames: int, channels: int = 1, seed: int = 0) -> NDArray[np.generic]:
    """Make noise, shape ``(frames, channels)``."""
    random = np.random.default_rng(seed)
    name = PCM_DTYPES[dtype]
    if name == "<f4":
        return random.uniform(-1, 1, (frames, channels)).astype("<f4")
    info = np.iinfo(name)
    return random.integers(info.min, info.max, (frames, channels), name, endpoint=True)


def pieces(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    """Cut bytes into pieces of these sizes, again and again."""
    cut, place = [], 0
    for size in cycle(sizes):
        cut.append(data[place : place + size])
        place += size
        if place >= len(data):
            return cut
    return cut


def read(reader: PcmReader, chunks: Iterable[object]) -> Floats:
    """Push all, flush, and join."""
    return np.concatenate([*(reader.push(chunk) for chunk in chunks), reader.flush()])


A14 = [
    pytest.param("int16", 16_000, 1, (333, 7, 1, 1001), id="a14-int16-pieces-that-split-samples"),
    pytest.param("int16", 16_000, 1, (1,), id="a14-byte-by-byte"),
    pytest.param("int16", 16_000, 2, (335, 5, 1002), id="a14-stereo-frames-torn-in-two"),
    pytest.param("int32", 48_000, 1, (1021, 2, 1), id="a14-int32-resampled"),
    pytest.param("float32", 44_100, 2, (4093, 3), id="a14-floats-resampled-stereo"),
    pytest.param("uint8", 8_000, 3, (212, 2, 1), id="a14-three-channels-of-bytes"),
    pytest.param("mulaw", 8_000, 1, (160, 1, 320), id="a14-mulaw-of-a-telephone"),
]


@pytest.mark.parametrize(("dtype", "rate_hz", "channels", "sizes"), A14)
def test_pieces_give_the_samples_of_the_whole(
    dtype: str, rate_hz: int, channels: int, sizes: tuple[int, ...]
) -> None:
    """One second in pieces is, bit by bit, one second at once."""
    data = raw(dtype, rate_hz, channels).tobytes()
    whole = read(PcmReader(dtype, rate_hz, channels), [data])
    assert len(whole) == 16_000
    assert np.array_equal(read(PcmReader(dtype, rate_hz, channels), pieces(data, sizes)), whole)


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(sorted(PCM_DTYPES)),
    rate_hz=st.sampled_from(RATES_HZ) | st.integers(1_000, 200_000),
    channels=st.integers(1, 3),
    frames=st.integers(0, 3_000),
    sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=8),
)
def test_the_cuts_do_not_matter(
    dtype: str, rate_hz: int, channels: int, frames: int, sizes: list[int]
) -> None:
    """Whatever is declared and wherever it is cut, the samples are the same bits."""
    data = raw(dtype, frames, channels, seed=frames).tobytes()
    whole = read(PcmReader(dtype, rate_hz, channels), [data])
    assert np.array_equal(read(PcmReader(dtype, rate_hz, channels), pieces(data, sizes)), whole)


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32"])
def test_chunks_follow_the_rule_of_files(dtype: str, rate_hz: int) -> None:
    """The same samples given at once, as an array, are the same sound."""
    samples = raw(dtype, 5_000, 2)
    chunks = [samples[:7], samples[7:4_000], samples[4_000:]]
    known = read_audio(samples, rate_hz=rate_hz)
    assert np.array_equal(read(PcmReader(dtype, rate_hz, 2), chunks), known)
    assert np.array_equal(read(PcmReader(dtype, rate_hz, 2), [samples.tobytes()]), known)


@pytest.mark.parametrize("dtype", ["mulaw", "alaw"])
def test_telephone_bytes_are_looked_up(dtype: str) -> None:
    """By G.711's table; an array of them has dtype uint8."""
    every = np.arange(256, dtype=np.uint8)
    known = mulaw_levels() if dtype == "mulaw" else alaw_levels()
    assert np.array_equal(read(PcmReader(dtype, 16_000), [every]), known)
    assert np.array_equal(read(PcmReader(dtype, 16_000), [every.tobytes()]), known)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_every_kind(kind: type) -> None:
    """They are read as they are, and not kept."""
    data = raw("int16", 100).tobytes()
    known = np.frombuffer(data, np.int16) / np.float32(32768)
    assert np.array_equal(read(PcmReader("int16", 16_000), [kind(data)]), known)


def test_an_array_shares_no_memory_with_what_comes_out() -> None:
    """Whoever fills one buffer again and again is safe."""
    samples = np.full(10, 0.5, np.float32)
    ready = PcmReader("float32", 16_000).push(samples)
    samples[:] = 0
    assert ready.tolist() == [0.5] * 10


def test_nothing_is_no_error() -> None:
    """No chunks, and empty ones, give no samples."""
    for rate_hz in RATES_HZ:
        assert not len(read(PcmReader("int16", rate_hz), []))
        assert not len(read(PcmReader("int16", rate_hz), [b"", np.empty(0, np.int16)]))


DANGLING = [
    pytest.param("int16", 1, 1, "1 of its 2 bytes", id="a14-dangling-byte"),
    pytest.param("int16", 2, 2, "2 of its 4 bytes", id="a14-dangling-channel"),
    pytest.param("int32", 1, 3, "3 of its 4 bytes", id="a14-dangling-three-bytes"),
    pytest.param("float32", 2, 7, "7 of its 8 bytes", id="a14-dangling-floats"),
]


@pytest.mark.parametrize(("dtype", "channels", "left", "said"), DANGLING)
def test_error_half_a_frame_at_the_end(dtype: str, channels: int, left: int, said: str) -> None:
    """It is never filled up and never dropped; what is missing may still come."""
    data = raw(dtype, 11, channels).tobytes()
    missing = len(data) // 11 - left
    reader = PcmReader(dtype, 16_000, channels)
    first = reader.push(data[:-missing])
    with pytest.raises(InvalidArgumentError, match=f"inside a frame: {said}.* after 10 whole"):
        reader.flush()
    joined = np.concatenate([first, reader.push(data[-missing:]), reader.flush()])
    assert np.array_equal(joined, read(PcmReader(dtype, 16_000, channels), [data]))


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        pytest.param("text", "'text' is no chunk", id="text"),
        pytest.param([1, 2], "the list is no chunk", id="list"),
        pytest.param(None, "the NoneType is no chunk", id="none"),
        pytest.param(np.zeros((4, 2), np.int32), "not of the declared dtype, int16", id="wider"),
        pytest.param(np.zeros((4, 2)), "not of the declared dtype, int16", id="floats"),
        pytest.param(np.zeros(8, np.int16), r"give \(frames, 2\)", id="interleaved-array"),
        pytest.param(np.zeros((2, 4), np.int16), r"give \(frames, 2\)", id="channels-first"),
        pytest.param(np.zeros((4, 2, 1), np.int16), r"give \(frames, 2\)", id="three-axes"),
        pytest.param(np.zeros((), np.int16), r"give \(frames, 2\)", id="no-axis"),
    ],
)
def test_error_a_chunk_that_was_not_declared(chunk: object, said: str) -> None:
    """It is refused, and changes nothing."""
    samples = raw("int16", 100, 2)
    reader = PcmReader("int16", 16_000, 2)
    first = reader.push(samples[:60])
    with pytest.raises(InvalidArgumentError, match=f"^audio: .*{said}"):
        reader.push(chunk)
    joined = np.concatenate([first, reader.push(samples[60:]), reader.flush()])
    assert np.array_equal(joined, read_audio(samples, rate_hz=16_000))


def test_error_samples_that_are_no_sound() -> None:
    """The time counts from the first chunk, and the chunk may be pushed again without them."""
    reader = PcmReader("float32", 48_000)
    reader.push(np.zeros(48_000, np.float32))
    bad = np.zeros(480, np.float32)
    bad[240] = np.nan
    with pytest.raises(InvalidArgumentError, match=r"holds nan at 1\.005 s"):
        reader.push(bad)
    with pytest.raises(InvalidArgumentError, match=r"reaches 12,000 at 1\.000 s"):
        reader.push(np.full(480, 12_000, np.float32))
    reader.push(np.zeros(480, np.float32))


def test_error_an_array_after_half_a_frame() -> None:
    """Bytes and arrays may be mixed, but not inside a frame."""
    reader = PcmReader("int16", 16_000)
    reader.push(b"\0\0\0")
    with pytest.raises(InvalidArgumentError, match="follows 1 bytes of a frame"):
        reader.push(np.zeros(3, np.int16))
    assert len(reader.push(b"\0")) == 1
    assert len(reader.push(np.zeros(3, np.int16))) == 3


def test_error_after_flush() -> None:
    """A stream has one end."""
    reader = PcmReader("int16", 48_000)
    reader.push(b"\0" * 960)
    reader.flush()
    with pytest.raises(StateError, match="nothing may follow flush"):
        reader.push(b"")
    with pytest.raises(StateError, match="nothing may follow flush"):
        reader.flush()


@pytest.mark.parametrize(
    ("dtype", "rate_hz", "channels", "said"),
    [
        ("int24", 16_000, 1, "dtype: must be one of uint8, int16, .* found 'int24'"),
        ("int16", 0, 1, "rate_hz: must be 1,000 to 768,000, found 0"),
        ("int16", 4_000_000_000, 1, "rate_hz: must be 1,000 to 768,000, found 4,000,000,000"),
        ("int16", 16_000, 0, "channels: must be 1 to 64, found 0"),
        ("int16", 16_000, 65, "channels: must be 1 to 64, found 65"),
    ],
)
def test_error_what_cannot_be_declared(dtype: str, rate_hz: int, channels: int, said: str) -> None:
    """The message says what can be."""
    with pytest.raises(InvalidArgumentError, match=said):
        PcmReader(dtype, rate_hz, channels)


def test_hours_take_no_memory() -> None:
    """What has come out is not kept: a quarter of an hour ends with the memory it began with."""
    import tracemalloc

    reader = PcmReader("int16", 48_000)
    chunk = bytes(2 * 48_000 * 10)
    reader.push(chunk)
    tracemalloc.start()
    for _ in range(90):
        reader.push(chunk)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1_000_000
