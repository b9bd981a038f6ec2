"""Frames: what crosses comes back as it was, and nothing else that comes does any harm."""

from __future__ import annotations

import io
import json
import math
import mmap
import struct
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import hypothesis.strategies as st
import numpy as np  # noqa: TID253 -- arrays are what is tested
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as arrays

from cartridge_core import packing, wire
from cartridge_core.errors import InvalidArgumentError
from cartridge_core.packing import MAX_NESTING, MalformedError
from cartridge_core.records import Record
from cartridge_core.wire import MAX_BUFFERS, MAX_FRAME_BYTES, MAX_HEADER_BYTES, Receiver, encode


class Pipe:
    """A stream of some bytes, a few at a time."""

    def __init__(self, data, step=None):
        self._data = io.BytesIO(data)
        self._step = step

    def receive_into(self, room):
        return self._data.readinto(room[: self._step])


def sent(*values, kind="kind", number=7):
    """Give the bytes of a frame."""
    return b"".join(bytes(piece) for piece in encode(kind, number, values))


def received(data, step=None):
    """Give all frames in some bytes."""
    frames, end = read_all(data, step)
    assert isinstance(end, EOFError)
    return frames


def read_all(data, step=None):
    """Give all frames in some bytes, and what ended them."""
    receiver = Receiver(Pipe(data, step).receive_into)
    frames = []
    try:
        while True:
            frames.append(receiver.receive())
    except (EOFError, MalformedError) as exc:
        return frames, exc


def crossed(value, step=None):
    """Give a value as it comes out on the other side."""
    ((kind, number, values),) = received(sent(value), step)
    assert (kind, number) == ("kind", 7)
    return values[0]


def same(one, other):
    """Compare two values, arrays and NaN included, and their types."""
    if isinstance(one, np.ndarray):
        fits = isinstance(other, np.ndarray) and (one.dtype, one.shape) == (
            other.dtype,
            other.shape,
        )
        return fits and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)
NUMBERS = arrays.arrays(
    st.one_of(
        arrays.boolean_dtypes(),
        arrays.integer_dtypes(endianness="?"),
        arrays.unsigned_integer_dtypes(endianness="?"),
        arrays.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
        arrays.complex_number_dtypes(endianness="?", sizes=(64, 128)),
    ),
    arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    TEXTS,
    st.binary(max_size=50),
    NUMBERS,
    st.lists(TEXTS.filter(lambda text: "\0" not in text and text.isascii()), max_size=3).map(
        lambda parts: Path("/", *parts)
    ),
)
KEYS = st.one_of(st.sampled_from(["$b", "$t", "$p", "$$b", "$", "dtype", "shape"]), TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(VALUES, st.one_of(st.none(), st.integers(1, 50)))
def test_every_plain_value_comes_back(value, step):
    """Whatever pieces its bytes come in."""
    assert same(crossed(value, step), value)


@settings(deadline=None)
@given(st.lists(VALUES, max_size=5), st.one_of(st.none(), st.integers(1, 200)))
def test_frames_keep_apart_and_in_order(values, step):
    """Several frames come as they were sent."""
    data = b"".join(sent(value, number=number) for number, value in enumerate(values))
    frames = received(data, step)
    assert [number for _, number, _ in frames] == list(range(len(values)))
    assert all(same(found[0], value) for (_, _, found), value in zip(frames, values, strict=True))


@settings(deadline=None, max_examples=300)
@given(VALUES, st.data())
def test_error_damaged_frame_is_malformed_or_another(value, data):
    """A byte that changed, is lost or is too much gives a named error or some other value."""
    good = bytearray(sent(value))
    place = data.draw(st.integers(0, len(good) - 1))
    match data.draw(st.sampled_from(["change", "cut", "remove", "insert"])):
        case "change":
            good[place] ^= data.draw(st.integers(1, 255))
        case "cut":
            del good[place:]
        case "remove":
            del good[place]
        case "insert":
            good.insert(place, data.draw(st.integers(0, 255)))
    assert read_all(bytes(good))


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_error_any_header_is_malformed_or_a_frame(text):
    """Whatever a header holds, it is read or refused."""
    assert read_all(struct.pack(">I", len(text)) + text)


def header(*parts):
    """Give a frame whose header is a list of these."""
    text = json.dumps(parts).encode()
    return struct.pack(">I", len(text)) + text


ARRAY = {"$b": 0, "dtype": "<f4", "shape": [1]}
MALFORMED = [
    pytest.param(struct.pack(">I", MAX_HEADER_BYTES + 1), "a header of", id="long-header"),
    pytest.param(struct.pack(">I", 3) + b"\xff\xff\xff", "no text", id="no-utf-8"),
    pytest.param(struct.pack(">I", 4) + b"what", "not JSON", id="no-json"),
    pytest.param(struct.pack(">I", 4) + b"[] x", "not \\[kind", id="more-behind"),
    pytest.param(header("a", 1, []), "not \\[kind", id="too-few"),
    pytest.param(header("a", 1, [], [], []), "not \\[kind", id="too-many"),
    pytest.param(header(1, 1, [], []), "not \\[kind", id="kind"),
    pytest.param(header("a", True, [], []), "not \\[kind", id="bool-number"),
    pytest.param(header("a", -1, [], []), "not \\[kind", id="negative-number"),
    pytest.param(header("a", 2**63, [], []), "not \\[kind", id="huge-number"),
    pytest.param(header("a", 1, {}, []), "not \\[kind", id="values"),
    pytest.param(header("a", 1, [], [-1]), "buffers of", id="negative-size"),
    pytest.param(header("a", 1, [], [True]), "buffers of", id="bool-size"),
    pytest.param(header("a", 1, [], [1.0]), "buffers of", id="float-size"),
    pytest.param(header("a", 1, [], [MAX_FRAME_BYTES + 1]), "buffers of", id="large-buffer"),
    pytest.param(header("a", 1, [], [2**30] * 5), "buffers of", id="large-buffers"),
    pytest.param(header("a", 1, [], [0] * (MAX_BUFFERS + 1)), "buffers of", id="many-buffers"),
    pytest.param(header("a", 1, [{"$b": 0}], []), "in buffer 0 of 0", id="no-buffer"),
    pytest.param(header("a", 1, [{"$b": -1}], [0]), "in buffer -1", id="negative-buffer"),
    pytest.param(header("a", 1, [{"$b": "0"}], [0]), "in buffer '0'", id="text-buffer"),
    pytest.param(header("a", 1, [{"$b": 0, "x": 1}], [0]), "the fields x", id="field"),
    pytest.param(header("a", 1, [{"$x": 0}], []), "the key '\\$x'", id="unknown-mark"),
    pytest.param(header("a", 1, [{"$t": 0}], []), "the key '\\$t'", id="tuple-of-nothing"),
    pytest.param(header("a", 1, [{**ARRAY, "dtype": "O"}], [8]) + bytes(8), "'O'", id="objects"),
    pytest.param(header("a", 1, [{**ARRAY, "dtype": "<f3"}], [3]) + bytes(3), "'<f3'", id="f3"),
    pytest.param(header("a", 1, [ARRAY], [5]) + bytes(5), "in 5 bytes", id="size"),
    pytest.param(
        header("a", 1, [{**ARRAY, "shape": [-1]}], [4]) + bytes(4), "shape", id="negative-shape"
    ),
    pytest.param(header("a", 1, [{**ARRAY, "shape": [0, 2**70]}], [0]), "shape", id="huge-shape"),
    pytest.param(header("a", 1, [{**ARRAY, "shape": [0] * 99}], [0]), "shape", id="many-dims"),
]


@pytest.mark.parametrize(("data", "words"), MALFORMED)
def test_error_malformed(data, words):
    """Each way to be no frame is refused in words of its own."""
    receiver = Receiver(Pipe(data).receive_into)
    with pytest.raises(MalformedError, match=words):
        receiver.receive()
    with pytest.raises((MalformedError, EOFError)):
        receiver.receive()


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, '{"a":' * 5000 + "1" + "}" * 5000])
def test_error_nests_too_deep(text):
    """What nests deeper than the limit is refused, however deep."""
    for value in (text, "[" * (MAX_NESTING + 3) + "]" * (MAX_NESTING + 3)):
        data = f'["a",1,[{value}],[]]'.encode()
        with pytest.raises(MalformedError, match=r"nests deeper|not JSON"):
            Receiver(Pipe(struct.pack(">I", len(data)) + data).receive_into).receive()


def test_memory_is_taken_as_bytes_come():
    """A frame that promises much and sends little takes little."""
    program = f"""
import struct
from cartridge_core.wire import Receiver
limit = 3 * 2**30 + 600 * 2**20
header = b'["a",1,[{{"$b":0}}],[{3 * 2**30}]]'
data = iter([struct.pack(">I", len(header)) + header, bytes(1000), b""])
def receive_into(room):
    piece = next(data)
    room[: len(piece)] = piece
    return len(piece)
try:
    Receiver(receive_into).receive()
except EOFError:
    # Not ru_maxrss, which is that of the process that started this one, where that had more.
    print(next(line.split()[1] for line in open("/proc/self/status") if line[:6] == "VmHWM:"))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 200_000


def test_error_no_memory(monkeypatch):
    """Where the system has not what a frame promises, that is the frame's failure."""

    def refuse(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(MalformedError, match="no memory"):
        Receiver(Pipe(header("a", 1, [{"$b": 0}], [2**30])).receive_into).receive()


def test_a_buffer_beyond_what_is_taken_at_once(monkeypatch):
    """Large buffers come whole, bytes and arrays."""
    monkeypatch.setattr(wire, "_AT_ONCE_BYTES", 1000)
    monkeypatch.setattr(wire, "_CHUNK_BYTES", 500)
    numbers = np.arange(5000, dtype="<i4")
    found = crossed({"bytes": b"x" * 3000, "numbers": numbers, "text": "y" * 2000}, 700)
    assert same(found, {"bytes": b"x" * 3000, "numbers": numbers, "text": "y" * 2000})


STRIDED = np.arange(24, dtype=">f8").reshape(4, 6)[::2, ::-3]
AS_PLAIN = [
    pytest.param(Record({"a": {"b": [1]}}), {"a": {"b": [1]}}, id="record"),
    pytest.param(MappingProxyType({"$b": 1}), {"$b": 1}, id="mapping"),
    pytest.param(bytearray(b"ab"), b"ab", id="bytearray"),
    pytest.param(memoryview(b"abcd")[::2], b"ac", id="strided-memory"),
    pytest.param(memoryview(b""), b"", id="no-memory"),
    pytest.param(np.float32(0.5), 0.5, id="numpy-float"),
    pytest.param(np.int16(-3), -3, id="numpy-int"),
    pytest.param(np.bool_(1), True, id="numpy-bool"),
    pytest.param(STRIDED, STRIDED.copy(), id="strided"),
    pytest.param(STRIDED.T, STRIDED.T.copy(), id="transposed"),
]


@pytest.mark.parametrize(("value", "expected"), AS_PLAIN)
def test_what_is_as_good_as_plain(value, expected):
    """Mappings, buffers and numpy's own numbers arrive as what they stand for."""
    assert same(crossed([value])[0], expected)


def test_what_has_an_array_crosses():
    """A backend's own tensor arrives as the array it gives."""

    class Tensor:
        def __array__(self, dtype=None, copy=None):
            return np.ones(3, dtype="f4")

    assert same(crossed(Tensor()), np.ones(3, dtype="f4"))


def test_array_can_be_written_to():
    """An array that arrives is its owner's."""
    array = crossed(np.zeros(3))
    array[0] = 1
    assert array.tolist() == [1, 0, 0]


def test_sending_copies_no_array():
    """A contiguous array is sent from where it is."""
    array = np.zeros(100)
    (_, piece) = encode("kind", 1, [array])
    assert np.shares_memory(np.frombuffer(piece), array)


class Own:
    """No plain value."""


CYCLE: list[object] = []
CYCLE.append(CYCLE)
REFUSED = [
    pytest.param({"a": [1, {2}]}, "value.a[1]", "is a set", id="set"),
    pytest.param([Own()], "value[0]", "test_wire.Own", id="own-class"),
    pytest.param({"a": {1: 2}}, "value.a", "has the key 1", id="key"),
    pytest.param([0, 1j], "value[1]", "is a complex", id="complex"),
    pytest.param({"a b": np.array(["x"])}, 'value["a b"]', "dtype <U1", id="text-array"),
    pytest.param(np.array([None]), "value", "dtype object", id="object-array"),
    pytest.param(np.ma.masked_array([1]), "value", "MaskedArray; give a plain", id="masked"),
    pytest.param([np.datetime64("2020-01-01")], "value[0]", "is a datetime.date", id="date"),
    pytest.param({"n": [10**5000]}, "value.n[0]", "cannot be written", id="huge-int"),
    pytest.param(CYCLE, "value" + "[0]" * (MAX_NESTING - 1), "nests deeper", id="cycle"),
]


@pytest.mark.parametrize(("value", "where", "words"), REFUSED)
def test_error_what_cannot_cross(value, where, words):
    """The error names the innermost place and what stands there."""
    with pytest.raises(InvalidArgumentError) as caught:
        encode("infer", 1, [3, value], ("session", "value"))
    assert caught.value.arg == where
    assert words in str(caught.value)
    assert "cannot cross" in str(caught.value)


def test_error_too_large(monkeypatch):
    """What is larger than a limit is refused before it is sent."""
    monkeypatch.setattr(wire, "MAX_HEADER_BYTES", 100)
    with pytest.raises(InvalidArgumentError, match="give many numbers as an array"):
        encode("a", 1, [list(range(100))])
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", 1000)
    with pytest.raises(InvalidArgumentError, match="at most 1000 bytes"):
        encode("a", 1, [bytes(1000)])
    monkeypatch.setattr(wire, "MAX_BUFFERS", 2)
    with pytest.raises(InvalidArgumentError, match="at most 2 arrays"):
        encode("a", 1, [b"a", b"b", b"c"])


def test_numpy_is_imported_for_arrays_alone():
    """Values without an array cross where numpy is not installed."""
    program = """
import sys
from cartridge_core.wire import Receiver, encode
data = b"".join(encode("a", 1, [{"b": b"x", "t": (1,)}]))
def receive_into(room):
    room[: len(data)] = data
    return len(data)
assert Receiver(receive_into).receive()[2] == [{"b": b"x", "t": (1,)}]
assert "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_limits_are_consistent():
    """What may be sent may be received."""
    assert MAX_HEADER_BYTES < 2**32
    assert sys.getrecursionlimit() > packing.MAX_NESTING * 4
