"""Arrays: the dtype says what is white, the shape says what a channel is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np  # noqa: TID253 -- arrays are what is read
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cartridge_core.errors import InvalidArgumentError
from cartridge_media.images import read_image

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

SIDES = st.integers(1, 6)
SHAPES = st.one_of(
    st.tuples(SIDES, SIDES),
    st.tuples(SIDES, SIDES, st.just(1)),
    st.tuples(SIDES, SIDES, st.just(3)),
)
BYTES = SHAPES.flatmap(lambda shape: hnp.arrays(np.uint8, shape))


def samples(value: object) -> NDArray[np.uint8]:
    """Read, and give the samples back."""
    return np.asarray(read_image(value))


def as_rgb(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Give grey samples three equal channels."""
    channels = array[:, :, None] if array.ndim == 2 else array
    return np.broadcast_to(channels, (*channels.shape[:2], 3))


@given(BYTES)
def test_bytes_come_back(array: NDArray[np.uint8]) -> None:
    """8-bit samples are kept, grey in all three channels."""
    assert np.array_equal(samples(array), as_rgb(array))


@given(BYTES, st.sampled_from([np.float16, np.float32, np.float64]))
def test_floats_of_bytes_come_back(array: NDArray[np.uint8], dtype: type[np.floating]) -> None:
    """Divided by 255 in any precision, 256 levels are 256 levels."""
    floats = (array.astype(np.float64) / 255).astype(dtype)
    assert np.array_equal(samples(floats), as_rgb(array))


@given(BYTES, st.integers(0, 255), st.sampled_from("<>"))
def test_the_upper_half_of_16_bits_counts(array: NDArray[np.uint8], low: int, order: str) -> None:
    """Whatever the lower half is, in either byte order."""
    deep = (array.astype(np.uint16) << 8 | low).astype(f"{order}u2")
    assert np.array_equal(samples(deep), as_rgb(array))


@given(SHAPES.flatmap(lambda shape: hnp.arrays(np.bool_, shape)))
def test_true_is_white(array: NDArray[np.bool_]) -> None:
    """And false is black."""
    assert np.array_equal(samples(array), as_rgb(array.astype(np.uint8) * 255))


@given(hnp.arrays(np.uint8, st.tuples(SIDES, SIDES, st.just(4))))
def test_alpha_lies_over_white(array: NDArray[np.uint8]) -> None:
    """Each sample is the exact mixture, to the nearest level."""
    alpha = array[:, :, 3:] / 255
    mixture = array[:, :, :3] * alpha + 255 * (1 - alpha)
    assert np.abs(samples(array).astype(float) - mixture).max() <= 0.51


@given(hnp.arrays(np.float32, st.tuples(SIDES, SIDES), elements=st.floats(0, 1, width=32)))
def test_floats_go_to_the_nearest_level(array: NDArray[np.float32]) -> None:
    """None is off by more than half a level."""
    read = samples(array)[:, :, 0].astype(float)
    assert np.abs(read - array.astype(float) * 255).max() <= 0.5001


def test_16_bits_of_alpha() -> None:
    """Deep RGBA is scaled, then laid over white."""
    array = np.array([[[65535, 0, 0, 65535], [0, 0, 0, 0]]], np.uint16)
    assert read_image(array).tobytes() == b"\xff\0\0\xff\xff\xff"


LAYOUTS = [
    pytest.param(np.asfortranarray, id="fortran"),
    pytest.param(lambda array: array[::-1][::-1], id="negative-strides"),
    pytest.param(lambda array: np.repeat(array, 2, axis=1)[:, ::2], id="steps"),
    pytest.param(lambda array: np.moveaxis(np.moveaxis(array, 2, 0).copy(), 0, 2), id="planes"),
    pytest.param(lambda array: np.lib.stride_tricks.as_strided(array, writeable=False), id="view"),
]


@pytest.mark.parametrize("lay", LAYOUTS)
def test_the_layout_in_memory_does_not_count(
    lay: Callable[[NDArray[np.uint8]], NDArray[np.uint8]],
) -> None:
    """Any strides, and an array that may not be written."""
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    assert np.array_equal(samples(lay(array)), array)


def test_a_float_array_of_black_is_no_riddle() -> None:
    """Values do not say what the scale is: 1 is black in bytes and white in floats."""
    assert read_image(np.ones((1, 1), np.uint8)).getpixel((0, 0)) == (1, 1, 1)
    assert read_image(np.ones((1, 1), np.float32)).getpixel((0, 0)) == (255, 255, 255)
    assert read_image(np.ones((1, 1), np.uint16)).getpixel((0, 0)) == (0, 0, 0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("value", "found"),
    [
        (np.nan, "from nan to nan"),
        (np.inf, "from 0 to inf"),
        (-np.inf, "from -inf to 0"),
        (255, "from 0 to 255"),
        (1.01, "from 0 to 1.0"),
        (-0.1, "from -0."),
    ],
)
def test_error_floats_out_of_range(dtype: type[np.floating], value: float, found: str) -> None:
    """The message says the range that was found, and what to give."""
    array = np.zeros((2, 2, 3), dtype)
    array[1, 0, 2] = value
    with pytest.raises(InvalidArgumentError, match=found) as caught:
        read_image(array)
    assert f"shape (2, 2, 3) and dtype {np.dtype(dtype)}" in str(caught.value)


@pytest.mark.parametrize(
    "dtype",
    ["int8", "int16", "int32", "int64", "uint32", "uint64", "complex64", "O", "U3", "M8[s]"],
)
def test_error_other_dtypes(dtype: str) -> None:
    """They do not say what is white."""
    with pytest.raises(InvalidArgumentError, match="give uint8, uint16, bool, or floats"):
        read_image(np.zeros((2, 2), dtype))


@pytest.mark.parametrize(
    ("shape", "advice"),
    [
        ((), "wrong shape"),
        ((5,), "wrong shape"),
        ((4, 4, 2), "wrong shape"),
        ((4, 4, 5), "wrong shape"),
        ((3, 8, 8), "channels come last"),
        ((1, 8, 8), "channels come last"),
        ((1, 8, 8, 3), "one picture at a time"),
        ((0, 4), "has no pixels"),
        ((4, 0, 3), "has no pixels"),
    ],
)
def test_error_other_shapes(shape: tuple[int, ...], advice: str) -> None:
    """The message says the shape, and what to do about it."""
    with pytest.raises(InvalidArgumentError, match=advice) as caught:
        read_image(np.zeros(shape, np.uint8))
    assert str(shape) in str(caught.value)


def test_error_an_array_too_large() -> None:
    """The limit holds for arrays too; nothing is copied before."""
    array = np.broadcast_to(np.uint8(0), (100_000, 100_000, 3))
    with pytest.raises(
        InvalidArgumentError, match=r"has 10,000,000,000 pixels \(100000 x 100000\)"
    ):
        read_image(array)
    assert read_image(array[:10, :10], max_pixels=100).size == (10, 10)


def test_error_a_tensor_is_told_to_be_an_array() -> None:
    """Other libraries' arrays are not guessed at; the message says what they are."""

    class Tensor:
        shape = (2, 2)
        dtype = "torch.float32"

    with pytest.raises(InvalidArgumentError, match=r"the Tensor of shape \(2, 2\) .* numpy array"):
        read_image(Tensor())
