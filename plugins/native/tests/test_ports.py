"""Values become the bytes that a port declares, and bytes become values."""

from __future__ import annotations

import ctypes
import json

import numpy as np  # noqa: TID253 -- arrays are values
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cartridge_core.descriptor import Port
from cartridge_core.errors import AbiMismatchError, BackendError, InvalidArgumentError
from cartridge_core.records import Record
from cartridge_core.urn import MediaUrn
from cartridge_native.ports import Coder, coder_of

NUMBERS = ["bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64"]
NUMBERS += ["uint8", "uint16", "uint32", "uint64"]


def coder(
    dtype: str, shape: tuple[int | None, ...] | None = None, media: str | None = None
) -> Coder:
    urn = None if media is None else MediaUrn.parse(media)
    return coder_of(Port(dtype, shape), urn, "io.input")


def sent(made: Coder, value: object) -> bytes:
    """Give what a library reads: the bytes, or as many from where an array begins."""
    data = made.encode(value)
    if isinstance(data, bytes):
        return data
    return ctypes.string_at(data.__array_interface__["data"][0], data.nbytes)


@pytest.mark.parametrize(
    ("dtype", "media", "value", "data"),
    [
        pytest.param("utf8", "media:enc=utf-8", "naïve 茶", "naïve 茶".encode(), id="text"),
        pytest.param("utf8", None, "", b"", id="empty-text"),
        pytest.param(
            "utf8", "media:enc=utf-8;record", {"a": "ü"}, b'{"a": "\xc3\xbc"}', id="record"
        ),
        pytest.param("utf8", "media:integer;numeric", 12, b"12", id="integer"),
        pytest.param("utf8", "media:enc=utf-8;list", ["a", "b"], b'["a", "b"]', id="list"),
        pytest.param(
            "json", None, Record({"a": [1, {"b": None}]}), b'{"a": [1, {"b": null}]}', id="json"
        ),
        pytest.param("bytes", None, bytearray(b"\0\xff"), b"\0\xff", id="bytes"),
        pytest.param("int16", None, [1, -2], b"\x01\0\xfe\xff", id="list-of-numbers"),
        pytest.param("int16", None, b"\x01\0\xfe\xff", b"\x01\0\xfe\xff", id="raw-numbers"),
        pytest.param("float32", None, np.array([1.0], ">f4"), b"\0\0\x80\x3f", id="big-endian"),
        pytest.param("float32", None, None, b"", id="nothing"),
    ],
)
def test_values_as_bytes(dtype: str, media: str | None, value: object, data: bytes) -> None:
    """What a value is for the library."""
    assert sent(coder(dtype, media=media), value) == data


@pytest.mark.parametrize(
    ("dtype", "shape", "value", "words"),
    [
        pytest.param(
            "utf8", None, b"tea", "type bytes, and io.input is a text", id="bytes-as-text"
        ),
        pytest.param("utf8", None, "\ud800", "not Unicode", id="lone-surrogate"),
        pytest.param("bytes", None, "tea", "io.input is bytes", id="text-as-bytes"),
        pytest.param("json", None, {"a": float("nan")}, "JSON cannot carry", id="nan-in-json"),
        pytest.param("json", None, {"a": object()}, "JSON cannot carry", id="object-in-json"),
        pytest.param("int16", None, [40_000], "numbers beyond that", id="too-large"),
        pytest.param("uint8", None, [-1], "numbers beyond that", id="negative"),
        pytest.param("float16", None, [1e9], "numbers beyond that", id="too-large-a-float"),
        pytest.param("int16", None, [0.5], "its dtype is float64", id="fractions"),
        pytest.param("int16", None, [[1], [2, 3]], "it is no array", id="ragged"),
        pytest.param("int16", None, ["a"], "its dtype is <U1", id="texts"),
        pytest.param("int16", None, "sound.wav", "nothing is decoded here", id="path"),
        pytest.param("int16", None, b"\0\0\0", "3 are none", id="half-a-number"),
        pytest.param("float32", (None, 2), [1.0, 2.0], r"its shape is \[2\]", id="axes"),
        pytest.param("float32", (None, 2), [[1.0]], r"its shape is \[1, 1\]", id="width"),
        pytest.param("float32", (2,), [1.0, 2.0, 3.0], r"its shape is \[3\]", id="length"),
        pytest.param("float32", (None, 2), b"\0" * 12, "12 are none", id="half-a-row"),
        pytest.param("float32", (2,), b"\0" * 16, "16 are none", id="too-many-bytes"),
    ],
)
def test_error_values_that_a_port_does_not_take(
    dtype: str, shape: tuple[int | None, ...] | None, value: object, words: str
) -> None:
    """The error says what was given, and what the port takes."""
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        coder(dtype, shape).encode(value)
    assert caught.value.arg == "value"


@pytest.mark.parametrize(
    ("dtype", "shape", "payload", "words"),
    [
        pytest.param("utf8", None, b"\xff", "a text in UTF-8", id="not-utf8"),
        pytest.param("json", None, b"{", "is not JSON", id="not-json"),
        pytest.param("json", None, b"NaN", "is JSON", id="nan"),
        pytest.param("json", None, b'{"a": 1, "a": 2}', "is JSON", id="key-twice"),
        pytest.param("json", None, b"[" * 100_000, "is JSON", id="deep"),
        pytest.param("json", None, b"\xff", "is JSON", id="json-not-utf8"),
        pytest.param("json", None, b"", "is not JSON", id="empty-json"),
        pytest.param("float32", None, b"\0" * 5, "gave 5 bytes", id="half-a-number"),
        pytest.param("float32", (None, 2), b"\0" * 12, "gave 12 bytes", id="half-a-row"),
        pytest.param("float32", (2,), b"\0" * 4, "gave 4 bytes", id="too-few"),
        pytest.param("float32", (2,), b"", "gave 0 bytes", id="none"),
        pytest.param("float32", (None, 0), b"\0" * 4, "gave 4 bytes", id="no-width"),
    ],
)
def test_error_bytes_that_are_not_what_the_descriptor_says(
    dtype: str, shape: tuple[int | None, ...] | None, payload: bytes, words: str
) -> None:
    """The library is at fault, and the error says what it gave."""
    with pytest.raises(BackendError, match=words):
        coder(dtype, shape).decode(payload)


@pytest.mark.parametrize("dtype", NUMBERS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_arrays_come_back(dtype: str, data: st.DataObject) -> None:
    """An array of any shape that the port allows arrives as it was, and may be written to."""
    rows, width = data.draw(st.integers(0, 5)), data.draw(st.integers(1, 4))
    raw = data.draw(st.binary(min_size=rows * width * 8, max_size=rows * width * 8))
    array = np.frombuffer(raw, np.uint8)[: rows * width].reshape(rows, width).astype(dtype)
    made = coder(dtype, (None, width))
    back = made.decode(sent(made, array))
    assert isinstance(back, np.ndarray)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert np.array_equal(back, array)
    assert back.flags.writeable


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_json_comes_back(value: object) -> None:
    """JSON arrives as it was."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    made = coder("json")
    assert made.decode(sent(made, value)) == value


def test_an_array_that_is_as_it_must_be_is_lent() -> None:
    """No copy is made of what the library can read where it stands."""
    array = np.arange(4, dtype=np.float32)
    assert coder("float32").encode(array) is array


def test_a_strided_array_is_made_whole() -> None:
    """Every other sample is not what stands in memory."""
    array = np.arange(6, dtype=np.int16)[::2]
    assert sent(coder("int16"), array) == np.array([0, 2, 4], "<i2").tobytes()


@pytest.mark.parametrize(
    ("dtype", "shape", "words"),
    [
        pytest.param("pcm16", None, "'pcm16', which is not known", id="unknown"),
        pytest.param("complex64", None, "not known", id="complex"),
        pytest.param("float32", (None, None), "2 axes open", id="two-open-axes"),
    ],
)
def test_error_ports_that_the_abi_cannot_carry(
    dtype: str, shape: tuple[int | None, ...] | None, words: str
) -> None:
    """What a buffer of bytes does not say is refused before anything is opened."""
    with pytest.raises(AbiMismatchError, match=words):
        coder(dtype, shape)
